// The products of decode where k and v are int8 with a scale a row and the machine multiplies pairs of 16-bit integers (vpdpwssd): neighbours of
// a row of q and k; of weights and values, those of two neighbouring keys. For AVX3_BF16 only, which has it.
//
// q becomes 16-bit integers, with one scale a row; the weights of a sub-block, times their values' scales, likewise, with one scale a row and
// sub-block. Sums are exact.
#if defined(REGARD_KERNELS_DECODE_I8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_DECODE_I8_INL_H_
#undef REGARD_KERNELS_DECODE_I8_INL_H_
#else
#define REGARD_KERNELS_DECODE_I8_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/decode_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

using D16 = hn::Repartition<std::int16_t, DF>;
using V16 = hn::Vec<D16>;
inline constexpr int kI8Group = 2 * kLanes;  // elements read at once
inline constexpr float kLargestInteger = 32767.0f;
/// Up to here a score's sum of products fits 32 bits.
inline constexpr std::int64_t kLargestI8Dim = 512;

HWY_INLINE VI MulAddIntegers(VI sum, V16 a, V16 b) { return VI{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)}; }

HWY_INLINE V16 ReadIntegers(const std::int8_t* from) {
  auto bytes = hn::LoadU(hn::Rebind<std::int8_t, D16>(), from);
  KeepReadOrder(bytes);
  return hn::PromoteTo(D16(), bytes);
}

struct I8Rows {
  const std::int8_t* data;
  std::int64_t stride;
};

HWY_INLINE I8Rows WholeI8Rows(const StoredRows& rows, const SubBlock& at, std::int64_t dim, float* copy) {
  if (at.num_keys == kSubBlock) return {reinterpret_cast<const std::int8_t*>(StoredRow(rows, at.first_key)), rows.stride};
  std::int8_t* const to = reinterpret_cast<std::int8_t*>(copy);
  std::fill_n(to, kSubBlock * dim, std::int8_t{0});
  for (int j = 0; j < at.num_keys; ++j)
    std::memcpy(to + j * dim, StoredRow(rows, at.first_key + j), static_cast<std::size_t>(dim));
  return {to, dim};
}

/// head_dim integers, and behind them what a score's sum is to be multiplied by: NaN when q holds a number that is not finite.
HWY_INLINE void PackI8Query(const float* q, std::int64_t head_dim, float q_factor, float* packed) {
  std::int16_t* const to = reinterpret_cast<std::int16_t*>(packed);
  float largest = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < head_dim; ++i) {
    largest = std::max(largest, std::fabs(q[i]));
    finite = finite && std::fabs(q[i]) < kInf;
  }
  const float to_integer = finite && largest > 0 ? kLargestInteger / largest : 0.0f;
  for (std::int64_t i = 0; i < head_dim; ++i) to[i] = static_cast<std::int16_t>(finite ? std::lrint(q[i] * to_integer) : 0);
  packed[head_dim / 2] = finite ? q_factor * (largest / kLargestInteger) : std::numeric_limits<float>::quiet_NaN();
}

HWY_INLINE const std::int16_t* I8Query(const DecodeRow& row) { return reinterpret_cast<const std::int16_t*>(row.q); }

template <int NR>
HWY_INLINE void FinishI8Scores(const float (&block_sums)[NR][kSubBlock / 4 * kBlockSums], std::int64_t head_dim,
                               const float* scales, DecodeRow* rows) {
  const DF d;
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    SumAcrossBlocks(block_sums[r], rows[r].scores);
    const VF factor = hn::Mul(hn::Set(d, rows[r].q[head_dim / 2]), hn::Load(d, scales));
    hn::Store(hn::Mul(hn::Load(d, rows[r].scores), factor), d, rows[r].scores);
  }
}

