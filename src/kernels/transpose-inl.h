// Rows of floats to lanes and back: element c of row r becomes lane r of vector c.
#if defined(REGARD_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_TRANSPOSE_INL_H_
#undef REGARD_KERNELS_TRANSPOSE_INL_H_
#else
#define REGARD_KERNELS_TRANSPOSE_INL_H_
#endif

#include "kernels/tile_config-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

#if REGARD_HAVE_BLOCKS

/// Transposes each 128-bit block of four vectors as a 4×4 matrix; it is its own inverse.
HWY_INLINE void Transpose4x4Blocks(VF& a, VF& b, VF& c, VF& e) {
  const DF d;
  const hn::RepartitionToWide<DU> dw;
  const auto ab_low = hn::BitCast(dw, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(dw, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(dw, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(dw, hn::InterleaveUpper(d, c, e));
  a = hn::BitCast(d, hn::InterleaveLower(dw, ab_low, ce_low));
  b = hn::BitCast(d, hn::InterleaveUpper(dw, ab_low, ce_low));
  c = hn::BitCast(d, hn::InterleaveLower(dw, ab_high, ce_high));
  e = hn::BitCast(d, hn::InterleaveUpper(dw, ab_high, ce_high));
}

/// Four floats at rows[0][column], rows[4], …: block g of the result holds row 4g.
template <class D>
HWY_INLINE hn::Vec<D> LoadEveryFourthRow(D d, const float* const* rows, std::int64_t column) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + column);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadEveryFourthRow(half, rows + hn::MaxLanes(half), column), LoadEveryFourthRow(half, rows, column));
  }
}

#endif  // REGARD_HAVE_BLOCKS

/// lanes[c · kQueryRows + r] = factor · rows[r][c] for the kQueryRows rows and c < columns.
HWY_INLINE void RowsToLanes(const float* const* rows, std::int64_t columns, float factor, float* HWY_RESTRICT lanes) {
  std::int64_t c = 0;
#if REGARD_HAVE_BLOCKS
  const DF d;
  const VF f = hn::Set(d, factor);
  for (; c + 4 <= columns; c += 4) {
    for (int v = 0; v < kQueryVectors; ++v) {
      const float* const* group = rows + v * kLanes;
      VF c0 = LoadEveryFourthRow(d, group, c);
      VF c1 = LoadEveryFourthRow(d, group + 1, c);
      VF c2 = LoadEveryFourthRow(d, group + 2, c);
      VF c3 = LoadEveryFourthRow(d, group + 3, c);
      Transpose4x4Blocks(c0, c1, c2, c3);
      float* to = lanes + c * kQueryRows + v * kLanes;
      hn::Store(hn::Mul(c0, f), d, to);
      hn::Store(hn::Mul(c1, f), d, to + kQueryRows);
      hn::Store(hn::Mul(c2, f), d, to + 2 * kQueryRows);
      hn::Store(hn::Mul(c3, f), d, to + 3 * kQueryRows);
    }
  }
#endif
  for (; c < columns; ++c) {
    for (int r = 0; r < kQueryRows; ++r) lanes[c * kQueryRows + r] = factor * rows[r][c];
  }
}

/// rows[r][c] = factor[r] · lanes[c · kQueryRows + r] + 0 for r < num_rows and c < columns. Adding 0 turns −0 into +0.
HWY_INLINE void LanesToRows(const float* HWY_RESTRICT lanes, std::int64_t columns, const float* factor, float* const* rows,
                            int num_rows) {
  std::int64_t c = 0;
#if REGARD_HAVE_BLOCKS
  const DF d;
  const VF zero = hn::Zero(d);
  alignas(64) float block[4 * kLanes];
  for (; c + 4 <= columns; c += 4) {
    for (int v = 0; v * kLanes < num_rows; ++v) {
      const float* from = lanes + c * kQueryRows + v * kLanes;
      const VF f = hn::Load(d, factor + v * kLanes);
      VF r0 = hn::Add(hn::Mul(hn::Load(d, from), f), zero);
      VF r1 = hn::Add(hn::Mul(hn::Load(d, from + kQueryRows), f), zero);
      VF r2 = hn::Add(hn::Mul(hn::Load(d, from + 2 * kQueryRows), f), zero);
      VF r3 = hn::Add(hn::Mul(hn::Load(d, from + 3 * kQueryRows), f), zero);
      Transpose4x4Blocks(r0, r1, r2, r3);
      hn::Store(r0, d, block);
      hn::Store(r1, d, block + kLanes);
      hn::Store(r2, d, block + 2 * kLanes);
      hn::Store(r3, d, block + 3 * kLanes);
      const int rows_here = num_rows - v * kLanes < kLanes ? num_rows - v * kLanes : kLanes;
      const hn::FixedTag<float, 4> d4;
      for (int r = 0; r < rows_here; ++r) {  // row r is block r / 4 of vector r % 4
        hn::StoreU(hn::Load(d4, block + (r % 4) * kLanes + (r / 4) * 4), d4, rows[v * kLanes + r] + c);
      }
    }
  }
#endif
  for (; c < columns; ++c) {
    for (int r = 0; r < num_rows; ++r) rows[r][c] = factor[r] * lanes[c * kQueryRows + r] + 0.0f;
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
