// The products of decode in f32: a sub-block of key rows with all queries, weights with its value rows. Rows of f16, bf16 and i8 are
// converted in registers as they are read; rows that do not fill whole vectors are first written to the first cache level as f32.
#if defined(REGARD_KERNELS_DECODE_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_DECODE_F32_INL_H_
#undef REGARD_KERNELS_DECODE_F32_INL_H_
#else
#define REGARD_KERNELS_DECODE_F32_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/decode_state-inl.h"
#include "kernels/soon_lines-inl.h"
#include "kernels/stored_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// While a line of k or v is read, one that lies so many keys further on is asked for, into the second cache level: with AVX-512 the same line of
/// the later key's row, elsewhere the next of SoonLines. k and v of a sub-block are streams in turn, which prefetchers lose and find again.
/// With AVX-512 at 32,768 keys: f32 10.7 → 9.1 ms, bf16 4.9 → 4.7; half of that where the first 12 lines of the next stream are asked for behind
/// the last rows' arithmetic instead. Not a whole sub-block at once, nor into the first level: both take the buffers that misses need.
inline constexpr std::int64_t kDecodeKeysAhead = 2 * kSubBlock;

/// From a key's row to the one kDecodeKeysAhead later, in bytes, whatever its page; 0 where there is none, and where nobody asks.
HWY_INLINE std::int64_t BytesAhead(const StoredRows& rows, std::int64_t key, std::int64_t kv_len) {
  if (!kHoldsQueries || key + kDecodeKeysAhead >= kv_len) return 0;
  return StoredRow(rows, key + kDecodeKeysAhead) - StoredRow(rows, key);
}

/// The lines of k and v that come kDecodeKeysAhead keys after a sub-block. There may be no such keys: then those of the sub-block, which are there.
HWY_INLINE SoonLines LinesAhead(const KvHead& kv, const SubBlock& at) {
  const std::int64_t key = at.first_key + (at.first_key + kDecodeKeysAhead < kv.kv_len ? kDecodeKeysAhead : 0);
  return {LineStream::From(kv.k, key, kv.head_dim), LineStream::From(kv.v, key, kv.v_dim)};
}

/// Rows of a sub-block as they are multiplied: kSubBlock of them, readable in whole groups of vectors.
struct BlockRows {
  const std::uint8_t* data;
  std::int64_t stride, ahead;  // in bytes; ahead: BytesAhead, if the rows are where they are stored
};

/// Reads groups of kVectors vectors of a row as f32, elements in the order of Column, and with AVX-512 asks for what lies `ahead`. A row of
/// kI8 is read without its scale.
template <DType kType>
struct RowReader {
  static constexpr int kVectors = kType == DType::kBF16 ? 2 : 1;
  static constexpr int kElements = kVectors * kLanes;

  static HWY_INLINE void Read(const std::uint8_t* row, std::int64_t group, std::int64_t ahead, VF (&x)[kVectors]) {
    const std::int64_t offset = group * kElements * StoredBytes(kType);
    const std::uint8_t* const from = row + offset;
    if constexpr (kHoldsQueries) {
      if (offset % kLineBytes == 0) AskFor(from + ahead);
    }
    if constexpr (kType == DType::kBF16) {
      // Two to a word: the even elements, then the odd ones.
      const DU du;
      VU words = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(from));
      KeepReadOrder(words);
      x[0] = hn::BitCast(DF(), hn::ShiftLeft<16>(words));
      x[1] = hn::BitCast(DF(), hn::And(words, hn::Set(du, 0xFFFF0000u)));
    } else {
      x[0] = LoadStored<kType>(from, hn::Set(DF(), 1.0f));
      KeepReadOrder(x[0]);
    }
  }

  /// Where element c of a row comes to lie.
  static std::int64_t Column(std::int64_t c) {
    if constexpr (kType != DType::kBF16) return c;
    return c / kElements * kElements + c % kVectors * kLanes + c % kElements / kVectors;
  }
};

