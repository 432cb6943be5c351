// What keys gather from a block of queries: d_v += weightsᵀ · d_context and d_k += d_scoresᵀ · q, as sums over rows of numbers times
// vectors along dim.
#if defined(REGARD_KERNELS_KEY_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_KEY_GRADIENT_INL_H_
#undef REGARD_KERNELS_KEY_GRADIENT_INL_H_
#else
#define REGARD_KERNELS_KEY_GRADIENT_INL_H_
#endif

#include "kernels/gradient_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Rows [first, end) times the numbers that kKeyTile keys have for them, NC vectors of columns: out[j] += Σ_r numbers[j][r] · rows[r]. Each
/// sum starts from 0 and is added to out at its end: a long sum then has as many steps as there are blocks of queries.
template <int NC>
HWY_INLINE void GatherColumns(const float* HWY_RESTRICT numbers, const float* HWY_RESTRICT rows, int first, int end,
                              std::int64_t stride, float* HWY_RESTRICT out) {
  const DF d;
  VF sum[kKeyTile][NC];
  REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) { REGARD_UNROLL for (int c = 0; c < NC; ++c) sum[j][c] = hn::Zero(d); }
  rows += first * kGroup;
  REGARD_UNROLL_FEW
  for (int r = first; r < end; ++r, rows += kGroup) {
    VF x[NC];
    REGARD_UNROLL for (int c = 0; c < NC; ++c) x[c] = hn::Load(d, rows + c * kLanes);
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
      const VF y = hn::Set(d, numbers[j * kQueryRows + r]);
      REGARD_UNROLL for (int c = 0; c < NC; ++c) sum[j][c] = hn::MulAdd(x[c], y, sum[j][c]);
    }
  }
  REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
    REGARD_UNROLL for (int c = 0; c < NC; ++c) {
      float* const to = out + j * stride + c * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), sum[j][c]), d, to);
    }
  }
}

/// All tiles of the block's stretches.
template <int NC>
HWY_NOINLINE void GatherTiles(const KeyBlock& keys, const float* numbers, const float* rows, int num_rows, std::int64_t stride,
                              float* out) {
  for (int s = 0; s < keys.num_stretches; ++s) {
    const Stretch& stretch = keys.stretches[s];
    const int first = stretch.vectors.first * kLanes, end = std::min((stretch.vectors.last + 1) * kLanes, num_rows);
    for (int key = stretch.key_begin; key < stretch.key_end; key += kKeyTile) {
      GatherColumns<NC>(numbers + key * kQueryRows, rows, first, end, stride, out + key * stride);
    }
  }
}

/// The rows that GatherTiles took as 0, for the keys that they see.
HWY_NOINLINE inline void GatherLooseRow(const KeyBlock& keys, const float* numbers, int r, const float* row, std::int64_t dim,
                                        float factor, float* out) {
  for (int s = 0; s < keys.num_stretches; ++s) {
    const Stretch& stretch = keys.stretches[s];
    if (!stretch.vectors.Has(r / kLanes)) continue;
    for (int key = stretch.key_begin; key < stretch.key_end; ++key) {
      if (keys.has_visible && (keys.visible[key] >> r & 1) == 0) continue;
      for (std::int64_t c = 0; c < dim; ++c)
        out[key * GradientStride(dim) + c] += numbers[key * kQueryRows + r] * (factor * row[c]);
    }
  }
}

/// rows [groups, kQueryRows, kGroup]; out: the row of the block's first key, [≥ n rounded up to kKeyTile, GradientStride(dim)].
HWY_INLINE void GatherForKeys(const KeyBlock& keys, const float* numbers, const float* rows, int num_rows, std::int64_t dim,
                              float* out) {
  const std::int64_t stride = GradientStride(dim);
  const std::int64_t columns = (dim + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t first = 0; first < columns; first += kGroup) {
    const float* const group = rows + first * kQueryRows;
    const std::int64_t count = std::min<std::int64_t>(kGroup, columns - first);
    if (count == kGroup) {
      GatherTiles<kGatherVectors>(keys, numbers, group, num_rows, stride, out + first);
      continue;
    }
    std::int64_t c = 0;
    for (; c + 2 * kLanes <= count; c += 2 * kLanes) GatherTiles<2>(keys, numbers, group + c, num_rows, stride, out + first + c);
    if (c < count) GatherTiles<1>(keys, numbers, group + c, num_rows, stride, out + first + c);
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
