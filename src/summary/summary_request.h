// SummaryOptions, checked against a problem and resolved: what has to be computed, and where it goes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/internal_api.h"
#include "core/problem.h"
#include "regard/summary.h"

namespace regard::internal {

/// The memory besides results and Attention's own that summary.h states, in bytes.
REGARD_INTERNAL_API double StatedScratchBytes(const PlanShape& shape, const SummaryOptions& options, int threads);

struct Request {
  /// Throws Error when an option is out of its range, or needs an offset that is not stated.
  Request(const SummaryOptions& options, const AttentionParams& params, const Problem& problem);

  /// Tensors for everything that was asked for; `rank` is q's.
  Summary MakeSummary(const Problem& problem, int rank) const;

  std::vector<std::int64_t> heads, batch;  // chosen ones
  bool all;                                // each of them once, in order
  bool tracks_rows;                        // whether anything is wanted of the scores of each row
  bool second_pass;                        // whether anything needs the weights themselves
  bool row_max, head_kind;
  bool key_mass, key_count, pooled, pooled_max;
  std::int64_t top_k, key_top_k, window;
  std::int64_t rows, cols;  // of the pooled map

 private:
  SummaryOptions options_;
};

}  // namespace regard::internal
