// The gradients by their definition: each number of a result is summed on its own, in double, over the pairs it depends on. A pair's
// weight and score are computed again wherever they are needed, so that nothing but the formulas of include/regard/backward.h is done.
#pragma once

#include <cstddef>

#include "core/bind_backward.h"
#include "core/problem.h"

namespace regard::internal {

std::size_t ReferenceBackwardWorkspaceBytes(const PlanShape& capacity, int threads);

/// Fills every gradient that has memory. `threads` is resolved.
void RunReferenceBackward(const Problem& problem, const Gradients& gradients, const ExecOptions& exec, int threads,
                          std::byte* workspace) noexcept;

}  // namespace regard::internal
