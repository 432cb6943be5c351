// What the decode kernels keep for a few query rows, and how the scores of a sub-block of keys become weights.
#if defined(REGARD_KERNELS_DECODE_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_DECODE_STATE_INL_H_
#undef REGARD_KERNELS_DECODE_STATE_INL_H_
#else
#define REGARD_KERNELS_DECODE_STATE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dropout.h"
#include "kernels/exp2-inl.h"
#include "kernels/key_lanes-inl.h"
#include "kernels/query_block-inl.h"
#include "kernels/soon_lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Keys of a sub-block at most: the products of a call say how many, kSubBlock or twice that (template arguments kKeys).
inline constexpr int kMaxKeys = 2 * kSubBlock;

/// One bit for each of n ≤ kMaxKeys keys.
HWY_INLINE std::uint32_t FirstKeys(int n) { return static_cast<std::uint32_t>((std::uint64_t{1} << n) - 1); }

/// One query row and its state.
struct DecodeRow {
  const QueryRow* row;
  float* q;               // as the products want it
  float* acc;             // [acc_size], columns in the order of the products
  float neg_ref;          // −row_ref
  float threshold;        // −inf before the first finite score
  std::uint32_t visible;  // in the present sub-block, one bit per key
  bool saw_key;
  alignas(64) float row_sum[kLanes];
  alignas(64) float scores[kMaxKeys];  // then weights
};

struct DecodeScratch {
  DecodeRow rows[kMaxDecodeRows];
  float *k_copy, *v_copy;  // [kSubBlock, Padded(head_dim or v_dim)], for rows that cannot be used where they lie
  SoonLines
      soon;  // asked for next: from LinesAhead when a sub-block is scored, moved on until it is weighed; unused if kHoldsQueries
};

/// What is the same for all sub-blocks of a call.
struct DecodeCall {
  CallConstants constants;
  std::int64_t first_key, last_key;
  std::int64_t all_begin, all_end;  // keys that every row sees, if there are neither masks nor biases
  std::int64_t acc_size;            // floats of a row's acc, a multiple of kLanes
  int num_rows;
};

/// A sub-block of keys, of which num_keys exist.
struct SubBlock {
  std::int64_t first_key;
  int num_keys;
  bool all_seen;  // every row sees all keys of the sub-block
};

/// Sets each row's visible keys. Returns false if there are none.
template <int kKeys>
HWY_INLINE bool SetVisible(const DecodeCall& call, DecodeRow* rows, SubBlock& at) {
  const RowOptions& options = call.constants.options;
  std::uint32_t any = 0, all = FirstKeys(kKeys);
  for (int r = 0; r < call.num_rows; ++r) {
    const QueryRow& row = *rows[r].row;
    const auto in_block = [&](std::int64_t key) {
      return static_cast<int>(std::clamp<std::int64_t>(key - at.first_key, 0, kKeys));
    };
    const int begin = in_block(std::max(row.key_begin, call.first_key));
    const int end = in_block(std::min(row.key_end, call.last_key));
    std::uint32_t visible = begin < end ? FirstKeys(end) & ~FirstKeys(begin) : 0;
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
    all &= visible;
  }
  at.all_seen = all == FirstKeys(kKeys);
  return any != 0;
}

/// Soft cap, bias and ALiBi on one row's scores; all keys of the sub-block, whether visible or not.
template <int kKeys>
HWY_INLINE void ApplyOptions(const DecodeCall& call, const SubBlock& at, DecodeRow& row) {
  const DF d;
  const RowOptions& options = call.constants.options;
  if (options.soft_cap > 0) {
    for (int k = 0; k < kKeys; k += kLanes) {
      hn::Store(hn::Mul(TanhOfScaled(hn::Load(d, row.scores + k)), hn::Set(d, call.constants.cap_log2)), d, row.scores + k);
    }
  }
  if (options.has_bias) {
    const float* bias = row.row->bias + at.first_key * options.bias_key_stride;
    for (int k = 0; k < at.num_keys; ++k) {
      row.scores[k] += std::max(static_cast<float>(kLog2E) * bias[k * options.bias_key_stride], kLowestBias);
    }
  }
  if (options.has_alibi) {
    const std::int64_t* const positions = call.constants.kv.key_positions;
    alignas(64) float distance[kKeys] = {};
    for (int k = 0; k < at.num_keys; ++k) {
      const std::int64_t key = at.first_key + k;
      distance[k] = std::fabs(static_cast<float>(row.row->position - (positions == nullptr ? key : positions[key])));
    }
    const VF neg_slope = hn::Set(d, static_cast<float>(-kLog2E * row.row->alibi_slope));
    for (int k = 0; k < kKeys; k += kLanes) {
      hn::Store(hn::MulAdd(neg_slope, hn::Load(d, distance + k), hn::Load(d, row.scores + k)), d, row.scores + k);
    }
  }
}

