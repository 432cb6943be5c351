// Keys in lanes, as decode needs them: sums across the lanes of many vectors at once.
#if defined(REGARD_KERNELS_KEY_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_KEY_LANES_INL_H_
#undef REGARD_KERNELS_KEY_LANES_INL_H_
#else
#define REGARD_KERNELS_KEY_LANES_INL_H_
#endif

#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Whole vectors that hold dim floats, in floats.
HWY_INLINE std::int64_t Padded(std::int64_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

inline constexpr int kBlockSums = kLanes > 4 ? kLanes : 4;  // floats that StoreBlockSums writes

#if REGARD_HAVE_BLOCKS

/// Sums across four vectors, as far as 128-bit blocks go: lane i of block b is the sum of block b of vector i.
HWY_INLINE VF BlockSums(VF a, VF b, VF c, VF e) {
  const DF d;
  const hn::RepartitionToWide<DF> dw;
  const VF ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));  // a0 + a2, b0 + b2, a1 + a3, b1 + b3
  const VF ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab2 = hn::BitCast(dw, ab), ce2 = hn::BitCast(dw, ce);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(dw, ab2, ce2)), hn::BitCast(d, hn::InterleaveUpper(dw, ab2, ce2)));
}
HWY_INLINE void StoreBlockSums(VF a, VF b, VF c, VF e, float* to) { hn::Store(BlockSums(a, b, c, e), DF(), to); }

/// Of two vectors of block sums: even blocks hold a's sums over pairs of blocks, odd blocks b's.
HWY_INLINE VF SumBlockPairs(VF a, VF b) {
  return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
}

/// sums[4i + j] = the sum of the j-th vector that went into the i-th of kSubBlock / 4 block sums. The order of a sum is the same for all.
template <class D = DF>
HWY_INLINE void SumAcrossBlocks(const float* block_sums, float* sums) {
  const D d;
  for (int i = 0; i < kSubBlock; i += kLanes, block_sums += kLanes / 4 * kLanes, sums += kLanes) {
    if constexpr (hn::MaxLanes(D()) == 4) {
      hn::Store(hn::Load(d, block_sums), d, sums);
    } else {
      const VF low = SumBlockPairs(hn::Load(d, block_sums), hn::Load(d, block_sums + kLanes));
      if constexpr (hn::MaxLanes(D()) == 8) {
        hn::Store(low, d, sums);
      } else {
        const VF high = SumBlockPairs(hn::Load(d, block_sums + 2 * kLanes), hn::Load(d, block_sums + 3 * kLanes));
        hn::Store(hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low)), d, sums);
      }
    }
  }
}

template <int kFrom, class V>
HWY_INLINE auto FirstBlock(V v) {
  if constexpr (kFrom > 4) {
    return FirstBlock<kFrom / 2>(hn::LowerHalf(v));
  } else {
    return v;
  }
}

/// sums[i], i < 4: the sum of the i-th vector, in the order of SumAcrossBlocks.
template <class D = DF>
HWY_INLINE void StoreSums(VF a, VF b, VF c, VF e, float* sums) {
  const D d;
  VF sum = BlockSums(a, b, c, e);
  if constexpr (hn::MaxLanes(D()) >= 8) sum = hn::Add(sum, hn::SwapAdjacentBlocks(sum));
  if constexpr (hn::MaxLanes(D()) >= 16) sum = hn::Add(sum, hn::ConcatLowerUpper(d, sum, sum));
  hn::Store(FirstBlock<hn::MaxLanes(D())>(sum), hn::FixedTag<float, 4>(), sums);
}

#else

HWY_INLINE void StoreBlockSums(VF a, VF b, VF c, VF e, float* to) {
  const VF vectors[4] = {a, b, c, e};
  for (int i = 0; i < 4; ++i) hn::Store(vectors[i], DF(), to + i);
}
HWY_INLINE void SumAcrossBlocks(const float* block_sums, float* sums) { std::copy_n(block_sums, kSubBlock, sums); }
HWY_INLINE void StoreSums(VF a, VF b, VF c, VF e, float* sums) { StoreBlockSums(a, b, c, e, sums); }

#endif  // REGARD_HAVE_BLOCKS

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
