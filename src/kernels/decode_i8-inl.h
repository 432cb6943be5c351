// The products of decode where k and v are int8 with a scale a row and the machine multiplies bytes by fours (vpdpbusd): neighbours of a row of q
// and k; of weights and values, those of four neighbouring keys. For AVX3_BF16 only, which has it.
//
// q becomes 16-bit integers, with one scale a row; the weights of a sub-block, times their values' scales, likewise, with one scale a row and
// sub-block. Each is multiplied as two bytes, an upper and a lower one, whose sums are joined afterwards. Sums are exact: modulo 2³² in between,
// where what is left in the end fits. Of two factors the instruction takes one as unsigned: of q · k that is k + 128, which costs 128 · Σq at
// the end; of weights · v the weights.
//
// Four rows are interleaved so that a vector holds 16 times four neighbours: keys by words of 32 bits, values by bytes. Single shuffles and
// additions run beside the products for nothing, and stores do not (64 products with 8 stores among them take the time of 71), so that nothing in
// between is stored, and rows are interleaved anew for each few queries. Many shuffles in a row, though, hold up the products behind them.
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
#include "kernels/integer_rounding.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

using D8 = hn::Repartition<std::int8_t, DF>;
using DU8 = hn::Repartition<std::uint8_t, DF>;
using V8 = hn::Vec<D8>;
using VU8 = hn::Vec<DU8>;
inline constexpr int kI8Group = 4 * kLanes;          // elements read at once
inline constexpr float kLargestQ = 127 * 256 + 127;  // of two signed bytes
inline constexpr float kLargestWeight = 65535;       // of two bytes

/// Keys of a sub-block, by halves of kSubBlock, each in one run. 16 keys at once took 5 % longer: softmax and the additions to acc are a
/// fourth of the time.
inline constexpr int kI8Keys = 2 * kSubBlock;
static_assert(kI8Keys == kI8IntegerRounding.keys);
static_assert(kI8Keys <= kMaxKeys && kLanes == 16 && kSubBlock == 16);

/// As kDecodeKeysAhead, of rows half as long as those of bf16: 5.1 → 4.1 ms; into the first level 6.6.
inline constexpr std::int64_t kI8KeysAhead = 2 * kI8Keys;

HWY_INLINE std::int64_t I8Padded(std::int64_t dim) { return (dim + kI8Group - 1) / kI8Group * kI8Group; }

/// GCC 12 copies the sum before and after the intrinsic of the same name.
HWY_INLINE VI MulAddBytes(VI sum, VU8 a, V8 b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}

/// The group of a row at `from`, whole or only the elements that `exist`, the others 0. Asks for the line at `ahead` and moves on to the next:
/// groups are not read in the order of their addresses, and prefetchers follow no other (4.10 → 3.95 ms).
template <bool kWhole>
HWY_INLINE V8 ReadGroup(const std::int8_t* from, hn::Mask<D8> exist, const std::int8_t*& ahead) {
  AskFor(ahead);
  ahead += kI8Group;
  V8 group = kWhole ? hn::LoadU(D8(), from) : hn::MaskedLoad(exist, D8(), from);
  KeepReadOrder(group);
  return group;
}

/// Of the last group of a row of dim elements.
HWY_INLINE hn::Mask<D8> LastGroup(std::int64_t dim) {
  return hn::FirstN(D8(), static_cast<std::size_t>(dim - (I8Padded(dim) - kI8Group)));
}

HWY_INLINE VU8 Plus128(V8 x) { return hn::Xor(hn::BitCast(DU8(), x), hn::Set(DU8(), std::uint8_t{0x80})); }

/// Half of a sub-block.
struct I8Rows {
  const std::int8_t* data;
  std::int64_t stride;
  const std::int8_t* ahead;  // what is to be asked for while these are read
};

