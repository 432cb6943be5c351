#include "diagnose/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "core/parallel_for.h"
#include "diagnose/golden_section.h"

namespace regard::internal {
namespace {

// A rounding bound is statistical: this part of the rows may leave it, by at most this factor.
constexpr double kOutlierRows = 0.01, kOutlierFactor = 3;

// A hypothesis that computes what the contract computes, with wider bounds, explains nothing: it must leave less than this.
constexpr double kNeededImprovement = 0.5;

// A hypothesis computed in low precision must leave this part of the contract's misfit at most. A quarter let pairs pass that were only near.
constexpr double kLooseImprovement = 0.1;

// Multiplications that all pairs together may cost, about twenty seconds on one core.
constexpr double kPairBudget = 3e10;
constexpr double kSolvingPrice = 200;  // evaluations that solving for a constant takes
constexpr std::size_t kPairVariationsPerFault = 32;

// A solved constant is known up to the rounding of what it was solved from, which adds to the differences.
constexpr double kSolvedSlack = 1.15;

double SlackOf(int complexity) { return complexity >= 2 ? kSolvedSlack : 1; }

bool RowFits(const Fit& fit, Closeness closeness, int precision, double slack) {
  return fit.worst[closeness == Closeness::kTight ? 0 : precision] <= slack;
}

// The narrowest precision whose rounding does not explain the contract's misfit; 0 if even bf16 explains it.
int LoosePrecision(const Case& c) {
  const Fit base = c.Unedited();
  for (int p = kNumPrecisions - 1; p > static_cast<int>(Precision::kF32); --p) {
    if (!base.IsRounding(static_cast<Precision>(p))) return p;
  }
  return 0;
}

// What one row proves at most, in nats: its cells hang together. Where one key has nearly all of the weight, before or after, a row has
// few outcomes and proves little.
constexpr double kMostEvidenceOfRow = 6, kMostEvidenceOfOneKey = 0.5;

// A constant whose differences exceed their bounds by more than this, in the root mean square, is not worth more digits.
constexpr double kPromising = 100;

// The misfit of what cannot be held against the rows at all.
constexpr double kHopeless = 1e30;

// A first look at so many dimensions of the context rejects nearly everything at a tenth of the price.
constexpr std::int64_t kFirstLook = 8, kAllDims = std::int64_t{1} << 30;

class Prober {
 public:
  Prober(const Case& c, Closeness closeness)
      : case_(c), closeness_(closeness), precision_(closeness == Closeness::kLoose ? LoosePrecision(c) : 0) {}

  int precision() const { return precision_; }

  // Whether a variant fits every wrong probe.
  bool Fits(const Variant& v, int complexity, RowState* state) const {
    const double slack = SlackOf(complexity);
    double squares = 0, base = 0;
    if (!case_.wrong_rows().empty()) {
      state->max_dims = kFirstLook;
      const Fit fit = case_.Compare(v, case_.wrong_rows()[0], state);
      state->max_dims = kAllDims;
      if (fit.cells == 0 || !RowFits(fit, closeness_, precision_, slack)) return false;
    }
    for (std::size_t n = 0; n < case_.wrong_rows().size(); ++n) {
      const Fit fit = case_.Compare(v, case_.wrong_rows()[n], state);
      if (fit.cells == 0 || !RowFits(fit, closeness_, precision_, slack)) {
        if (closeness_ == Closeness::kTight && fit.cells > 0 && fit.worst[0] <= kOutlierFactor && n > 3) continue;
        return false;
      }
      if (closeness_ == Closeness::kTight) continue;
      squares += fit.absolute_squares;
      base += WrongFit(n).absolute_squares;
      if (!(squares <= kLooseImprovement * kLooseImprovement * base) && !std::isinf(WrongFit(n).largest)) return false;
    }
    return !case_.wrong_rows().empty();
  }

