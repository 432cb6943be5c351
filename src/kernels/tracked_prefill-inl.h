// The prefill kernel with a tracker: what summary_prefill_f32.cc and summary_prefill_bf16.cc compile.
#if defined(REGARD_KERNELS_TRACKED_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_TRACKED_PREFILL_INL_H_
#undef REGARD_KERNELS_TRACKED_PREFILL_INL_H_
#else
#define REGARD_KERNELS_TRACKED_PREFILL_INL_H_
#endif

#include <cmath>

#include "kernels/prefill_loop-inl.h"
#include "kernels/row_tracker-inl.h"
#include "kernels/top_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Behind the loop's own scratch.
struct TrackerScratch {
  TrackedRows rows[kMaxQueryBlocks];
  alignas(64) float floors[kQueryRows];  // scores that the top keys of each row reach
  Pairs pairs;
  KeysAbove above;
  float* queries;    // of BlockScorer
  float* converted;  // likewise
};

HWY_INLINE std::size_t RoundUp(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

HWY_INLINE bool TracksKeys(std::int64_t top_k) { return top_k > 0 && top_k <= kMaxTrackedKeys; }

/// Buckets that the keys of one query block may lie in, of kv_len keys or fewer: fewer may lie in more of them.
HWY_INLINE std::int64_t MostBuckets(std::int64_t kv_len, std::int64_t top_k) {
  if (!TracksKeys(top_k)) return 0;
  return std::max(std::min(kv_len >> kBucketShift, kMaxBuckets), kv_len / kKeyBlock) + 2;
}

HWY_INLINE std::size_t MaximaBytes(std::int64_t kv_len, std::int64_t top_k) {
  return static_cast<std::size_t>(MostBuckets(kv_len, top_k) * kQueryRows) * sizeof(float);
}

inline std::size_t TrackedScratchBytes(std::int64_t kv_len, std::int64_t head_dim, std::int64_t v_dim, std::int64_t top_k) {
  return RoundUp(LoopScratchBytes(head_dim, v_dim)) + RoundUp(sizeof(TrackerScratch)) +
         RoundUp(static_cast<std::size_t>((kQueryRows + 4) * Padded(head_dim)) * sizeof(float)) +
         RoundUp(MaximaBytes(kv_len, top_k)) * kMaxQueryBlocks + static_cast<std::size_t>(Padded(top_k)) * sizeof(float);
}

/// A bound of the Euclidean norm of the keys that somebody may see: the largest of each lane's squares, over all lanes; +inf where that of a
/// finite key overflows. Keys that are not finite make no finite score. converted [Padded(head_dim)] is for keys that are not stored as f32.
HWY_NOINLINE inline float BoundKeyNorm(const KvHead& kv, const QueryRow* rows, std::int64_t num_rows, float* converted) {
  const DF d;
  std::int64_t begin = kv.kv_len, end = 0;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    if (rows[r].key_begin >= rows[r].key_end) continue;
    begin = std::min(begin, rows[r].key_begin);
    end = std::max(end, rows[r].key_end);
  }
  VF largest = hn::Zero(d);
  float largest_tail = 0;
  for (std::int64_t j = begin; j < end; ++j) {
    const float* const k = FloatRow(kv.k, j, kv.head_dim, converted);
    VF squares = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + kLanes <= kv.head_dim; c += kLanes) {
      const VF kc = hn::LoadU(d, k + c);
      squares = hn::MulAdd(kc, kc, squares);
    }
    float tail = 0;
    for (; c < kv.head_dim; ++c) tail += k[c] * k[c];
    if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(squares, hn::Set(d, kInf))) && tail < kInf)) {
      largest = hn::Max(squares, largest);
      largest_tail = std::max(largest_tail, tail);
    } else if (IsFinite(k, kv.head_dim)) {
      return kInf;
    }
  }
  return std::sqrt(hn::GetLane(hn::SumOfLanes(d, largest)) + largest_tail);
}

class TrackedCall {
 public:
  TrackedCall(const CallConstants& call, const RowTracking& out, float key_norm, TrackerScratch& scratch, float* list_scores)
      : call_(call), out_(out), key_norm_(key_norm), scratch_(scratch), list_scores_(list_scores) {}

