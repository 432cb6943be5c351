// The loop of the prefill kernel over query blocks and key blocks, with or without a tracker that follows the scores.
#if defined(REGARD_KERNELS_PREFILL_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_PREFILL_LOOP_INL_H_
#undef REGARD_KERNELS_PREFILL_LOOP_INL_H_
#else
#define REGARD_KERNELS_PREFILL_LOOP_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "kernels/dropout-inl.h"
#include "kernels/query_block-inl.h"
#include "kernels/score_block-inl.h"
#include "kernels/value_tile-inl.h"
#include "kernels/visibility-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// Up to kMaxQueryBlocks query blocks share each key block. Worth it when k and v that their rows see take more than kMaxUnsharedBytes, half of the
// second cache level: otherwise every query block would fetch all of them again (head_dim 128, 8,192 keys: 75–80 → 87–90 % of peak on small pages; with
// all of the level instead of half, 8 heads of 2,048 keys and head_dim 64 lost half a point, of 1,024 and 128 one). And when they have to be
// converted: once for all of them (alone each lost 5–8 points).
//
// With a tracker, whose maxima take up to 256 KB a block: those of 4 would fill the second level, and every pass over them at the end
// wait for the third (8,192 keys, entropy and top 8: medians 1.075 → 1.066 of the context).
inline constexpr int kTrackedQueryBlocks = 2;

/// The parts of the caller's scratch, one after the other, each a multiple of 64 bytes.
struct PrefillScratch {
  QueryBlock* blocks;  // [kMaxQueryBlocks]
  KeyBlock* keys;
  float* floats;
};

HWY_INLINE std::int64_t FloatsOf(std::int64_t head_dim, std::int64_t v_dim) {
  const std::int64_t zeros = (std::max<std::int64_t>(head_dim, kKeyBlock) + 15) / 16 * 16;
  return zeros + 2 * kKeyBlock * kQueryRows + kMaxQueryBlocks * (head_dim + v_dim) * kQueryRows +
         kKeyBlock * (Padded(head_dim) + Padded(v_dim));
}

/// A multiple of 64.
HWY_INLINE std::size_t LoopScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  return sizeof(QueryBlock) * kMaxQueryBlocks + sizeof(KeyBlock) +
         static_cast<std::size_t>(FloatsOf(head_dim, v_dim)) * sizeof(float);
}

HWY_INLINE PrefillScratch PlaceScratch(void* memory, std::int64_t head_dim, std::int64_t v_dim) {
  std::uint8_t* at = static_cast<std::uint8_t*>(memory);
  PrefillScratch scratch;
  scratch.blocks = reinterpret_cast<QueryBlock*>(at);
  at += sizeof(QueryBlock) * kMaxQueryBlocks;
  scratch.keys = new (at) KeyBlock;
  at += sizeof(KeyBlock);
  float* next = reinterpret_cast<float*>(at);
  const auto take = [&next](std::int64_t count) { return std::exchange(next, next + count); };
  scratch.keys->weights = take(kKeyBlock * kQueryRows);
  scratch.keys->bias = take(kKeyBlock * kQueryRows);
  scratch.keys->k_copy = take(kKeyBlock * Padded(head_dim));
  scratch.keys->v_copy = take(kKeyBlock * Padded(v_dim));
  for (int b = 0; b < kMaxQueryBlocks; ++b) {
    QueryBlock* block = new (scratch.blocks + b) QueryBlock;
    block->q = reinterpret_cast<Word*>(take(head_dim * kQueryRows));
    block->acc = take(v_dim * kQueryRows);
  }
  float* zeros = next;
  std::fill_n(zeros, std::max<std::int64_t>(head_dim, kKeyBlock), 0.0f);
  scratch.keys->zeros = zeros;
  InitKeyBlock(*scratch.keys);
  return scratch;
}

// Rows of fewer keys wait for their first tile, where the largest of its scores becomes their reference: a key alone weighs exactly 1.
inline constexpr std::int64_t kMinKeysToForesee = 32;

/// The scores of all rows with key 0.
HWY_INLINE void ScoreKeyZero(const CallConstants& call, const QueryBlock& block, float* k_copy, float* HWY_RESTRICT scores) {
  const DF d;
  const DW dw;
  const KeyRows<Element> k = BindKeyRows(call.kv.k, 0, 1, call.kv.head_dim, k_copy);
  const std::int64_t words = WordsOf(call.kv.head_dim);
  VF sum[kQueryVectors];
  REGARD_UNROLL for (int v = 0; v < kQueryVectors; ++v) sum[v] = hn::Zero(d);
  for (std::int64_t i = 0; i < words; ++i) {
    const VW ki = hn::Set(dw, LoadWord(k.data, i));
    REGARD_UNROLL for (int v = 0; v < kQueryVectors; ++v) {
      sum[v] = MulAddWords(hn::Load(dw, block.q + i * kQueryRows + v * kLanes), ki, sum[v]);
    }
  }
  REGARD_UNROLL for (int v = 0; v < kQueryVectors; ++v) {
    hn::Store(FinishScore(sum[v], hn::Zero(d), call.q_factor), d, scores + v * kLanes);
  }
}