  // What constants are solved with. Σ difference² over the first `rows` probes: smooth, also far from the solution.
  double RoughMisfit(const Variant& v, std::size_t rows, RowState* state) const {
    double sum = 0;
    state->max_dims = kFirstLook;
    for (std::size_t n = 0; n < std::min(rows, case_.wrong_rows().size()); ++n) {
      const Fit fit = case_.Compare(v, case_.wrong_rows()[n], state);
      sum += std::isinf(fit.largest) || fit.cells == 0 ? kHopeless : fit.absolute_squares;
    }
    state->max_dims = kAllDims;
    return sum;
  }

  // The root mean square of difference / bound over `rows`: sharp near the solution.
  double FineMisfit(const Variant& v, std::span<const RowId> rows, RowState* state) const {
    Fit total;
    for (const RowId& row : rows) total.Add(case_.Compare(v, row, state));
    const bool hopeless = total.cells == 0 || std::isinf(total.worst[0]);
    return hopeless ? kHopeless : std::sqrt(total.squares[0] / static_cast<double>(total.cells));
  }

 private:
  Fit WrongFit(std::size_t n) const {
    const auto& rows = case_.rows();
    const auto at = std::lower_bound(rows.begin(), rows.end(), case_.wrong_rows()[n]) - rows.begin();
    return case_.unedited()[static_cast<std::size_t>(at)];
  }