/// In which type rows are multiplied: as they are stored if that can be read in whole groups, else as f32.
HWY_INLINE DType ReadAs(const StoredRows& rows, std::int64_t dim) {
  const std::int64_t elements = rows.dtype == DType::kBF16 ? RowReader<DType::kBF16>::kElements : kLanes;
  const bool reads = rows.dtype != DType::kF16 || REGARD_CONVERTS_F16;
  return reads && dim % elements == 0 ? rows.dtype : DType::kF32;
}

/// Where the rows are stored, or written to `copy` with zeros for those that do not exist.
template <DType kType>
HWY_INLINE BlockRows WholeRows(const StoredRows& rows, const SubBlock& at, std::int64_t kv_len, std::int64_t dim, float* copy) {
  const bool converts = rows.dtype != kType || dim % kLanes != 0;
  const std::int64_t item = StoredBytes(kType);
  if (!converts && at.num_keys == kSubBlock) {
    return {StoredRow(rows, at.first_key), rows.stride * item, BytesAhead(rows, at.first_key, kv_len)};
  }
  const std::int64_t stride = Padded(dim) * item;
  std::uint8_t* const to = reinterpret_cast<std::uint8_t*>(copy);
  std::fill(to + at.num_keys * stride, to + kSubBlock * stride, std::uint8_t{0});
  if (converts) {
    ConvertRows(rows, at.first_key, at.num_keys, dim, copy, Padded(dim));
  } else {
    for (int j = 0; j < at.num_keys; ++j)
      std::memcpy(to + j * stride, StoredRow(rows, at.first_key + j), static_cast<std::size_t>(stride));
  }
  return {to, stride, 0};
}

/// The scales of the rows that exist, zeros for the others. Those of a sub-block lie behind each other.
HWY_INLINE void LoadScales(const StoredRows& rows, const SubBlock& at, float* scales) {
  const std::uint8_t* const from = StoredPlace::Of(rows, at.first_key).Scales(rows);
  if (HWY_LIKELY(at.num_keys == kSubBlock)) {
    std::memcpy(scales, from, kSubBlock * sizeof(float));
    return;
  }
  std::memcpy(scales, from, static_cast<std::size_t>(at.num_keys) * sizeof(float));
  std::fill(scales + at.num_keys, scales + kSubBlock, 0.0f);
}

/// Scores of two rows of kHeld whole vectors, which stay in registers: half as many loads as multiplications, where ScoreRows has more
/// loads than those. Every sum in the same order as there, so that a row's bits do not depend on whether it has a partner.
template <DType kType, int kHeld>
HWY_NOINLINE void ScoreTwoRows(const BlockRows& keys, DecodeRow* rows) {
  using Reader = RowReader<kType>;
  const DF d;
  VF q[2][kHeld];
  REGARD_UNROLL for (int r = 0; r < 2; ++r) {
    REGARD_UNROLL for (int i = 0; i < kHeld; ++i) {
      q[r][i] = hn::Load(d, rows[r].q + i * kLanes);
      KeepInRegister(q[r][i]);
    }
  }
  alignas(64) float block_sums[2][kSubBlock / 4 * kBlockSums];
  const std::uint8_t* HWY_RESTRICT k = keys.data;
  for (int key = 0; key < kSubBlock; key += 4) {
    VF sum[2][4];
    REGARD_UNROLL for (int j = 0; j < 4; ++j, k += keys.stride) {
      sum[0][j] = sum[1][j] = hn::Zero(d);
      REGARD_UNROLL for (int i = 0; i < kHeld / Reader::kVectors; ++i) {
        VF x[Reader::kVectors];
        Reader::Read(k, i, keys.ahead, x);
        REGARD_UNROLL for (int n = 0; n < Reader::kVectors; ++n) {
          sum[0][j] = hn::MulAdd(q[0][i * Reader::kVectors + n], x[n], sum[0][j]);
          sum[1][j] = hn::MulAdd(q[1][i * Reader::kVectors + n], x[n], sum[1][j]);
        }
      }
    }
    REGARD_UNROLL for (int r = 0; r < 2; ++r) {
      StoreBlockSums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], block_sums[r] + key / 4 * kBlockSums);
    }
  }
  for (int r = 0; r < 2; ++r) SumAcrossBlocks(block_sums[r], rows[r].scores);
}