/// Scores of NR rows; kHeld > 0: q of so many vectors stays in registers. The sums are the same either way.
template <int NR, int kHeld>
HWY_NOINLINE void ScoreI8Rows(const I8Rows& keys, std::int64_t head_dim, const float* scales, DecodeRow* rows) {
  const D16 d;
  V16 q[NR][kHeld > 0 ? kHeld : 1];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    REGARD_UNROLL for (int i = 0; i < kHeld; ++i) {
      q[r][i] = hn::Load(d, I8Query(rows[r]) + i * kI8Group);
      KeepInRegister(q[r][i]);
    }
  }
  alignas(64) float block_sums[NR][kSubBlock / 4 * kBlockSums];
  const std::int8_t* HWY_RESTRICT k = keys.data;
  for (int key = 0; key < kSubBlock; key += 4) {
    VI sum[NR][4];
    REGARD_UNROLL for (int j = 0; j < 4; ++j, k += keys.stride) {
      REGARD_UNROLL for (int r = 0; r < NR; ++r) sum[r][j] = hn::Zero(DI());
      if constexpr (kHeld > 0) {
        REGARD_UNROLL for (int i = 0; i < kHeld; ++i) {
          const V16 ki = ReadIntegers(k + i * kI8Group);
          REGARD_UNROLL for (int r = 0; r < NR; ++r) sum[r][j] = MulAddIntegers(sum[r][j], q[r][i], ki);
        }
      } else {
        for (std::int64_t i = 0; i < head_dim; i += kI8Group) {
          const V16 ki = ReadIntegers(k + i);
          REGARD_UNROLL for (int r = 0; r < NR; ++r) sum[r][j] = MulAddIntegers(sum[r][j], hn::Load(d, I8Query(rows[r]) + i), ki);
        }
      }
    }
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      const auto f32 = [](VI x) HWY_ATTR { return hn::ConvertTo(DF(), x); };
      StoreBlockSums(f32(sum[r][0]), f32(sum[r][1]), f32(sum[r][2]), f32(sum[r][3]), block_sums[r] + key / 4 * kBlockSums);
    }
  }
  FinishI8Scores(block_sums, head_dim, scales, rows);
}

/// The row's weights times their values' scales, as integers; they stay where the first half of the weights was, and what the sums are to
/// be multiplied by behind them. What the row does not see weighs nothing, whatever its scale.
HWY_INLINE void RoundI8Weights(const float* scales, bool all_seen, DecodeRow& row) {
  const DF d;
  const DU du;
  VF w = hn::Mul(hn::Load(d, row.scores), hn::Load(d, scales));
  if (!all_seen) {
    const VU bit = hn::Shl(hn::Set(du, 1u), hn::Iota(du, 0u));
    w = hn::IfThenElseZero(hn::RebindMask(d, hn::TestBit(hn::Set(du, row.visible), bit)), w);
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, hn::Abs(w)));
  const bool sound = hn::AllTrue(d, hn::Lt(hn::Abs(w), hn::Set(d, kInf)));
  const VF to_integer = hn::Set(d, sound && largest > 0 ? kLargestInteger / largest : 0.0f);
  const VI integers = hn::NearestInt(hn::Mul(w, to_integer));
  const hn::Rebind<std::int16_t, DF> d16;
  hn::Store(hn::DemoteTo(d16, sound ? integers : hn::Zero(DI())), d16, reinterpret_cast<std::int16_t*>(row.scores));
  row.scores[kSubBlock / 2] = sound ? largest / kLargestInteger : std::numeric_limits<float>::quiet_NaN();
}