  const Case& case_;
  Closeness closeness_;
  int precision_;
};

// The lowest of the `most` lowest valleys between the starts, refined; NaN if every start is hopeless.
template <typename Function>
double LowestValley(const Function& f, const std::vector<double>& starts, std::size_t most) {
  std::vector<double> values;
  std::vector<std::pair<double, std::size_t>> valleys;
  for (const double start : starts) values.push_back(f(start));
  for (std::size_t n = 0; n < starts.size(); ++n) {
    const bool is_valley = (n == 0 || values[n - 1] >= values[n]) && (n + 1 == starts.size() || values[n + 1] >= values[n]);
    if (is_valley && values[n] < kHopeless) valleys.push_back({values[n], n});
  }
  std::sort(valleys.begin(), valleys.end());
  double best = kNaN, least = kInfinity;
  for (std::size_t valley = 0; valley < std::min(valleys.size(), most); ++valley) {
    const std::size_t n = valleys[valley].second;
    const double found = GoldenSection(f, starts[n == 0 ? 0 : n - 1], starts[std::min(n + 1, starts.size() - 1)]);
    if (const double value = f(found); value < least) least = value, best = found;
  }
  return best;
}

// How a constant is solved for: from so many probes, refining so many valleys, and at last on these rows.
struct Solving {
  std::span<const RowId> last_rows;
  bool thorough = false;  // by both measures of misfit: each has cases where storage blurs the other
  std::size_t probes = 3, valleys = 2;
};

// The constant of a family that fits best, on top of what `base` already is; NaN if none comes near.
double SolveConstant(const Prober& prober, const Family& family, const Variant& base, const Solving& solving, RowState* state) {
  const auto with = [&](double constant) {
    Variant v = base;
    v.memo = std::make_shared<std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>>>();
    family.edit(v, constant);
    return v;
  };
  const std::span<const RowId> few = solving.last_rows.first(std::min(solving.probes, solving.last_rows.size()));
  const auto rough = [&](double constant) { return prober.RoughMisfit(with(constant), solving.probes, state); };
  const auto fine_of_few = [&](double constant) { return prober.FineMisfit(with(constant), few, state); };
  const auto fine = [&](double constant) { return prober.FineMisfit(with(constant), solving.last_rows, state); };
  double best = LowestValley(rough, family.starts, solving.valleys);
  if (solving.thorough) {
    const double other = LowestValley(fine_of_few, family.starts, solving.valleys);
    if (!(fine_of_few(best) <= fine_of_few(other))) best = other;
  }
  if (std::isnan(best) || fine_of_few(best) > kPromising) return kNaN;
  // A few rows know the constant roughly, where storage is coarse and what it changes is small beside the rest of the row; more rows, each
  // cell measured by its own bound, know it better.
  const double margin = std::max(std::fabs(best) * 0.15, 1e-6);
  return GoldenSection(fine, best - margin, best + margin);
}

// Wrong rows that constants are solved on at last: the probes, and more of them evenly spaced.
std::vector<RowId> RowsToSolveOn(const Case& c) {
  constexpr std::size_t kMost = 128;
  std::vector<RowId> rows = c.wrong_rows();
  std::vector<RowId> wrong;
  for (std::size_t r = 0; r < c.rows().size(); ++r) {
    if (!c.unedited()[r].Matches()) wrong.push_back(c.rows()[r]);
  }
  const std::size_t step = std::max<std::size_t>(wrong.size() / kMost, 1);
  for (std::size_t n = 0; n < wrong.size(); n += step) {
    if (std::find(rows.begin(), rows.end(), wrong[n]) == rows.end()) rows.push_back(wrong[n]);
  }
  return rows;
}

std::vector<std::int64_t> Sorted(const std::set<std::int64_t>& set) { return {set.begin(), set.end()}; }

// Where a mistake applies, when rows of whole heads or sequences, or all rows before or after one, are right without it. Empty: there is
// no such description.
std::string ScopeOf(const Case& c, const std::vector<Fit>& fits, Closeness closeness, int precision, double slack) {
  std::set<std::int64_t> heads_with, heads_without, batches_with, batches_without;
  std::int64_t first_with = std::numeric_limits<std::int64_t>::max(), last_with = -1, first_without = first_with,
               last_without = -1;
  for (std::size_t r = 0; r < fits.size(); ++r) {
    const RowId row = c.rows()[r];
    const bool fault_fits = RowFits(fits[r], closeness, precision, slack), right = c.unedited()[r].Matches();
    if (fault_fits && right) continue;  // says nothing
    (fault_fits ? heads_with : heads_without).insert(row.h);
    (fault_fits ? batches_with : batches_without).insert(row.b);
    (fault_fits ? first_with : first_without) = std::min(fault_fits ? first_with : first_without, row.i);
    (fault_fits ? last_with : last_without) = std::max(fault_fits ? last_with : last_without, row.i);
  }
  const auto disjoint = [](const std::set<std::int64_t>& a, const std::set<std::int64_t>& b) {
    return std::none_of(a.begin(), a.end(), [&](std::int64_t x) { return b.count(x) > 0; });
  };
  if (disjoint(heads_with, heads_without))
    return std::string("only head") + (heads_with.size() == 1 ? " " : "s ") + RangesText(Sorted(heads_with));
  if (disjoint(batches_with, batches_without))
    return std::string("only sequence") + (batches_with.size() == 1 ? " " : "s ") + RangesText(Sorted(batches_with));
  if (first_with > last_without) return "only rows ≥ " + std::to_string(first_with);
  if (last_with < first_without) return "only rows < " + std::to_string(first_without);
  return {};
}

// Holds a candidate against every row. False: it does not fit after all.
bool Verify(const Case& c, const Variant& variant, Closeness closeness, int precision, Candidate* candidate) {
  const std::vector<Fit> fits = c.CompareAll(variant);
  const double slack = SlackOf(candidate->complexity);
  std::size_t applied = 0, not_applied = 0, outliers = 0;
  candidate->fit = {};
  candidate->evidence = 0;
  for (std::size_t r = 0; r < fits.size(); ++r) {
    const bool right = c.unedited()[r].Matches();
    if (RowFits(fits[r], closeness, precision, slack)) {
      ++applied;
      candidate->fit.Add(fits[r]);
      if (right) continue;
      const double ratio = c.unedited()[r].worst[0] / std::max(fits[r].worst[0], 0.25);
      candidate->evidence +=
          std::clamp(std::log(ratio), 0.0, fits[r].shared && c.unedited()[r].shared ? kMostEvidenceOfRow : kMostEvidenceOfOneKey);
    } else if (right) {
      ++not_applied;
      candidate->fit.Add(c.unedited()[r]);
    } else if (fits[r].worst[0] <= kOutlierFactor) {
      ++outliers;
      candidate->fit.Add(fits[r]);
    } else {
      return false;
    }
  }
  if (static_cast<double>(outliers) > kOutlierRows * static_cast<double>(fits.size())) return false;
  if (not_applied > 0) {
    candidate->scope = ScopeOf(c, fits, closeness, precision, slack);
    if (candidate->scope.empty()) return false;
  }
  // Where everything is NaN or infinite, whatever overflows fits: only what needs neither a constant of its own nor another mistake is told.
  if (candidate->fit.finite_cells == 0 && (candidate->complexity > 0 || candidate->faults.size() > 1)) return false;
  candidate->coverage = static_cast<double>(applied + not_applied) / static_cast<double>(std::max<std::size_t>(fits.size(), 1));
  candidate->tight = closeness == Closeness::kTight;
  const Fit contract = c.Unedited();
  if (!std::isinf(contract.largest) && !(candidate->fit.Rms() <= kNeededImprovement * contract.Rms())) return false;
  if (closeness == Closeness::kLoose)
    return candidate->fit.IsRounding(static_cast<Precision>(precision)) &&
           candidate->fit.Rms() <= kLooseImprovement * c.Unedited().Rms();
  return true;
}

// Residuals that differ by less than a fifth are alike: which of them is smaller is rounding.
double ResidualClass(const Fit& fit) { return std::round(4 * std::log2(std::max(fit.Rms(), 1e-300))); }

// Everywhere before somewhere, simple before intricate, then by what is left; what is alike stays in the order of the catalogue.
bool Better(const Candidate& a, const Candidate& b) {
  if (a.scope.empty() != b.scope.empty()) return a.scope.empty();
  if (a.complexity != b.complexity) return a.complexity < b.complexity;
  return ResidualClass(a.fit) < ResidualClass(b.fit);
}

// The best of every set of faults.
std::vector<Candidate> OneEach(std::vector<Candidate> candidates) {
  std::stable_sort(candidates.begin(), candidates.end(), Better);
  std::vector<Candidate> best;
  for (Candidate& candidate : candidates) {
    const bool known = std::any_of(best.begin(), best.end(), [&](const Candidate& b) { return b.faults == candidate.faults; });
    if (!known) best.push_back(std::move(candidate));
  }
  return best;
}

Variant WithEdit(const Case& c, const std::function<void(Variant&)>& edit) {
  Variant v = c.evaluator().Unedited();
  edit(v);
  return v;
}

}  // namespace

std::string Candidate::Id() const {
  std::string id;
  for (const Fault* fault : faults) id += (id.empty() ? "" : "+") + std::string(fault->id);
  return id;
}

Stage Candidate::FirstStage() const {
  Stage first = Stage::kProjected;
  for (const Fault* fault : faults) first = std::min(first, fault->stage);
  return first;
}

std::string RangesText(const std::vector<std::int64_t>& sorted) {
  std::string text;
  for (std::size_t n = 0; n < sorted.size();) {
    std::size_t end = n;
    while (end + 1 < sorted.size() && sorted[end + 1] == sorted[end] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(sorted[n]);
    if (end > n) text += (end == n + 1 ? ", " : "–") + std::to_string(sorted[end]);
    n = end + 1;
  }
  return text;
}

std::vector<Candidate> SearchSingles(const Case& c, const Proposals& proposals, Closeness closeness) {
  const Prober prober(c, closeness);
  std::vector<Candidate> found;
  if (closeness == Closeness::kLoose && prober.precision() == 0) return found;
  std::vector<char> fits(proposals.hypotheses.size(), 0);
  ParallelFor(c.threads(), static_cast<std::int64_t>(fits.size()), [&](std::int64_t n, int) {
    if (c.stopped()) return;
    RowState state;
    fits[static_cast<std::size_t>(n)] = prober.Fits(WithEdit(c, proposals.hypotheses[static_cast<std::size_t>(n)].edit),
                                                    proposals.hypotheses[static_cast<std::size_t>(n)].complexity, &state);
    c.CountTask(static_cast<std::int64_t>(proposals.hypotheses.size() + proposals.families.size()));
  });
  std::vector<std::size_t> order;
  for (std::size_t n = 0; n < fits.size(); ++n) {
    if (fits[n]) order.push_back(n);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return proposals.hypotheses[a].complexity < proposals.hypotheses[b].complexity;
  });
  std::set<const Fault*> known;
  for (const std::size_t n : order) {
    if (c.stopped()) break;
    const Hypothesis& h = proposals.hypotheses[n];
    if (known.count(h.fault) > 0) continue;
    Candidate candidate{{h.fault}, h.params, h.edit, h.complexity};
    if (!Verify(c, WithEdit(c, h.edit), closeness, prober.precision(), &candidate)) continue;
    if (candidate.scope.empty()) known.insert(h.fault);
    found.push_back(std::move(candidate));
  }
  // Constants are solved for only when no named one fits everywhere.
  const bool named = std::any_of(found.begin(), found.end(),
                                 [](const Candidate& candidate) { return candidate.scope.empty() && candidate.complexity < 2; });
  if (named) return OneEach(std::move(found));
  const std::vector<RowId> rows = RowsToSolveOn(c);
  std::vector<double> constants(proposals.families.size());
  ParallelFor(c.threads(), static_cast<std::int64_t>(constants.size()), [&](std::int64_t n, int) {
    if (c.stopped()) return;
    RowState state;
    const Family& family = proposals.families[static_cast<std::size_t>(n)];
    constants[static_cast<std::size_t>(n)] =
        SolveConstant(prober, family, c.evaluator().Unedited(), {.last_rows = rows, .thorough = true}, &state);
    c.CountTask(static_cast<std::int64_t>(proposals.hypotheses.size() + proposals.families.size()));
  });
  RowState state;
  for (std::size_t n = 0; n < constants.size(); ++n) {
    const Family& family = proposals.families[n];
    if (std::isnan(constants[n])) continue;
    const std::vector<ExplanationParam> params = family.describe(constants[n]);
    if (params.empty()) continue;
    const auto edit = [&family, constant = constants[n]](Variant& v) { family.edit(v, constant); };
    const Variant v = WithEdit(c, edit);
    Candidate candidate{{family.fault}, params, edit, 2};
    if (prober.Fits(v, 2, &state) && Verify(c, v, closeness, prober.precision(), &candidate))
      found.push_back(std::move(candidate));
  }
  return OneEach(std::move(found));
}

namespace {

// Which hypotheses enter pairs: every named one, and the first enumerated ones of each fault.
std::vector<const Hypothesis*> ForPairs(const Proposals& proposals) {
  std::vector<const Hypothesis*> chosen;
  std::map<const Fault*, std::size_t> taken;
  for (const Hypothesis& h : proposals.hypotheses) {
    if (h.complexity > 1 || h.fault->is_variant) continue;
    if (h.complexity == 1 && ++taken[h.fault] > kPairVariationsPerFault) continue;
    chosen.push_back(&h);
  }
  return chosen;
}

Candidate Together(const Fault* a, const Fault* b, std::vector<ExplanationParam> params_a,
                   const std::vector<ExplanationParam>& params_b, std::function<void(Variant&)> edit, int complexity) {
  Candidate candidate{{a, b}, std::move(params_a), std::move(edit), complexity};
  candidate.params.insert(candidate.params.end(), params_b.begin(), params_b.end());
  if (std::string_view(b->id) < std::string_view(a->id)) std::swap(candidate.faults[0], candidate.faults[1]);
  return candidate;
}

}  // namespace

std::vector<Candidate> SearchPairs(const Case& c, const Proposals& proposals, Closeness closeness) {
  const Prober prober(c, closeness);
  std::vector<Candidate> found;
  if ((closeness == Closeness::kLoose && prober.precision() == 0) || c.wrong_rows().empty()) return found;
  std::vector<const Hypothesis*> all = ForPairs(proposals);
  // Operands are costly to make: where one of the two makes them, it comes first.
  std::stable_sort(all.begin(), all.end(), [](const Hypothesis* a, const Hypothesis* b) {
    const bool makes_a = (a->slots & slot::kOperands) != 0, makes_b = (b->slots & slot::kOperands) != 0;
    return makes_a != makes_b ? makes_a : a->complexity < b->complexity;
  });
  const Problem& p = c.problem();
  const double row_cost = static_cast<double>(p.kv_len * (2 * std::min(p.v_dim, kFirstLook) + 60)) + 2000;
  const double budget = kPairBudget / row_cost / static_cast<double>(std::max<std::size_t>(all.size(), 1));
  std::mutex mutex;
  ParallelFor(c.threads(), static_cast<std::int64_t>(all.size()), [&](std::int64_t n, int) {
    if (c.stopped()) return;
    c.CountTask(static_cast<std::int64_t>(all.size()));
    const Hypothesis& a = *all[static_cast<std::size_t>(n)];
    RowState state;
    double spent = 0;  // a share of the budget each, so that the outcome does not depend on threads
    const Variant with_a = WithEdit(c, a.edit);
    for (const Family& family : proposals.families) {
      if (a.complexity > 0 || a.fault->whole_heads || (a.slots & family.slots) != 0 || a.fault == family.fault) continue;
      if ((spent += kSolvingPrice) > budget || c.stopped()) return;
      const double constant = SolveConstant(prober, family, with_a, {.last_rows = c.wrong_rows()}, &state);
      if (std::isnan(constant)) continue;
      const std::vector<ExplanationParam> params = family.describe(constant);
      if (params.empty()) continue;
      const auto edit = [edit_a = a.edit, edit_b = family.edit, constant](Variant& variant) {
        edit_a(variant), edit_b(variant, constant);
      };
      if (!prober.Fits(WithEdit(c, edit), 2, &state)) continue;
      Candidate candidate = Together(a.fault, family.fault, a.params, params, edit, 2);
      const std::lock_guard<std::mutex> lock(mutex);
      found.push_back(std::move(candidate));
    }
    for (std::size_t m = static_cast<std::size_t>(n) + 1; m < all.size(); ++m) {
      const Hypothesis& b = *all[m];
      if ((a.slots & b.slots) != 0 || a.fault == b.fault || a.complexity + b.complexity > 1) continue;
      const bool whole_heads = a.fault->whole_heads || b.fault->whole_heads;
      if (whole_heads && a.complexity + b.complexity > 0) continue;
      if ((spent += whole_heads ? static_cast<double>(p.q_len) / 4 : 1) > budget || c.stopped()) return;
      Variant v = with_a;
      v.memo = c.evaluator().Unedited().memo;
      b.edit(v);
      if (!prober.Fits(v, a.complexity + b.complexity, &state)) continue;
      const auto edit = [edit_a = a.edit, edit_b = b.edit](Variant& variant) { edit_a(variant), edit_b(variant); };
      Candidate candidate = Together(a.fault, b.fault, a.params, b.params, edit, a.complexity + b.complexity);
      const std::lock_guard<std::mutex> lock(mutex);
      found.push_back(std::move(candidate));
    }
  });
  // Threads find in any order: sort before the best of each set is taken.
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return a.complexity != b.complexity ? a.complexity < b.complexity : a.Id() < b.Id();
  });
  std::vector<Candidate> verified;
  for (Candidate& candidate : found) {
    const bool known = std::any_of(verified.begin(), verified.end(),
                                   [&](const Candidate& v) { return v.faults == candidate.faults && v.scope.empty(); });
    if (known || verified.size() >= 24) continue;
    if (Verify(c, WithEdit(c, candidate.edit), closeness, prober.precision(), &candidate))
      verified.push_back(std::move(candidate));
  }
  return OneEach(std::move(verified));
}

int CountTies(const std::vector<Candidate>& candidates) {
  if (candidates.size() < 2) return static_cast<int>(candidates.size());
  int ties = 1;
  for (std::size_t n = 1; n < candidates.size(); ++n) {
    // What a solved constant can imitate is explained by the mistake that needs none.
    if (candidates[n].scope != candidates[0].scope || candidates[n].complexity > std::max(candidates[0].complexity, 1)) break;
    ++ties;
  }
  return ties;
}

}  // namespace regard::internal
