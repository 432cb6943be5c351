// Room staged: whole matrices, the way a framework's "eager" attention works and a course teaches it.
//
// Scores of one kv head by one matrix product (the queries of its whole group at once; k and v are never repeated), softmax over rows, context
// by one product. Holds q_len × kv_len numbers per head of a group at a time, in f32; any stage can be had on the way.
#pragma once

#include <cstddef>

#include "core/problem.h"
#include "kernels/kernels.h"

namespace regard::internal {

std::size_t StagedWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, int threads);

/// Fills every result that has memory and counts empty rows. `threads` is resolved.
void RunStaged(const Problem& problem, const KernelTable& kernels, const ExecOptions& exec, int threads, std::byte* workspace,
               Results* results) noexcept;

}  // namespace regard::internal
