// Room reference: the definition, written to be read.
//
// One token at a time, in double precision, loops over batch, head, query and key, each pair tested for visibility by the contract's own
// words. No tuning, and no arithmetic shared with the kernels: this is what every other path is compared with.
#pragma once

#include <cstddef>

#include "core/problem.h"

namespace regard::internal {

std::size_t ReferenceWorkspaceBytes(const PlanShape& capacity, int threads);

/// Fills every result that has memory and counts empty rows. `threads` is resolved.
void RunReference(const Problem& problem, const ExecOptions& exec, int threads, std::byte* workspace, Results* results) noexcept;

}  // namespace regard::internal
