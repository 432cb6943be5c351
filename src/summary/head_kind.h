// What a head does, from measured shares.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/summary.h"

namespace regard::internal {

/// Of one head, over its non-empty queries.
struct HeadEvidence {
  std::int64_t queries = 0;       // non-empty ones
  double first_key = 0;           // Σ of their shares
  double uniformity = 0;          // Σ of entropy / ln n; 1 where n = 1
  std::vector<double> distances;  // Σ of the weight at each distance p − j
  std::int64_t first_distance = 0;
};

struct HeadVerdict {
  HeadKind kind;
  double score;
};

HeadVerdict JudgeHead(const HeadEvidence& evidence);

}  // namespace regard::internal
