// Weights times values of one key block, added to the accumulators of a query block.
#if defined(REGARD_KERNELS_VALUE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_VALUE_TILE_INL_H_
#undef REGARD_KERNELS_VALUE_TILE_INL_H_
#else
#define REGARD_KERNELS_VALUE_TILE_INL_H_
#endif

#include "kernels/query_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// NC columns of all query vectors. They start from zero in every key block and are added to QueryBlock::acc at its end: a long sum
/// then has as many steps as there are blocks, not keys.
template <int NC>
using ColumnTile = VF[kQueryVectors][NC];

/// The words of n keys on vectors kFirst…kLast.
template <int kFirst, int kLast, int NC>
HWY_INLINE void AddKeys(const Word* HWY_RESTRICT weights, const Word* HWY_RESTRICT v, std::int64_t v_stride, int n,
                        ColumnTile<NC>& acc) {
  const DW d;
  for (int key = 0; key < n; key += kPerWord, weights += kQueryRows, v += v_stride) {
    VW p[kQueryVectors];
    REGARD_UNROLL for (int i = kFirst; i <= kLast; ++i) p[i] = hn::Load(d, weights + i * kLanes);
    REGARD_UNROLL for (int c = 0; c < NC; ++c) {
      const VW vc = hn::Set(d, v[c]);
      REGARD_UNROLL for (int i = kFirst; i <= kLast; ++i) acc[i][c] = MulAddWords(p[i], vc, acc[i][c]);
    }
  }
}

template <int kFirst, int kLast, int NC>
HWY_INLINE void AddKeys(const Segment& segment, const Word* weights, const KeyRows<Word>& v, ColumnTile<NC>& acc) {
  const std::int64_t first = segment.key_begin / kPerWord;  // segments begin with a tile
  AddKeys<kFirst, kLast, NC>(weights + first * kQueryRows, v.data + first * v.stride, v.stride,
                             segment.key_end - segment.key_begin, acc);
}

template <int NC, int kFirst = 0, int kLast = 0>
HWY_INLINE void AddSegment(const Segment& segment, const Word* weights, const KeyRows<Word>& v, ColumnTile<NC>& acc) {
  if (segment.first == kFirst && segment.last == kLast) {
    AddKeys<kFirst, kLast, NC>(segment, weights, v, acc);
  } else if constexpr (kLast + 1 < kQueryVectors) {
    AddSegment<NC, kFirst, kLast + 1>(segment, weights, v, acc);
  } else if constexpr (kFirst + 1 < kQueryVectors) {
    AddSegment<NC, kFirst + 1, kFirst + 1>(segment, weights, v, acc);
  }
}

/// kWhole: one segment on all vectors. is_set: out holds what earlier key blocks came to, rather than nothing.
template <int NC, bool kWhole>
HWY_NOINLINE void AddColumns(const KeyBlock& keys, const KeyRows<Word>& v, bool is_set, float* HWY_RESTRICT out) {
  const DF d;
  ColumnTile<NC> acc;
  REGARD_UNROLL for (int i = 0; i < kQueryVectors; ++i) { REGARD_UNROLL for (int c = 0; c < NC; ++c) acc[i][c] = hn::Zero(d); }
  if constexpr (kWhole) {
    AddKeys<0, kQueryVectors - 1, NC>(keys.segments[0], WeightWords(keys), v, acc);
  } else {
    for (int i = 0; i < keys.num_segments; ++i) AddSegment<NC>(keys.segments[i], WeightWords(keys), v, acc);
  }
  if (is_set) {
    REGARD_UNROLL for (int c = 0; c < NC; ++c) {
      REGARD_UNROLL for (int i = 0; i < kQueryVectors; ++i) {
        acc[i][c] = hn::Add(hn::Load(d, out + c * kQueryRows + i * kLanes), acc[i][c]);
      }
    }
  }
  REGARD_UNROLL for (int c = 0; c < NC; ++c) {
    REGARD_UNROLL for (int i = 0; i < kQueryVectors; ++i) hn::Store(acc[i][c], d, out + c * kQueryRows + i * kLanes);
  }
}

