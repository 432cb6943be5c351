// What the prefill kernel finds out about each row on its way: the entropy, the largest scores, how many keys it may see.
//
// Entropy. Beside Σ p the tracker sums E = Σ p x with x = log2 p; when a reference moves by δ, x falls by δ and p by 2^−δ, so that
// E becomes 2^−δ (E − δ Σ p). At the end w = p·f, and −Σ w ln w = −f ln 2 · E − (f Σ p) ln f.
//
// Top keys. Inserting every score that is among the k largest so far takes k·(1 + ln(n/k)) insertions a row when scores come in random
// order, and n when they rise; at k = 8 and 2,048 keys that was 40 % of the forward pass. Instead, whatever the order, the tracker
// keeps the maximum of every bucket of 8 keys or more. Once all keys have passed, the k-th largest maximum is a bound that k keys reach,
// so that the top k lie in the buckets that reach it: 8 or 9 for k = 8. Only these are scored again, by sums that do not depend on the row's
// reference, so that equal keys tie exactly; the bound is lowered by what the roundings of both can be. Where very many keys are equal
// too many buckets reach the bound, and the row is scored whole.
#if defined(REGARD_KERNELS_ROW_TRACKER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ROW_TRACKER_INL_H_
#undef REGARD_KERNELS_ROW_TRACKER_INL_H_
#else
#define REGARD_KERNELS_ROW_TRACKER_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/prefill_loop-inl.h"
#include "kernels/row_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// Keys per bucket, a power of two: at least kBucketKeys, and so many that a row has at most kMaxBuckets, whose maxima of one query block
// (256 KB with AVX-512) stay in the second cache level, until a bucket is a key block. Of 2,048 keys, 4 to 16 a bucket cost alike: larger
// ones take more scores at the end, smaller ones more maxima.
inline constexpr int kBucketKeys = 8;
inline constexpr std::int64_t kMaxBuckets = 1024;
static_assert(kBucketKeys % kKeyTile == 0 && kSubBlock % kBucketKeys == 0);

HWY_INLINE int BucketShift(std::int64_t kv_len) {
  int shift = 3;
  while ((kv_len >> shift) > kMaxBuckets && (1 << shift) < kKeyBlock) ++shift;
  return shift;
}
static_assert(1 << 3 == kBucketKeys);

// For longer lists every row is scored whole: finding the bound would cost more than that.
inline constexpr std::int64_t kMaxTrackedKeys = 32;
// Buckets of a row that are worth scoring one by one.
inline constexpr int kMaxCandidates = 4 * kMaxTrackedKeys;

/// Of the rows of one query block.
struct TrackedRows {
  alignas(64) float entropy[kQueryRows];        // Σ p log2 p at the present reference, over finished key blocks
  alignas(64) float block_entropy[kQueryRows];  // of the present key block
  alignas(64) std::uint32_t visible[kQueryRows];
  alignas(64) float old_neg_ref[kQueryRows], old_threshold[kQueryRows], old_row_sum[kQueryRows], old_block_sum[kQueryRows];
  float* maxima;  // [buckets, kQueryRows] from first_bucket on, log2 units
  std::int64_t first_bucket, num_buckets;
};

struct RowTracker {
  static constexpr bool kFollows = true;

  TrackedRows& rows;
  int shift;  // log2 of the keys of a bucket
  bool keys, entropy, visible;

  HWY_INLINE void BeginQueryBlock(const QueryBlock& block) {
    const DF d;
    for (int r = 0; r < kQueryRows; ++r) {
      rows.entropy[r] = 0.0f;
      rows.visible[r] = 0;
    }
    if (!keys) return;
    rows.first_bucket = block.min_begin >> shift;
    rows.num_buckets = block.max_end > block.min_begin ? ((block.max_end - 1) >> shift) - rows.first_bucket + 1 : 0;
    for (std::int64_t i = 0; i < rows.num_buckets * kQueryRows; i += kLanes) hn::Store(hn::Set(d, -kInf), d, rows.maxima + i);
  }