/// Scores of the NR rows from rows on.
template <DType kType, int NR>
HWY_NOINLINE void ScoreRows(const BlockRows& keys, std::int64_t head_dim, DecodeRow* rows) {
  using Reader = RowReader<kType>;
  const DF d;
  const float* HWY_RESTRICT q[NR];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) q[r] = rows[r].q;
  alignas(64) float block_sums[NR][kSubBlock / 4 * kBlockSums];
  const std::uint8_t* HWY_RESTRICT k = keys.data;
  for (int key = 0; key < kSubBlock; key += 4) {
    VF sum[NR][4];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int j = 0; j < 4; ++j) sum[r][j] = hn::Zero(d); }
    REGARD_UNROLL for (int j = 0; j < 4; ++j, k += keys.stride) {
      for (std::int64_t i = 0; i < head_dim / Reader::kElements; ++i) {
        VF x[Reader::kVectors];
        Reader::Read(k, i, keys.ahead, x);
        REGARD_UNROLL for (int n = 0; n < Reader::kVectors; ++n) {
          const std::int64_t at = (i * Reader::kVectors + n) * kLanes;
          REGARD_UNROLL for (int r = 0; r < NR; ++r) sum[r][j] = hn::MulAdd(hn::Load(d, q[r] + at), x[n], sum[r][j]);
        }
      }
    }
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      StoreBlockSums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], block_sums[r] + key / 4 * kBlockSums);
    }
  }
  for (int r = 0; r < NR; ++r) SumAcrossBlocks(block_sums[r], rows[r].scores);
}

/// sum[r][j] += q[r] · k[j] over group i of elements.
template <DType kType, int NR, int kKeys>
HWY_INLINE void ScoreGroup(const float* const (&q)[NR], const std::uint8_t* k, std::int64_t stride, std::int64_t i,
                           VF (&sum)[NR][kKeys]) {
  using Reader = RowReader<kType>;
  const DF d;
  VF x[kKeys][Reader::kVectors];
  REGARD_UNROLL for (int j = 0; j < kKeys; ++j) Reader::Read(k + j * stride, i, 0, x[j]);
  REGARD_UNROLL for (int n = 0; n < Reader::kVectors; ++n) {
    const std::int64_t at = (i * Reader::kVectors + n) * kLanes;
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      VF qi = hn::Load(d, q[r] + at);
      KeepInRegister(qi);
      REGARD_UNROLL for (int j = 0; j < kKeys; ++j) sum[r][j] = hn::MulAdd(qi, x[j][n], sum[r][j]);
    }
  }
}

/// The same where registers cannot hold queries, kKeys keys at once: a load of a query serves them all, and NR · kKeys = 8 sums keep two
/// multiply pipes of four cycles busy. From the first cache level four vectors a round take half the time of one, 162 ns a sub-block for four
/// rows of 128 on Zen 3; the multiplications alone are 151. (Eight, four groups of bf16: sums on the stack, +7 %.)
template <DType kType, int NR, int kKeys>
HWY_NOINLINE void ScoreKeysTogether(const BlockRows& keys, std::int64_t head_dim, DecodeRow* rows, SoonLines& soon) {
  using Reader = RowReader<kType>;
  static_assert(kSubBlock % kKeys == 0);
  constexpr int kRound = 4 / Reader::kVectors;
  const DF d;
  const float* q[NR];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) q[r] = rows[r].q;
  alignas(64) float sums[NR][kSubBlock * kLanes];
  SoonLines lines = soon;
  const std::uint8_t* k = keys.data;
  const std::int64_t stride = keys.stride, groups = head_dim / Reader::kElements;
  for (int key = 0; key < kSubBlock; key += kKeys, k += kKeys * stride) {
    VF sum[NR][kKeys];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int j = 0; j < kKeys; ++j) sum[r][j] = hn::Zero(d); }
    std::int64_t i = 0;
    for (; i + kRound <= groups; i += kRound) {
      lines.Ask<kRound * kKeys * Reader::kElements * StoredBytes(kType)>();
      REGARD_UNROLL for (int u = 0; u < kRound; ++u) ScoreGroup<kType>(q, k, stride, i + u, sum);
    }
    for (; i < groups; ++i) ScoreGroup<kType>(q, k, stride, i, sum);
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      REGARD_UNROLL for (int j = 0; j < kKeys; ++j) hn::Store(sum[r][j], d, sums[r] + (key + j) * kLanes);
    }
  }
  soon = lines;
  for (int r = 0; r < NR; ++r) {
    alignas(64) float block_sums[kSubBlock / 4 * kBlockSums];
    for (int i = 0; i < kSubBlock / 4; ++i) {
      const float* const four = sums[r] + 4 * i * kLanes;
      StoreBlockSums(hn::Load(d, four), hn::Load(d, four + kLanes), hn::Load(d, four + 2 * kLanes),
                     hn::Load(d, four + 3 * kLanes), block_sums + i * kBlockSums);
    }
    SumAcrossBlocks(block_sums, rows[r].scores);
  }
}