/// Half of a sub-block where it is stored, or copied with zeros for rows that do not exist, and its scales, which are asked for like the rows.
HWY_INLINE I8Rows HalfOfI8Rows(const StoredRows& rows, const SubBlock& at, int half, std::int64_t kv_len, std::int64_t dim,
                               float* copy, float* scales) {
  const std::int64_t first = at.first_key + half * kSubBlock;
  const int num_keys = std::clamp(at.num_keys - half * kSubBlock, 0, kSubBlock);
  if (num_keys == kSubBlock) {
    const StoredPlace place = StoredPlace::Of(rows, first);
    const StoredPlace ahead = first + kI8KeysAhead < kv_len ? StoredPlace::Of(rows, first + kI8KeysAhead) : place;
    std::memcpy(scales, place.Scales(rows), kSubBlock * sizeof(float));
    AskFor(ahead.Scales(rows));
    return {reinterpret_cast<const std::int8_t*>(place.Elements(rows, 1)), rows.stride,
            reinterpret_cast<const std::int8_t*>(ahead.Elements(rows, 1))};
  }
  std::int8_t* const to = reinterpret_cast<std::int8_t*>(copy) + half * kSubBlock * dim;
  std::fill_n(to, kSubBlock * dim, std::int8_t{0});
  std::fill_n(scales, kSubBlock, 0.0f);
  if (num_keys > 0) {  // or else there may be no page
    const StoredPlace place = StoredPlace::Of(rows, first);
    for (int j = 0; j < num_keys; ++j) {
      std::memcpy(to + j * dim, place.Elements(rows, 1) + j * rows.stride, static_cast<std::size_t>(dim));
    }
    std::memcpy(scales, place.Scales(rows), static_cast<std::size_t>(num_keys) * sizeof(float));
  }
  return {to, dim, to};
}

/// A query as it is multiplied. For each group of elements and each m < 4, a vector of upper bytes of its integers and one of lower bytes, signed:
/// in each 128-bit block b four times those of elements 16 b + 4 m …, since a vector of four keys has theirs side by side. Then the numbers below.
struct I8Query {
  const std::int8_t* bytes;
  float factor;             // of a score's sum; NaN when q holds a number that is not finite
  std::int32_t correction;  // −128 · Σ of the integers

  static std::int64_t Bytes(std::int64_t head_dim) { return 8 * I8Padded(head_dim); }
  /// Of the row, in floats.
  static std::int64_t Size(std::int64_t head_dim) { return Bytes(head_dim) / 4 + kLanes; }
  static HWY_INLINE I8Query Of(const DecodeRow& row, std::int64_t head_dim) {
    I8Query q = {reinterpret_cast<const std::int8_t*>(row.q), 0, 0};
    std::memcpy(&q.factor, q.bytes + Bytes(head_dim), sizeof(q.factor));
    std::memcpy(&q.correction, q.bytes + Bytes(head_dim) + sizeof(q.factor), sizeof(q.correction));
    return q;
  }
};

HWY_INLINE void PackI8Query(const float* q, std::int64_t head_dim, float q_factor, float* packed) {
  const DF d;
  const DI di;
  const hn::Rebind<std::uint8_t, DF> d8;
  const auto read = [&](std::int64_t i) HWY_ATTR {
    if (i + kLanes <= head_dim) return hn::LoadU(d, q + i);
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(std::max<std::int64_t>(head_dim - i, 0))), d, q + i);
  };
  VF largest = hn::Zero(d);
  MF finite = hn::Eq(largest, largest);
  for (std::int64_t i = 0; i < head_dim; i += kLanes) {
    const VF size = hn::Abs(read(i));
    largest = hn::Max(largest, size);
    finite = hn::And(finite, hn::Lt(size, hn::Set(d, kInf)));
  }
  const bool sound = hn::AllTrue(d, finite);
  const float size = sound ? hn::GetLane(hn::MaxOfLanes(d, largest)) : 0.0f;
  // From here on down the quotient would not be finite.
  const VF to_integer = hn::Set(d, size > 0x1p-112f ? kLargestQ / size : 0.0f);
  VI sum = hn::Zero(di);
  std::int8_t* to = reinterpret_cast<std::int8_t*>(packed);
  for (std::int64_t i = 0; i < head_dim; i += kI8Group, to += 8 * kI8Group) {
    alignas(64) std::uint8_t bytes[2][kI8Group];  // upper and lower ones
    for (int n = 0; n < kI8Group; n += kLanes) {
      const VI integers = sound ? hn::NearestInt(hn::Mul(read(i + n), to_integer)) : hn::Zero(di);
      const VI lower = hn::ShiftRight<24>(hn::ShiftLeft<24>(integers));
      sum = hn::Add(sum, integers);
      hn::Store(hn::TruncateTo(d8, hn::BitCast(DU(), hn::ShiftRight<8>(hn::Sub(integers, lower)))), d8, bytes[0] + n);
      hn::Store(hn::TruncateTo(d8, hn::BitCast(DU(), lower)), d8, bytes[1] + n);
    }
    REGARD_UNROLL for (int b = 0; b < 2; ++b) {
      const VI group = hn::BitCast(di, hn::Load(DU8(), bytes[b]));
      const auto store = [&](VI fours, int m)
                             HWY_ATTR { hn::Store(hn::BitCast(D8(), fours), D8(), to + (2 * m + b) * kI8Group); };
      store(hn::Broadcast<0>(group), 0);
      store(hn::Broadcast<1>(group), 1);
      store(hn::Broadcast<2>(group), 2);
      store(hn::Broadcast<3>(group), 3);
    }
  }
  const float factor = sound ? q_factor * (size / kLargestQ) : std::numeric_limits<float>::quiet_NaN();
  const std::int32_t correction = -128 * hn::GetLane(hn::SumOfLanes(di, sum));
  std::memcpy(to, &factor, sizeof(factor));
  std::memcpy(to + sizeof(factor), &correction, sizeof(correction));
}