  HWY_INLINE void BeginKeyBlock() { std::fill_n(rows.block_entropy, kQueryRows, 0.0f); }

  template <int NV>
  HWY_INLINE void BeforeMove(const TilePlace& at, const QueryBlock& block) {
    const DF d;
    for (int r = at.first_vector * kLanes; r < (at.first_vector + NV) * kLanes; r += kLanes) {
      hn::Store(hn::Load(d, block.neg_ref + r), d, rows.old_neg_ref + r);
      hn::Store(hn::Load(d, block.threshold + r), d, rows.old_threshold + r);
      hn::Store(hn::Load(d, block.row_sum + r), d, rows.old_row_sum + r);
      hn::Store(hn::Load(d, block.block_sum + r), d, rows.old_block_sum + r);
    }
  }

  template <int NV>
  HWY_INLINE void AfterMove(const TilePlace& at, const QueryBlock& block) {
    const DF d;
    for (int r = at.first_vector * kLanes; r < (at.first_vector + NV) * kLanes; r += kLanes) {
      // A lane without a reference has summed nothing yet.
      const MF had_reference = hn::Gt(hn::Load(d, rows.old_threshold + r), hn::Set(d, -kInf));
      const VF delta = hn::IfThenElseZero(
          had_reference, hn::Min(hn::Sub(hn::Load(d, block.neg_ref + r), hn::Load(d, rows.old_neg_ref + r)), hn::Set(d, 64.0f)));
      const VF factor = Exp2(delta);
      const auto rescale = [&](float* entropy_sum, const float* sum) HWY_ATTR {
        hn::Store(hn::Mul(factor, hn::MulAdd(delta, hn::Load(d, sum), hn::Load(d, entropy_sum))), d, entropy_sum);
      };
      rescale(rows.entropy + r, rows.old_row_sum + r);
      rescale(rows.block_entropy + r, rows.old_block_sum + r);
    }
  }

