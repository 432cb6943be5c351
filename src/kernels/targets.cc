#include "kernels/targets.h"

namespace regard::internal {
namespace {

struct CompiledTable {
  std::int64_t target;
  KernelTable table;
};

/// One table per compiled target, best first: Highway gives better targets lower bits.
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
      AddMachineLimits(target, table);
      result.push_back({target, table});
    }
    return result;
  }();
  return tables;
}

bool Supported(std::int64_t target) { return (hwy::SupportedTargets() & target) != 0; }

}  // namespace

std::vector<TargetInfo> CompiledTargets() {
  std::vector<TargetInfo> targets;
  for (const CompiledTable& compiled : Tables()) targets.push_back({compiled.table.target, Supported(compiled.target)});
  return targets;
}

const KernelTable* FindKernels(const std::string& target) {
  for (const CompiledTable& compiled : Tables()) {
    if (Supported(compiled.target) && (target.empty() || target == compiled.table.target)) return &compiled.table;
  }
  return nullptr;
}

}  // namespace regard::internal
