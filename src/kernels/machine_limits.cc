// What measuring needs from a target: loops that do nothing but multiply and add, or nothing but read.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/machine_limits.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/tile_config-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// Two FMA units of latency 4 or 5 need 10 chains; more hide the loop. 12 fit every register file, with the operands.
inline constexpr int kChains = 12;
inline constexpr int kRounds = 2;

std::int64_t PeakFlopsPerStep() { return std::int64_t{2} * kLanes * kChains * kRounds; }

float PeakFlops(std::int64_t steps) {
  const DF d;
  // Every chain starts elsewhere, or the compiler computes equal ones once.
  VF chain[kChains];
  REGARD_UNROLL for (int c = 0; c < kChains; ++c) chain[c] = hn::Set(d, 1.0f + 0.125f * static_cast<float>(c));
  const VF factor = hn::Set(d, 0.5f);
  const VF add = hn::Set(d, 1.0f);
  for (std::int64_t i = 0; i < steps; ++i) {
    REGARD_UNROLL for (int round = 0; round < kRounds; ++round) {
      REGARD_UNROLL for (int c = 0; c < kChains; ++c) chain[c] = hn::MulAdd(chain[c], factor, add);
    }
  }
  VF sum = chain[0];
  REGARD_UNROLL for (int c = 1; c < kChains; ++c) sum = hn::Add(sum, chain[c]);
  return hn::GetLane(sum);
}

float ReadBytes(const void* data, std::size_t bytes) {
  const DU d;
  constexpr int kStreams = 4;  // accumulators, on one ascending run of addresses
  constexpr std::size_t kStep = std::size_t{kStreams} * kLanes;
  const std::uint32_t* words = static_cast<const std::uint32_t*>(data);
  const std::size_t count = bytes / sizeof(std::uint32_t);
  VU sum[kStreams];
  REGARD_UNROLL for (int s = 0; s < kStreams; ++s) sum[s] = hn::Zero(d);
  for (std::size_t i = 0; i + kStep <= count; i += kStep) {
    REGARD_UNROLL for (int s = 0; s < kStreams; ++s) sum[s] = hn::Xor(sum[s], hn::LoadU(d, words + i + s * kLanes));
  }
  REGARD_UNROLL for (int s = 1; s < kStreams; ++s) sum[0] = hn::Xor(sum[0], sum[s]);
  return static_cast<float>(hn::GetLane(sum[0]));
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(PeakFlopsPerStep);
HWY_EXPORT(PeakFlops);
HWY_EXPORT(ReadBytes);

void AddMachineLimits(std::int64_t target, KernelTable& table) {
  const std::size_t index = DispatchIndex(target);
  table.peak_flops_per_step = HWY_DISPATCH_TABLE(PeakFlopsPerStep)[index]();
  table.peak_flops = HWY_DISPATCH_TABLE(PeakFlops)[index];
  table.read_bytes = HWY_DISPATCH_TABLE(ReadBytes)[index];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
