// Masked scores of one row and a few keys anywhere, always by the same sums: equal keys have equal scores.
#if defined(REGARD_KERNELS_ROW_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ROW_SCORES_INL_H_
#undef REGARD_KERNELS_ROW_SCORES_INL_H_
#else
#define REGARD_KERNELS_ROW_SCORES_INL_H_
#endif

#include <algorithm>

#include "kernels/exp2-inl.h"
#include "kernels/key_lanes-inl.h"
#include "kernels/query_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// One row against single keys.
struct RowScorer {
  const CallConstants& call;
  const QueryRow& row;
  std::int64_t key_begin, key_end;  // where it may see any
  const float* q;                   // [Padded(head_dim)], scaled
  float* converted;                 // [4, Padded(head_dim)], for keys that are not stored as f32

  HWY_INLINE bool Sees(std::int64_t key) const {
    const RowOptions& options = call.options;
    return key >= key_begin && key < key_end && (!options.has_mask || row.mask[key * options.mask_key_stride] != 0) &&
           (!options.has_bias || row.bias[key * options.bias_key_stride] != -kInf);
  }

  /// scores[i] of keys[i], log2 units; −inf where keys[i] is out of 0…kv_len−1 or not visible. Keys within reach must be readable.
  HWY_NOINLINE void Score(const std::int64_t (&keys)[kSubBlock], float* HWY_RESTRICT scores) const {
    const DF d;
    const KvHead& kv = call.kv;
    const std::int64_t whole = kv.head_dim / kLanes * kLanes;
    alignas(64) float block_sums[kSubBlock / 4 * kBlockSums];
    for (int i = 0; i < kSubBlock; i += 4) {
      const float* HWY_RESTRICT k[4];
      REGARD_UNROLL for (int j = 0; j < 4; ++j) k[j] = KeyRow(keys[i + j], j);
      VF sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (std::int64_t c = 0; c < whole; c += kLanes) {
        const VF qc = hn::Load(d, q + c);
        REGARD_UNROLL for (int j = 0; j < 4; ++j) sum[j] = hn::MulAdd(qc, hn::LoadU(d, k[j] + c), sum[j]);
      }
      StoreBlockSums(sum[0], sum[1], sum[2], sum[3], block_sums + i / 4 * kBlockSums);
    }
    SumAcrossBlocks(block_sums, scores);
    for (int i = 0; i < kSubBlock && whole < kv.head_dim; ++i) {
      AddTail(KeyRow(keys[i], 0), whole, scores + i);
    }
    ApplyOptions(keys, scores);
  }

  /// The keys from `first` on, as they are stored or as f32 in `converted`.
  HWY_NOINLINE void FindFour(std::int64_t first, const float* (&k)[4]) const {
    for (int j = 0; j < 4; ++j) k[j] = KeyRow(first + j, j);
  }

  /// Makes the scores of the keys from `first` on what Score says out of the sums over whole vectors of columns. scores: [kBlockSums].
  HWY_NOINLINE void FinishFour(std::int64_t first, const float* const (&k)[4], std::int64_t whole,
                               float* HWY_RESTRICT scores) const {
    for (int j = 0; j < 4; ++j) AddTail(k[j], whole, scores + j);
    ApplyOptions<4>({first, first + 1, first + 2, first + 3}, scores);
  }

 private:
  HWY_INLINE const float* KeyRow(std::int64_t key, int place) const {
    const KvHead& kv = call.kv;
    return FloatRow(kv.k, std::clamp<std::int64_t>(key, 0, kv.kv_len - 1), kv.head_dim, converted + place * Padded(kv.head_dim));
  }

  /// Adds the products from column `first` on.
  HWY_INLINE void AddTail(const float* HWY_RESTRICT k, std::int64_t first, float* score) const {
    for (std::int64_t c = first; c < call.kv.head_dim; ++c) *score += q[c] * k[c];
  }

  /// scores: whole vectors.
  template <int kCount>
  HWY_INLINE void ApplyOptions(const std::int64_t (&keys)[kCount], float* HWY_RESTRICT scores) const {
    const DF d;
    const RowOptions& options = call.options;
    const float to_log2 = static_cast<float>(kLog2E);
    for (int i = 0; options.soft_cap > 0 && i < kCount; i += kLanes) {
      hn::Store(hn::Mul(TanhOfScaled(hn::Load(d, scores + i)), hn::Set(d, call.cap_log2)), d, scores + i);
    }
    if (!options.has_mask && !options.has_bias && !options.has_alibi) {
      for (int i = 0; i < kCount; ++i) scores[i] = keys[i] >= key_begin && keys[i] < key_end ? scores[i] : -kInf;
      return;
    }
    for (int i = 0; i < kCount; ++i) {
      if (!Sees(keys[i])) {
        scores[i] = -kInf;
        continue;
      }
      if (options.has_bias) scores[i] += std::max(to_log2 * row.bias[keys[i] * options.bias_key_stride], kLowestBias);
      if (options.has_alibi) {
        const std::int64_t* const positions = call.kv.key_positions;
        const std::int64_t distance = row.position - (positions == nullptr ? keys[i] : positions[keys[i]]);
        scores[i] -= to_log2 * row.alibi_slope * std::fabs(static_cast<float>(distance));
      }
    }
  }
};

/// The rows of one query block against single keys.
struct BlockScorer {
  const CallConstants& call;
  const QueryBlock& block;
  float* queries;    // [kQueryRows, Padded(head_dim)], scaled
  float* converted;  // [4, Padded(head_dim)], for queries and keys that are not stored as f32

  HWY_INLINE void PackQueries() const {
    const std::int64_t head_dim = call.kv.head_dim;
    for (int r = 0; r < block.num_rows; ++r) {
      const float* const from = FloatQuery(call.options, block.rows[r], head_dim, converted);
      float* HWY_RESTRICT to = queries + r * Padded(head_dim);
      for (std::int64_t i = 0; i < head_dim; ++i) to[i] = call.q_factor * from[i];
    }
  }

  HWY_INLINE RowScorer Row(int r) const {
    return {call, block.rows[r], block.key_begin[r], block.key_end[r], queries + r * Padded(call.kv.head_dim), converted};
  }
};

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
