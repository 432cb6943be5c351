#include "diagnose/low_precision.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/parallel_for.h"

namespace regard::internal {
namespace {

enum class Place : std::uint8_t { kInputs, kDots, kScores, kExponents, kExp, kExpPolynomial, kWeights, kValues, kResult };
constexpr int kNumPlaces = 9;
constexpr int kF32 = static_cast<int>(Precision::kF32);

constexpr double kRoundoff = 0x1p-11, kCoarsest = 0x1p-8 / kRoundoff;
constexpr double kTellingBelow = 0.1, kRightByChance = 0.25;
const double kNeeded = std::log(1e6);
// Rows are taken evenly, more prove no more: one costs some ten times kv_len·(head_dim + v_dim) multiplications.
constexpr std::size_t kMostRows = 400, kFewestRows = 64;
constexpr double kBudget = 2e8;

// A place that moves the wrong rows by less than this part of what they differ, even in bf16, is out.
constexpr double kLeastPart = 1e-3;

// One place of the computation that rounds, to so many significant bits: 11 are those of tf32 and f16, 8 those of bf16.
struct Rounding {
  Place place;
  int bits = 11;

  // Ties to even.
  double operator()(double x) const {
    const int dropped = 53 - bits;
    const std::uint64_t mask = (std::uint64_t{1} << dropped) - 1, stored = std::bit_cast<std::uint64_t>(x);
    if (!std::isfinite(x)) return x;
    return std::bit_cast<double>((stored + mask / 2 + ((stored >> dropped) & 1)) & ~mask);
  }
};

// What rounding, up to the scores, changes in the capped score of key j.
double ScoreChange(Rounding round, const Operands& x, const RowState& s, std::size_t j) {
  double score = s.scores[j];
  if (round.place == Place::kScores) {
    score = round(score);
  } else {
    const double* q = x.Q(s.id.b, s.id.h, s.id.i);
    const double* k = x.K(s.id.b, x.k_head[static_cast<std::size_t>(s.id.h)], static_cast<std::int64_t>(j));
    double dot = 0;
    for (std::int64_t n = 0; n < x.head_dim; ++n)
      dot = round.place == Place::kInputs ? dot + round(q[n]) * round(k[n]) : round(dot + q[n] * k[n]);
    score = s.variant->scale * dot;
  }
  const double cap = s.variant->soft_cap;
  return (cap > 0 ? cap * std::tanh(score / cap) : score) - s.capped[j];
}

// By what rounding multiplies exp(masked score of j).
double Factor(Rounding round, const Operands& operands, const RowState& s, std::size_t j, double largest) {
  const double x = s.masked[j] - largest;
  switch (round.place) {
    case Place::kInputs:
    case Place::kDots:
    case Place::kScores:
      return std::exp(ScoreChange(round, operands, s, j));
    case Place::kExponents:
      return std::exp(round(x) - x);
    case Place::kExp:
      return round(std::exp(x)) / std::max(std::exp(x), std::numeric_limits<double>::min());
    case Place::kExpPolynomial: {
      // exp x = 2ⁿ·exp(f·ln 2) with a polynomial of degree 3 for 0 ≤ f < 1: its error grows like f⁴.
      const double whole = x * 1.4426950408889634, f = whole - std::floor(whole);
      return 1 + std::exp2(-round.bits) * f * f * f * f;
    }
    default:
      return 1;
  }
}

// The weights of a row after rounding; ln of what that multiplies their sum by.
std::vector<double> WeightsAfter(Rounding round, const Operands& operands, const RowState& s, double* log_sum) {
  *log_sum = 0;
  std::vector<double> weights = s.weights;
  if (round.place == Place::kWeights) {
    for (double& w : weights) w = round(w);
  } else if (round.place < Place::kWeights) {
    double largest = s.sink, left = 1, sum = 0;
    for (std::size_t j = 0; j < weights.size(); ++j) {
      if (weights[j] > 0) largest = std::max(largest, s.masked[j]);
    }
    for (std::size_t j = 0; j < weights.size(); ++j) {
      if (!(weights[j] > 0)) continue;
      left -= weights[j];
      weights[j] *= Factor(round, operands, s, j, largest);
      sum += weights[j];
    }
    sum += std::max(left, 0.0);  // the sink's
    for (double& w : weights) w /= sum;
    *log_sum = std::log(sum);
  }
  return weights;
}

// What rounding changes in the context of a row.
std::vector<double> ContextChange(Rounding round, const Case& c, const RowState& s) {
  const Operands& x = c.evaluator().operands();
  double log_sum = 0;
  const std::vector<double> weights = WeightsAfter(round, x, s, &log_sum);
  std::vector<double> change(s.context.size(), 0);
  for (std::size_t j = 0; j < weights.size(); ++j) {
    if (s.weights[j] == 0) continue;
    const double* v = x.V(s.id.b, x.v_head[static_cast<std::size_t>(s.id.h)], static_cast<std::int64_t>(j));
    for (std::size_t n = 0; n < change.size(); ++n) {
      if (round.place == Place::kValues) {
        change[n] += s.weights[j] * (round(v[n]) - v[n]);
      } else if (round.place == Place::kResult) {
        change[n] = round(change[n] + s.weights[j] * v[n]);  // the sum so far
      } else {
        change[n] += (weights[j] - s.weights[j]) * v[n];
      }
    }
  }
  if (round.place == Place::kResult) {
    for (std::size_t n = 0; n < change.size(); ++n) change[n] -= s.context[n];
  }
  return change;
}

// One stage of one row: what is expected, what f32 may change and what rounding at each place, to the same number of bits, does.
struct Row {
  std::vector<double> values, bounds;
  std::array<std::vector<double>, kNumPlaces> changes;  // empty: that place comes later, or is not computed
};

Row ContextOf(const Case& c, const RowState& s, int bits) {
  Row row{s.context, {}, {}};
  const RowRoundoff f32 = RoundoffOfRow(c.evaluator().operands().head_dim, s.num_visible, s.largest_dot, s.largest_score);
  for (std::size_t n = 0; n < s.context.size(); ++n)
    row.bounds.push_back(f32.OfContext(kF32, s.context[n], s.magnitude[n], c.largest_value()[n], true));
  for (int p = c.given().weights ? static_cast<int>(Place::kWeights) : 0; p < kNumPlaces; ++p)
    row.changes[static_cast<std::size_t>(p)] = ContextChange({static_cast<Place>(p), bits}, c, s);
  return row;
}

Row RowBeforeContext(const Case& c, Stage stage, const RowState& s, int bits) {
  const Operands& x = c.evaluator().operands();
  const RowRoundoff f32 = RoundoffOfRow(x.head_dim, s.num_visible, s.largest_dot, s.largest_score);
  Row row;
  if (stage == Stage::kWeights) {
    row.values = s.weights;
    for (const double w : s.weights) row.bounds.push_back(f32.OfWeight(kF32, w));
    for (int p = 0; p <= static_cast<int>(Place::kWeights); ++p) {
      double log_sum = 0;
      std::vector<double>& change = row.changes[static_cast<std::size_t>(p)];
      change = WeightsAfter({static_cast<Place>(p), bits}, x, s, &log_sum);
      for (std::size_t j = 0; j < change.size(); ++j) change[j] -= s.weights[j];
    }
    return row;
  }
  if (stage == Stage::kLse) {
    row.values = {s.lse}, row.bounds = {f32.OfLse(kF32, s.lse)};
    for (int p = 0; p < static_cast<int>(Place::kWeights); ++p) {
      double log_sum = 0;
      WeightsAfter({static_cast<Place>(p), bits}, x, s, &log_sum);
      row.changes[static_cast<std::size_t>(p)] = {log_sum};
    }
  } else {
    row.values = stage == Stage::kScores ? s.scores : stage == Stage::kCapped ? s.capped : s.masked;
    for (const double y : row.values) row.bounds.push_back(f32.OfScore(kF32, y));
    for (const Place place : {Place::kInputs, Place::kDots, Place::kScores}) {
      std::vector<double>& change = row.changes[static_cast<std::size_t>(place)];
      for (std::size_t j = 0; j < row.values.size(); ++j) change.push_back(ScoreChange({place, bits}, x, s, j));
    }
  }
  std::vector<double>& change = row.changes[static_cast<std::size_t>(Place::kResult)];
  for (const double y : row.values) change.push_back(Rounding{Place::kResult, bits}(y)-y);
  return row;
}

// All heads of a token, through w_out where it is given.
Row ProjectedOf(const Case& c, const ObservedStage& o, RowId id, int bits) {
  const Variant unedited = c.evaluator().Unedited();
  const std::size_t columns = static_cast<std::size_t>(o.columns);
  Row merged;
  RowState s;
  const auto append = [](const std::vector<double>& from, std::vector<double>* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  for (std::int64_t h = 0; h < c.problem().heads; ++h) {
    c.evaluator().Evaluate(unedited, {id.b, h, id.i}, &s);
    const Row head = ContextOf(c, s, bits);
    append(head.values, &merged.values), append(head.bounds, &merged.bounds);
    for (std::size_t p = 0; p < kNumPlaces; ++p) append(head.changes[p], &merged.changes[p]);
  }
  if (c.w_out().empty()) return merged;
  const std::size_t in_dim = merged.values.size();
  const auto project = [&](const std::vector<double>& from, std::vector<double> to) {
    for (std::size_t out = 0; out < columns && !from.empty(); ++out) {
      for (std::size_t n = 0; n < in_dim; ++n) to[out] += c.w_out()[out * in_dim + n] * from[n];
    }
    return to;
  };
  Row row{project(merged.values, c.b_out()), {}, {}};
  for (std::size_t out = 0; out < columns; ++out) {
    double of_contexts = 0, magnitude = 0;
    for (std::size_t n = 0; n < in_dim; ++n) {
      const double w = std::fabs(c.w_out()[out * in_dim + n]);
      of_contexts += w * merged.bounds[n];
      magnitude += w * std::fabs(merged.values[n]);
    }
    const double of_product = RoundoffOfProjection(kF32, static_cast<std::int64_t>(in_dim), row.values[out], magnitude);
    row.bounds.push_back(of_contexts + of_product);
  }
  for (std::size_t p = 0; p < kNumPlaces; ++p) row.changes[p] = project(merged.changes[p], std::vector<double>(columns, 0));
  return row;
}

Row RowOf(const Case& c, const ObservedStage& o, RowId id, int bits) {
  if (o.stage == Stage::kProjected) return ProjectedOf(c, o, id, bits);
  const Variant unedited = c.evaluator().Unedited();  // to which the state refers
  RowState s;
  c.evaluator().Evaluate(unedited, id, &s);
  return o.stage == Stage::kContext ? ContextOf(c, s, bits) : RowBeforeContext(c, o.stage, s, bits);
}

// Half an ulp of the stored number.
double HalfUlp(const StorageRoundoff& storage, double x) {
  if (x == 0) return storage.absolute;
  return std::max(storage.relative * std::exp2(std::floor(std::log2(std::fabs(x)))), storage.absolute);
}

// The square of what `half_ulp` does not explain of a difference.
double SquareBeyond(double difference, double half_ulp) {
  const double beyond = std::max(std::fabs(difference) - half_ulp, 0.0);
  return beyond * beyond;
}

// Σ difference², beyond half an ulp, and Σ change² by place.
struct Sums {
  double differences = 0;
  std::array<double, kNumPlaces> changes = {};
};

void AddSums(const ObservedStage& o, RowId id, const Row& row, Sums* sums) {
  for (std::size_t n = 0; n < row.values.size(); ++n) {
    const double got = o.At(id, static_cast<std::int64_t>(n)), difference = got - row.values[n];
    if (!std::isfinite(difference)) continue;
    sums->differences += SquareBeyond(difference, HalfUlp(o.storage, got));
    for (std::size_t p = 0; p < kNumPlaces; ++p) {
      const double change = row.changes[p].empty() ? 0 : row.changes[p][n];
      if (std::isfinite(change)) sums->changes[p] += change * change;
    }
  }
}

// How many rows, or cells, would be wrong if a place rounded, and how many of them are right.
struct Count {
  double telling = 0, right = 0;

  void Add(bool is_right) { telling += 1, right += is_right; }
  void Add(const Count& other) { telling += other.telling, right += other.right; }
  // Whether so many would be right less than once in a million times (Chernoff).
  bool PutsOut() const {
    const double share = telling > 0 ? right / telling : 0;
    if (share <= kRightByChance) return false;
    const double wrong_part = share < 1 ? (1 - share) * std::log((1 - share) / (1 - kRightByChance)) : 0;
    return telling * (share * std::log(share / kRightByChance) + wrong_part) >= kNeeded;
  }
};

struct Counts {
  Count rows, cells;
};

// One row, if a place changed it by `change` times `factor`.
Counts CountRow(const ObservedStage& o, RowId id, const Row& row, bool is_right, const std::vector<double>& change,
                double factor) {
  Counts counts;
  double probability = 1;
  for (std::size_t n = 0; n < change.size(); ++n) {
    if (!std::isfinite(row.values[n])) continue;
    const double allowed = row.bounds[n] + HalfUlp(o.storage, row.values[n]);
    const double moved = std::fabs(change[n]) * factor - row.bounds[n];
    if (!(moved > 0)) continue;
    const double cell = 1 - std::min(moved / (2 * allowed), 1.0);
    probability *= cell;
    if (cell <= kTellingBelow) counts.cells.Add(std::fabs(o.At(id, static_cast<std::int64_t>(n)) - row.values[n]) <= allowed);
  }
  if (probability <= kTellingBelow) counts.rows.Add(is_right);
  return counts;
}

// At most `most` of the rows that `wanted` says, evenly.
template <typename Predicate>
std::vector<std::size_t> Sample(std::size_t size, std::size_t most, const Predicate& wanted) {
  std::vector<std::size_t> all, sample;
  for (std::size_t r = 0; r < size; ++r) {
    if (wanted(r)) all.push_back(r);
  }
  const std::size_t count = std::min(all.size(), most);
  for (std::size_t n = 0; n < count; ++n) sample.push_back(all[n * all.size() / count]);
  return sample;
}

std::size_t MostRows(const Case& c) {
  const Operands& x = c.evaluator().operands();
  const double price = static_cast<double>(x.kv_len) * static_cast<double>(x.head_dim + x.v_dim);
  return std::clamp(static_cast<std::size_t>(kBudget / std::max(price, 1.0)), kFewestRows, kMostRows);
}

bool IsRefuted(const Case& c, const ObservedStage& o, const std::vector<Fit>& fits) {
  const std::vector<RowId>& rows = c.rows();
  const auto compared = [&](std::size_t r) { return fits[r].cells > 0; };
  const auto row_of = [&](RowId id) { return RowOf(c, o, id, 11); };
  const std::size_t most = MostRows(c);
  // The cells of a row of scores or weights are keys, each with rounding of its own; those of a context share that of the weights.
  const bool cells_are_keys = o.stage < Stage::kLse;
  const std::vector<std::size_t> sample = Sample(rows.size(), most, compared);
  const bool any_right = std::any_of(sample.begin(), sample.end(), [&](std::size_t r) { return fits[r].Matches(); });
  if (!any_right && !cells_are_keys) return false;
  const std::vector<std::size_t> wrong =
      Sample(rows.size(), most, [&](std::size_t r) { return compared(r) && !fits[r].Matches(); });
  std::vector<Sums> sums(wrong.size());
  ParallelFor(c.threads(), static_cast<std::int64_t>(wrong.size()), [&](std::int64_t n, int) {
    const RowId id = rows[wrong[static_cast<std::size_t>(n)]];
    AddSums(o, id, row_of(id), &sums[static_cast<std::size_t>(n)]);
  });
  Sums total;
  for (const Sums& one : sums) {
    total.differences += one.differences;
    for (std::size_t p = 0; p < kNumPlaces; ++p) total.changes[p] += one.changes[p];
  }
  std::vector<std::array<Counts, kNumPlaces>> counts(sample.size());
  ParallelFor(c.threads(), static_cast<std::int64_t>(sample.size()), [&](std::int64_t n, int) {
    const std::size_t r = sample[static_cast<std::size_t>(n)];
    const Row row = row_of(rows[r]);
    for (std::size_t p = 0; p < kNumPlaces; ++p) {
      const double factor = std::min(std::sqrt(total.differences / std::max(total.changes[p], 1e-300)), kCoarsest);
      counts[static_cast<std::size_t>(n)][p] = CountRow(o, rows[r], row, fits[r].Matches(), row.changes[p], factor);
    }
  });
  bool any_place = false;
  for (std::size_t p = 0; p < kNumPlaces; ++p) {
    if (!(std::sqrt(total.changes[p]) * kCoarsest > kLeastPart * std::sqrt(total.differences))) continue;
    any_place = true;
    Counts all;
    for (const std::array<Counts, kNumPlaces>& row : counts) all.rows.Add(row[p].rows), all.cells.Add(row[p].cells);
    if (!all.rows.PutsOut() && !(cells_are_keys && all.cells.PutsOut())) return false;
  }
  return any_place;
}

// Of the differences of wrong rows, beyond half an ulp: Σ² as they are, and of what rounding at each place leaves of them.
struct Left {
  double before = 0;
  std::array<double, kNumPlaces> after = {};
  std::int64_t cells = 0, beyond_half_ulp = 0;  // all of them, and those whose difference storing does not explain

  void Add(const ObservedStage& o, RowId id, const Row& row) {
    for (std::size_t n = 0; n < row.values.size(); ++n) {
      const double got = o.At(id, static_cast<std::int64_t>(n)), difference = got - row.values[n];
      if (!std::isfinite(difference)) continue;
      const double half_ulp = HalfUlp(o.storage, got), square = SquareBeyond(difference, half_ulp);
      ++cells, beyond_half_ulp += square > 0;
      before += square;
      for (std::size_t p = 0; p < kNumPlaces; ++p)
        after[p] += SquareBeyond(difference - (row.changes[p].empty() ? 0 : row.changes[p][n]), half_ulp);
    }
  }
  void Add(const Left& other) {
    before += other.before, cells += other.cells, beyond_half_ulp += other.beyond_half_ulp;
    for (std::size_t p = 0; p < kNumPlaces; ++p) after[p] += other.after[p];
  }
};

}  // namespace

std::optional<Reproduction> ReproduceByRounding(const Case& c) {
  constexpr const char* kPlaces[kNumPlaces] = {
      "q and k", "sums of products", "scores", "exponents", "exp", "a polynomial for exp", "weights", "values", "the result"};
  constexpr double kLeastFall = 4;  // of the root mean square
  constexpr std::int64_t kFewestCells = 8;
  for (std::size_t n = 0; n < c.observed().size(); ++n) {
    const ObservedStage& o = c.observed()[n];
    const std::vector<Fit>& fits = c.UneditedRowsOf(n);
    if (c.UneditedOf(o.stage).Matches()) continue;
    const std::vector<std::size_t> wrong = Sample(c.rows().size(), std::min(MostRows(c), kFewestRows),
                                                  [&](std::size_t r) { return fits[r].cells > 0 && !fits[r].Matches(); });
    std::optional<Reproduction> best;
    for (const int bits : {11, 8}) {
      std::vector<Left> of_rows(wrong.size());
      ParallelFor(c.threads(), static_cast<std::int64_t>(wrong.size()), [&](std::int64_t w, int) {
        const RowId id = c.rows()[wrong[static_cast<std::size_t>(w)]];
        of_rows[static_cast<std::size_t>(w)].Add(o, id, RowOf(c, o, id, bits));
      });
      Left left;
      for (const Left& row : of_rows) left.Add(row);
      if (left.beyond_half_ulp < kFewestCells) return std::nullopt;
      for (std::size_t p = 0; p < kNumPlaces; ++p) {
        const double cells = static_cast<double>(left.cells);
        const Reproduction one{kPlaces[p], bits == 8, std::sqrt(left.before / cells), std::sqrt(left.after[p] / cells)};
        if (one.after * kLeastFall <= one.before && (!best || one.after < best->after)) best = one;
      }
    }
    return best;  // the first stage that differs
  }
  return std::nullopt;
}

bool LowPrecisionIsRefuted(const Case& c) {
  for (const Fit& row : c.unedited()) {
    if (row.lost_row) return true;
  }
  for (std::size_t n = 0; n < c.observed().size(); ++n) {
    const ObservedStage& o = c.observed()[n];
    if (!c.UneditedOf(o.stage).Matches() && IsRefuted(c, o, c.UneditedRowsOf(n))) return true;
  }
  return false;
}

}  // namespace regard::internal
