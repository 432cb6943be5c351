// What this build is and what this machine offers it.
#pragma once

#include <string>
#include <vector>

#include "regard/export.h"

namespace regard {

/// "0.1.0"
REGARD_API const char* Version() noexcept;

struct Target {
  std::string name;        // "AVX3" (AVX-512), "AVX2", …: what ExecOptions::isa takes
  bool supported = false;  // by this CPU
};
/// The instruction sets this build has kernels for, best first.
REGARD_API std::vector<Target> Targets();

/// The name of the target used when ExecOptions::isa is empty.
REGARD_API std::string BestTarget();

/// The CBLAS library that was loaded: its own description, such as "OpenBLAS 0.3.21 … Zen", else the file it was loaded from.
REGARD_API std::string BlasDescription();

/// The number of threads used when ExecOptions::threads is 0.
REGARD_API int DefaultThreads() noexcept;

}  // namespace regard
