// The products of decode where k and v are int8 with a scale a row and the machine multiplies bytes by fours (vpdpbusd): neighbours of a row of q
// and k; of weights and values, those of four neighbouring keys. For AVX3_BF16 only, which has it.
//
// q becomes 16-bit integers, with one scale a row; the weights of a sub-block, times their values' scales, likewise, with one scale a row and
// sub-block. Each is multiplied as two bytes, an upper and a lower one, whose sums are joined afterwards. Sums are exact: modulo 2³² in between,
// where what is left in the end fits. Of two factors the instruction takes one as unsigned: of q · k that is k + 128, which costs 128 · Σq at
// the end; of weights · v the weights.
//
// Four rows are interleaved so that a vector holds 16 times four neighbours: keys by words of 32 bits, values by bytes. Shuffles and
// additions run beside the products for nothing, and stores do not (64 products with 8 stores among them take the time of 71), so that nothing in
// between is stored, and rows are interleaved anew for each few queries.
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

/// As kKeysAhead, of rows half as long as those of bf16: 5.1 → 4.1 ms; into the first level 6.6.
inline constexpr std::int64_t kI8KeysAhead = 2 * kI8Keys;

HWY_INLINE std::int64_t I8Padded(std::int64_t dim) { return (dim + kI8Group - 1) / kI8Group * kI8Group; }

/// GCC 12 copies the sum before and after the intrinsic of the same name.
HWY_INLINE VI MulAddBytes(VI sum, VU8 a, V8 b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}

/// The group of a row at `from`, of which n elements exist; zeros for the others. Asks for what lies `ahead` bytes on.
HWY_INLINE V8 ReadGroup(const std::int8_t* from, std::int64_t n, std::int64_t ahead) {
  const D8 d;
  AskFor(from + ahead);
  V8 group = n >= kI8Group ? hn::LoadU(d, from) : hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(n)), d, from);
  KeepReadOrder(group);
  return group;
}

HWY_INLINE VU8 Plus128(V8 x) { return hn::Xor(hn::BitCast(DU8(), x), hn::Set(DU8(), std::uint8_t{0x80})); }

struct I8Rows {
  const std::int8_t* data;
  std::int64_t stride;
  std::int64_t ahead;  // BytesAhead, if the rows are where they are stored
};

/// Half of a sub-block: where it is stored, or copied with zeros for rows that do not exist.
HWY_INLINE I8Rows HalfOfI8Rows(const StoredRows& rows, const SubBlock& at, int half, std::int64_t kv_len, std::int64_t dim,
                               float* copy) {
  const std::int64_t first = at.first_key + half * kSubBlock;
  const int num_keys = std::clamp(at.num_keys - half * kSubBlock, 0, kSubBlock);
  if (num_keys == kSubBlock) {
    return {reinterpret_cast<const std::int8_t*>(StoredRow(rows, first)), rows.stride,
            BytesAhead(rows, first, kI8KeysAhead, kv_len)};
  }
  std::int8_t* const to = reinterpret_cast<std::int8_t*>(copy) + half * kSubBlock * dim;
  std::fill_n(to, kSubBlock * dim, std::int8_t{0});
  for (int j = 0; j < num_keys; ++j) std::memcpy(to + j * dim, StoredRow(rows, first + j), static_cast<std::size_t>(dim));
  return {to, dim, 0};
}

/// Of both halves.
HWY_INLINE void LoadI8Scales(const StoredRows& rows, const SubBlock& at, float (&scales)[kI8Keys]) {
  for (int half = 0; half < 2; ++half) {
    const int num_keys = std::clamp(at.num_keys - half * kSubBlock, 0, kSubBlock);
    if (num_keys == 0) {  // there may be no page
      std::fill_n(scales + half * kSubBlock, kSubBlock, 0.0f);
      continue;
    }
    LoadScales(rows, {at.first_key + half * kSubBlock, num_keys, at.all_seen}, scales + half * kSubBlock);
  }
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
HWY_INLINE void ReadFourKeys(const std::int8_t* HWY_RESTRICT k, std::int64_t stride, std::int64_t ahead, std::int64_t n,
                             VU8 (&four)[4]) {
  const DI d;
  const hn::RepartitionToWide<DI> dw;
  VI key[4];
  REGARD_UNROLL for (int j = 0; j < 4; ++j, k += stride) key[j] = hn::BitCast(d, Plus128(ReadGroup(k, n, ahead)));
  const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, key[0], key[1])),
             low23 = hn::BitCast(dw, hn::InterleaveLower(d, key[2], key[3]));
  const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, key[0], key[1])),
             high23 = hn::BitCast(dw, hn::InterleaveUpper(d, key[2], key[3]));
  four[0] = hn::BitCast(DU8(), hn::InterleaveLower(dw, low01, low23));
  four[1] = hn::BitCast(DU8(), hn::InterleaveUpper(dw, low01, low23));
  four[2] = hn::BitCast(DU8(), hn::InterleaveLower(dw, high01, high23));
  four[3] = hn::BitCast(DU8(), hn::InterleaveUpper(dw, high01, high23));
}