/// All rows' scores.
template <DType kType>
HWY_INLINE void ScoreAllRows(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) {
  const DF d;
  const StoredRows& stored = call.constants.kv.k;
  const std::int64_t head_dim = Padded(call.constants.kv.head_dim);
  const int num_rows = call.num_rows;
  DecodeRow* const rows = scratch.rows;
  const BlockRows keys = WholeRows<kType>(stored, at, call.constants.kv.kv_len, call.constants.kv.head_dim, scratch.k_copy);
  int r = 0;
  if constexpr (kHoldsQueries) {
    for (; (head_dim == 8 * kLanes || head_dim == 4 * kLanes) && r + 2 <= num_rows; r += 2) {
      head_dim == 8 * kLanes ? ScoreTwoRows<kType, 8>(keys, rows + r) : ScoreTwoRows<kType, 4>(keys, rows + r);
    }
    for (; r + 4 <= num_rows; r += 4) ScoreRows<kType, 4>(keys, head_dim, rows + r);
    for (; r < num_rows; ++r) ScoreRows<kType, 1>(keys, head_dim, rows + r);
  } else {
    SoonLines& soon = scratch.soon = LinesAhead(call.constants.kv, at);
    for (; r + 4 <= num_rows; r += 4) ScoreKeysTogether<kType, 4, 2>(keys, head_dim, rows + r, soon);
    for (; r + 2 <= num_rows; r += 2) ScoreKeysTogether<kType, 2, 4>(keys, head_dim, rows + r, soon);
    for (; r < num_rows; ++r) ScoreKeysTogether<kType, 1, 8>(keys, head_dim, rows + r, soon);
  }
  if constexpr (kType == DType::kI8) {
    alignas(64) float scales[kSubBlock];
    LoadScales(stored, at, scales);
    for (r = 0; r < num_rows; ++r) {
      float* const scores = rows[r].scores;
      for (int i = 0; i < kSubBlock; i += kLanes) {
        hn::Store(hn::Mul(hn::Load(d, scores + i), hn::Load(d, scales + i)), d, scores + i);
      }
    }
  }
}

/// acc[r] += weight[r] · v over the columns of one key.
template <DType kType, int NR, int NV>
HWY_INLINE void MultiplyValue(const BlockRows& values, const DecodeRow* rows, const std::uint8_t* v, int key, VF (&acc)[NR][NV]) {
  using Reader = RowReader<kType>;
  const DF d;
  VF p[NR];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) p[r] = hn::Set(d, rows[r].scores[key]);
  REGARD_UNROLL for (int i = 0; i < NV / Reader::kVectors; ++i) {
    VF x[Reader::kVectors];
    Reader::Read(v, i, values.ahead, x);
    REGARD_UNROLL for (int n = 0; n < Reader::kVectors; ++n) {
      REGARD_UNROLL for (int r = 0; r < NR; ++r) {
        acc[r][i * Reader::kVectors + n] = hn::MulAdd(p[r], x[n], acc[r][i * Reader::kVectors + n]);
      }
    }
  }
}

