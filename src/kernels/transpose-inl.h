// Rows of floats to lanes and back: element c of row r becomes lane r of vector c.
#if defined(REGARD_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_TRANSPOSE_INL_H_
#undef REGARD_KERNELS_TRANSPOSE_INL_H_
#else
#define REGARD_KERNELS_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstring>

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

/// Four floats of a row, or four words of two 16-bit numbers each, from a column of them on.
template <class D>
HWY_INLINE hn::Vec<D> LoadFour(D d, const float* row, std::int64_t column) {
  return hn::LoadU(d, row + column);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFour(D d, const std::uint16_t* row, std::int64_t column) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint16_t, D>(), row + 2 * column));
}

/// LoadFour of rows[0], rows[4], …: block g of the result holds row 4g.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadEveryFourthRow(D d, const T* const* rows, std::int64_t column) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return LoadFour(d, rows[0], column);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadEveryFourthRow(half, rows + hn::MaxLanes(half), column), LoadEveryFourthRow(half, rows, column));
  }
}

#endif  // REGARD_HAVE_BLOCKS

#if REGARD_HAVE_BLOCKS

/// kLanes rows of RowsToLanes or WordsToLanes, each vector as `finish` gives it back; returns how many columns are done.
template <class T, class Finish>
HWY_INLINE std::int64_t GroupToLanes(const T* const* rows, std::int64_t columns, const Finish& finish,
                                     float* HWY_RESTRICT lanes) {
  const DF d;
  std::int64_t c = 0;
  for (; c + 4 <= columns; c += 4) {
    VF c0 = LoadEveryFourthRow(d, rows, c);
    VF c1 = LoadEveryFourthRow(d, rows + 1, c);
    VF c2 = LoadEveryFourthRow(d, rows + 2, c);
    VF c3 = LoadEveryFourthRow(d, rows + 3, c);
    Transpose4x4Blocks(c0, c1, c2, c3);
    float* const to = lanes + c * kQueryRows;
    hn::Store(finish(c0), d, to);
    hn::Store(finish(c1), d, to + kQueryRows);
    hn::Store(finish(c2), d, to + 2 * kQueryRows);
    hn::Store(finish(c3), d, to + 3 * kQueryRows);
  }
  return c;
}

/// The inverse of LoadEveryFourthRow for the first num_rows of rows[0], rows[4], …
template <class D>
HWY_INLINE void StoreEveryFourthRow(D d, hn::Vec<D> v, float* const* rows, std::int64_t column, int num_rows) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    if (num_rows > 0) hn::StoreU(v, d, rows[0] + column);
  } else {
    const hn::Half<D> half;
    constexpr int kHalf = static_cast<int>(hn::MaxLanes(half));
    StoreEveryFourthRow(half, hn::LowerHalf(half, v), rows, column, num_rows);
    StoreEveryFourthRow(half, hn::UpperHalf(half, v), rows + kHalf, column, num_rows - kHalf);
  }
}

/// num_rows ≤ kLanes rows of LanesToRows; returns how many columns are done.
HWY_INLINE std::int64_t LanesToGroup(const float* HWY_RESTRICT lanes, std::int64_t columns, const float* factor,
                                     float* const* rows, int num_rows) {
  const DF d;
  const VF zero = hn::Zero(d);
  const VF f = hn::Load(d, factor);
  std::int64_t c = 0;
  for (; c + 4 <= columns; c += 4) {
    const float* const from = lanes + c * kQueryRows;
    VF r0 = hn::Add(hn::Mul(hn::Load(d, from), f), zero);
    VF r1 = hn::Add(hn::Mul(hn::Load(d, from + kQueryRows), f), zero);
    VF r2 = hn::Add(hn::Mul(hn::Load(d, from + 2 * kQueryRows), f), zero);
    VF r3 = hn::Add(hn::Mul(hn::Load(d, from + 3 * kQueryRows), f), zero);
    Transpose4x4Blocks(r0, r1, r2, r3);
    StoreEveryFourthRow(d, r0, rows, c, num_rows);
    StoreEveryFourthRow(d, r1, rows + 1, c, num_rows - 1);
    StoreEveryFourthRow(d, r2, rows + 2, c, num_rows - 2);
    StoreEveryFourthRow(d, r3, rows + 3, c, num_rows - 3);
  }
  return c;
}

#endif  // REGARD_HAVE_BLOCKS

// All take the rows in groups of kLanes: more at once, often a power of two apart, compete for the same few places of the first cache
// level.

/// lanes[c · kQueryRows + r] = factor · rows[r][c] for the kQueryRows rows and c < columns.
HWY_INLINE void RowsToLanes(const float* const* rows, std::int64_t columns, float factor, float* HWY_RESTRICT lanes) {
  for (int r0 = 0; r0 < kQueryRows; r0 += kLanes) {
    std::int64_t c = 0;
#if REGARD_HAVE_BLOCKS
    const VF f = hn::Set(DF(), factor);
    c = GroupToLanes(
        rows + r0, columns, [f](VF v) HWY_ATTR { return hn::Mul(v, f); }, lanes + r0);
#endif
    for (; c < columns; ++c) {
      for (int r = r0; r < r0 + kLanes; ++r) lanes[c * kQueryRows + r] = factor * rows[r][c];
    }
  }
}

/// lanes[c · kQueryRows + r] = the word of the numbers 2c and 2c + 1 of rows[r], the first one below, as they are.
HWY_INLINE void WordsToLanes(const std::uint16_t* const* rows, std::int64_t columns, std::uint32_t* HWY_RESTRICT lanes) {
  for (int r0 = 0; r0 < kQueryRows; r0 += kLanes) {
    std::int64_t c = 0;
#if REGARD_HAVE_BLOCKS
    c = GroupToLanes(
        rows + r0, columns, [](VF v) HWY_ATTR { return v; }, reinterpret_cast<float*>(lanes) + r0);
#endif
    for (; c < columns; ++c) {
      for (int r = r0; r < r0 + kLanes; ++r) std::memcpy(lanes + c * kQueryRows + r, rows[r] + 2 * c, sizeof(std::uint32_t));
    }
  }
}

/// rows[r][c] = factor[r] · lanes[c · kQueryRows + r] + 0 for r < num_rows and c < columns. Adding 0 turns −0 into +0.
HWY_INLINE void LanesToRows(const float* HWY_RESTRICT lanes, std::int64_t columns, const float* factor, float* const* rows,
                            int num_rows) {
  for (int r0 = 0; r0 < num_rows; r0 += kLanes) {
    const int rows_here = std::min(kLanes, num_rows - r0);
    std::int64_t c = 0;
#if REGARD_HAVE_BLOCKS
    if (rows_here == kLanes) {
      c = LanesToGroup(lanes + r0, columns, factor + r0, rows + r0, kLanes);
    } else {
      c = LanesToGroup(lanes + r0, columns, factor + r0, rows + r0, rows_here);
    }
#endif
    for (; c < columns; ++c) {
      for (int r = r0; r < r0 + rows_here; ++r) rows[r][c] = factor[r] * lanes[c * kQueryRows + r] + 0.0f;
    }
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
