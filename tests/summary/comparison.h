// Every summary against the same quantity in double from the reference path's full weights; tolerances derived from those of the weights.
#pragma once

#include <vector>

#include "regard/summary.h"
#include "tests/support/paths.h"
#include "tests/support/random_problem.h"

namespace regard::test {

/// The fused path on every target.
std::vector<PathCase> FusedPaths();

/// Every summary that the problem allows, with lists and bins of random sizes.
SummaryOptions Everything(const TestProblem& problem, Random& random);

/// Summarizes the problem with what Everything gave and compares all of it; stops at the first row that fails.
void CompareWithDefinition(const TestProblem& problem, const PathCase& path, const SummaryOptions& options);

}  // namespace regard::test
