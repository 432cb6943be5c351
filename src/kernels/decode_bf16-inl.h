// The products of decode where q, k and v are bf16 and the machine multiplies pairs of them (vdpbf16ps): neighbours of a row of q and k; of
// weights and values, those of two neighbouring keys. For AVX3_BF16 only.
#if defined(REGARD_KERNELS_DECODE_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_DECODE_BF16_INL_H_
#undef REGARD_KERNELS_DECODE_BF16_INL_H_
#else
#define REGARD_KERNELS_DECODE_BF16_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/decode_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

using DB = hn::Repartition<std::uint16_t, DF>;
using VB = hn::Vec<DB>;
inline constexpr int kBf16Lanes = 2 * kLanes;

/// kSubBlock rows of Bf16Padded(dim) elements.
struct Bf16Rows {
  const std::uint16_t* data;
  std::int64_t stride;
  std::int64_t ahead;  // BytesAhead, if the rows are where they are stored
};

/// What a row has at `from`; asks for what lies `ahead`.
HWY_INLINE VB ReadBf16(const std::uint16_t* from, std::int64_t ahead) {
  AskFor(reinterpret_cast<const std::uint8_t*>(from) + ahead);
  VB x = hn::LoadU(DB(), from);
  KeepReadOrder(x);
  return x;
}

HWY_INLINE std::int64_t Bf16Padded(std::int64_t dim) { return (dim + kBf16Lanes - 1) / kBf16Lanes * kBf16Lanes; }

HWY_INLINE VF MulAddPairs(VF sum, VB a, VB b) {
  return VF{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a.raw), reinterpret_cast<__m512bh>(b.raw))};
}

/// Where they are stored, or copied with zeros behind them and for rows that do not exist.
HWY_INLINE Bf16Rows WholeBf16Rows(const StoredRows& rows, const SubBlock& at, std::int64_t kv_len, std::int64_t dim,
                                  float* copy) {
  if (at.num_keys == kSubBlock && dim % kBf16Lanes == 0) {
    return {reinterpret_cast<const std::uint16_t*>(StoredRow(rows, at.first_key)), rows.stride,
            BytesAhead(rows, at.first_key, kv_len)};
  }
  std::uint16_t* const to = reinterpret_cast<std::uint16_t*>(copy);
  const std::int64_t stride = Bf16Padded(dim);
  std::fill_n(to, kSubBlock * stride, std::uint16_t{0});
  for (int j = 0; j < at.num_keys; ++j) {
    std::memcpy(to + j * stride, StoredRow(rows, at.first_key + j), static_cast<std::size_t>(dim) * sizeof(std::uint16_t));
  }
  return {to, stride, 0};
}

/// q as it was stored; scores are scaled afterwards.
HWY_INLINE void PackBf16Query(const void* q, std::int64_t head_dim, float* packed) {
  std::uint16_t* const to = reinterpret_cast<std::uint16_t*>(packed);
  std::fill_n(to, Bf16Padded(head_dim), std::uint16_t{0});
  std::memcpy(to, q, static_cast<std::size_t>(head_dim) * sizeof(std::uint16_t));
}

HWY_INLINE const std::uint16_t* Bf16Query(const DecodeRow& row) { return reinterpret_cast<const std::uint16_t*>(row.q); }

template <int NR>
HWY_INLINE void FinishBf16Scores(const float (&block_sums)[NR][kSubBlock / 4 * kBlockSums], float factor, DecodeRow* rows) {
  const DF d;
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    SumAcrossBlocks(block_sums[r], rows[r].scores);
    hn::Store(hn::Mul(hn::Load(d, rows[r].scores), hn::Set(d, factor)), d, rows[r].scores);
  }
}