/// The scores of the rows that are wanted, each with its own first key, by products of rows. What has to be converted passes through
/// the memory of copied keys.
HWY_NOINLINE inline void ScoreOwnFirstKeys(const CallConstants& call, const bool* wanted, const QueryBlock& block, KeyBlock& keys,
                                           float* scores) {
  const DF d;
  const std::int64_t head_dim = call.kv.head_dim, whole = head_dim / kLanes * kLanes;
  static_assert(2 * kSubBlock <= kKeyBlock);
  float* const k_copy = keys.k_copy;
  float* const q_copy = keys.k_copy + kSubBlock * Padded(head_dim);
  for (int first = 0; first < kQueryRows; first += kSubBlock) {
    const float* q[kSubBlock];
    const float* k[kSubBlock];
    bool takes[kSubBlock];
    for (int i = 0; i < kSubBlock; ++i) {
      const int r = first + i;
      takes[i] = r < kQueryRows && wanted[r];
      q[i] = takes[i] ? FloatQuery(call.options, block.rows[r], head_dim, q_copy + i * Padded(head_dim)) : keys.zeros;
      k[i] = takes[i] ? FloatRow(call.kv.k, block.key_begin[r], head_dim, k_copy + i * Padded(head_dim)) : keys.zeros;
    }
    alignas(64) float block_sums[kSubBlock / 4 * kBlockSums];
    alignas(64) float sums[kSubBlock];
    for (int i = 0; i < kSubBlock; i += 4) {
      VF sum[4];
      REGARD_UNROLL for (int j = 0; j < 4; ++j) {
        sum[j] = hn::Zero(d);
        for (std::int64_t c = 0; c < whole; c += kLanes) {
          sum[j] = hn::MulAdd(hn::LoadU(d, q[i + j] + c), hn::LoadU(d, k[i + j] + c), sum[j]);
        }
      }
      StoreBlockSums(sum[0], sum[1], sum[2], sum[3], block_sums + i / 4 * kBlockSums);
    }
    SumAcrossBlocks(block_sums, sums);
    for (int i = 0; i < kSubBlock; ++i) {
      for (std::int64_t c = whole; c < head_dim; ++c) sums[i] += q[i][c] * k[i][c];
      if (takes[i]) scores[first + i] = call.q_factor * sums[i];
    }
  }
}

/// Gives rows a reference before their first tile: the score of their first key, which is as good as any other that they see. A tile with
/// rows that have none goes the slow way, and along the leading edge of a window of 256 keys that is one tile in five. Options move
/// scores, so with one that does rows wait. How a row's score is taken depends on where its own keys begin alone, and so do its bits.
HWY_NOINLINE inline void ForeseeReferences(const CallConstants& call, KeyBlock& keys, QueryBlock& block) {
  const DF d;
  const RowOptions& options = call.options;
  if (options.soft_cap > 0 || options.has_mask || options.has_bias || options.has_alibi) return;
  alignas(64) float scores[kQueryRows];
  bool wanted[kQueryRows];
  bool any_wanted = false;
  if (block.max_end < kMinKeysToForesee) return;
  if (block.min_begin == 0) ScoreKeyZero(call, block, keys.k_copy, scores);
  for (int r = 0; r < kQueryRows; ++r) {
    const bool foreseen = block.key_end[r] - block.key_begin[r] >= kMinKeysToForesee;
    if (!foreseen) scores[r] = kInf;
    wanted[r] = foreseen && block.key_begin[r] > 0;
    any_wanted |= wanted[r];
  }
  if (any_wanted) ScoreOwnFirstKeys(call, wanted, block, keys, scores);
  for (int r = 0; r < kQueryRows; r += kLanes) {
    const VF score = hn::Load(d, scores + r);
    const MF sound = hn::Lt(hn::Abs(score), hn::Set(d, kInf));
    hn::Store(hn::IfThenElseZero(sound, hn::Neg(score)), d, block.neg_ref + r);
    hn::Store(hn::IfThenElse(sound, hn::Set(d, kRescaleThreshold), hn::Load(d, block.threshold + r)), d, block.threshold + r);
  }
  block.all_referenced = AllReferenced(block);
  keys.first_key = -1;  // its copies are gone
}

