// What an observation shows before anything is tried: sums, supports, ratios, NaN and zero rows, inconsistencies between observed
// tensors or between two runs. Sentences for people; and those faults that no edit of the plan makes.
#pragma once

#include <string>
#include <vector>

#include "diagnose/search.h"

namespace regard::internal {

/// Sentences, cheapest first. Empty when nothing stands out.
std::vector<std::string> GatherEvidence(const Case& c);

/// Whether the whole context is one number where it should not be.
bool IsOneNumber(const Case& c);

/// Dropout, and returned weights that are not the ones used.
std::vector<Candidate> FindInconsistencies(const Case& c);

/// What two runs show: `first` and `again` were bound to the same problem.
std::vector<Candidate> CompareRuns(const Case& first, const Case& again, std::vector<std::string>* evidence);

}  // namespace regard::internal
