// Room attention: runs a plan. Tasks over threads, the choice between the prefill and the decode kernel, packed sequences.
//
// The fused path streams over keys with the online softmax of the ISA room and holds O(tokens) memory: a row table, per-thread scratch,
// and for decode the partial states of split keys.
#pragma once

#include <cstddef>
#include <string>

#include "core/internal_api.h"
#include "core/problem.h"
#include "kernels/integer_rounding.h"
#include "kernels/kernels.h"

namespace regard::internal {

std::size_t FusedWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, const KernelTable& kernels,
                                int threads);

/// Fills context, lse and empty_rows. `threads` is resolved.
void RunFused(const Problem& problem, const KernelTable& kernels, const ExecOptions& exec, int threads, std::byte* workspace,
              Results* results) noexcept;
/// How a part of a problem runs beside the others.
struct FusedPart {
  std::int64_t group_size;                // of the whole: a part has the bits of the whole when it takes the whole's kernels
  const RowTracking* tracking = nullptr;  // what is wanted of each row of [batch, heads, q_len]
};
/// Bytes with tracking of top_k keys; −1 is no tracking.
std::size_t FusedWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, const KernelTable& kernels, int threads,
                                std::int64_t tracked_top_k);
void RunFused(const Problem& problem, const KernelTable& kernels, const ExecOptions& exec, int threads, const FusedPart& part,
              std::byte* workspace, Results* results) noexcept;

/// What the fused path rounds weights to for their products with v, relative to each: 0 where they stay f32. Bf16 dot products round to 2⁻⁸ at most,
/// those of prefill twice in a row whose reference moves (docs/numerics.md, section 5).
REGARD_INTERNAL_API double WeightRounding(const PlanShape& shape, const std::string& isa);

/// What the decode kernel loses where it takes keys and values of int8 as integers; nothing elsewhere.
REGARD_INTERNAL_API IntegerRounding IntegerRoundingOf(const PlanShape& shape, const std::string& isa);

/// Whether the q_len queries of a sequence, in a group of heads, go to the prefill kernel, and in words why; packed sequences each by their own.
bool UsesPrefill(std::int64_t q_len, std::int64_t group_size);
std::string KernelChoice(std::int64_t q_len, std::int64_t group_size, bool packed);

}  // namespace regard::internal
