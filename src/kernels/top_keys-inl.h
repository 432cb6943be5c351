// The exact top keys of the rows of one query block, out of the buckets that row_tracker-inl.h says may hold them.
#if defined(REGARD_KERNELS_TOP_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_TOP_KEYS_INL_H_
#undef REGARD_KERNELS_TOP_KEYS_INL_H_
#else
#define REGARD_KERNELS_TOP_KEYS_INL_H_
#endif

#include <algorithm>

#include "kernels/row_scores-inl.h"
#include "kernels/row_tracker-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// The best keys of one row in order; scores in log2 units.
struct TopKeys {
  std::int64_t size, listed;
  float* scores;
  std::int64_t* keys;

  float Last() const { return listed < size ? -kInf : scores[size - 1]; }
  /// Keys come in ascending order: one of equal score stays behind.
  HWY_INLINE void Offer(float score, std::int64_t key) {
    if (!(score > Last())) return;
    std::int64_t at = listed < size ? listed++ : size - 1;
    for (; at > 0 && scores[at - 1] < score; --at) {
      scores[at] = scores[at - 1];
      keys[at] = keys[at - 1];
    }
    scores[at] = score;
    keys[at] = key;
  }
};

/// Every key that the row may see.
HWY_NOINLINE inline void SearchRow(const RowScorer& scorer, TopKeys& top) {
  const DF d;
  top.listed = 0;
  for (std::int64_t first = scorer.key_begin / kSubBlock * kSubBlock; first < scorer.key_end; first += kSubBlock) {
    std::int64_t keys[kSubBlock];
    for (int i = 0; i < kSubBlock; ++i) keys[i] = first + i;
    alignas(64) float scores[kSubBlock];
    scorer.Score(keys, scores);
    for (int i = 0; i < kSubBlock; i += kLanes) {
      if (hn::AllFalse(d, hn::Gt(hn::Load(d, scores + i), hn::Set(d, top.Last())))) continue;
      for (int lane = i; lane < i + kLanes; ++lane) top.Offer(scores[lane], keys[lane]);
    }
  }
}

/// The keys that reach their row's floor, of each row of a query block, in ascending order. Gathered without branches, then ranked:
/// a sorted list would mispredict at every insertion, which took as long as the scores.
struct KeysAbove {
  static constexpr int kMost = 128;  // of a row with more, only some are here
  static constexpr int kRoom = kMost + kSubBlock;
  std::int32_t count[kQueryRows];
  alignas(64) float score[kQueryRows][kRoom];
  alignas(64) std::int32_t place[kQueryRows][kRoom];  // of the key, from origin on
  std::int64_t origin;

  HWY_INLINE void Begin(std::int64_t first_key) {
    std::fill_n(count, kQueryRows, 0);
    origin = first_key;
  }

  /// The scores of four keys from origin + first on.
  HWY_INLINE void Offer(int r, std::int32_t first, const float* HWY_RESTRICT scores, float floor) {
    std::int32_t n = count[r];
    if (HWY_UNLIKELY(n > kMost)) return;
#if REGARD_HAVE_BLOCKS
    const hn::FixedTag<float, 4> d;
    const hn::FixedTag<std::int32_t, 4> di;
    const auto s = hn::Load(d, scores);
    const auto above = hn::Ge(s, hn::Set(d, floor));
    hn::StoreU(hn::Compress(s, above), d, score[r] + n);
    hn::StoreU(hn::Compress(hn::Add(hn::Iota(di, 0), hn::Set(di, first)), hn::RebindMask(di, above)), di, place[r] + n);
    n += static_cast<int>(hn::CountTrue(d, above));
#else
    for (int j = 0; j < 4; ++j) {
      score[r][n] = scores[j];
      place[r][n] = first + j;
      n += scores[j] >= floor ? 1 : 0;
    }
#endif
    count[r] = n;
  }

  /// Returns false if there are too many to rank.
  HWY_INLINE bool List(int r, TopKeys& top) const {
    const int n = count[r];
    if (n > kMost) return false;
    alignas(64) std::int32_t ranks[kMost + kLanes];
    Rank(score[r], n, ranks);
    float scores[kMost];
    std::int64_t keys[kMost];
    for (int i = 0; i < n; ++i) {
      scores[ranks[i]] = score[r][i];
      keys[ranks[i]] = origin + place[r][i];
    }
    top.listed = std::min<std::int64_t>(n, top.size);
    std::copy_n(scores, top.listed, top.scores);
    std::copy_n(keys, top.listed, top.keys);
    return true;
  }

