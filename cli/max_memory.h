// --max-memory: what would take more is refused before it is begun.
#pragma once

#include <string>

#include "cli/options.h"

namespace regard::cli {

/// Throws Error kOutOfMemory when `bytes` are more than options.max_memory. `what` is in the plural; `advice` is how to need less.
///     --max-memory: the run and its results take 23150592 bytes (22.1 MiB), more than 1.0 MiB; <advice>, or state a larger one
void CheckMemory(const Options& options, double bytes, const std::string& what, const std::string& advice);

}  // namespace regard::cli