/// rows[r].acc[0…NV vectors) += Σ weights · v over the sub-block. kCare: each row touches only the values it may see.
template <DType kType, int NR, int NV, bool kCare>
HWY_INLINE void MultiplyValues(const BlockRows& values, DecodeRow* rows, std::int64_t column, SoonLines& soon) {
  const DF d;
  VF acc[NR][NV];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int i = 0; i < NV; ++i) acc[r][i] = hn::Zero(d); }
  const std::uint8_t* HWY_RESTRICT v = values.data + column * StoredBytes(kType);
  if constexpr (kHoldsQueries || kCare) {
    for (int key = 0; key < kSubBlock; ++key, v += values.stride) {
      if constexpr (kCare) {
        static_assert(NR == 1);
        if ((rows[0].visible >> key & 1) == 0) continue;
      }
      MultiplyValue<kType>(values, rows, v, key, acc);
    }
  } else {
    SoonLines lines = soon;
    for (int key = 0; key < kSubBlock; key += 4) {
      lines.Ask<4 * NV * kLanes * StoredBytes(kType)>();
      REGARD_UNROLL for (int u = 0; u < 4; ++u, v += values.stride) MultiplyValue<kType>(values, rows, v, key + u, acc);
    }
    soon = lines;
  }
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    float* HWY_RESTRICT to = rows[r].acc + column;
    REGARD_UNROLL for (int i = 0; i < NV; ++i) hn::Store(hn::Add(hn::Load(d, to + i * kLanes), acc[r][i]), d, to + i * kLanes);
  }
}

/// All columns for NR rows.
template <DType kType, int NR, bool kCare>
HWY_NOINLINE void MultiplyValueRows(const BlockRows& values, std::int64_t v_dim, DecodeRow* rows, SoonLines& soon) {
  constexpr int kMany = NR <= 2 ? kDecodeTileColumns : kDecodeTileColumns / 2, kFew = RowReader<kType>::kVectors;
  std::int64_t column = 0;
  for (; column + kMany * kLanes <= v_dim; column += kMany * kLanes)
    MultiplyValues<kType, NR, kMany, kCare>(values, rows, column, soon);
  for (; column < v_dim; column += kFew * kLanes) MultiplyValues<kType, NR, kFew, kCare>(values, rows, column, soon);
}

