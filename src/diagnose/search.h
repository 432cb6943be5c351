// Which mistakes reproduce what was observed: singly, with constants solved for, and in pairs.
//
// A hypothesis is first held against a few rows that the contract gets wrong, and dropped at the first that it gets wrong too; what
// survives is held against every row that is compared. It fits when every row lies within the bounds of f32 and storage of what the
// hypothesis predicts; or, where a fault was computed in low precision, within that precision's bounds while the contract does not.
#pragma once

#include <string>
#include <vector>

#include "diagnose/fault.h"

namespace regard::internal {

/// A hypothesis, or two at once, that fits.
struct Candidate {
  std::vector<const Fault*> faults;  // one or two
  std::vector<ExplanationParam> params;
  std::function<void(Variant&)> edit;
  int complexity = 0;
  Fit fit = {};            // over all compared rows
  double coverage = 0;     // of the compared rows
  std::string scope = {};  // where it applies, when not everywhere
  bool tight = true;       // within the bounds of f32; else of a lower precision
  /// How improbable it is that a wrong hypothesis fits as well by chance, in nats: a row at most 6.
  double evidence = 0;

  std::string Id() const;
  Stage FirstStage() const;
};

enum class Closeness : std::uint8_t { kTight, kLoose };

/// Single faults, best first, one a fault.
std::vector<Candidate> SearchSingles(const Case& c, const Proposals& proposals, Closeness closeness);
/// Two faults at once, best first.
std::vector<Candidate> SearchPairs(const Case& c, const Proposals& proposals, Closeness closeness);

/// How many of the first candidates fit equally well: each within the other's rounding.
int CountTies(const std::vector<Candidate>& candidates);

/// "4–7", "0, 3–5".
std::string RangesText(const std::vector<std::int64_t>& sorted);

}  // namespace regard::internal
