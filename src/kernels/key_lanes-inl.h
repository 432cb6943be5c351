// Keys in lanes, as decode needs them: sums across the lanes of many vectors at once.
#if defined(REGARD_KERNELS_KEY_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_KEY_LANES_INL_H_
#undef REGARD_KERNELS_KEY_LANES_INL_H_
#else
#define REGARD_KERNELS_KEY_LANES_INL_H_
#endif

#include "src/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Whole vectors that hold dim floats, in floats.
HWY_INLINE std::int64_t Padded(std::int64_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

#if REGARD_HAVE_BLOCKS

/// Sums within each 128-bit block of four vectors: lane i of block b holds the sum of block b of vector i.
HWY_INLINE VF SumBlocks(const float* vectors) {
  const DF d;
  VF a = hn::Load(d, vectors);
  VF b = hn::Load(d, vectors + kLanes);
  VF c = hn::Load(d, vectors + 2 * kLanes);
  VF e = hn::Load(d, vectors + 3 * kLanes);
  Transpose4x4Blocks(a, b, c, e);
  return hn::Add(hn::Add(a, b), hn::Add(c, e));
}

/// Of two vectors from SumBlocks: even blocks hold a's sums over pairs of blocks, odd blocks b's.
HWY_INLINE VF SumBlockPairs(VF a, VF b) {
  return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
}

/// kLanes vectors of kLanes floats each: lane i of the result is the sum of vector i. The order of the sum is the same for all i.
template <class D = DF>
HWY_INLINE VF SumAcross(const float* vectors) {
  constexpr int kGroup = 4 * kLanes;
  if constexpr (hn::MaxLanes(D()) == 4) {
    return SumBlocks(vectors);
  } else if constexpr (hn::MaxLanes(D()) == 8) {
    return SumBlockPairs(SumBlocks(vectors), SumBlocks(vectors + kGroup));
  } else {
    const D d;
    const VF low = SumBlockPairs(SumBlocks(vectors), SumBlocks(vectors + kGroup));
    const VF high = SumBlockPairs(SumBlocks(vectors + 2 * kGroup), SumBlocks(vectors + 3 * kGroup));
    return hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
  }
}

#else

HWY_INLINE VF SumAcross(const float* vectors) { return hn::Load(DF(), vectors); }

#endif  // REGARD_HAVE_BLOCKS

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