template <DType kType>
HWY_INLINE bool HasNonFinite(const BlockRows& values, std::int64_t v_dim) {
  using Reader = RowReader<kType>;
  if constexpr (kType == DType::kI8) return false;  // the scales are in the weights
  const DF d;
  VF sum = hn::Zero(d);  // of v·0: NaN as soon as a value is not finite
  for (int key = 0; key < kSubBlock; ++key) {
    for (std::int64_t i = 0; i < v_dim / Reader::kElements; ++i) {
      VF x[Reader::kVectors];
      Reader::Read(values.data + key * values.stride, i, 0, x);
      REGARD_UNROLL for (int n = 0; n < Reader::kVectors; ++n) sum = hn::MulAdd(x[n], hn::Zero(d), sum);
    }
  }
  return !hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

/// Reads a number of every line of the rows, in order, where nothing is asked for in order: tiles of fewer columns than a row has come to
/// lines in an order that is no stream.
HWY_INLINE void ReadInOrder(const BlockRows& rows, std::int64_t row_bytes) {
  for (int key = 0; key < kSubBlock; ++key) {
    for (std::int64_t i = 0; i < row_bytes; i += kLineBytes) {
      std::uint32_t word;
      std::memcpy(&word, rows.data + key * rows.stride + i, sizeof(word));
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
      asm volatile("" : : "r"(word));  // nobody uses it
#endif
    }
  }
}

/// Weights times their values' scales; what a row does not see weighs nothing, whatever its scale.
HWY_INLINE void ScaleWeights(const DecodeCall& call, const SubBlock& at, DecodeRow* rows) {
  alignas(64) float scales[kSubBlock];
  LoadScales(call.constants.kv.v, at, scales);
  for (int r = 0; r < call.num_rows; ++r) {
    for (int j = 0; j < kSubBlock; ++j) rows[r].scores[j] *= (rows[r].visible >> j & 1) != 0 ? scales[j] : 0.0f;
  }
}

/// All rows' weights · v.
template <DType kType>
HWY_INLINE void MultiplyAllRows(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) {
  const std::int64_t v_dim = Padded(call.constants.kv.v_dim);
  const int num_rows = call.num_rows;
  DecodeRow* const rows = scratch.rows;
  const BlockRows values =
      WholeRows<kType>(call.constants.kv.v, at, call.constants.kv.kv_len, call.constants.kv.v_dim, scratch.v_copy);
  if constexpr (kType == DType::kI8) ScaleWeights(call, at, rows);
  if constexpr (kHoldsQueries) {
    if (v_dim > kDecodeTileColumns * kLanes) ReadInOrder(values, v_dim * StoredBytes(kType));
  }
  int r = 0;
  if (!at.all_seen && HasNonFinite<kType>(values, v_dim)) {
    for (; r < num_rows; ++r) MultiplyValueRows<kType, 1, true>(values, v_dim, rows + r, scratch.soon);
    return;
  }
  if constexpr (!kHoldsQueries) {
    for (; r + 4 <= num_rows; r += 4) MultiplyValueRows<kType, 4, false>(values, v_dim, rows + r, scratch.soon);
  }
  for (; r + 2 <= num_rows; r += 2) MultiplyValueRows<kType, 2, false>(values, v_dim, rows + r, scratch.soon);
  for (; r < num_rows; ++r) MultiplyValueRows<kType, 1, false>(values, v_dim, rows + r, scratch.soon);
}

/// The products of a call, whose rows of k and v may be of different types.
struct F32Products {
  static constexpr int kKeys = kSubBlock;
  DType k_type, v_type;

  F32Products(const KvHead& kv) : k_type(ReadAs(kv.k, kv.head_dim)), v_type(ReadAs(kv.v, kv.v_dim)) {}

  static std::int64_t Pad(std::int64_t dim) { return Padded(dim); }
  static std::int64_t QuerySize(std::int64_t dim) { return Padded(dim); }
  std::int64_t AccColumn(std::int64_t c) const { return v_type == DType::kBF16 ? RowReader<DType::kBF16>::Column(c) : c; }
  /// copy [Padded(head_dim)] is for a query that is not stored as f32.
  void PackQuery(const DecodeCall& call, const QueryRow& row, float* copy, float* q) const {
    const std::int64_t head_dim = call.constants.kv.head_dim;
    const float* const from = FloatQuery(call.constants.options, row, head_dim, copy);
    for (std::int64_t i = 0; i < head_dim; ++i) {
      q[k_type == DType::kBF16 ? RowReader<DType::kBF16>::Column(i) : i] = call.constants.q_factor * from[i];
    }
  }
  HWY_INLINE void Score(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) const {
    switch (k_type) {
#if REGARD_CONVERTS_F16
      case DType::kF16:
        return ScoreAllRows<DType::kF16>(call, at, scratch);
#endif
      case DType::kBF16:
        return ScoreAllRows<DType::kBF16>(call, at, scratch);
      case DType::kI8:
        return ScoreAllRows<DType::kI8>(call, at, scratch);
      default:
        return ScoreAllRows<DType::kF32>(call, at, scratch);
    }
  }
  HWY_INLINE void Weigh(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) const {
    switch (v_type) {
#if REGARD_CONVERTS_F16
      case DType::kF16:
        return MultiplyAllRows<DType::kF16>(call, at, scratch);
#endif
      case DType::kBF16:
        return MultiplyAllRows<DType::kBF16>(call, at, scratch);
      case DType::kI8:
        return MultiplyAllRows<DType::kI8>(call, at, scratch);
      default:
        return MultiplyAllRows<DType::kF32>(call, at, scratch);
    }
  }
};

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