  void FinishRows(std::int64_t first_row, const QueryBlock& block, const RowTracker& tracker) {
    const BlockScorer scorer = {call_, block, scratch_.queries, scratch_.converted};
    if (out_.top_k > 0 || out_.first_key_share != nullptr) scorer.PackQueries();
    if (tracker.keys) {
      tracker.FindBounds(out_.top_k, block.num_vectors, scratch_.floors);
      for (int r = 0; r < block.num_rows; ++r) {
        const float floor = scratch_.floors[r] - 2 * Margin(block.rows[r], block.neg_ref[r], scratch_.floors[r]);
        const float lowest = -std::numeric_limits<float>::max();
        scratch_.floors[r] = floor > lowest ? floor : lowest;  // of NaN too: a margin may overflow
      }
      for (int r = block.num_rows; r < kQueryRows; ++r) scratch_.floors[r] = std::numeric_limits<float>::quiet_NaN();
      GatherKeys(scorer, tracker, scratch_.floors, scratch_.pairs, scratch_.above);
    }
    for (int r = 0; r < block.num_rows; ++r) FinishRow(first_row + r, r, scorer.Row(r), block, tracker);
  }

 private:
  void FinishRow(std::int64_t at, int r, const RowScorer& scorer, const QueryBlock& block, const RowTracker& tracker) {
    const QueryRow& row = block.rows[r];
    const Finished finished = Finish({-block.neg_ref[r], block.row_sum[r]}, row.sink);
    const bool undefined = std::isnan(block.row_sum[r]);
    const auto put = [&](float* to, double value) {
      if (to != nullptr) to[at] = undefined ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(value);
    };
    const double sum = block.row_sum[r];
    // Without a sink what all keys share is 1, and the factor is known to double precision.
    const double factor = row.sink == -kInf ? (sum == 0 ? 0 : 1 / sum) : finished.factor;
    const std::int64_t num_visible = tracker.rows.visible[r];
    if (out_.num_visible != nullptr) out_.num_visible[at] = num_visible;
    if (out_.entropy != nullptr) {
      const double in_log2 = -factor * static_cast<double>(tracker.rows.entropy[r]);
      const double entropy = factor == 0 ? 0 : in_log2 / kLog2E - factor * sum * std::log(factor);
      const double most = std::log(std::max(1.0, static_cast<double>(num_visible) + (row.sink > -kInf ? 1 : 0)));
      put(out_.entropy, std::clamp(entropy, 0.0, most));
    }
    if (out_.first_key_share != nullptr) put(out_.first_key_share, FirstKeyShare(scorer, block.neg_ref[r], factor));
    if (out_.top_k > 0) FinishList(at, r, scorer, block, tracker, factor, undefined);
  }

  /// Scores relative to nothing become weights.
  static VF Weights(VF scores, float neg_ref, float factor) {
    const DF d;
    const VF x = hn::Min(hn::Add(scores, hn::Set(d, neg_ref)), hn::Set(d, 2 * kRescaleThreshold));
    return hn::Min(hn::Mul(Exp2(x), hn::Set(d, factor)), hn::Set(d, 1.0f));
  }

  /// Returns their sum.
  static double WriteWeights(const TopKeys& top, float neg_ref, float factor, float* weights) {
    const DF d;
    double sum = 0;
    for (std::int64_t i = 0; i < top.listed; i += kLanes) {
      alignas(64) float block[kLanes];
      hn::Store(Weights(hn::LoadU(d, top.scores + i), neg_ref, factor), d, block);
      for (std::int64_t j = i; j < std::min<std::int64_t>(top.listed, i + kLanes); ++j) sum += weights[j] = block[j - i];
    }
    return sum;
  }

  double FirstKeyShare(const RowScorer& scorer, float neg_ref, double factor) const {
    if (!scorer.Sees(scorer.row.first_key)) return 0;
    std::int64_t keys[kSubBlock];
    std::fill_n(keys, kSubBlock, scorer.row.first_key);
    alignas(64) float scores[kSubBlock];
    scorer.Score(keys, scores);
    const DF d;
    return hn::GetLane(Weights(hn::Set(d, scores[0]), neg_ref, static_cast<float>(factor)));
  }

