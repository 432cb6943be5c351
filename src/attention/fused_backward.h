// The fused gradients: tasks over threads, and what keys gather from tasks that share them.
//
// A task is one kv head of one sequence, or where heads are few a part of its queries. Every task adds up d_k and d_v in memory of its
// thread; tasks of one head hand them in one after the other, in the order of their numbers, so that no bit depends on threads.
#pragma once

#include <cstddef>

#include "core/bind_backward.h"
#include "core/problem.h"
#include "kernels/kernels.h"

namespace regard::internal {

std::size_t FusedBackwardWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, const KernelTable& kernels,
                                        int threads);

/// Fills every gradient that has memory. `threads` is resolved.
void RunFusedBackward(const Problem& problem, const Gradients& gradients, const KernelTable& kernels, const ExecOptions& exec,
                      int threads, std::byte* workspace) noexcept;

}  // namespace regard::internal
