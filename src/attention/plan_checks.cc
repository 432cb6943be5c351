#include "attention/plan_checks.h"

#include <algorithm>
#include <cctype>

namespace regard::internal {
namespace {

// What a 64-bit processor addresses with four levels of pages; a workspace beyond it is no workspace.
constexpr std::size_t kMostBytes = std::size_t{1} << 48;

// What to write instead of a name that is none, or is written in other letters.
std::string IsaAdvice(const std::string& isa) {
  const auto same_letter = [](unsigned char a, unsigned char b) { return std::toupper(a) == std::toupper(b); };
  std::string names;
  for (const TargetInfo& target : CompiledTargets()) {
    if (!target.supported) continue;
    if (std::ranges::equal(target.name, isa, same_letter)) return "write " + target.name;
    names += (names.empty() ? "" : ", ") + target.name;
  }
  return "use one of " + names;
}

}  // namespace

const KernelTable& ResolveKernels(const std::string& isa) {
  const KernelTable* kernels = FindKernels(isa);
  if (kernels == nullptr) throw Error(ErrorCode::kUnsupported, "isa: \"" + isa + "\" does not run here; " + IsaAdvice(isa));
  return *kernels;
}

void CheckWorkspaceBytes(const PlanShape& s, Path path, int threads, std::size_t bytes) {
  if (bytes <= kMostBytes) return;
  throw Error(ErrorCode::kOutOfMemory, "shape: batch " + std::to_string(s.batch) + ", heads " + std::to_string(s.heads) +
                                           ", q_len " + std::to_string(s.q_len) + ", kv_len " + std::to_string(s.kv_len) +
                                           " on path " + Name(path) + " with " + std::to_string(threads) +
                                           " threads needs a workspace of more than 2^48 bytes; give a smaller one" +
                                           (path == Path::kStaged ? " or use path fused" : ""));
}

}  // namespace regard::internal
