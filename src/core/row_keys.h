// Every positional rule of the contract as one interval of keys per query.
//
// causal and window_right bound the visible keys from above, window_left from below, kv_lens from above, a segment from both sides; so
// what a query may see before mask and bias is one interval; keys of a cache ascend in position, so that it is one of indices too. Staged and
// fused read this table; the reference path tests every pair by the definition instead and so checks it.
#pragma once

#include <cstdint>

#include "core/internal_api.h"
#include "core/problem.h"

namespace regard::internal {

struct RowKeys {
  std::int64_t begin, end;  // visible keys: [begin, end), begin ≤ end, both in 0…kv_len
  std::int64_t position;    // where the query stands on that axis: ALiBi's distance is |position − j|, j being a key's position
  std::int64_t first_key;   // of the query's segment; 0 without segments
};

/// rows [batch, q_len].
REGARD_INTERNAL_API void ComputeRowKeys(const Problem& problem, RowKeys* rows);

}  // namespace regard::internal