/// What SumBlockPairs does, of integers.
HWY_INLINE VI IntegerBlockPairs(VI a, VI b) {
  return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
}

/// Scores of NR rows and half of the sub-block.
template <int NR>
HWY_NOINLINE void ScoreI8Rows(const I8Rows& keys, std::int64_t head_dim, const float* scales, int half, DecodeRow* rows) {
  const DF d;
  const DI di;
  const D8 d8;
  VI pairs[2][NR];  // of each eight keys, sums over pairs of blocks
  REGARD_UNROLL for (int eight = 0; eight < 2; ++eight) {
    VI upper[NR][2], lower[NR][2];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      REGARD_UNROLL for (int f = 0; f < 2; ++f) upper[r][f] = lower[r][f] = hn::Zero(di);
    }
    const std::int8_t* HWY_RESTRICT k = keys.data + 8 * eight * keys.stride;
    std::int64_t at = 0;  // in the queries
    for (std::int64_t i = 0; i < head_dim; i += kI8Group) {
      VU8 four[2][4];
      REGARD_UNROLL for (int f = 0; f < 2; ++f)
          ReadFourKeys(k + i + 4 * f * keys.stride, keys.stride, keys.ahead, head_dim - i, four[f]);
      REGARD_UNROLL for (int m = 0; m < 4; ++m, at += 2 * kI8Group) {
        REGARD_UNROLL for (int r = 0; r < NR; ++r) {
          const std::int8_t* const q = reinterpret_cast<const std::int8_t*>(rows[r].q) + at;
          V8 u = hn::Load(d8, q), l = hn::Load(d8, q + kI8Group);
          KeepInRegister(u);
          KeepInRegister(l);
          REGARD_UNROLL for (int f = 0; f < 2; ++f) {
            upper[r][f] = MulAddBytes(upper[r][f], four[f][m], u);
            lower[r][f] = MulAddBytes(lower[r][f], four[f][m], l);
          }
        }
      }
    }
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      pairs[eight][r] = IntegerBlockPairs(hn::Add(hn::ShiftLeft<8>(upper[r][0]), lower[r][0]),
                                          hn::Add(hn::ShiftLeft<8>(upper[r][1]), lower[r][1]));
    }
  }
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    const VI sums =
        hn::Add(hn::ConcatLowerLower(di, pairs[1][r], pairs[0][r]), hn::ConcatUpperUpper(di, pairs[1][r], pairs[0][r]));
    const I8Query q = I8Query::Of(rows[r], head_dim);
    const VF factor = hn::Mul(hn::Set(d, q.factor), hn::Load(d, scales + half * kSubBlock));
    hn::Store(hn::Mul(hn::ConvertTo(d, hn::Add(sums, hn::Set(di, q.correction))), factor), d, rows[r].scores + half * kSubBlock);
  }
}

/// A row's weights as integers, where its scores were: the upper bytes, the lower ones, and what sums are to be multiplied by.
inline constexpr int kLowerWeights = kI8Keys / 4, kWeightFactor = kI8Keys / 2;  // in words