/// Scores of two rows of kVectors whole vectors, which stay in registers. Every sum in the same order as in ScoreBf16Rows.
template <int kVectors>
HWY_NOINLINE void ScoreTwoBf16Rows(const Bf16Rows& keys, float factor, DecodeRow* rows) {
  const DB d;
  VB q[2][kVectors];
  REGARD_UNROLL for (int r = 0; r < 2; ++r) {
    REGARD_UNROLL for (int i = 0; i < kVectors; ++i) {
      q[r][i] = hn::Load(d, Bf16Query(rows[r]) + i * kBf16Lanes);
      KeepInRegister(q[r][i]);
    }
  }
  alignas(64) float block_sums[2][kSubBlock / 4 * kBlockSums];
  const std::uint16_t* HWY_RESTRICT k = keys.data;
  for (int key = 0; key < kSubBlock; key += 4) {
    VF sum[2][4];
    REGARD_UNROLL for (int j = 0; j < 4; ++j, k += keys.stride) {
      sum[0][j] = sum[1][j] = hn::Zero(DF());
      REGARD_UNROLL for (int i = 0; i < kVectors; ++i) {
        const VB ki = ReadBf16(k + i * kBf16Lanes, keys.ahead);
        sum[0][j] = MulAddPairs(sum[0][j], q[0][i], ki);
        sum[1][j] = MulAddPairs(sum[1][j], q[1][i], ki);
      }
    }
    REGARD_UNROLL for (int r = 0; r < 2; ++r) {
      StoreBlockSums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], block_sums[r] + key / 4 * kBlockSums);
    }
  }
  FinishBf16Scores(block_sums, factor, rows);
}

/// Scores of the NR rows from rows on.
template <int NR>
HWY_NOINLINE void ScoreBf16Rows(const Bf16Rows& keys, std::int64_t head_dim, float factor, DecodeRow* rows) {
  const DB d;
  const std::uint16_t* HWY_RESTRICT q[NR];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) q[r] = Bf16Query(rows[r]);
  alignas(64) float block_sums[NR][kSubBlock / 4 * kBlockSums];
  const std::uint16_t* HWY_RESTRICT k = keys.data;
  for (int key = 0; key < kSubBlock; key += 4) {
    VF sum[NR][4];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int j = 0; j < 4; ++j) sum[r][j] = hn::Zero(DF()); }
    REGARD_UNROLL for (int j = 0; j < 4; ++j, k += keys.stride) {
      for (std::int64_t i = 0; i < head_dim; i += kBf16Lanes) {
        const VB ki = ReadBf16(k + i, keys.ahead);
        REGARD_UNROLL for (int r = 0; r < NR; ++r) sum[r][j] = MulAddPairs(sum[r][j], hn::Load(d, q[r] + i), ki);
      }
    }
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      StoreBlockSums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], block_sums[r] + key / 4 * kBlockSums);
    }
  }
  FinishBf16Scores(block_sums, factor, rows);
}

/// All rows' scores.
HWY_INLINE void ScoreAllBf16Rows(const Bf16Rows& keys, std::int64_t head_dim, float factor, DecodeRow* rows, int num_rows) {
  const auto score_two = head_dim == 4 * kBf16Lanes   ? ScoreTwoBf16Rows<4>
                         : head_dim == 2 * kBf16Lanes ? ScoreTwoBf16Rows<2>
                                                      : nullptr;
  int r = 0;
  for (; r + 2 <= num_rows; r += 2) {
    if (score_two != nullptr) {
      score_two(keys, factor, rows + r);
    } else {
      ScoreBf16Rows<2>(keys, head_dim, factor, rows + r);
    }
  }
  for (; r < num_rows; ++r) ScoreBf16Rows<1>(keys, head_dim, factor, rows + r);
}

/// Rounds a row's weights, to nearest, ties to even; they stay where the first half of them was. Word i holds keys 2i and 2i + 1.
HWY_INLINE void RoundWeights(DecodeRow& row) {
  const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(hn::Load(DF(), row.scores).raw));
  _mm256_store_si256(reinterpret_cast<__m256i*>(row.scores), rounded);
}

HWY_INLINE VB TwoWeights(const DecodeRow& row, int pair) {
  std::uint32_t word;
  std::memcpy(&word, row.scores + pair, sizeof(word));
  return hn::BitCast(DB(), hn::Set(DU(), word));
}

