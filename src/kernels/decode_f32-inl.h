// The products of decode in f32: a sub-block of key rows with all queries, weights with its value rows. Rows that are stored as something
// else, that do not fill whole vectors, or that end within the sub-block are first written to the first cache level as f32.
#if defined(REGARD_KERNELS_DECODE_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_DECODE_F32_INL_H_
#undef REGARD_KERNELS_DECODE_F32_INL_H_
#else
#define REGARD_KERNELS_DECODE_F32_INL_H_
#endif

#include <algorithm>

#include "hwy/cache_control.h"
#include "kernels/decode_state-inl.h"
#include "kernels/stored_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Where the next stream of rows begins.
struct NextRows {
  const std::uint8_t* first;  // null: there is none
  std::int64_t stride, row_bytes, num_rows;
};

HWY_INLINE NextRows RowsFrom(const StoredRows& rows, std::int64_t first, std::int64_t end, std::int64_t dim) {
  if (first >= end) return {};
  const std::int64_t item = StoredBytes(rows.dtype);
  return {StoredRow(rows, first), rows.stride * item, dim * item, std::min<std::int64_t>(end - first, kSubBlock)};
}

/// Asks for the first lines of rows that are wanted soon. k and v of a sub-block are two streams in turn, and where one takes over from the
/// other all waited for its first line: the loads are hundreds of operations away, behind the last query rows' arithmetic on what is
/// already in cache and the weights. Prefetchers take it from there. 4 to 16 lines gave 63 → 70–75 % of the read bandwidth, 32 gave
/// 69, a whole sub-block less than none.
HWY_INLINE void StartStream(const NextRows& next) {
  constexpr int kLines = 12;
  constexpr std::int64_t kLineBytes = 64;
  KeepCall();
  if (next.stride == next.row_bytes && next.num_rows * next.row_bytes >= kLines * kLineBytes) {
    // As caches lie; address by address it won half as much.
    REGARD_UNROLL for (int line = 0; line < kLines; ++line) hwy::Prefetch(next.first + line * kLineBytes);
    return;
  }
  for (std::int64_t row = 0, lines = 0; row < next.num_rows && lines < kLines; ++row) {
    for (std::int64_t i = 0; i < next.row_bytes; i += kLineBytes, ++lines) hwy::Prefetch(next.first + row * next.stride + i);
  }
}

/// kSubBlock rows of Padded(dim) floats: where they are stored, or written to `copy` with zeros for rows that do not exist.
HWY_INLINE FloatRows WholeRows(const StoredRows& rows, const SubBlock& at, std::int64_t dim, float* copy) {
  if (rows.dtype == DType::kF32 && at.num_keys == kSubBlock && dim % kLanes == 0) {
    return {reinterpret_cast<const float*>(StoredRow(rows, at.first_key)), rows.stride};
  }
  const std::int64_t stride = Padded(dim);
  ConvertRows(rows, at.first_key, at.num_keys, dim, copy, stride);
  std::fill(copy + at.num_keys * stride, copy + kSubBlock * stride, 0.0f);
  return {copy, stride};
}

/// Scores of two rows of kVectors whole vectors, which stay in registers: half as many loads as multiplications, where ScoreRows has more
/// loads than those. Every sum in the same order as there, so that a row's bits do not depend on whether it has a partner.
template <int kVectors>
HWY_NOINLINE void ScoreTwoRows(const FloatRows& keys, DecodeRow* rows) {
  const DF d;
  VF q[2][kVectors];
  REGARD_UNROLL for (int r = 0; r < 2; ++r) {
    REGARD_UNROLL for (int i = 0; i < kVectors; ++i) {
      q[r][i] = hn::Load(d, rows[r].q + i * kLanes);
      KeepInRegister(q[r][i]);
    }
  }
  alignas(64) float block_sums[2][kSubBlock / 4 * kBlockSums];
  const float* HWY_RESTRICT k = keys.data;
  for (int key = 0; key < kSubBlock; key += 4) {
    VF sum[2][4];
    REGARD_UNROLL for (int j = 0; j < 4; ++j, k += keys.stride) {
      sum[0][j] = sum[1][j] = hn::Zero(d);
      REGARD_UNROLL for (int i = 0; i < kVectors; ++i) {
        VF ki = hn::LoadU(d, k + i * kLanes);
        KeepReadOrder(ki);
        sum[0][j] = hn::MulAdd(q[0][i], ki, sum[0][j]);
        sum[1][j] = hn::MulAdd(q[1][i], ki, sum[1][j]);
      }
    }
    REGARD_UNROLL for (int r = 0; r < 2; ++r) {
      StoreBlockSums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], block_sums[r] + key / 4 * kBlockSums);
    }
  }
  for (int r = 0; r < 2; ++r) SumAcrossBlocks(block_sums[r], rows[r].scores);
}