/// The scores of the row that its query may see relative to its reference, −inf for the others.
template <bool kAllSeen, int kKeys>
HWY_INLINE void RelativeScores(const DecodeRow& row, VF (&s)[kKeys / kLanes]) {
  const DF d;
  const DU du;
  const VF neg_ref = hn::Set(d, row.neg_ref);
  REGARD_UNROLL for (int i = 0; i < kKeys / kLanes; ++i) {
    s[i] = hn::Add(hn::Load(d, row.scores + i * kLanes), neg_ref);
    if constexpr (!kAllSeen) {
      const VU bit = hn::Shl(hn::Set(du, 1u), hn::Iota(du, static_cast<std::uint32_t>(i * kLanes)));
      const MF visible = hn::RebindMask(d, hn::TestBit(hn::Set(du, row.visible), bit));
      s[i] = hn::IfThenElse(visible, s[i], hn::Set(d, -kInf));
    }
  }
}

/// The largest score that is neither NaN nor +inf; *sound tells whether there is another.
template <int kKeys>
HWY_INLINE float LargestSound(const VF (&s)[kKeys / kLanes], bool* sound) {
  const DF d;
  alignas(64) float scores[kKeys];
  REGARD_UNROLL for (int i = 0; i < kKeys / kLanes; ++i) hn::Store(s[i], d, scores + i * kLanes);
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
template <int kKeys>
HWY_NOINLINE void MoveReference(std::int64_t acc_size, DecodeRow& row, VF (&s)[kKeys / kLanes]) {
  const DF d;
  const VF inf = hn::Set(d, kInf);
  bool sound;
  float largest = LargestSound<kKeys>(s, &sound);
  if (!sound) row.row_sum[0] = std::numeric_limits<float>::quiet_NaN();
  if (largest > row.threshold) {
    const float old_neg_ref = row.neg_ref;
    int round = 0;
    do {  // always once: a single key then weighs exactly 1
      row.neg_ref -= largest;
      RelativeScores<false, kKeys>(row, s);
      largest = LargestSound<kKeys>(s, &sound);
    } while (++round < kMaxMoves && std::fabs(largest) > 0.5f);
    if (row.threshold != -kInf) {  // without a reference nothing has been summed yet
      const VF factor = Exp2(hn::Set(d, std::min(row.neg_ref - old_neg_ref, 64.0f)));
      hn::Store(hn::Mul(hn::Load(d, row.row_sum), factor), d, row.row_sum);
      for (std::int64_t c = 0; c < acc_size; c += kLanes) hn::Store(hn::Mul(hn::Load(d, row.acc + c), factor), d, row.acc + c);
    }
    row.threshold = kRescaleThreshold;
  }
  REGARD_UNROLL for (int i = 0; i < kKeys / kLanes; ++i) {
    s[i] = hn::IfThenElse(hn::Lt(s[i], inf), hn::Min(s[i], hn::Set(d, kRescaleThreshold)), hn::Set(d, -kInf));
  }
}

/// Scores of one row become weights.
template <bool kAllSeen, int kKeys>
HWY_INLINE void SoftmaxRow(const DecodeCall& call, const SubBlock& at, DecodeRow& row) {
  const DF d;
  const RowOptions& options = call.constants.options;
  if (options.soft_cap > 0 || options.has_bias || options.has_alibi) ApplyOptions<kKeys>(call, at, row);
  VF s[kKeys / kLanes];
  RelativeScores<kAllSeen, kKeys>(row, s);
  const VF threshold = hn::Set(d, row.threshold);
  MF calm = hn::Le(s[0], threshold);
  REGARD_UNROLL for (int i = 1; i < kKeys / kLanes; ++i) calm = hn::And(calm, hn::Le(s[i], threshold));
  if (HWY_UNLIKELY(!hn::AllTrue(d, calm))) MoveReference<kKeys>(call.acc_size, row, s);
  VF sum = hn::Load(d, row.row_sum);
  REGARD_UNROLL for (int i = 0; i < kKeys / kLanes; ++i) {
    const VF p = Exp2(s[i]);
    hn::Store(p, d, row.scores + i * kLanes);
    sum = hn::Add(sum, p);
  }
  hn::Store(sum, d, row.row_sum);
}

template <int kKeys>
HWY_INLINE void SoftmaxRows(const DecodeCall& call, const SubBlock& at, DecodeRow* rows) {
  if (at.all_seen) {
    for (int r = 0; r < call.num_rows; ++r) SoftmaxRow<true, kKeys>(call, at, rows[r]);
  } else {
    for (int r = 0; r < call.num_rows; ++r) SoftmaxRow<false, kKeys>(call, at, rows[r]);
  }
}

/// Weights that are dropped become 0. One row has a few blocks of the generator a sub-block, too few for lanes.
template <int kKeys>
HWY_NOINLINE void DropRowWeights(const DecodeCall& call, const SubBlock& at, DecodeRow* rows) {
  static_assert(kKeys % kDropoutKeys == 0);
  const RowOptions& options = call.constants.options;
  for (int r = 0; r < call.num_rows; ++r) {
    const QueryRow& row = *rows[r].row;
    float* weights = rows[r].scores;
    for (std::int64_t key = at.first_key; key < at.first_key + kKeys; key += kDropoutKeys, weights += kDropoutKeys) {
      const auto group = static_cast<std::uint32_t>(options.dropout_first_group + key / kDropoutKeys);
      const PhiloxBlock words = Philox({group, row.query, row.head, row.batch}, options.dropout_seed);
      for (int j = 0; j < kDropoutKeys; ++j) {
        if (!KeepsKey(words, j, options.dropout_threshold)) weights[j] = 0.0f;
      }
    }
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