  /// How far a score of pass and list may be apart, log2 units: each sums head_dim products that start from a reference, and rounds a few
  /// times more; the products are bounded by the norms (Cauchy and Schwarz). score: about what the scores are, which with a bias may be far more
  /// than products and reference.
  float Margin(const QueryRow& row, float neg_ref, float score) const {
    const DF d;
    const float* const q = FloatQuery(call_.options, row, call_.kv.head_dim, scratch_.converted);
    VF squares = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + kLanes <= call_.kv.head_dim; i += kLanes) {
      const VF qi = hn::LoadU(d, q + i);
      squares = hn::MulAdd(qi, qi, squares);
    }
    float square = hn::GetLane(hn::SumOfLanes(d, squares));
    for (; i < call_.kv.head_dim; ++i) square += q[i] * q[i];
    const float products = std::fabs(call_.options.scale) * static_cast<float>(kLog2E) * std::sqrt(square) * key_norm_;
    return 2.0f * static_cast<float>(call_.kv.head_dim + 16) * 0x1p-24f *
           (products + std::fabs(neg_ref) + std::fabs(score) + 32.0f);
  }

  void FinishList(std::int64_t at, int r, const RowScorer& scorer, const QueryBlock& block, const RowTracker& tracker,
                  double factor, bool undefined) {
    TopKeys top = {out_.top_k, 0, list_scores_, out_.topk_key + at * out_.top_k};
    float* const weights = out_.topk_weight + at * out_.top_k;
    if (!undefined && block.row_sum[r] != 0) {
      const bool found = tracker.keys && scratch_.above.List(r, top);
      if (!found) SearchRow(scorer, top);
    }
    const double listed = WriteWeights(top, block.neg_ref[r], static_cast<float>(factor), weights);
    for (std::int64_t i = top.listed; i < out_.top_k; ++i) {
      weights[i] = undefined ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
      top.keys[i] = -1;
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    if (out_.row_max != nullptr) {
      const float largest = top.listed > 0 ? static_cast<float>(top.scores[0] / kLog2E) : -kInf;
      out_.row_max[at] = undefined ? nan : largest;
    }
    if (out_.topk_tail != nullptr) {
      // The list of a row with fewer keys than places holds them all.
      const double tail = top.listed < out_.top_k ? 0 : std::max(0.0, factor * static_cast<double>(block.row_sum[r]) - listed);
      out_.topk_tail[at] = undefined ? nan : static_cast<float>(tail);
    }
  }

  const CallConstants& call_;
  const RowTracking& out_;
  float key_norm_;
  TrackerScratch& scratch_;
  float* list_scores_;
};

inline std::int64_t TrackedPrefill(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                                   const RowTracking& out, void* memory) {
  const PrefillScratch scratch = PlaceScratch(memory, kv.head_dim, kv.v_dim);
  std::uint8_t* next = static_cast<std::uint8_t*>(memory) + RoundUp(LoopScratchBytes(kv.head_dim, kv.v_dim));
  TrackerScratch& own = *new (next) TrackerScratch;
  next += RoundUp(sizeof(TrackerScratch));
  own.queries = reinterpret_cast<float*>(next);
  own.converted = own.queries + kQueryRows * Padded(kv.head_dim);
  next += RoundUp(static_cast<std::size_t>((kQueryRows + 4) * Padded(kv.head_dim)) * sizeof(float));
  for (TrackedRows& tracked : own.rows) {
    tracked.maxima = reinterpret_cast<float*>(next);
    next += RoundUp(MaximaBytes(kv.kv_len, out.top_k));
  }
  float* const list_scores = reinterpret_cast<float*>(next);
  std::fill_n(list_scores, Padded(out.top_k), 0.0f);
  const CallConstants call = MakeConstants(kv, options, kTanhPrescale);
  const bool entropy = out.entropy != nullptr;
  const bool visible = entropy || out.num_visible != nullptr;
  const int shift = BucketShift(kv.kv_len);
  const bool keys = TracksKeys(out.top_k) && kv.kv_len <= kMaxTrackedLength;
  const auto tracker_of = [&](int b) -> RowTracker { return {own.rows[b], shift, keys, entropy, visible}; };
  TrackedCall tracked(call, out, keys ? BoundKeyNorm(kv, rows, num_rows, own.converted) : 0, own, list_scores);
  return AttendRows(call, rows, num_rows, scratch, tracker_of,
                    [&](std::int64_t first_row, int b) { tracked.FinishRows(first_row, scratch.blocks[b], tracker_of(b)); });
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
