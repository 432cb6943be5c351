// What every kind of plan settles when it is made, beyond the checks of core/bind.h.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/kernels.h"
#include "regard/attention.h"

namespace regard::internal {

/// The kernels of ExecOptions::isa. Throws kUnsupported for a name that does not run here, with what to write instead.
const KernelTable& ResolveKernels(const std::string& isa);

/// Throws kOutOfMemory for a workspace that no memory holds.
void CheckWorkspaceBytes(const PlanShape& shape, Path path, int threads, std::size_t bytes);

}  // namespace regard::internal