/// The row's weights times their values' scales as integers, unsigned. What the row does not see weighs nothing, whatever its scale.
HWY_INLINE void RoundI8Weights(const float* scales, bool all_seen, DecodeRow& row) {
  const DF d;
  const DU du;
  VF w[2];
  REGARD_UNROLL for (int half = 0; half < 2; ++half) {
    w[half] = hn::Mul(hn::Load(d, row.scores + half * kSubBlock), hn::Load(d, scales + half * kSubBlock));
    if (!all_seen) {
      const VU bit = hn::Shl(hn::Set(du, 1u), hn::Iota(du, static_cast<std::uint32_t>(half * kSubBlock)));
      w[half] = hn::IfThenElseZero(hn::RebindMask(d, hn::TestBit(hn::Set(du, row.visible), bit)), w[half]);
    }
  }
  const VF highest = hn::Set(d, 0x1p127f);
  const bool sound = hn::AllTrue(d, hn::And(hn::Lt(w[0], highest), hn::Lt(w[1], highest)));
  // The power of two at the largest or below, which needs no division; at least one whose inverse leaves room.
  const VF largest = hn::MaxOfLanes(d, hn::Max(hn::Max(w[0], w[1]), hn::Set(d, 0x1p-110f)));
  const VU power = hn::And(hn::BitCast(du, largest), hn::Set(du, 0x7F800000u));
  const VF to_integer = hn::Mul(hn::BitCast(d, hn::Sub(hn::Set(du, 0x7F000000u), power)), hn::Set(d, kLargestWeight / 2));
  const hn::Rebind<std::uint8_t, DF> d8;
  std::uint8_t* const bytes = reinterpret_cast<std::uint8_t*>(row.scores);
  REGARD_UNROLL for (int half = 0; half < 2; ++half) {
    const VI integers = hn::NearestInt(hn::Mul(w[half], to_integer));
    const VU bits = sound ? hn::BitCast(du, integers) : hn::Zero(du);
    hn::Store(hn::TruncateTo(d8, hn::ShiftRight<8>(bits)), d8, bytes + half * kSubBlock);
    hn::Store(hn::TruncateTo(d8, bits), d8, bytes + kLowerWeights * 4 + half * kSubBlock);
  }
  row.scores[kWeightFactor] =
      sound ? hn::GetLane(hn::BitCast(d, power)) * (2 / kLargestWeight) : std::numeric_limits<float>::quiet_NaN();
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
template <int NR>
HWY_INLINE void MultiplyI8Values(const I8Rows (&values)[2], std::int64_t v_dim, DecodeRow* rows, std::int64_t column) {
  const DF d;
  const D8 d8;
  const hn::Repartition<std::int16_t, D8> d16;
  VI upper[NR][4], lower[NR][4];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    REGARD_UNROLL for (int i = 0; i < 4; ++i) upper[r][i] = lower[r][i] = hn::Zero(DI());
  }
  const std::int8_t* HWY_RESTRICT v = values[0].data + column;
  std::int64_t stride = values[0].stride, ahead = values[0].ahead;
  _Pragma("GCC unroll 1") for (int word = 0; word < kLowerWeights; ++word) {
    if (word == kLowerWeights / 2) {
      v = values[1].data + column;
      stride = values[1].stride;
      ahead = values[1].ahead;
    }
    V8 row[4];
    REGARD_UNROLL for (int j = 0; j < 4; ++j, v += stride) row[j] = ReadGroup(v, v_dim - column, ahead);
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
  for (std::int64_t column = 0; column < v_dim; column += kI8Group) MultiplyI8Values<NR>(values, v_dim, rows, column);
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
    alignas(64) float scales[kI8Keys];
    LoadI8Scales(kv.k, at, scales);
    for (int half = 0; half < 2; ++half) {
      const I8Rows keys = HalfOfI8Rows(kv.k, at, half, kv.kv_len, kv.head_dim, scratch.k_copy);
      int r = 0;
      for (; r + 4 <= call.num_rows; r += 4) ScoreI8Rows<4>(keys, kv.head_dim, scales, half, scratch.rows + r);
      for (; r < call.num_rows; ++r) ScoreI8Rows<1>(keys, kv.head_dim, scales, half, scratch.rows + r);
    }
  }
  HWY_INLINE void Weigh(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) const {
    const KvHead& kv = call.constants.kv;
    const I8Rows values[2] = {HalfOfI8Rows(kv.v, at, 0, kv.kv_len, kv.v_dim, scratch.v_copy),
                              HalfOfI8Rows(kv.v, at, 1, kv.kv_len, kv.v_dim, scratch.v_copy)};
    alignas(64) float scales[kI8Keys];
    LoadI8Scales(kv.v, at, scales);
    DecodeRow* const rows = scratch.rows;
    int r = 0;
    for (; r + 2 <= call.num_rows; r += 2) {
      RoundI8Weights(scales, at.all_seen, rows[r]);
      RoundI8Weights(scales, at.all_seen, rows[r + 1]);
      MultiplyI8ValueRows<2>(values, kv.v_dim, rows + r);
    }
    for (; r < call.num_rows; ++r) {
      RoundI8Weights(scales, at.all_seen, rows[r]);
      MultiplyI8ValueRows<1>(values, kv.v_dim, rows + r);
    }
  }
};

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
