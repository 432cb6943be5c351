// What measuring needs from AVX3_BF16: a loop that does nothing but bf16 dot products.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/machine_limits_bf16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/bf16_target-inl.h"
//
#include "kernels/products-inl.h"

#if REGARD_BF16_DOT
HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// As machine_limits.cc.
inline constexpr int kChains = 12;
inline constexpr int kRounds = 2;
inline constexpr std::int64_t kFlopsPerStep = std::int64_t{4} * kLanes * kChains * kRounds;

inline float PeakBf16Flops(std::int64_t steps) {
  VF chain[kChains];
  REGARD_UNROLL for (int c = 0; c < kChains; ++c) chain[c] = hn::Set(DF(), 1.0f + 0.125f * static_cast<float>(c));
  const VU ones = hn::Set(DU(), 0x3F803F80u), halves = hn::Set(DU(), 0x3F003F00u);
  for (std::int64_t i = 0; i < steps; ++i) {
    REGARD_UNROLL for (int round = 0; round < kRounds; ++round) {
      REGARD_UNROLL for (int c = 0; c < kChains; ++c) chain[c] = MulAddWords(ones, halves, chain[c]);
    }
  }
  VF sum = chain[0];
  REGARD_UNROLL for (int c = 1; c < kChains; ++c) sum = hn::Add(sum, chain[c]);
  return hn::GetLane(sum);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // REGARD_BF16_DOT

#if HWY_ONCE && REGARD_HAVE_BF16_TARGET
namespace regard::internal {

void AddMachineLimitsBf16(KernelTable& table) {
  table.peak_bf16_flops_per_step = N_AVX3_BF16::kFlopsPerStep;
  table.peak_bf16_flops = N_AVX3_BF16::PeakBf16Flops;
}

}  // namespace regard::internal
#endif  // HWY_ONCE