 private:
  /// ranks[i]: how many of n are larger than the i-th, or equal and before it.
  static HWY_INLINE void Rank(const float* scores, int n, std::int32_t* ranks) {
    const DF d;
    const DI di;
    for (int i = 0; i < n; i += kLanes) {
      const VF own = hn::Load(d, scores + i);
      const VI number = hn::Add(hn::Iota(di, 0), hn::Set(di, i));
      VI rank = hn::Zero(di);
      for (int j = 0; j < n; ++j) {
        const VF other = hn::Set(d, scores[j]);
        const auto earlier = hn::RebindMask(d, hn::Gt(number, hn::Set(di, j)));
        const MF before = hn::Or(hn::Gt(other, own), hn::And(earlier, hn::Eq(other, own)));
        rank = hn::Sub(rank, hn::VecFromMask(di, hn::RebindMask(di, before)));
      }
      hn::Store(rank, di, ranks + i);
    }
  }
};

/// Rows, each with four keys that it shall be scored with.
struct Pairs {
  static constexpr int kMost = 1024;  // and what one bucket adds
  int count;
  std::int32_t code[kMost + kKeyBlock / kBucketKeys * kQueryRows + kLanes];  // of RowTracker::RowsThatReach

  HWY_INLINE int Row(int n) const { return code[n] & (kQueryRoom - 1); }
  HWY_INLINE std::int32_t Place(int n) const { return code[n] / kQueryRoom * kBucketKeys; }
};

/// Offers the scores of its four keys to the row of each pair. Pairs come bucket after bucket, not row after row: a block of 64 rows
/// takes a key for four or five of them, and would fetch it anew for each. The sums are those of RowScorer::Score.
HWY_NOINLINE inline void ScorePairs(const BlockScorer& scorer, const Pairs& pairs, const float* floors, KeysAbove& above) {
  const DF d;
  const RowOptions& options = scorer.call.options;
  const StoredRows& keys = scorer.call.kv.k;
  const std::int64_t head_dim = scorer.call.kv.head_dim, whole = head_dim / kLanes * kLanes;
  const std::int64_t stride = keys.stride, origin = above.origin;
  const bool plain = whole == head_dim && options.soft_cap == 0 && !options.has_mask && !options.has_bias && !options.has_alibi;
  const std::int64_t end_in_place = keys.dtype == DType::kF32 && keys.pages == nullptr ? scorer.call.kv.kv_len - 3 : 0;
  const float* const queries = scorer.queries;
  const std::int64_t* const key_begin = scorer.block.key_begin;
  const std::int64_t* const key_end = scorer.block.key_end;
  std::int64_t found = -1;
  const float* k[4];
  for (int n = 0; n < pairs.count; ++n) {
    const int r = pairs.Row(n);
    const std::int64_t first = origin + pairs.Place(n);
    if (HWY_LIKELY(first < end_in_place)) {
      k[0] = static_cast<const float*>(keys.data) + first * stride;
      REGARD_UNROLL for (int j = 1; j < 4; ++j) k[j] = k[j - 1] + stride;
    } else if (first != found) {
      scorer.Row(r).FindFour(first, k);
      found = first;
    }
    const float* const q = queries + r * Padded(head_dim);
    VF sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (std::int64_t c = 0; c < whole; c += kLanes) {
      const VF qc = hn::Load(d, q + c);
      REGARD_UNROLL for (int j = 0; j < 4; ++j) sum[j] = hn::MulAdd(qc, hn::LoadU(d, k[j] + c), sum[j]);
    }
    alignas(64) float scores[kBlockSums];
    StoreSums(sum[0], sum[1], sum[2], sum[3], scores);
    if (HWY_UNLIKELY(!plain || first < key_begin[r] || first + 4 > key_end[r])) {
      scorer.Row(r).FinishFour(first, k, whole, scores);
    }
    above.Offer(r, pairs.Place(n), scores, floors[r]);
  }
}

/// Fills `above` from the buckets whose maximum reaches floors[r], for each such row r; a floor of NaN is not reached. Rows of which
/// there are too many such keys get one.
HWY_NOINLINE inline void GatherKeys(const BlockScorer& scorer, const RowTracker& tracker, float* floors, Pairs& pairs,
                                    KeysAbove& above) {
  const std::int64_t num_buckets = tracker.rows.num_buckets;
  above.Begin(tracker.rows.first_bucket << tracker.shift);
  pairs.count = 0;
  for (std::int64_t i = 0; i < num_buckets; ++i) {
    pairs.count += tracker.RowsThatReach(floors, i, pairs.code + pairs.count);
    if (pairs.count < Pairs::kMost && i + 1 < num_buckets) continue;
    ScorePairs(scorer, pairs, floors, above);
    pairs.count = 0;
    for (int r = 0; r < kQueryRows; ++r) {
      if (above.count[r] > KeysAbove::kMost) floors[r] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
