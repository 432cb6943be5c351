#include "regard/info.h"

#include <cblas.h>
#include <dlfcn.h>

#include "core/parallel_for.h"
#include "kernels/kernels.h"
#include "regard/version.h"

#define REGARD_TEXT_OF(x) #x
#define REGARD_TEXT(x) REGARD_TEXT_OF(x)

namespace regard {

const char* Version() noexcept {
  return REGARD_TEXT(REGARD_VERSION_MAJOR) "." REGARD_TEXT(REGARD_VERSION_MINOR) "." REGARD_TEXT(REGARD_VERSION_PATCH);
}

std::vector<Target> Targets() {
  std::vector<Target> targets;
  for (const internal::TargetInfo& target : internal::CompiledTargets()) targets.push_back({target.name, target.supported});
  return targets;
}

std::string BestTarget() { return internal::FindKernels("")->target; }

std::string BlasDescription() {
  // OpenBLAS tells its version and core when asked; found at run time, since any CBLAS may be loaded.
  if (auto* config = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_config"))) return config();
  Dl_info info;
  return dladdr(reinterpret_cast<const void*>(&cblas_sgemm), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname
                                                                                                      : "unknown";
}

int DefaultThreads() noexcept { return internal::ResolveThreads(0); }

}  // namespace regard
