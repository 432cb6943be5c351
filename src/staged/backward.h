// The gradients by whole matrices, as a framework's "eager" attention derives them: five matrix products of one kv head and its group, and
// between them row by row what softmax, mask and cap make of it. Holds two or three q_len × kv_len matrices per head of a group, in f32.
#pragma once

#include <cstddef>

#include "core/bind_backward.h"
#include "core/problem.h"

namespace regard::internal {

std::size_t StagedBackwardWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, int threads);

/// Fills every gradient that has memory. `threads` is resolved.
void RunStagedBackward(const Problem& problem, const Gradients& gradients, const ExecOptions& exec, int threads,
                       std::byte* workspace) noexcept;

}  // namespace regard::internal