  template <int NV>
  HWY_INLINE void TakeScores(const TilePlace& at, const QueryBlock& block, const VF (&s)[NV][kKeyTile]) {
    if (!keys) return;
    const DF d;
    const int lane0 = at.first_vector * kLanes;
    const std::int64_t bucket = ((at.first_key + at.key) >> shift) - rows.first_bucket;
    float* HWY_RESTRICT to = rows.maxima + bucket * kQueryRows + lane0;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      VF largest = s[v][0];
      REGARD_UNROLL for (int j = 1; j < kKeyTile; ++j) largest = hn::Max(largest, s[v][j]);
      largest = hn::Sub(largest, hn::Load(d, block.neg_ref + lane0 + v * kLanes));
      hn::Store(hn::Max(largest, hn::Load(d, to + v * kLanes)), d, to + v * kLanes);
    }
  }

  template <int NV>
  HWY_INLINE void TakeWeights(const TilePlace& at, const KeyBlock& key_block, const VF (&s)[NV][kKeyTile]) {
    if (!entropy) return;
    const DF d;
    const int lane0 = at.first_vector * kLanes;
    const float* HWY_RESTRICT weights = key_block.weights + at.key * kQueryRows + lane0;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      VF sum = hn::Load(d, rows.block_entropy + lane0 + v * kLanes);
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        // A weight of 0 has a score of −127 or less, down to −inf, and 0 · −inf would be NaN.
        const VF x = hn::Max(hn::Set(d, -127.0f), s[v][j]);
        sum = hn::MulAdd(hn::Load(d, weights + j * kQueryRows + v * kLanes), x, sum);
      }
      hn::Store(sum, d, rows.block_entropy + lane0 + v * kLanes);
    }
  }

  HWY_INLINE void EndKeyBlock(int n, const KeyBlock& key_block) {
    const DF d;
    for (int r = 0; r < kQueryRows; r += kLanes) {
      hn::Store(hn::Add(hn::Load(d, rows.entropy + r), hn::Load(d, rows.block_entropy + r)), d, rows.entropy + r);
    }
    if (visible) CountVisible(n, key_block);
  }

  /// bounds[r] = the top_k-th largest maximum of row r; −inf when it has fewer.
  HWY_INLINE void FindBounds(std::int64_t top_k, int num_vectors, float* bounds) const {
    for (int v = 0; v < num_vectors; ++v) {
      if (top_k <= 1) {
        FindBoundsOf<1>(top_k, v * kLanes, bounds);
      } else if (top_k <= 4) {
        FindBoundsOf<4>(top_k, v * kLanes, bounds);
      } else if (top_k <= 8) {
        FindBoundsOf<8>(top_k, v * kLanes, bounds);
      } else {
        FindBoundsOf<kMaxTrackedKeys>(top_k, v * kLanes, bounds);
      }
    }
  }

 private:
  template <int kPlaces>
  HWY_NOINLINE void FindBoundsOf(std::int64_t top_k, int lane0, float* bounds) const {
    const DF d;
    VF largest[kPlaces];
    REGARD_UNROLL_LONG for (int place = 0; place < kPlaces; ++place) largest[place] = hn::Set(d, -kInf);
    for (std::int64_t bucket = 0; bucket < rows.num_buckets; ++bucket) {
      VF maximum = hn::Load(d, rows.maxima + bucket * kQueryRows + lane0);
      if (hn::AllFalse(d, hn::Gt(maximum, largest[kPlaces - 1]))) continue;
      REGARD_UNROLL_LONG for (int place = 0; place < kPlaces; ++place) {
        const VF larger = hn::Max(largest[place], maximum);
        maximum = hn::Min(largest[place], maximum);
        largest[place] = larger;
      }
    }
    alignas(64) float places[kPlaces][kLanes];
    REGARD_UNROLL_LONG for (int place = 0; place < kPlaces; ++place) hn::Store(largest[place], d, places[place]);
    std::copy_n(places[top_k - 1], kLanes, bounds + lane0);
  }

  HWY_INLINE void CountVisible(int n, const KeyBlock& key_block) {
    const DU du;
    for (int r = 0; r < kQueryRows; r += kLanes) {
      const VU bit = hn::Load(du, key_block.lane_bit + r);
      VU count = hn::Set(du, key_block.has_visible ? 0u : static_cast<std::uint32_t>(n));
      for (int key = 0; key_block.has_visible && key < n; ++key) {
        const VU word = hn::Set(du, static_cast<std::uint32_t>(key_block.visible[key] >> (r & 32)));
        count = hn::Add(count, hn::IfThenElseZero(hn::TestBit(word, bit), hn::Set(du, 1u)));
      }
      hn::Store(hn::Add(hn::Load(du, rows.visible + r), count), du, rows.visible + r);
    }
  }
};

/// Buckets of each row that may hold its top keys, ascending. count > kMaxCandidates: too many to list.
struct Candidates {
  int count[kQueryRows];
  std::int32_t bucket[kQueryRows][kMaxCandidates];
};

/// floors[r] is the bound of row r, lowered by twice its margin.
HWY_NOINLINE inline void FindCandidates(const RowTracker& tracker, int num_vectors, const float* floors, Candidates& found) {
  const DF d;
  std::fill_n(found.count, kQueryRows, 0);
  for (int v = 0; v < num_vectors; ++v) {
    const VF floor = hn::Load(d, floors + v * kLanes);
    for (std::int64_t bucket = 0; bucket < tracker.rows.num_buckets; ++bucket) {
      const float* const maxima = tracker.rows.maxima + bucket * kQueryRows + v * kLanes;
      const MF reaches = hn::Ge(hn::Load(d, maxima), floor);
      if (hn::AllFalse(d, reaches)) continue;
      std::uint8_t bits[8] = {};
      hn::StoreMaskBits(d, reaches, bits);
      for (std::uint32_t left = bits[0] | std::uint32_t{bits[1]} << 8; left != 0; left &= left - 1) {
        const int r = v * kLanes + static_cast<int>(hwy::Num0BitsBelowLS1Bit_Nonzero32(left));
        if (maxima[r - v * kLanes] == -kInf) continue;  // a floor of −inf
        if (found.count[r] < kMaxCandidates) found.bucket[r][found.count[r]] = static_cast<std::int32_t>(bucket);
        found.count[r] += found.count[r] <= kMaxCandidates ? 1 : 0;
      }
    }
  }
}

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

