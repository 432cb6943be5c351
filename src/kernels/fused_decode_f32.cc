// Fused attention for few query rows, f32 accumulate; k and v as they are stored, converted to f32 where they are something else.
// Computes   the online-softmax state of each row over keys [first_key, last_key): acc = weights v, row_sum, row_ref. Splits of the keys
//            are merged and finished by the caller.
// Shapes     up to kMaxDecodeRows rows of q [head_dim] against k [kv_len, head_dim], v [kv_len, v_dim] -> acc [rows, v_dim].
// Method     The keys in sub-blocks of kSubBlock, on a grid from key 0. All rows share each row of k and v: it comes from memory once.
//            per sub-block: s = q k, one key row after the other, all query rows on each; sums across lanes for all keys together
//                           s = s + options − row_ref, keys in lanes; where s > threshold: move row_ref, rescale the row
//                           p = exp2(s); row_sum += p, per lane; acc += (p v summed over the sub-block from 0)
// Numerics   as fused_prefill_f32.cc; the two do not share bits, since they sum in different orders.
// Cost       bound by reading k and v: kSubBlock · (head_dim + v_dim) floats per sub-block, in ascending addresses. From cache it runs at
//            42 GB/s for 4 rows of 128 on Zen 4 at 3.7 GHz, a third above what memory gives; both hide behind each other as far as
//            the prefetchers of the machine go. Order decides how far: four key rows in lock-step fell to a third of the read bandwidth,
//            v in two column halves to two thirds, sub-blocks of 32 or 64 keys lost a quarter, software prefetch of the next
//            sub-block a third, and that of its first lines alone won a sixth (StartStream). Where k and v lie matters as well (equal offsets in huge pages: up to 20 points).
// Requires   plan-validated sizes, dims >= 1, no aliasing. noexcept, no allocation; scratch by DecodeScratchBytes.
// Dispatch   exported once below.
// See        fused_decode_f32_test.cc, `regard bench` rows decode.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/fused_decode_f32.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/exp2-inl.h"
#include "kernels/key_lanes-inl.h"
#include "kernels/query_block-inl.h"
#include "kernels/stored_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// One query row and its state.
struct DecodeRow {
  const QueryRow* row;
  float* q;               // [Padded(head_dim)], scaled, zeros behind
  float* acc;             // [Padded(v_dim)]
  float neg_ref;          // −row_ref
  float threshold;        // −inf before the first finite score
  std::uint32_t visible;  // in the present sub-block, one bit per key
  bool saw_key;
  alignas(64) float row_sum[kLanes];
  alignas(64) float scores[kSubBlock];  // then weights
};

struct DecodeScratch {
  DecodeRow rows[kMaxDecodeRows];
  alignas(64) float k_tail[kSubBlock * kLanes];  // the last head_dim % kLanes elements, zeros behind
  alignas(64) float v_tail[kSubBlock * kLanes];
  float *k_copy, *v_copy;  // [kSubBlock, Padded(head_dim or v_dim)], for rows that cannot be used where they lie
};

/// What is the same for all sub-blocks of a call.
struct DecodeCall {
  CallConstants constants;
  std::int64_t first_key, last_key;
  int num_rows;
};

/// Keys [begin, end) of the sub-block at first_key are at work.
struct SubBlock {
  std::int64_t first_key;
  int begin, end;
  FloatRows k, v;  // rows of key first_key on; only those at work exist
};

/// Sets each row's visible keys and narrows the sub-block to those some row sees. Returns false if there are none.
HWY_INLINE bool SetVisible(const DecodeCall& call, DecodeRow* rows, SubBlock& at) {
  const RowOptions& options = call.constants.options;
  std::uint32_t any = 0;
  for (int r = 0; r < call.num_rows; ++r) {
    const QueryRow& row = *rows[r].row;
    const auto in_block = [&](std::int64_t key) {
      return static_cast<int>(std::clamp<std::int64_t>(key - at.first_key, 0, kSubBlock));
    };
    const int begin = in_block(std::max(row.key_begin, call.first_key));
    const int end = in_block(std::min(row.key_end, call.last_key));
    std::uint32_t visible = begin < end ? (1u << end) - (1u << begin) : 0;
    if (options.has_mask && visible != 0) {
      const std::uint8_t* mask = row.mask + at.first_key * options.mask_key_stride;
      for (int k = begin; k < end; ++k) visible &= ~(std::uint32_t{mask[k * options.mask_key_stride] == 0} << k);
    }
    if (options.has_bias && visible != 0) {
      const float* bias = row.bias + at.first_key * options.bias_key_stride;
      for (int k = begin; k < end; ++k) visible &= ~(std::uint32_t{bias[k * options.bias_key_stride] == -kInf} << k);
    }
    rows[r].visible = visible;
    rows[r].saw_key |= visible != 0;
    any |= visible;
  }
  if (any == 0) return false;
  at.begin = static_cast<int>(hwy::Num0BitsBelowLS1Bit_Nonzero32(any));
  at.end = 64 - static_cast<int>(hwy::Num0BitsAboveMS1Bit_Nonzero64(any));
  return true;
}

