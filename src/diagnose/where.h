// Where an observation differs, as a person would say it.
#pragma once

#include <string>
#include <vector>

#include "diagnose/case.h"

namespace regard::internal {

/// Ranges of what the contract does not explain by f32 and storage rounding.
Difference FindDifference(const Case& c);

/// Largest difference over bound by head (all batches together) and stretch of queries, at most 64 stretches.
std::vector<std::vector<double>> DrawPicture(const Case& c);

/// "all 6,144 rows", or how many of how many were sampled.
std::string CoverageText(const Case& c);

/// 6144 -> "6,144".
std::string WithCommas(std::int64_t n);

}  // namespace regard::internal