/// Scores of the NR rows from rows on.
template <int NR>
HWY_NOINLINE void ScoreRows(const FloatRows& keys, std::int64_t head_dim, DecodeRow* rows) {
  const DF d;
  const float* HWY_RESTRICT q[NR];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) q[r] = rows[r].q;
  alignas(64) float block_sums[NR][kSubBlock / 4 * kBlockSums];
  const float* HWY_RESTRICT k = keys.data;
  for (int key = 0; key < kSubBlock; key += 4) {
    VF sum[NR][4];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int j = 0; j < 4; ++j) sum[r][j] = hn::Zero(d); }
    REGARD_UNROLL for (int j = 0; j < 4; ++j, k += keys.stride) {
      for (std::int64_t i = 0; i < head_dim; i += kLanes) {
        VF ki = hn::LoadU(d, k + i);
        KeepReadOrder(ki);
        REGARD_UNROLL for (int r = 0; r < NR; ++r) sum[r][j] = hn::MulAdd(hn::Load(d, q[r] + i), ki, sum[r][j]);
      }
    }
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      StoreBlockSums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], block_sums[r] + key / 4 * kBlockSums);
    }
  }
  for (int r = 0; r < NR; ++r) SumAcrossBlocks(block_sums[r], rows[r].scores);
}

/// All rows' scores; `next` is asked for before the last of them.
HWY_INLINE void ScoreAllRows(const FloatRows& keys, std::int64_t head_dim, DecodeRow* rows, int num_rows, const NextRows& next) {
  int r = 0;
  const auto before = [&](int n) HWY_ATTR {
    if (r + n == num_rows) StartStream(next);
  };
  if constexpr (kDecodeHeldVectors >= 8) {
    for (; (head_dim == 8 * kLanes || head_dim == 4 * kLanes) && r + 2 <= num_rows; r += 2) {
      before(2);
      head_dim == 8 * kLanes ? ScoreTwoRows<8>(keys, rows + r) : ScoreTwoRows<4>(keys, rows + r);
    }
  }
  for (; r + kDecodeTileRows <= num_rows; r += kDecodeTileRows) {
    before(kDecodeTileRows);
    ScoreRows<kDecodeTileRows>(keys, head_dim, rows + r);
  }
  for (; r < num_rows; ++r) {
    before(1);
    ScoreRows<1>(keys, head_dim, rows + r);
  }
}

/// rows[r].acc[0…NV vectors) += Σ weights · v over the sub-block. kCare: each row touches only the values it may see.
template <int NR, int NV, bool kCare>
HWY_INLINE void MultiplyValues(const FloatRows& values, DecodeRow* rows, std::int64_t column) {
  const DF d;
  VF acc[NR][NV];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int i = 0; i < NV; ++i) acc[r][i] = hn::Zero(d); }
  const float* HWY_RESTRICT v = values.data + column;
  for (int key = 0; key < kSubBlock; ++key, v += values.stride) {
    if constexpr (kCare) {
      static_assert(NR == 1);
      if ((rows[0].visible >> key & 1) == 0) continue;
    }
    VF p[NR];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) p[r] = hn::Set(d, rows[r].scores[key]);
    REGARD_UNROLL for (int i = 0; i < NV; ++i) {
      VF vi = hn::LoadU(d, v + i * kLanes);
      KeepReadOrder(vi);
      REGARD_UNROLL for (int r = 0; r < NR; ++r) acc[r][i] = hn::MulAdd(p[r], vi, acc[r][i]);
    }
  }
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    float* HWY_RESTRICT to = rows[r].acc + column;
    REGARD_UNROLL for (int i = 0; i < NV; ++i) hn::Store(hn::Add(hn::Load(d, to + i * kLanes), acc[r][i]), d, to + i * kLanes);
  }
}

/// All columns for NR rows.
template <int NR, bool kCare>
HWY_NOINLINE void MultiplyValueRows(const FloatRows& values, std::int64_t v_dim, DecodeRow* rows) {
  std::int64_t column = 0;
  for (; column + kDecodeTileColumns * kLanes <= v_dim; column += kDecodeTileColumns * kLanes) {
    MultiplyValues<NR, kDecodeTileColumns, kCare>(values, rows, column);
  }
  for (; column < v_dim; column += kLanes) MultiplyValues<NR, 1, kCare>(values, rows, column);
}

HWY_INLINE bool HasNonFinite(const FloatRows& values, std::int64_t v_dim) {
  const DF d;
  VF sum = hn::Zero(d);  // of v·0: NaN as soon as a value is not finite
  for (int key = 0; key < kSubBlock; ++key) {
    const float* row = values.data + key * values.stride;
    for (std::int64_t c = 0; c < v_dim; c += kLanes) sum = hn::MulAdd(hn::LoadU(d, row + c), hn::Zero(d), sum);
  }
  return !hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

/// All rows' weights · v; `next` is asked for before the last of them.
HWY_INLINE void MultiplyAllRows(const FloatRows& values, std::int64_t v_dim, const SubBlock& at, DecodeRow* rows, int num_rows,
                                const NextRows& next) {
  int r = 0;
  if (!at.all_seen && HasNonFinite(values, v_dim)) {
    for (; r < num_rows; ++r) MultiplyValueRows<1, true>(values, v_dim, rows + r);
    return;
  }
  for (; r + 2 <= num_rows; r += 2) {
    if (r + 2 == num_rows) StartStream(next);
    MultiplyValueRows<2, false>(values, v_dim, rows + r);
  }
  for (; r < num_rows; ++r) {
    StartStream(next);
    MultiplyValueRows<1, false>(values, v_dim, rows + r);
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