/// four[m]: in each 128-bit block b, elements 16 b + 4 m … of four keys, plus 128.
template <bool kWhole>
HWY_INLINE void ReadFourKeys(const std::int8_t* HWY_RESTRICT k, std::int64_t stride, hn::Mask<D8> exist,
                             const std::int8_t*& ahead, VU8 (&four)[4]) {
  const DI d;
  const hn::RepartitionToWide<DI> dw;
  VI key[4];
  REGARD_UNROLL for (int j = 0; j < 4; ++j, k += stride) key[j] = hn::BitCast(d, Plus128(ReadGroup<kWhole>(k, exist, ahead)));
  const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, key[0], key[1])),
             low23 = hn::BitCast(dw, hn::InterleaveLower(d, key[2], key[3]));
  const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, key[0], key[1])),
             high23 = hn::BitCast(dw, hn::InterleaveUpper(d, key[2], key[3]));
  four[0] = hn::BitCast(DU8(), hn::InterleaveLower(dw, low01, low23));
  four[1] = hn::BitCast(DU8(), hn::InterleaveUpper(dw, low01, low23));
  four[2] = hn::BitCast(DU8(), hn::InterleaveLower(dw, high01, high23));
  four[3] = hn::BitCast(DU8(), hn::InterleaveUpper(dw, high01, high23));
}

template <bool kWhole>
HWY_INLINE void ReadEightKeys(const std::int8_t* k, std::int64_t stride, hn::Mask<D8> exist, const std::int8_t*& ahead,
                              VU8 (&four)[2][4]) {
  REGARD_UNROLL for (int f = 0; f < 2; ++f) ReadFourKeys<kWhole>(k + 4 * f * stride, stride, exist, ahead, four[f]);
}

/// Of each of a and b, the sums of blocks 0 and 2 and of blocks 1 and 3, a's first.
HWY_INLINE VI SumHalves(VI a, VI b) {
  const DI d;
  return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
}

/// Of two results of SumHalves, the sums of neighbouring blocks, a's first. Block i of SumNeighbours(SumHalves(x₀, x₁), SumHalves(x₂, x₃)) is
/// the sum of xᵢ's blocks.
HWY_INLINE VI SumNeighbours(VI a, VI b) {
  return VI{_mm512_add_epi32(_mm512_shuffle_i64x2(a.raw, b.raw, 0x88), _mm512_shuffle_i64x2(a.raw, b.raw, 0xDD))};
}

/// The products of a row and two fours of keys, for one m; `at`: where the query's bytes have the group.
HWY_INLINE void MultiplyFours(const DecodeRow& row, std::int64_t at, int m, const VU8 (&four)[2][4], VI (&upper)[2],
                              VI (&lower)[2]) {
  const D8 d8;
  const std::int8_t* const q = reinterpret_cast<const std::int8_t*>(row.q) + at + 2 * m * kI8Group;
  V8 u = hn::Load(d8, q), l = hn::Load(d8, q + kI8Group);
  KeepInRegister(u);
  KeepInRegister(l);
  REGARD_UNROLL for (int f = 0; f < 2; ++f) {
    upper[f] = MulAddBytes(upper[f], four[f][m], u);
    lower[f] = MulAddBytes(lower[f], four[f][m], l);
  }
}

