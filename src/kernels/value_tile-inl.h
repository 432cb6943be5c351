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
  REGARD_UNROLL_FEW
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
HWY_INLINE void AddKeys(const Stretch& stretch, const Word* weights, const KeyRows<Word>& v, ColumnTile<NC>& acc) {
  const std::int64_t first = stretch.key_begin / kPerWord;  // stretches begin with a tile
  AddKeys<kFirst, kLast, NC>(weights + first * kQueryRows, v.data + first * v.stride, v.stride,
                             stretch.key_end - stretch.key_begin, acc);
}

template <int NC, int kFirst = 0, int kLast = 0>
HWY_INLINE void AddStretch(const Stretch& stretch, const Word* weights, const KeyRows<Word>& v, ColumnTile<NC>& acc) {
  if (stretch.vectors == TileVectors{kFirst, kLast}) {
    AddKeys<kFirst, kLast, NC>(stretch, weights, v, acc);
  } else if constexpr (kLast + 1 < kQueryVectors) {
    AddStretch<NC, kFirst, kLast + 1>(stretch, weights, v, acc);
  } else if constexpr (kFirst + 1 < kQueryVectors) {
    AddStretch<NC, kFirst + 1, kFirst + 1>(stretch, weights, v, acc);
  }
}

/// Whether no lane is NaN, from the sum of all. Infinities of both signs in different lanes pass for NaN, too.
template <int NC>
HWY_INLINE bool IsSound(const ColumnTile<NC>& acc) {
  const DF d;
  VF sum[NC];
  REGARD_UNROLL for (int c = 0; c < NC; ++c) {
    sum[c] = acc[0][c];
    REGARD_UNROLL for (int i = 1; i < kQueryVectors; ++i) sum[c] = hn::Add(sum[c], acc[i][c]);
  }
  REGARD_UNROLL for (int c = 1; c < NC; ++c) sum[0] = hn::Add(sum[0], sum[c]);
  return hn::AllTrue(d, hn::Eq(sum[0], sum[0]));
}

/// NC columns, added to out. kWhole: one stretch on all vectors, every row sees every key. Where some row does not, a weight of 0 may meet a
/// value that is not finite, which must not touch that row: then nothing is written, and it returns false. is_set: out holds what earlier
/// key blocks came to, rather than nothing.
template <int NC, bool kWhole>
HWY_NOINLINE bool AddColumns(const KeyBlock& keys, const KeyRows<Word>& v, bool is_set, float* HWY_RESTRICT out) {
  const DF d;
  ColumnTile<NC> acc;
  REGARD_UNROLL for (int i = 0; i < kQueryVectors; ++i) { REGARD_UNROLL for (int c = 0; c < NC; ++c) acc[i][c] = hn::Zero(d); }
  if constexpr (kWhole) {
    AddKeys<0, kQueryVectors - 1, NC>(keys.stretches[0], WeightWords(keys), v, acc);
  } else {
    for (int i = 0; i < keys.num_stretches; ++i) AddStretch<NC>(keys.stretches[i], WeightWords(keys), v, acc);
    if (!keys.all_seen && HWY_UNLIKELY(!IsSound<NC>(acc))) return false;
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
  return true;
}

/// AddColumns of num_columns, lane by lane as visibility says, for where some row must not touch a value that is not finite. The same
/// operations in the same order, so that the lanes that need no care get the same bits.
HWY_NOINLINE inline void AddColumnsWithCare(const KeyBlock& keys, const KeyRows<Word>& v, int num_columns, bool is_set,
                                            float* out) {
  const DF d;
  const DU du;
  for (int c = 0; c < num_columns; ++c) {
    for (int i = 0; i < kQueryVectors; ++i) {
      const VU bit = hn::Load(du, keys.lane_bit + i * kLanes);
      VF acc = hn::Zero(d);
      for (int s = 0; s < keys.num_stretches; ++s) {
        const Stretch& stretch = keys.stretches[s];
        if (!stretch.vectors.Has(i)) continue;
        for (int key = stretch.key_begin; key < stretch.key_end; key += kPerWord) {
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
  const bool is_set = block.acc_is_set;
  block.acc_is_set = true;
  const bool whole = keys.all_seen && keys.num_stretches == 1 && keys.stretches[0].vectors == TileVectors{0, kQueryVectors - 1};
  const auto add = [&](std::int64_t c, int num_columns, auto* add_columns) HWY_ATTR {
    const KeyRows<Word> v = {v_data + c, v_stride};
    float* const out = block.acc + c * kQueryRows;
    if (HWY_LIKELY(add_columns(keys, v, is_set, out))) return;
    AddColumnsWithCare(keys, v, num_columns, is_set, out);
  };
  std::int64_t c = 0;
  for (; c + 4 <= v_dim; c += 4) add(c, 4, whole ? AddColumns<4, true> : AddColumns<4, false>);
  for (; c < v_dim; ++c) add(c, 1, AddColumns<1, false>);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
