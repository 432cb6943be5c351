#include "regard/diagnose.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "core/stop.h"
#include "diagnose/case.h"
#include "diagnose/evidence.h"
#include "diagnose/low_precision.h"
#include "diagnose/other_layout.h"
#include "diagnose/search.h"
#include "diagnose/where.h"

namespace regard {

using internal::Candidate;
using internal::Case;
using internal::Closeness;
using internal::Fit;
using internal::ObservedStage;
using internal::Precision;
using internal::Proposals;
using internal::Stage;

namespace {

// Where even bf16 would explain the contract's misfit, a mistake must be this much more probable (nats) than a chance fit of one of the
// hypotheses of its kind: ln of their number, and 4. There are some 150 named ones and 3,000 enumerated ones; a constant that was solved for
// has used up a row's evidence besides, and proves nothing when there are several. Measured over 10,000 correct outputs: nothing fits by
// chance without a solved constant, and 6 nats is the most that fits with one.
constexpr double kNeededEvidence[] = {9, 12, 20};
constexpr std::size_t kMostTies = 3, kMostExplanations = 6;

std::string Number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}

// The precision that explains the contract's misfit; null if none does. A sentence where it is known what was rounded.
const char* RoundingName(const Case& c, std::vector<std::string>* evidence) {
  const Fit fit = c.Unedited();
  if (!fit.IsRounding(Precision::kBf16) || internal::LowPrecisionIsRefuted(c)) return nullptr;
  const auto stored_in = [&c](DType type) {
    return c.problem().q.dtype == type ||
           std::any_of(c.observed().begin(), c.observed().end(), [type](const ObservedStage& o) { return o.grid == type; });
  };
  const char* const of_11_bits = stored_in(DType::kF16) ? "f16" : "tf32";
  if (const std::optional<internal::Reproduction> one = internal::ReproduceByRounding(c)) {
    const char* const name = one->is_bf16 ? "bf16" : of_11_bits;
    evidence->push_back(std::string("rounding ") + one->place + " to " + name +
                        ", and nothing else, makes these numbers: the rms difference falls from " + Number(one->before) + " to " +
                        Number(one->after));
    return name;
  }
  // What the tensors are stored in tells f16 from tf32, and bf16 with f32 sums from both.
  return fit.IsRounding(Precision::kTf32) && !stored_in(DType::kBF16) ? of_11_bits : "bf16";
}

// The element type whose values a wider file holds, if any: that is rounding too, of storage. Values that are right in full say nothing:
// the lse of rows that see no key is their sink, whatever type the sinks have.
const char* StoredNarrower(const Case& c) {
  for (const ObservedStage& o : c.observed()) {
    if (c.UneditedOf(o.stage).worst_as_stored <= 1) continue;
    if (o.grid != o.view.dtype && o.grid != DType::kF32) return o.grid == DType::kF16 ? "f16" : "bf16";
  }
  return nullptr;
}

Explanation Explain(const Candidate& candidate) {
  Explanation e;
  e.id = candidate.Id();
  e.params = candidate.params;
  e.stage = Name(candidate.FirstStage());
  for (const internal::Fault* fault : candidate.faults) {
    const char* joint = e.name.empty() ? "" : "; ";
    e.name += joint + std::string(fault->name);
    e.formula += joint + std::string(fault->formula);
    e.advice += joint + std::string(fault->advice);
  }
  e.residual = candidate.fit.largest;
  e.coverage = candidate.coverage;
  e.scope = candidate.scope;
  return e;
}

// The tensor that the tied explanations change differently: the one after the earliest stage in which they differ.
std::string TieBreaker(const std::vector<Candidate>& ties, const Case& c) {
  Stage earliest = Stage::kProjected, latest = Stage::kInputs;
  for (const Candidate& tie : ties) earliest = std::min(earliest, tie.FirstStage()), latest = std::max(latest, tie.FirstStage());
  for (const Stage stage : {Stage::kScores, Stage::kMaskedScores, Stage::kWeights}) {
    if (stage >= earliest && c.Find(stage) == nullptr) return Name(stage);
  }
  return "none: on this input they compute the same; use an input with q_len ≠ kv_len, several heads and kv heads, and lengths "
         "that no block divides";
}

// The weights come first: right or wrong they halve what is left, and dropout shows in nothing else.
std::string NextStep(const Case& c) {
  const auto dump = [](Stage stage) {
    const std::string name = Name(stage);
    return "dump the " + name + " [batch, heads, q_len, kv_len] as well and run: regard check IN --observed OBS," + name + "=" +
           name + ".npy";
  };
  const auto matches = [&c](Stage stage) { return c.UneditedOf(stage).Matches(); };
  if (!c.given().weights && c.Find(Stage::kWeights) == nullptr) return dump(Stage::kWeights);
  if (c.given().weights || matches(Stage::kWeights))
    return "dump v as the kernel sees it, after any cache and head split, and compare that";
  if (c.Find(Stage::kScores) == nullptr) return dump(Stage::kScores);
  if (!matches(Stage::kScores)) {
    return "the scores already differ: dump q and k as the kernel sees them, after any rotation and head split, and compare "
           "those";
  }
  if (c.Find(Stage::kMaskedScores) == nullptr) return dump(Stage::kMaskedScores);
  if (!matches(Stage::kMaskedScores))
    return "the scores are right, the masked_scores differ: dump mask and bias as the kernel sees them";
  return "the masked_scores are right, the weights differ: see along which axis the softmax runs, and over which keys";
}

void Summarise(const Case& c, Diagnosis* d) {
  const Explanation* best = d->explanations.empty() ? nullptr : &d->explanations.front();
  switch (d->verdict) {
    case Verdict::kMatch:
      d->summary = "match: within f32 and storage rounding of the definition, over " + d->coverage_note;
      break;
    case Verdict::kRounding:
      d->summary = "rounding: explained by computing or storing in " + d->precision;
      break;
    case Verdict::kVariant:
      d->summary = "variant: " + best->name + " (" + best->id + "), " + best->formula;
      break;
    case Verdict::kFault:
      d->summary = "fault: " + best->name + " (" + best->id + "), " + best->formula;
      break;
    case Verdict::kUnexplained:
      d->summary = "unexplained: " + d->first_wrong_stage + " differs and no known mistake reproduces it";
      break;
  }
  if (best != nullptr && !best->scope.empty()) d->summary += "; " + best->scope;
  if (best != nullptr && d->verdict != Verdict::kRounding) {
    d->evidence.push_back("with " + best->name + " the largest difference falls from " + Number(d->where.largest) + " to " +
                          Number(best->residual) + " over " + internal::CoverageText(c));
  }
}

// Shares of the work, for progress: looking, single faults, pairs, and both once more in low precision.
constexpr double kLooked = 0.02, kSingles = 0.1, kPairs = 0.55, kLooseSingles = 0.6;

// What explains the misfit, best first; empty when rounding does, or nothing.
std::vector<Candidate> Search(const Case& c, const DiagnoseOptions& options, bool rounding_explains) {
  const Proposals proposals = internal::ProposeAll(c);
  const auto singles = [&](Closeness closeness, double from, double to) {
    c.BeginPhase(from, to);
    std::vector<Candidate> found = internal::SearchSingles(c, proposals, closeness);
    internal::ThrowIfStopped(options.stop_token);
    return found;
  };
  const auto pairs = [&](Closeness closeness, double from, double to) {
    c.BeginPhase(from, to);
    std::vector<Candidate> found = internal::SearchPairs(c, proposals, closeness);
    internal::ThrowIfStopped(options.stop_token);
    return found;
  };
  std::vector<Candidate> found = singles(Closeness::kTight, kLooked, kSingles);
  if (rounding_explains) {
    std::erase_if(found, [](const Candidate& candidate) {
      const std::size_t price = static_cast<std::size_t>(std::max(candidate.complexity, 0));
      return price >= std::size(kNeededEvidence) || !candidate.scope.empty() || candidate.evidence < kNeededEvidence[price];
    });
    return found;
  }
  if (found.empty()) found = internal::FindInconsistencies(c);
  // Some pair of edits makes any number, and many make NaN of everything.
  if (found.empty() && (internal::IsOneNumber(c) || c.Unedited().finite_cells == 0)) return found;
  if (found.empty() && options.pairs) found = pairs(Closeness::kTight, kSingles, kPairs);
  if (found.empty()) found = singles(Closeness::kLoose, kPairs, kLooseSingles);
  if (found.empty() && options.pairs) found = pairs(Closeness::kLoose, kLooseSingles, 1);
  return found;
}

void TakeExplanations(const std::vector<Candidate>& found, const Case& c, Diagnosis* d) {
  std::size_t ties = static_cast<std::size_t>(internal::CountTies(found));
  if (ties > kMostTies) {
    const auto outside =
        std::find_if(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(ties),
                     [&](const Candidate& tie) { return !internal::SameGroup(found[0].faults[0]->id, tie.faults[0]->id); });
    ties = std::max<std::size_t>(kMostTies, static_cast<std::size_t>(outside - found.begin()));
  }
  ties = std::min(ties, found.size());
  d->ties = static_cast<int>(ties);
  if (ties > 1) d->tie_breaker = TieBreaker({found.begin(), found.begin() + static_cast<std::ptrdiff_t>(ties)}, c);
  for (std::size_t n = 0; n < std::min(found.size(), std::max(ties, kMostExplanations)); ++n)
    d->explanations.push_back(Explain(found[n]));
  const bool variant =
      std::all_of(found[0].faults.begin(), found[0].faults.end(), [](const internal::Fault* fault) { return fault->is_variant; });
  d->verdict = variant ? Verdict::kVariant : Verdict::kFault;
  d->first_wrong_stage = Name(found[0].FirstStage());
}

}  // namespace