/// Soft cap, bias and ALiBi on one row's scores; all keys of the sub-block, whether visible or not.
HWY_INLINE void ApplyOptions(const DecodeCall& call, const SubBlock& at, DecodeRow& row) {
  const DF d;
  const RowOptions& options = call.constants.options;
  if (options.soft_cap > 0) {
    for (int k = 0; k < kSubBlock; k += kLanes) {
      hn::Store(hn::Mul(TanhOfScaled(hn::Load(d, row.scores + k)), hn::Set(d, call.constants.cap_log2)), d, row.scores + k);
    }
  }
  if (options.has_bias) {
    const float* bias = row.row->bias + at.first_key * options.bias_key_stride;
    for (int k = at.begin; k < at.end; ++k) {
      row.scores[k] += std::max(static_cast<float>(kLog2E) * bias[k * options.bias_key_stride], kLowestBias);
    }
  }
  if (options.has_alibi) {
    const std::int64_t* const positions = call.constants.kv.key_positions;
    alignas(64) float distance[kSubBlock] = {};
    for (int k = at.begin; k < at.end; ++k) {
      const std::int64_t key = at.first_key + k;
      distance[k] = std::fabs(static_cast<float>(row.row->position - (positions == nullptr ? key : positions[key])));
    }
    const VF neg_slope = hn::Set(d, static_cast<float>(-kLog2E * row.row->alibi_slope));
    for (int k = 0; k < kSubBlock; k += kLanes) {
      hn::Store(hn::MulAdd(neg_slope, hn::Load(d, distance + k), hn::Load(d, row.scores + k)), d, row.scores + k);
    }
  }
}

/// The scores of the row that its query may see relative to its reference, −inf for the others.
HWY_INLINE void RelativeScores(const DecodeRow& row, VF (&s)[kSubBlock / kLanes]) {
  const DF d;
  const DU du;
  const VF neg_ref = hn::Set(d, row.neg_ref);
  const VU bits = hn::Set(du, row.visible);
  REGARD_UNROLL for (int i = 0; i < kSubBlock / kLanes; ++i) {
    const VU bit = hn::Shl(hn::Set(du, 1u), hn::Iota(du, static_cast<std::uint32_t>(i * kLanes)));
    const MF visible = hn::RebindMask(d, hn::TestBit(bits, bit));
    s[i] = hn::IfThenElse(visible, hn::Add(hn::Load(d, row.scores + i * kLanes), neg_ref), hn::Set(d, -kInf));
  }
}

/// The largest score that is neither NaN nor +inf; *sound tells whether there is another.
HWY_INLINE float LargestSound(const VF (&s)[kSubBlock / kLanes], bool* sound) {
  const DF d;
  alignas(64) float scores[kSubBlock];
  REGARD_UNROLL for (int i = 0; i < kSubBlock / kLanes; ++i) hn::Store(s[i], d, scores + i * kLanes);
  float largest = -kInf;
  *sound = true;
  for (const float score : scores) {
    if (score < kInf) {
      largest = std::max(largest, score);
    } else {
      *sound = false;
    }
  }
  return largest;
}