/// Scores of NR rows and half of the sub-block. kWhole: rows are whole groups.
/// The last group of elements goes row by row, each with its shuffles behind it: all of them at once would hold up the products of the next keys
/// (653 → 584 cycles for 512 products).
template <int NR, bool kWhole>
HWY_NOINLINE void ScoreI8Rows(const I8Rows& keys, std::int64_t head_dim, const float* scales, int half, DecodeRow* rows) {
  const DF d;
  const DI di;
  const std::int8_t* ahead = keys.ahead;
  const hn::Mask<D8> exist = LastGroup(head_dim);
  VI halves[2][NR];  // of each eight keys
  REGARD_UNROLL for (int eight = 0; eight < 2; ++eight) {
    VI upper[NR][2], lower[NR][2];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      REGARD_UNROLL for (int f = 0; f < 2; ++f) upper[r][f] = lower[r][f] = hn::Zero(di);
    }
    const std::int8_t* HWY_RESTRICT k = keys.data + 8 * eight * keys.stride;
    std::int64_t i = 0, at = 0;  // in the keys and in the queries
    VU8 four[2][4];
    for (; i + kI8Group < head_dim; i += kI8Group, at += 8 * kI8Group) {
      ReadEightKeys<true>(k + i, keys.stride, exist, ahead, four);
      REGARD_UNROLL for (int m = 0; m < 4; ++m) {
        REGARD_UNROLL for (int r = 0; r < NR; ++r) MultiplyFours(rows[r], at, m, four, upper[r], lower[r]);
      }
    }
    ReadEightKeys<kWhole>(k + i, keys.stride, exist, ahead, four);
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      REGARD_UNROLL for (int m = 0; m < 4; ++m) MultiplyFours(rows[r], at, m, four, upper[r], lower[r]);
      halves[eight][r] =
          SumHalves(hn::Add(hn::ShiftLeft<8>(upper[r][0]), lower[r][0]), hn::Add(hn::ShiftLeft<8>(upper[r][1]), lower[r][1]));
      KeepReadOrder(halves[eight][r]);
    }
  }
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    const I8Query q = I8Query::Of(rows[r], head_dim);
    const VI sums = hn::Add(SumNeighbours(halves[0][r], halves[1][r]), hn::Set(di, q.correction));
    const VF factor = hn::Mul(hn::Set(d, q.factor), hn::Load(d, scales));
    hn::Store(hn::Mul(hn::ConvertTo(d, sums), factor), d, rows[r].scores + half * kSubBlock);
  }
}

template <bool kWhole>
HWY_INLINE void ScoreAllI8Rows(const I8Rows& keys, std::int64_t head_dim, const float* scales, int half, DecodeRow* rows,
                               int num_rows) {
  int r = 0;
  for (; r + 4 <= num_rows; r += 4) ScoreI8Rows<4, kWhole>(keys, head_dim, scales, half, rows + r);
  for (; r < num_rows; ++r) ScoreI8Rows<1, kWhole>(keys, head_dim, scales, half, rows + r);
}

template <int kBlock>
HWY_INLINE VF BroadcastBlock(VF x) {
  return VF{_mm512_shuffle_f32x4(x.raw, x.raw, kBlock * 0x55)};
}

/// A row's weights as integers, where its scores were, in words of four neighbouring keys: word 4 i has the upper bytes of keys 4 i …, the next
/// those of keys 16 + 4 i …, the next two their lower bytes. Behind them what sums are to be multiplied by.
inline constexpr int kLowerWeights = 2, kWeightFactor = kI8Keys / 2;  // in words