/// rows[r].acc[0…2·NV vectors) += Σ weights · v over the sub-block, NV vectors of pairs of columns; acc has the order of AccColumn.
template <int NR, int NV>
HWY_INLINE void MultiplyBf16Values(const Bf16Rows& values, DecodeRow* rows, std::int64_t column) {
  const DB d;
  VF acc[NR][2 * NV];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int i = 0; i < 2 * NV; ++i) acc[r][i] = hn::Zero(DF()); }
  const std::uint16_t* HWY_RESTRICT v = values.data + column;
  for (int pair = 0; pair < kSubBlock / 2; ++pair, v += 2 * values.stride) {
    VB p[NR];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) p[r] = TwoWeights(rows[r], pair);
    VB even[NV];
    REGARD_UNROLL for (int i = 0; i < NV; ++i) even[i] = ReadBf16(v + i * kBf16Lanes, values.ahead);
    REGARD_UNROLL for (int i = 0; i < NV; ++i) {
      const VB odd = ReadBf16(v + values.stride + i * kBf16Lanes, values.ahead);
      VB low = hn::InterleaveLower(d, even[i], odd), high = hn::InterleaveUpper(d, even[i], odd);
      REGARD_UNROLL for (int r = 0; r < NR; ++r) {
        acc[r][2 * i] = MulAddPairs(acc[r][2 * i], p[r], low);
        acc[r][2 * i + 1] = MulAddPairs(acc[r][2 * i + 1], p[r], high);
      }
    }
  }
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    float* HWY_RESTRICT to = rows[r].acc + column;
    REGARD_UNROLL for (int i = 0; i < 2 * NV; ++i) {
      hn::Store(hn::Add(hn::Load(DF(), to + i * kLanes), acc[r][i]), DF(), to + i * kLanes);
    }
  }
}

/// Where column c lies in acc: of each 32 columns, 4 of each 8 come before the other 4, as interleaving within 128 bits leaves them.
HWY_INLINE std::int64_t AccColumn(std::int64_t c) {
  return c / kBf16Lanes * kBf16Lanes + c % 8 / 4 * kLanes + c % kBf16Lanes / 8 * 4 + c % 4;
}

template <int NR>
HWY_NOINLINE void MultiplyBf16ValueRows(const Bf16Rows& values, std::int64_t v_dim, DecodeRow* rows) {
  std::int64_t column = 0;
  for (; column + 4 * kBf16Lanes <= v_dim; column += 4 * kBf16Lanes) MultiplyBf16Values<NR, 4>(values, rows, column);
  for (; column < v_dim; column += kBf16Lanes) MultiplyBf16Values<NR, 1>(values, rows, column);
}

HWY_INLINE bool HasNonFinite(const Bf16Rows& values, std::int64_t v_dim) {
  const DB d;
  const VB exponent = hn::Set(d, std::uint16_t{0x7F80});
  for (int key = 0; key < kSubBlock; ++key) {
    for (std::int64_t c = 0; c < v_dim; c += kBf16Lanes) {
      const VB v = hn::LoadU(d, values.data + key * values.stride + c);
      if (!hn::AllFalse(d, hn::Eq(hn::And(v, exponent), exponent))) return true;
    }
  }
  return false;
}

/// The values that one row sees, zeros for the others.
HWY_NOINLINE inline Bf16Rows SeenValues(const Bf16Rows& values, std::int64_t v_dim, std::uint32_t visible, float* copy) {
  std::uint16_t* const to =
      reinterpret_cast<std::uint16_t*>(copy) + kSubBlock * v_dim;  // behind what WholeBf16Rows may have written
  std::fill_n(to, kSubBlock * v_dim, std::uint16_t{0});
  for (int key = 0; key < kSubBlock; ++key) {
    if ((visible >> key & 1) != 0) std::copy_n(values.data + key * values.stride, v_dim, to + key * v_dim);
  }
  return {to, v_dim, 0};
}

/// All rows' weights · v.
HWY_INLINE void MultiplyAllBf16Rows(const Bf16Rows& values, std::int64_t v_dim, const SubBlock& at, DecodeScratch& scratch,
                                    int num_rows) {
  DecodeRow* const rows = scratch.rows;
  for (int r = 0; r < num_rows; ++r) RoundWeights(rows[r]);
  int r = 0;
  if (!at.all_seen && HasNonFinite(values, v_dim)) {
    for (; r < num_rows; ++r) {
      MultiplyBf16ValueRows<1>(SeenValues(values, v_dim, rows[r].visible, scratch.v_copy), v_dim, rows + r);
    }
    return;
  }
  for (; r + 2 <= num_rows; r += 2) MultiplyBf16ValueRows<2>(values, v_dim, rows + r);
  for (; r < num_rows; ++r) MultiplyBf16ValueRows<1>(values, v_dim, rows + r);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