/// For scores that exceed the threshold: moves the reference to the largest and takes the scores again from the raw ones, for the
/// reasons given at MoveAndWeighTile of the prefill kernel. NaN or +inf poisons row_sum.
HWY_NOINLINE void MoveReference(std::int64_t v_dim, DecodeRow& row, VF (&s)[kSubBlock / kLanes]) {
  const DF d;
  const VF inf = hn::Set(d, kInf);
  bool sound;
  float largest = LargestSound(s, &sound);
  if (!sound) row.row_sum[0] = std::numeric_limits<float>::quiet_NaN();
  if (largest > row.threshold) {
    const float old_neg_ref = row.neg_ref;
    int round = 0;
    do {  // always once: a single key then weighs exactly 1
      row.neg_ref -= largest;
      RelativeScores(row, s);
      largest = LargestSound(s, &sound);
    } while (++round < kMaxMoves && std::fabs(largest) > 0.5f);
    if (row.threshold != -kInf) {  // without a reference nothing has been summed yet
      const VF factor = Exp2(hn::Set(d, std::min(row.neg_ref - old_neg_ref, 64.0f)));
      hn::Store(hn::Mul(hn::Load(d, row.row_sum), factor), d, row.row_sum);
      for (std::int64_t c = 0; c < Padded(v_dim); c += kLanes)
        hn::Store(hn::Mul(hn::Load(d, row.acc + c), factor), d, row.acc + c);
    }
    row.threshold = kRescaleThreshold;
  }
  REGARD_UNROLL for (int i = 0; i < kSubBlock / kLanes; ++i) {
    s[i] = hn::IfThenElse(hn::Lt(s[i], inf), hn::Min(s[i], hn::Set(d, kRescaleThreshold)), hn::Set(d, -kInf));
  }
}

/// Scores of one row become weights.
HWY_INLINE void SoftmaxRow(const DecodeCall& call, const SubBlock& at, DecodeRow& row) {
  const DF d;
  const RowOptions& options = call.constants.options;
  if (options.soft_cap > 0 || options.has_bias || options.has_alibi) ApplyOptions(call, at, row);
  VF s[kSubBlock / kLanes];
  RelativeScores(row, s);
  const VF threshold = hn::Set(d, row.threshold);
  MF calm = hn::Eq(threshold, threshold);
  REGARD_UNROLL for (int i = 0; i < kSubBlock / kLanes; ++i) calm = hn::And(calm, hn::Le(s[i], threshold));
  if (HWY_UNLIKELY(!hn::AllTrue(d, calm))) MoveReference(call.constants.kv.v_dim, row, s);
  VF sum = hn::Load(d, row.row_sum);
  REGARD_UNROLL for (int i = 0; i < kSubBlock / kLanes; ++i) {
    const VF p = Exp2(s[i]);
    hn::Store(p, d, row.scores + i * kLanes);
    sum = hn::Add(sum, p);
  }
  hn::Store(sum, d, row.row_sum);
}

/// Scores of two rows of kVectors whole vectors, which stay in registers: half as many loads as multiplications, where ScoreRows has more
/// loads than those. Every sum in the same order as there, so that a row's bits do not depend on whether it has a partner.
template <int kVectors>
HWY_NOINLINE void ScoreTwoRows(const SubBlock& at, DecodeRow* rows) {
  const DF d;
  VF q[2][kVectors];
  REGARD_UNROLL for (int r = 0; r < 2; ++r) {
    REGARD_UNROLL for (int i = 0; i < kVectors; ++i) {
      q[r][i] = hn::Load(d, rows[r].q + i * kLanes);
      KeepInRegister(q[r][i]);
    }
  }
  alignas(64) float block_sums[2][kSubBlock / 4 * kBlockSums];
  for (int key = 0; key < kSubBlock; key += 4) {
    VF sum[2][4];
    REGARD_UNROLL for (int j = 0; j < 4; ++j) {
      const float* HWY_RESTRICT k = at.k.data + std::clamp(key + j, at.begin, at.end - 1) * at.k.stride;
      sum[0][j] = sum[1][j] = hn::Zero(d);
      REGARD_UNROLL for (int i = 0; i < kVectors; ++i) {
        VF ki = hn::LoadU(d, k + i * kLanes);
        KeepInRegister(ki);
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

/// Scores of the NR rows from rows on against the whole sub-block; keys beyond the last at work repeat it.
template <int NR>
HWY_NOINLINE void ScoreRows(const DecodeCall& call, const SubBlock& at, DecodeRow* rows, const DecodeScratch& scratch) {
  const DF d;
  const std::int64_t head_dim = call.constants.kv.head_dim, whole = head_dim / kLanes * kLanes;
  const float* HWY_RESTRICT q[NR];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) q[r] = rows[r].q;
  alignas(64) float block_sums[NR][kSubBlock / 4 * kBlockSums];
  for (int key = 0; key < kSubBlock; key += 4) {
    const float* HWY_RESTRICT k[4];
    int index[4];
    REGARD_UNROLL for (int j = 0; j < 4; ++j) {
      index[j] = std::clamp(key + j, at.begin, at.end - 1);
      k[j] = at.k.data + index[j] * at.k.stride;
    }
    VF sum[NR][4];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int j = 0; j < 4; ++j) sum[r][j] = hn::Zero(d); }
    REGARD_UNROLL for (int j = 0; j < 4; ++j) {
      for (std::int64_t i = 0; i < whole; i += kLanes) {
        const VF ki = hn::LoadU(d, k[j] + i);
        REGARD_UNROLL for (int r = 0; r < NR; ++r) sum[r][j] = hn::MulAdd(hn::Load(d, q[r] + i), ki, sum[r][j]);
      }
    }
    if (whole < head_dim) {
      REGARD_UNROLL for (int r = 0; r < NR; ++r) {
        const VF qi = hn::Load(d, q[r] + whole);
        REGARD_UNROLL for (int j = 0; j < 4; ++j) {
          sum[r][j] = hn::MulAdd(qi, hn::Load(d, scratch.k_tail + index[j] * kLanes), sum[r][j]);
        }
      }
    }
    REGARD_UNROLL for (int r = 0; r < NR; ++r) {
      StoreBlockSums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], block_sums[r] + key / 4 * kBlockSums);
    }
  }
  for (int r = 0; r < NR; ++r) SumAcrossBlocks(block_sums[r], rows[r].scores);
}

