#include "kernels/targets.h"

namespace regard::internal {
namespace {

struct CompiledTable {
  std::int64_t target;
  bool bf16;  // AVX3_BF16
  KernelTable table;
  bool runs_here = false;
};

bool RunsHere(const CompiledTable& compiled, std::int64_t supported) {
#if REGARD_HAVE_BF16_TARGET
  if (compiled.bf16 && !(__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))) return false;
#endif
  return (supported & compiled.target) != 0;
}

/// One table per compiled target, best first: Highway gives better targets lower bits. AVX3_BF16 stands before AVX3. The CPU is asked once: each
/// question leaves a virtual machine, 14 µs, more than attention of a few tokens takes.
const std::vector<CompiledTable>& Tables() {
  static const std::vector<CompiledTable> tables = [] {
    std::vector<CompiledTable> result;
    for (std::uint64_t left = HWY_TARGETS; left != 0; left &= left - 1) {
      const std::int64_t target = static_cast<std::int64_t>(left & (~left + 1));
      KernelTable table = {};
      table.target = hwy::TargetName(target);
      AddPrefillF32(target, table);
      AddDecodeF32(target, table);
      AddBackwardF32(target, table);
      AddScoreGradientsF32(target, table);
      AddSummaryPrefillF32(target, table);
      AddSummaryReduceF32(target, table);
      AddSummaryStreamF32(target, table);
      AddSoftmaxF32(target, table);
      AddStoreRow(target, table);
      AddMachineLimits(target, table);
#if REGARD_HAVE_BF16_TARGET
      if (target == HWY_AVX3) {
        KernelTable bf16 = table;
        bf16.target = "AVX3_BF16";
        AddDecodeBf16(bf16);
        AddPrefillBf16(bf16);
        AddSummaryPassesBf16(bf16);
        AddMachineLimitsBf16(bf16);
        result.push_back({target, true, bf16});
      }
#endif
      result.push_back({target, false, table});
    }
    const std::int64_t supported = hwy::SupportedTargets();
    for (CompiledTable& compiled : result) compiled.runs_here = RunsHere(compiled, supported);
    return result;
  }();
  return tables;
}

}  // namespace

#if REGARD_HAVE_BF16_TARGET
const KernelTable& Avx3Kernels() {
  for (const CompiledTable& compiled : Tables()) {
    if (compiled.target == HWY_AVX3 && !compiled.bf16) return compiled.table;
  }
  return Tables().front().table;  // AVX3 is compiled where this is
}
#endif

std::vector<TargetInfo> CompiledTargets() {
  std::vector<TargetInfo> targets;
  for (const CompiledTable& compiled : Tables()) targets.push_back({compiled.table.target, compiled.runs_here});
  return targets;
}

const KernelTable* FindKernels(const std::string& target) {
  for (const CompiledTable& compiled : Tables()) {
    if (compiled.runs_here && (target.empty() || target == compiled.table.target)) return &compiled.table;
  }
  return nullptr;
}

}  // namespace regard::internal