const char* Name(Verdict verdict) noexcept {
  constexpr const char* kNames[] = {"match", "rounding", "variant", "fault", "unexplained"};
  return kNames[static_cast<int>(verdict)];
}

Diagnosis Diagnose(const DiagnosisProblem& problem, const ObservedTensors& observed, const ObservedTensors& again,
                   const DiagnoseOptions& options) {
  const Case c(problem, observed, options);
  Diagnosis d;
  d.coverage_note = internal::CoverageText(c);
  d.where = internal::FindDifference(c);
  d.evidence = internal::GatherEvidence(c);
  const bool has_again =
      again.scores || again.capped || again.masked_scores || again.weights || again.lse || again.context || again.projected;
  if (has_again) {
    const Case second(problem, again, options);
    const std::vector<Candidate> runs = internal::CompareRuns(c, second, &d.evidence);
    if (!runs.empty() && !(runs[0].faults[0]->is_variant)) {
      TakeExplanations(runs, c, &d);
      d.picture = internal::DrawPicture(c);
      Summarise(c, &d);
      return d;
    }
  }
  if (c.Unedited().Matches()) {
    const char* narrower = StoredNarrower(c);
    d.verdict = narrower != nullptr ? Verdict::kRounding : Verdict::kMatch;
    if (narrower != nullptr) d.precision = narrower;
    Summarise(c, &d);
    return d;
  }
  for (const ObservedStage& o : c.observed()) {
    if (c.UneditedOf(o.stage).Matches()) continue;
    d.first_wrong_stage = Name(o.stage);
    break;
  }
  d.picture = internal::DrawPicture(c);
  std::vector<std::string> of_rounding;
  const char* rounding = RoundingName(c, &of_rounding);
  std::vector<Candidate> found = internal::MatchInOtherLayout(problem, observed, options);
  if (found.empty()) found = Search(c, options, rounding != nullptr);
  if (!found.empty()) {
    TakeExplanations(found, c, &d);
  } else if (rounding != nullptr) {
    d.verdict = Verdict::kRounding;
    d.evidence.insert(d.evidence.end(), of_rounding.begin(), of_rounding.end());
    d.precision = rounding;
    d.first_wrong_stage.clear();
  } else {
    d.verdict = Verdict::kUnexplained;
    d.next_step = NextStep(c);
    if (internal::IsOneNumber(c)) {
      d.evidence.push_back("every element of the context is one number: it was never written, or another tensor was saved");
      d.next_step = "see that the tensor is read after it is written, and that it is the result that was saved";
    }
  }
  Summarise(c, &d);
  return d;
}

std::vector<CatalogueEntry> FaultCatalogue() {
  std::vector<CatalogueEntry> entries;
  for (const internal::Fault* fault : internal::Catalogue())
    entries.push_back({fault->id, fault->name, internal::Name(fault->stage), fault->formula, fault->tell_tale, fault->advice});
  return entries;
}

}  // namespace regard