HWY_INLINE VU MaxHalves(VU a, VU b) {
  const DU d;
  return hn::Max(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
}

HWY_INLINE VU MaxNeighbours(VU a, VU b) {
  return hn::Max(VU{_mm512_shuffle_i64x2(a.raw, b.raw, 0x88)}, VU{_mm512_shuffle_i64x2(a.raw, b.raw, 0xDD)});
}

/// Weights of up to four rows times their values' scales as integers, unsigned. What a row does not see weighs nothing, whatever its scale.
/// None is negative, so that as integers they are in order, and NaN above them all.
template <int NR>
HWY_NOINLINE void RoundI8Weights(const float* scales, bool all_seen, DecodeRow* rows) {
  static_assert(NR <= 4);
  const DF d;
  const DU du;
  VF w[NR][2];
  VU largest[4];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    REGARD_UNROLL for (int half = 0; half < 2; ++half) {
      w[r][half] = hn::Mul(hn::Load(d, rows[r].scores + half * kSubBlock), hn::Load(d, scales + half * kSubBlock));
      if (!all_seen) {
        const VU bit = hn::Shl(hn::Set(du, 1u), hn::Iota(du, static_cast<std::uint32_t>(half * kSubBlock)));
        w[r][half] = hn::IfThenElseZero(hn::RebindMask(d, hn::TestBit(hn::Set(du, rows[r].visible), bit)), w[r][half]);
      }
    }
    largest[r] = hn::Max(hn::BitCast(du, w[r][0]), hn::BitCast(du, w[r][1]));
  }
  REGARD_UNROLL for (int r = NR; r < 4; ++r) largest[r] = largest[0];
  // From here on block r is of row r.
  VU of_rows = MaxNeighbours(MaxHalves(largest[0], largest[1]), MaxHalves(largest[2], largest[3]));
  of_rows = hn::Max(of_rows, hn::Shuffle2301(of_rows));
  of_rows = hn::Max(of_rows, hn::Shuffle1032(of_rows));
  const auto unsound = hn::RebindMask(d, hn::Gt(of_rows, hn::Set(du, 0x7EFFFFFFu)));  // 2¹²⁷ or more
  // The power of two at the largest or below, which needs no division; at least one whose inverse leaves room.
  const VU least = hn::BitCast(du, hn::Set(d, 0x1p-110f));
  const VU power = hn::And(hn::Max(of_rows, least), hn::Set(du, 0x7F800000u));
  const VF to_integer = hn::Mul(hn::BitCast(d, hn::Sub(hn::Set(du, 0x7F000000u), power)), hn::Set(d, kLargestWeight / 2));
  alignas(64) float factors[kLanes];
  hn::Store(hn::IfThenElse(unsound, hn::NaN(d), hn::Mul(hn::BitCast(d, power), hn::Set(d, 2 / kLargestWeight))), d, factors);
  const VF of_row[4] = {BroadcastBlock<0>(to_integer), BroadcastBlock<1>(to_integer), BroadcastBlock<2>(to_integer),
                        BroadcastBlock<3>(to_integer)};
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    const __m512i words = _mm512_packus_epi32(_mm512_cvtps_epi32(hn::Mul(w[r][0], of_row[r]).raw),
                                              _mm512_cvtps_epi32(hn::Mul(w[r][1], of_row[r]).raw));
    const __m512i upper = _mm512_srli_epi16(words, 8), lower = _mm512_and_si512(words, _mm512_set1_epi16(0xFF));
    hn::Store(VU{_mm512_packus_epi16(upper, lower)}, du, reinterpret_cast<std::uint32_t*>(rows[r].scores));
    rows[r].scores[kWeightFactor] = factors[4 * r];
  }
}

/// Weights of four keys.
HWY_INLINE VU8 FourWeights(const DecodeRow& row, int word) {
  std::uint32_t weights;
  std::memcpy(&weights, row.scores + word, sizeof(weights));
  return hn::BitCast(DU8(), hn::Set(DU(), weights));
}

/// Where column c lies in acc.
HWY_INLINE std::int64_t I8AccColumn(std::int64_t c) {
  return c / kI8Group * kI8Group + c % 16 / 4 * kLanes + c % kI8Group / 16 * 4 + c % 4;
}

/// rows[r].acc += Σ weights · v over the sub-block, for the group of columns at `column`; acc has the order of I8AccColumn. Values are interleaved
/// anew for every NR rows, which fills pipes that stand idle beside the products; to store them once costs more.
template <int NR, bool kWhole>
HWY_INLINE void MultiplyI8Values(const I8Rows (&values)[2], std::int64_t v_dim, DecodeRow* rows, std::int64_t column) {
  const DF d;
  const D8 d8;
  const hn::Repartition<std::int16_t, D8> d16;
  VI upper[NR][4], lower[NR][4];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    REGARD_UNROLL for (int i = 0; i < 4; ++i) upper[r][i] = lower[r][i] = hn::Zero(DI());
  }
  const hn::Mask<D8> exist = LastGroup(v_dim);
  for (int half = 0; half < 2; ++half) {
    const std::int8_t* HWY_RESTRICT v = values[half].data + column;
    const std::int64_t stride = values[half].stride;
    const std::int8_t* ahead = values[half].ahead + column * kSubBlock;
    _Pragma("GCC unroll 1") for (int word = half; word < kSubBlock; word += 4) {
      V8 row[4];
      REGARD_UNROLL for (int j = 0; j < 4; ++j, v += stride) row[j] = ReadGroup<kWhole>(v, exist, ahead);
      const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d8, row[0], row[1])),
                 low23 = hn::BitCast(d16, hn::InterleaveLower(d8, row[2], row[3]));
      const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d8, row[0], row[1])),
                 high23 = hn::BitCast(d16, hn::InterleaveUpper(d8, row[2], row[3]));
      const V8 four[4] = {
          hn::BitCast(d8, hn::InterleaveLower(d16, low01, low23)), hn::BitCast(d8, hn::InterleaveUpper(d16, low01, low23)),
          hn::BitCast(d8, hn::InterleaveLower(d16, high01, high23)), hn::BitCast(d8, hn::InterleaveUpper(d16, high01, high23))};
      REGARD_UNROLL for (int r = 0; r < NR; ++r) {
        const VU8 u = FourWeights(rows[r], word), l = FourWeights(rows[r], kLowerWeights + word);
        REGARD_UNROLL for (int i = 0; i < 4; ++i) {
          upper[r][i] = MulAddBytes(upper[r][i], u, four[i]);
          lower[r][i] = MulAddBytes(lower[r][i], l, four[i]);
        }
      }
    }
  }
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    const VF factor = hn::Set(d, rows[r].scores[kWeightFactor]);
    float* HWY_RESTRICT to = rows[r].acc + column;
    REGARD_UNROLL for (int i = 0; i < 4; ++i) {
      const VF sum = hn::ConvertTo(d, hn::Add(hn::ShiftLeft<8>(upper[r][i]), lower[r][i]));
      hn::Store(hn::MulAdd(sum, factor, hn::Load(d, to + i * kLanes)), d, to + i * kLanes);
    }
  }
}