/// One query block against the n keys from first_key on.
template <class Tracker>
HWY_INLINE void AttendKeyBlock(const CallConstants& call, std::int64_t first_key, int n, QueryBlock& block, KeyBlock& keys,
                               const NextRows& next, Tracker& tracker) {
  const DF d;
  if constexpr (Tracker::kFollows) tracker.BeginKeyBlock(first_key);
  if (!SetVisible(call, block, first_key, n, keys)) return;
  BindKeys(call.kv, first_key, n, keys);
  if (call.options.has_bias) PackBias(block, n, keys);
  if (call.options.has_alibi) SetDistances(block, keys);
  for (int r = 0; r < kQueryRows; r += kLanes) hn::Store(hn::Zero(d), d, block.block_sum + r);
  ScoreKeyBlock(call, first_key, n, block, keys, next, tracker);
  if constexpr (Tracker::kFollows) tracker.EndKeyBlock(n, keys);
  for (int r = 0; r < kQueryRows; r += kLanes) {
    hn::Store(hn::Add(hn::Load(d, block.row_sum + r), hn::Load(d, block.block_sum + r)), d, block.row_sum + r);
  }
  if (HWY_UNLIKELY(call.options.dropout_threshold > 0)) DropWeights(call, first_key, n, block, keys);
  AddValues(keys, keys.v.data, keys.v.stride, call.kv.v_dim, block);
}

/// From the first key that one of the rows may see to the last.
HWY_INLINE std::int64_t KeysSeen(const QueryRow* rows, std::int64_t num_rows) {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    if (rows[r].key_begin >= rows[r].key_end) continue;
    begin = std::min(begin, rows[r].key_begin);
    end = std::max(end, rows[r].key_end);
  }
  return std::max<std::int64_t>(0, end - begin);
}

/// How many of the rows that are left the next query block takes: all that it can, but two vectors where a single one would remain.
HWY_INLINE int RowsOfBlock(std::int64_t left) {
  if (kAvoidsLoneVectors && left > kQueryRows && left <= kQueryRows + kLanes) return kQueryRows - kLanes;
  return static_cast<int>(std::min<std::int64_t>(kQueryRows, left));
}

/// All rows of a call; returns how many saw no key. tracker_of(b) is the tracker of the b-th query block at work; finish(first_row, b) is
/// called when the rows from first_row on, in block b, are done.
template <class TrackerOf, class Finish>
HWY_INLINE std::int64_t AttendRows(const CallConstants& call, const QueryRow* rows, std::int64_t num_rows,
                                   const PrefillScratch& scratch, const TrackerOf& tracker_of, const Finish& finish) {
  const KvHead& kv = call.kv;
  constexpr bool kFollows = decltype(tracker_of(0))::kFollows;
  const bool converts = kPerWord > 1 || NeedsCopies(kv.k) || (kv.v_dim > 0 && NeedsCopies(kv.v));
  const bool fits =
      KeysSeen(rows, num_rows) * (kv.head_dim + kv.v_dim) * static_cast<std::int64_t>(sizeof(float)) <= kMaxUnsharedBytes;
  int blocks_at_once = kFollows && !converts ? kTrackedQueryBlocks : kMaxQueryBlocks;
  if (fits && !converts) blocks_at_once = 1;
  std::int64_t empty_rows = 0;
  for (std::int64_t row = 0; row < num_rows;) {
    int num_blocks = 0;
    std::int64_t begin = kv.kv_len;
    std::int64_t end = 0;
    while (num_blocks < blocks_at_once && row < num_rows) {
      QueryBlock& block = scratch.blocks[num_blocks++];
      const int rows_here = RowsOfBlock(num_rows - row);
      BeginQueryBlock(call, rows + row, rows_here, *scratch.keys, block);
      row += rows_here;
      if (call.options.dropout_threshold > 0) BeginDropout(call.options, block);
      ForeseeReferences(call, *scratch.keys, block);
      auto tracker = tracker_of(num_blocks - 1);
      if constexpr (decltype(tracker)::kFollows) tracker.BeginQueryBlock(block);
      begin = std::min(begin, block.min_begin);
      end = std::max(end, block.max_end);
    }
    const std::int64_t first = begin / kKeyBlock;
    const std::int64_t last = (end + kKeyBlock - 1) / kKeyBlock - 1;
    for (std::int64_t i = first; i <= last; ++i) {
      const std::int64_t key = (call.descending ? first + last - i : i) * kKeyBlock;
      const int n = static_cast<int>(std::min<std::int64_t>(kKeyBlock, kv.kv_len - key));
      for (int b = 0; b < num_blocks; ++b) {
        auto tracker = tracker_of(b);
        const std::int64_t after = std::min(row + b * kQueryRows, num_rows);
        const NextRows next = {rows + after, static_cast<int>(std::min<std::int64_t>(num_rows - after, kQueryRows)), i == last};
        AttendKeyBlock(call, key, n, scratch.blocks[b], *scratch.keys, next, tracker);
      }
    }
    for (int b = 0; b < num_blocks; ++b) {
      empty_rows += FinishQueryBlock(call, scratch.blocks[b]);
      finish(scratch.blocks[b].rows - rows, b);
    }
  }
  return empty_rows;
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