/// rows[r].acc[0…NV vectors) += Σ weights · v over the sub-block. kCare: each row touches only the values it may see.
template <int NR, int NV, bool kCare>
HWY_INLINE void MultiplyValues(const SubBlock& at, const float* HWY_RESTRICT v, std::int64_t v_stride, DecodeRow* rows,
                               std::int64_t column) {
  const DF d;
  VF acc[NR][NV];
  REGARD_UNROLL for (int r = 0; r < NR; ++r) { REGARD_UNROLL for (int i = 0; i < NV; ++i) acc[r][i] = hn::Zero(d); }
  for (int key = at.begin; key < at.end; ++key) {
    if constexpr (kCare) {
      static_assert(NR == 1);
      if ((rows[0].visible >> key & 1) == 0) continue;
    }
    VF p[NR];
    REGARD_UNROLL for (int r = 0; r < NR; ++r) p[r] = hn::Set(d, rows[r].scores[key]);
    REGARD_UNROLL for (int i = 0; i < NV; ++i) {
      VF vi = hn::LoadU(d, v + key * v_stride + i * kLanes);
      KeepInRegister(vi);
      REGARD_UNROLL for (int r = 0; r < NR; ++r) acc[r][i] = hn::MulAdd(p[r], vi, acc[r][i]);
    }
  }
  REGARD_UNROLL for (int r = 0; r < NR; ++r) {
    REGARD_UNROLL for (int i = 0; i < NV; ++i) {
      float* to = rows[r].acc + column + i * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), acc[r][i]), d, to);
    }
  }
}

/// All columns for NR rows.
template <int NR, bool kCare>
HWY_NOINLINE void MultiplyValueRows(const DecodeCall& call, const SubBlock& at, DecodeRow* rows, const DecodeScratch& scratch) {
  const std::int64_t v_dim = call.constants.kv.v_dim;
  std::int64_t column = 0;
  for (; column + kDecodeTileColumns * kLanes <= v_dim; column += kDecodeTileColumns * kLanes) {
    MultiplyValues<NR, kDecodeTileColumns, kCare>(at, at.v.data + column, at.v.stride, rows, column);
  }
  for (; column + kLanes <= v_dim; column += kLanes) {
    MultiplyValues<NR, 1, kCare>(at, at.v.data + column, at.v.stride, rows, column);
  }
  if (column < v_dim) MultiplyValues<NR, 1, kCare>(at, scratch.v_tail, kLanes, rows, column);
}

/// Rows of the keys at work as f32, counted from the first of the sub-block.
HWY_INLINE FloatRows RowsAtWork(const StoredRows& rows, const SubBlock& at, std::int64_t dim, float* copy) {
  const FloatRows found = FloatBlock(rows, at.first_key + at.begin, at.end - at.begin, dim, copy);
  return {found.data - at.begin * found.stride, found.stride};
}