/// Scores above a floor and where they come from, in ascending order of keys. Gathered without branches, then ranked: a sorted list would
/// mispredict at every insertion, which took as long as the scores.
struct AboveFloor {
  static constexpr int kMost = 128;
  int count = 0;
  alignas(64) float score[kMost + kSubBlock];
  alignas(64) std::int32_t place[kMost + kSubBlock];  // number among the keys that were offered

  HWY_INLINE void Offer(const float* scores, std::int32_t first_place, float floor) {
    const DF d;
    const DI di;
    for (int i = 0; i < kSubBlock; i += kLanes) {
      const VF s = hn::Load(d, scores + i);
      const MF above = hn::Gt(s, hn::Set(d, floor));
      // In registers: Zen 4 takes hundreds of cycles to compress into memory.
      hn::StoreU(hn::Compress(hn::Iota(di, first_place + i), hn::RebindMask(di, above)), di, place + count);
      hn::StoreU(hn::Compress(s, above), d, score + count);
      count += static_cast<int>(hn::CountTrue(d, above));
    }
  }

  /// How many are larger than the i-th, or equal and before it.
  HWY_INLINE int Rank(int i) const {
    const DF d;
    const VF own = hn::Set(d, score[i]);
    std::size_t rank = 0;
    for (int j = 0; j < count; j += kLanes) {
      const VF others = hn::Load(d, score + j);
      const MF exists = hn::FirstN(d, static_cast<std::size_t>(count - j));
      const MF earlier = hn::FirstN(d, static_cast<std::size_t>(std::max(0, i - j)));
      const MF before = hn::Or(hn::Gt(others, own), hn::And(earlier, hn::Eq(others, own)));
      rank += hn::CountTrue(d, hn::And(exists, before));
    }
    return static_cast<int>(rank);
  }
};

/// The top keys out of the candidate buckets of row r: those above the floor. Returns false if there are too many to rank.
HWY_INLINE bool SearchBuckets(const RowScorer& scorer, const RowTracker& tracker, const Candidates& found, int r, float floor,
                              TopKeys& top) {
  AboveFloor above;
  const int keys_shift = tracker.shift;
  const std::int32_t num_places = found.count[r] << keys_shift;
  const auto key_at = [&](std::int32_t place) {
    const std::int64_t bucket = tracker.rows.first_bucket + found.bucket[r][place >> keys_shift];
    return (bucket << keys_shift) + (place & ((1 << keys_shift) - 1));
  };
  for (std::int32_t first = 0; first < num_places; first += kSubBlock) {
    std::int64_t keys[kSubBlock];
    for (int i = 0; i < kSubBlock; i += kBucketKeys) {
      const std::int64_t key = first + i < num_places ? key_at(first + i) : -kBucketKeys;
      for (int j = 0; j < kBucketKeys; ++j) keys[i + j] = key + j;
    }
    alignas(64) float scores[kSubBlock];
    scorer.Score(keys, scores);
    above.Offer(scores, first, floor);
    if (above.count > AboveFloor::kMost) return false;
  }
  for (int i = 0; i < above.count; ++i) {
    const int rank = above.Rank(i);
    if (rank >= top.size) continue;
    top.scores[rank] = above.score[i];
    top.keys[rank] = key_at(above.place[i]);
  }
  top.listed = std::min<std::int64_t>(above.count, top.size);
  return true;
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