/// Whether any value is NaN or infinite in a tile of the segments that some row does not see whole.
HWY_NOINLINE inline bool HasNonFinite(const KeyBlock& keys, const KeyRows<Word>& v, std::int64_t v_dim, std::uint64_t all_rows) {
  const DF d;
  const DW dw;
  // Of v·0: stays 0 unless a value is not finite, and then is NaN for good. Four chains, or the latency of one would show.
  VF sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  float tail = 0.0f;
  const auto take_row = [&](const Word* row) HWY_ATTR {
    std::int64_t c = 0;
    for (; c + 4 * kLanes <= v_dim; c += 4 * kLanes) {
      REGARD_UNROLL for (int i = 0; i < 4; ++i) sum[i] = MulAddWords(hn::LoadU(dw, row + c + i * kLanes), hn::Zero(dw), sum[i]);
    }
    for (; c + kLanes <= v_dim; c += kLanes) sum[0] = MulAddWords(hn::LoadU(dw, row + c), hn::Zero(dw), sum[0]);
    for (; c < v_dim; ++c) tail += TimesZero(row[c]);
  };
  for (int s = 0; s < keys.num_segments; ++s) {
    const Segment& segment = keys.segments[s];
    for (int tile = segment.key_begin; tile < segment.key_end; tile += kKeyTile) {
      if (RowsThatSee(keys, tile, all_rows).all) continue;
      for (int key = tile; key < std::min(tile + kKeyTile, segment.key_end); key += kPerWord) {
        take_row(v.data + key / kPerWord * v.stride);
      }
    }
  }
  sum[0] = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  return !hn::AllTrue(d, hn::Eq(sum[0], hn::Zero(d))) || tail != 0.0f;
}

/// AddColumns lane by lane as visibility says, for blocks where some row must not touch a value that is not finite. The same
/// operations in the same order, so that the lanes that need no care get the same bits.
HWY_NOINLINE inline void AddColumnsWithCare(const KeyBlock& keys, const KeyRows<Word>& v, std::int64_t v_dim, bool is_set,
                                            float* out) {
  const DF d;
  const DU du;
  for (std::int64_t c = 0; c < v_dim; ++c) {
    for (int i = 0; i < kQueryVectors; ++i) {
      const VU bit = hn::Load(du, keys.lane_bit + i * kLanes);
      VF acc = hn::Zero(d);
      for (int s = 0; s < keys.num_segments; ++s) {
        const Segment& segment = keys.segments[s];
        if (i < segment.first || i > segment.last) continue;
        for (int key = segment.key_begin; key < segment.key_end; key += kPerWord) {
          const VW p = hn::Load(DW(), WeightWords(keys) + key / kPerWord * kQueryRows + i * kLanes);
          acc = MulAddSeen(keys.visible + key, (i * kLanes) & 32, bit, p, v.data[key / kPerWord * v.stride + c], acc);
        }
      }
      float* to = out + c * kQueryRows + i * kLanes;
      hn::Store(is_set ? hn::Add(hn::Load(d, to), acc) : acc, d, to);
    }
  }
}

/// v: the block's first row of values, or of what else weights shall sum.
HWY_INLINE void AddValues(const KeyBlock& keys, const Word* v_data, std::int64_t v_stride, std::int64_t v_dim,
                          QueryBlock& block) {
  const KeyRows<Word> v = {v_data, v_stride};
  const bool is_set = block.acc_is_set;
  block.acc_is_set = true;
  if (!keys.all_seen && HasNonFinite(keys, v, v_dim, block.all_rows)) {
    return AddColumnsWithCare(keys, v, v_dim, is_set, block.acc);
  }
  const bool whole = keys.num_segments == 1 && keys.segments[0].first == 0 && keys.segments[0].last == kQueryVectors - 1;
  std::int64_t c = 0;
  for (; c + 4 <= v_dim; c += 4) {
    float* out = block.acc + c * kQueryRows;
    if (whole) {
      AddColumns<4, true>(keys, {v.data + c, v.stride}, is_set, out);
    } else {
      AddColumns<4, false>(keys, {v.data + c, v.stride}, is_set, out);
    }
  }
  for (; c < v_dim; ++c) AddColumns<1, false>(keys, {v.data + c, v.stride}, is_set, block.acc + c * kQueryRows);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