/// The last dim % kLanes elements of each row, zeros behind.
HWY_INLINE void PackTail(const SubBlock& at, const FloatRows& rows, std::int64_t dim, float* tail) {
  const std::int64_t whole = dim / kLanes * kLanes;
  for (int key = at.begin; key < at.end; ++key) {
    for (std::int64_t i = whole; i < dim; ++i) tail[key * kLanes + i - whole] = rows.data[key * rows.stride + i];
  }
}

HWY_INLINE bool HasNonFinite(const SubBlock& at, std::int64_t v_dim) {
  const DF d;
  VF sum = hn::Zero(d);  // of v·0: NaN as soon as a value is not finite
  float tail = 0.0f;
  for (int key = at.begin; key < at.end; ++key) {
    const float* row = at.v.data + key * at.v.stride;
    std::int64_t c = 0;
    for (; c + kLanes <= v_dim; c += kLanes) sum = hn::MulAdd(hn::LoadU(d, row + c), hn::Zero(d), sum);
    for (; c < v_dim; ++c) tail += row[c] * 0.0f;
  }
  return !hn::AllTrue(d, hn::Eq(sum, hn::Zero(d))) || tail != 0.0f;
}

/// Asks for the first lines of rows that are wanted soon. k and v of a sub-block are two streams in turn, and where one takes over from the
/// other all waited for its first line: the loads are hundreds of operations away, behind the last query rows' arithmetic on what is
/// already in cache and the weights. Prefetchers take it from there. 4 to 16 lines gave 63 → 70–75 % of the read bandwidth, 32 gave
/// 69, a whole sub-block less than none.
HWY_INLINE void StartStream(const StoredRows& rows, std::int64_t first, std::int64_t num_rows, std::int64_t dim) {
  constexpr int kLines = 12;
  constexpr std::int64_t kLineBytes = 64;
  KeepCall();
  const std::uint8_t* const start = StoredRow(rows, first);
  const std::int64_t stride = rows.stride * StoredBytes(rows.dtype), row_bytes = dim * StoredBytes(rows.dtype);
  if (stride == row_bytes &&
      num_rows * row_bytes >= kLines * kLineBytes) {  // as caches lie; address by address it won half as much
    REGARD_UNROLL for (int line = 0; line < kLines; ++line) hwy::Prefetch(start + line * kLineBytes);
    return;
  }
  for (std::int64_t row = 0, lines = 0; row < num_rows && lines < kLines; ++row) {
    for (std::int64_t i = 0; i < row_bytes; i += kLineBytes, ++lines) hwy::Prefetch(start + row * stride + i);
  }
}

/// start_next() is called before the last rows.
template <class StartNext>
HWY_INLINE void ScoreAllRows(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch, const StartNext& start_next) {
  DecodeRow* rows = scratch.rows;
  int r = 0;
  const auto before = [&](int num_rows) HWY_ATTR {
    if (r + num_rows == call.num_rows) start_next();
  };
  if constexpr (kDecodeHeldVectors >= 8) {
    const std::int64_t head_dim = call.constants.kv.head_dim;
    for (; (head_dim == 8 * kLanes || head_dim == 4 * kLanes) && r + 2 <= call.num_rows; r += 2) {
      before(2);
      head_dim == 8 * kLanes ? ScoreTwoRows<8>(at, rows + r) : ScoreTwoRows<4>(at, rows + r);
    }
  }
  for (; r + kDecodeTileRows <= call.num_rows; r += kDecodeTileRows) {
    before(kDecodeTileRows);
    ScoreRows<kDecodeTileRows>(call, at, rows + r, scratch);
  }
  for (; r < call.num_rows; ++r) {
    before(1);
    ScoreRows<1>(call, at, rows + r, scratch);
  }
}