template <int NR>
HWY_NOINLINE void MultiplyI8ValueRows(const I8Rows (&values)[2], std::int64_t v_dim, DecodeRow* rows) {
  std::int64_t column = 0;
  for (; column + kI8Group <= v_dim; column += kI8Group) MultiplyI8Values<NR, true>(values, v_dim, rows, column);
  if (column < v_dim) MultiplyI8Values<NR, false>(values, v_dim, rows, column);
}

struct I8Products {
  static constexpr int kKeys = kI8Keys;

  explicit I8Products(const KvHead&) {}

  static bool Take(const KvHead& kv) {
    return kv.k.dtype == DType::kI8 && kv.v.dtype == DType::kI8 && kv.head_dim <= kLargestIntegerDim;
  }
  static std::int64_t Pad(std::int64_t dim) { return I8Padded(dim); }
  static std::int64_t QuerySize(std::int64_t dim) { return I8Query::Size(dim); }
  static std::int64_t AccColumn(std::int64_t c) { return I8AccColumn(c); }
  static void PackQuery(const DecodeCall& call, const QueryRow& row, float* copy, float* q) {
    const std::int64_t head_dim = call.constants.kv.head_dim;
    PackI8Query(FloatQuery(call.constants.options, row, head_dim, copy), head_dim, call.constants.q_factor, q);
  }
  HWY_INLINE void Score(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) const {
    const KvHead& kv = call.constants.kv;
    for (int half = 0; half < 2; ++half) {
      alignas(64) float scales[kSubBlock];
      const I8Rows keys = HalfOfI8Rows(kv.k, at, half, kv.kv_len, kv.head_dim, scratch.k_copy, scales);
      if (kv.head_dim % kI8Group == 0) {
        ScoreAllI8Rows<true>(keys, kv.head_dim, scales, half, scratch.rows, call.num_rows);
      } else {
        ScoreAllI8Rows<false>(keys, kv.head_dim, scales, half, scratch.rows, call.num_rows);
      }
    }
  }
  HWY_INLINE void Weigh(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) const {
    const KvHead& kv = call.constants.kv;
    alignas(64) float scales[kI8Keys];
    const I8Rows values[2] = {HalfOfI8Rows(kv.v, at, 0, kv.kv_len, kv.v_dim, scratch.v_copy, scales),
                              HalfOfI8Rows(kv.v, at, 1, kv.kv_len, kv.v_dim, scratch.v_copy, scales + kSubBlock)};
    DecodeRow* const rows = scratch.rows;
    int r = 0;
    for (; r + 4 <= call.num_rows; r += 4) RoundI8Weights<4>(scales, at.all_seen, rows + r);
    for (; r < call.num_rows; ++r) RoundI8Weights<1>(scales, at.all_seen, rows + r);
    for (r = 0; r + 2 <= call.num_rows; r += 2) MultiplyI8ValueRows<2>(values, kv.v_dim, rows + r);
    for (; r < call.num_rows; ++r) MultiplyI8ValueRows<1>(values, kv.v_dim, rows + r);
  }
};

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
