// The checks of the contract: from what a caller passes to a Problem that nobody needs to check again.
//
// CheckPlan looks at what a plan fixes; Bind at one run's tensors: which are there, their types, shapes, lengths, and the numbers in
// kv_lens, segments, sinks and slopes. Both return a message instead of throwing, allocate nothing and take O(batch + heads) time, with
// segments O(tokens).
#pragma once

#include "core/internal_api.h"
#include "core/problem.h"
#include "regard/attention.h"
#include "regard/error.h"

namespace regard::internal {

REGARD_INTERNAL_API Status CheckPlan(const PlanShape& shape, const AttentionParams& params, const ExecOptions& exec) noexcept;

/// The multiplier in force.
REGARD_INTERNAL_API float ResolveScale(const PlanShape& shape, const AttentionParams& params) noexcept;

/// For what reads positions, such as "causal": whether they are known. They are when q_offset is stated or follows from kv_lens or a cache, or
/// when there are as many keys as queries, in the call and in each of its segments.
Status CheckPositions(const char* reader, const QOffset& q_offset, const Problem& problem) noexcept;

/// `scale` is the one in force. Outputs that were not given leave null views in `results`.
REGARD_INTERNAL_API Status Bind(const PlanShape& capacity, const AttentionParams& params, float scale, const Inputs& inputs,
                                const Outputs& outputs, Problem* problem, Results* results) noexcept;

}  // namespace regard::internal