HWY_INLINE void AttendSubBlock(const DecodeCall& call, SubBlock at, DecodeScratch& scratch) {
  const KvHead& kv = call.constants.kv;
  DecodeRow* rows = scratch.rows;
  if (!SetVisible(call, rows, at)) return;
  at.k = RowsAtWork(kv.k, at, kv.head_dim, scratch.k_copy);
  if (kv.head_dim % kLanes != 0) PackTail(at, at.k, kv.head_dim, scratch.k_tail);
  ScoreAllRows(call, at, scratch, [&]() HWY_ATTR { StartStream(kv.v, at.first_key + at.begin, at.end - at.begin, kv.v_dim); });

  const std::uint32_t whole = (1u << at.end) - (1u << at.begin);
  bool all_seen = true;
  for (int r = 0; r < call.num_rows; ++r) {
    SoftmaxRow(call, at, rows[r]);
    all_seen &= rows[r].visible == whole;
  }
  at.v = RowsAtWork(kv.v, at, kv.v_dim, scratch.v_copy);
  if (kv.v_dim % kLanes != 0) PackTail(at, at.v, kv.v_dim, scratch.v_tail);
  int r = 0;
  if (!all_seen && HasNonFinite(at, kv.v_dim)) {
    for (; r < call.num_rows; ++r) MultiplyValueRows<1, true>(call, at, rows + r, scratch);
    return;
  }
  const std::int64_t next = at.first_key + kSubBlock;
  const auto start_next = [&]() HWY_ATTR {
    if (next < call.last_key) StartStream(kv.k, next, std::min<std::int64_t>(call.last_key - next, kSubBlock), kv.head_dim);
  };
  for (; r + 2 <= call.num_rows; r += 2) {
    if (r + 2 == call.num_rows) start_next();
    MultiplyValueRows<2, false>(call, at, rows + r, scratch);
  }
  for (; r < call.num_rows; ++r) {
    start_next();
    MultiplyValueRows<1, false>(call, at, rows + r, scratch);
  }
}

std::size_t DecodeScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  const std::int64_t floats = (kMaxDecodeRows + kSubBlock) * (Padded(head_dim) + Padded(v_dim));
  return sizeof(DecodeScratch) + static_cast<std::size_t>(floats) * sizeof(float);
}

void Decode(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows, std::int64_t first_key,
            std::int64_t last_key, float* row_ref, float* row_sum, float* acc, std::int64_t acc_stride, std::uint8_t* saw_key,
            void* memory) {
  const DecodeCall call = {MakeConstants(kv, options, kTanhPrescale), first_key, last_key, static_cast<int>(num_rows)};
  DecodeScratch& scratch = *new (memory) DecodeScratch;
  std::fill(std::begin(scratch.k_tail), std::end(scratch.k_tail), 0.0f);
  std::fill(std::begin(scratch.v_tail), std::end(scratch.v_tail), 0.0f);
  float* floats = reinterpret_cast<float*>(static_cast<std::uint8_t*>(memory) + sizeof(DecodeScratch));
  scratch.k_copy = std::exchange(floats, floats + kSubBlock * Padded(kv.head_dim));
  scratch.v_copy = std::exchange(floats, floats + kSubBlock * Padded(kv.v_dim));
  for (int r = 0; r < call.num_rows; ++r) {
    DecodeRow& row = scratch.rows[r];
    row.row = rows + r;
    row.q = std::exchange(floats, floats + Padded(kv.head_dim));
    row.acc = std::exchange(floats, floats + Padded(kv.v_dim));
    row.neg_ref = 0.0f;
    row.threshold = -kInf;
    row.saw_key = false;
    std::fill(std::begin(row.row_sum), std::end(row.row_sum), 0.0f);
    for (std::int64_t i = 0; i < Padded(kv.head_dim); ++i)
      row.q[i] = i < kv.head_dim ? call.constants.q_factor * rows[r].q[i] : 0.0f;
    std::fill_n(row.acc, Padded(kv.v_dim), 0.0f);
  }
  for (std::int64_t key = first_key / kSubBlock * kSubBlock; key < last_key; key += kSubBlock) {
    AttendSubBlock(call, {key, 0, kSubBlock, {}, {}}, scratch);
  }
  for (int r = 0; r < call.num_rows; ++r) {
    const DecodeRow& row = scratch.rows[r];
    float sum = 0.0f;
    for (const float lane : row.row_sum) sum += lane;
    row_sum[r] = sum;
    row_ref[r] = row.threshold == -kInf ? -kInf : -row.neg_ref;
    saw_key[r] = row.saw_key;
    for (std::int64_t c = 0; c < kv.v_dim; ++c) acc[r * acc_stride + c] = row.acc[c] + 0.0f;  // −0 becomes +0
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(Decode);
HWY_EXPORT(DecodeScratchBytes);

void AddDecodeF32(std::int64_t target, KernelTable& table) {
  table.decode = HWY_DISPATCH_TABLE(Decode)[DispatchIndex(target)];
  table.decode_scratch_bytes = HWY_DISPATCH_TABLE(DecodeScratchBytes)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