/// rows[r].acc[0…2·NV vectors) += Σ weights · v over the sub-block, NV groups of columns; acc has the order of AccColumn.
template <int NR, int NV>
HWY_INLINE void MultiplyI8Values(const I8Rows& values, DecodeRow* rows, std::int64_t column) {
  const DF d;
  VI acc[NR][2 * NV];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int i = 0; i < 2 * NV; ++i) acc[r][i] = hn::Zero(DI()); }
  const std::int8_t* HWY_RESTRICT v = values.data + column;
  for (int pair = 0; pair < kSubBlock / 2; ++pair, v += 2 * values.stride) {
    V16 p[NR];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) p[r] = hn::BitCast(D16(), TwoWeights(rows[r], pair));
    V16 even[NV];
    REGARD_UNROLL for (int i = 0; i < NV; ++i) even[i] = ReadIntegers(v + i * kI8Group);
    REGARD_UNROLL for (int i = 0; i < NV; ++i) {
      const V16 odd = ReadIntegers(v + values.stride + i * kI8Group);
      const V16 low = hn::InterleaveLower(D16(), even[i], odd), high = hn::InterleaveUpper(D16(), even[i], odd);
      REGARD_UNROLL for (int r = 0; r < NR; ++r) {
        acc[r][2 * i] = MulAddIntegers(acc[r][2 * i], p[r], low);
        acc[r][2 * i + 1] = MulAddIntegers(acc[r][2 * i + 1], p[r], high);
      }
    }
  }
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    const VF factor = hn::Set(d, rows[r].scores[kSubBlock / 2]);
    float* HWY_RESTRICT to = rows[r].acc + column;
    REGARD_UNROLL for (int i = 0; i < 2 * NV; ++i) {
      hn::Store(hn::MulAdd(hn::ConvertTo(d, acc[r][i]), factor, hn::Load(d, to + i * kLanes)), d, to + i * kLanes);
    }
  }
}

template <int NR>
HWY_NOINLINE void MultiplyI8ValueRows(const I8Rows& values, std::int64_t v_dim, DecodeRow* rows) {
  std::int64_t column = 0;
  for (; column + 4 * kI8Group <= v_dim; column += 4 * kI8Group) MultiplyI8Values<NR, 4>(values, rows, column);
  for (; column < v_dim; column += kI8Group) MultiplyI8Values<NR, 1>(values, rows, column);
}

struct I8Products {
  explicit I8Products(const KvHead&) {}

  static bool Take(const KvHead& kv) {
    return kv.k.dtype == DType::kI8 && kv.v.dtype == DType::kI8 && kv.head_dim % kI8Group == 0 && kv.v_dim % kI8Group == 0 &&
           kv.head_dim <= kLargestI8Dim;
  }
  static std::int64_t Pad(std::int64_t dim) { return Bf16Padded(dim); }
  static std::int64_t AccColumn(std::int64_t c) { return HWY_NAMESPACE::AccColumn(c); }
  static void PackQuery(const DecodeCall& call, const QueryRow& row, float* q) {
    PackI8Query(row.q, call.constants.kv.head_dim, call.constants.q_factor, q);
  }
  HWY_INLINE void Score(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch, const NextRows& next) const {
    const std::int64_t head_dim = call.constants.kv.head_dim;
    const I8Rows keys = WholeI8Rows(call.constants.kv.k, at, head_dim, scratch.k_copy);
    alignas(64) float scales[kSubBlock];
    LoadScales(call.constants.kv.k, at, scales);
    const auto score_two = head_dim == 4 * kI8Group   ? ScoreI8Rows<2, 4>
                           : head_dim == 2 * kI8Group ? ScoreI8Rows<2, 2>
                                                      : ScoreI8Rows<2, 0>;
    int r = 0;
    for (; r + 2 <= call.num_rows; r += 2) {
      if (r + 2 == call.num_rows) StartStream(next);
      score_two(keys, head_dim, scales, scratch.rows + r);
    }
    for (; r < call.num_rows; ++r) {
      StartStream(next);
      ScoreI8Rows<1, 0>(keys, head_dim, scales, scratch.rows + r);
    }
  }
  HWY_INLINE void Weigh(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch, const NextRows& next) const {
    const std::int64_t v_dim = call.constants.kv.v_dim;
    const I8Rows values = WholeI8Rows(call.constants.kv.v, at, v_dim, scratch.v_copy);
    alignas(64) float scales[kSubBlock];
    LoadScales(call.constants.kv.v, at, scales);
    for (int r = 0; r < call.num_rows; ++r) RoundI8Weights(scales, at.all_seen, scratch.rows[r]);
    int r = 0;
    for (; r + 2 <= call.num_rows; r += 2) {
      if (r + 2 == call.num_rows) StartStream(next);
      MultiplyI8ValueRows<2>(values, v_dim, scratch.rows + r);
    }
    for (; r < call.num_rows; ++r) {
      StartStream(next);
      MultiplyI8ValueRows<1>(values, v_dim, scratch.rows + r);
    }
  }
};

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
