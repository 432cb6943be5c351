// What the prefill kernel finds out about each row on its way: the entropy, the largest scores, how many keys it may see.
//
// Entropy. Beside Σ p the tracker sums E = Σ p x with x = log2 p; when a reference moves by δ, x falls by δ and p by 2^−δ, so that
// E becomes 2^−δ (E − δ Σ p). At the end w = p·f, and −Σ w ln w = −f ln 2 · E − (f Σ p) ln f.
//
// Top keys. Inserting every score that is among the k largest so far takes k·(1 + ln(n/k)) insertions a row when scores come in random
// order, and n when they rise; at k = 8 and 2,048 keys that was 40 % of the forward pass. Instead, whatever the order, the tracker
// keeps the maximum of every bucket of 4 keys or more. Once all keys have passed, the k-th largest maximum is a bound that k keys reach,
// so that the top k lie in the buckets that reach it. The maxima of groups of buckets give such a bound as well, a little lower and for
// much less work: with 8·k groups, 9 buckets reach it for k = 8. Only these are scored again, by sums that do not depend on the row's
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

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// Keys per bucket, a power of two: at least kBucketKeys, and so many that a row has at most kMaxBuckets, whose maxima of one query block
// (256 KB with AVX-512) stay in the second cache level, until a bucket is a key block. Larger buckets take more scores at the end, smaller
// ones more maxima.
inline constexpr int kBucketShift = 2;
inline constexpr int kBucketKeys = 1 << kBucketShift;
inline constexpr std::int64_t kMaxBuckets = 1024;
static_assert(kBucketKeys % kKeyTile == 0 && kSubBlock % kBucketKeys == 0);

HWY_INLINE int BucketShift(std::int64_t kv_len) {
  int shift = kBucketShift;
  while ((kv_len >> shift) > kMaxBuckets && (1 << shift) < kKeyBlock) ++shift;
  return shift;
}

// A row and four keys make one number: row + kQueryRoom · (number of the four, from the first bucket on).
inline constexpr std::int32_t kQueryRoom = 64;
static_assert(kQueryRows <= kQueryRoom);

// Groups that give the bound of the k-th largest, for each of the k. Neighbours, which are often large together, are in different ones.
inline constexpr std::int64_t kGroupsPerPlace = 8;

// For longer lists every row is scored whole: finding the bound would cost more than that. So are rows of more keys than such numbers
// tell apart.
inline constexpr std::int64_t kMaxTrackedKeys = 32;
inline constexpr std::int64_t kMaxTrackedLength = std::int64_t{1} << 27;
static_assert(kMaxTrackedLength / kBucketKeys * kQueryRoom <= std::int64_t{1} << 31);

/// Of the rows of one query block.
struct TrackedRows {
  alignas(64) float entropy[kQueryRows];        // Σ p log2 p at the present reference, over finished key blocks
  alignas(64) float block_entropy[kQueryRows];  // of the present key block
  alignas(64) float tile_entropy[kQueryRows];   // block_entropy with a tile that is not yet known to be calm
  alignas(64) float tile_largest[kQueryRows];   // of its scores
  alignas(64) std::uint32_t visible[kQueryRows];
  alignas(64) float old_neg_ref[kQueryRows], old_threshold[kQueryRows], old_row_sum[kQueryRows], old_block_sum[kQueryRows];
  alignas(64) float weighed[kKeyTile * kQueryRows];  // the scores of a tile that moved references
  float* maxima;                                     // [buckets, kQueryRows] from first_bucket on, log2 units
  std::int64_t first_bucket, num_buckets;
};

struct RowTracker {
  static constexpr bool kFollows = true;

  TrackedRows& rows;
  int shift;  // log2 of the keys of a bucket
  bool keys, entropy, visible;

  HWY_INLINE void BeginQueryBlock(const QueryBlock& block) {
    for (int r = 0; r < kQueryRows; ++r) {
      rows.entropy[r] = 0.0f;
      rows.visible[r] = 0;
    }
    if (!keys) return;
    rows.first_bucket = block.min_begin >> shift;
    rows.num_buckets = block.max_end > block.min_begin ? ((block.max_end - 1) >> shift) - rows.first_bucket + 1 : 0;
  }

  /// Precedes every key block within the reach of some query block at work, whether this one sees any key of it or none.
  HWY_INLINE void BeginKeyBlock(std::int64_t first_key) {
    const DF d;
    std::fill_n(rows.block_entropy, kQueryRows, 0.0f);
    if (!keys) return;
    // Here and not all at once: the maxima of this block stay in the first cache level until it is done.
    const std::int64_t first = (first_key >> shift) - rows.first_bucket;
    const std::int64_t end = std::min(first + (kKeyBlock >> shift), rows.num_buckets);
    for (std::int64_t i = std::max<std::int64_t>(first, 0) * kQueryRows; i < end * kQueryRows; i += kLanes) {
      hn::Store(hn::Set(d, -kInf), d, rows.maxima + i);
    }
  }

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

  /// What it takes of tiles that are weighed before they are known to be calm, one vector of rows at a time: nothing counts before Keep.
  /// Both sums and maxima, wanted or not: they cost less than to ask.
  struct Tiles {
    RowTracker& tracker;
    VF largest, entropy;

    HWY_INLINE explicit Tiles(RowTracker& of) : tracker(of) {}
    HWY_INLINE void BeginVector(int lane0) {
      const DF d;
      largest = hn::Set(d, -kInf);
      entropy = hn::Load(d, tracker.rows.block_entropy + lane0);
    }
    /// A score, its value as Exp2 took it, which is at least kLowestExponent (0 · −inf would be NaN), and its weight.
    HWY_INLINE void Take(VF score, VF x, VF weight) {
      largest = hn::Max(largest, score);
      entropy = hn::MulAdd(weight, x, entropy);
    }
    HWY_INLINE void EndVector(int lane0) {
      const DF d;
      hn::Store(largest, d, tracker.rows.tile_largest + lane0);
      hn::Store(entropy, d, tracker.rows.tile_entropy + lane0);
    }
    template <int NV>
    HWY_INLINE void Keep(const TilePlace& at, const QueryBlock& block) {
      const DF d;
      const int lane0 = at.first_vector * kLanes;
      VF all[NV];
      REGARD_UNROLL for (int v = 0; v < NV; ++v) {
        all[v] = hn::Load(d, tracker.rows.tile_largest + lane0 + v * kLanes);
        hn::Store(hn::Load(d, tracker.rows.tile_entropy + lane0 + v * kLanes), d,
                  tracker.rows.block_entropy + lane0 + v * kLanes);
      }
      if (tracker.keys) tracker.KeepLargest<NV>(at, block, all);
    }
  };

  template <int NV>
  HWY_INLINE void TakeScores(const TilePlace& at, const QueryBlock& block, const VF (&s)[NV][kKeyTile]) {
    if (!keys) return;
    VF largest[NV];
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      largest[v] = s[v][0];
      REGARD_UNROLL for (int j = 1; j < kKeyTile; ++j) largest[v] = hn::Max(largest[v], s[v][j]);
    }
    KeepLargest<NV>(at, block, largest);
  }

  template <int NV>
  HWY_INLINE void TakeWeights(const TilePlace& at, KeyBlock& key_block, const VF (&s)[NV][kKeyTile]) {
    if (!entropy) return;
    const DF d;
    const int lane0 = at.first_vector * kLanes;
    const float* HWY_RESTRICT weights = TileWeights(at, key_block);
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      VF sum = hn::Load(d, rows.block_entropy + lane0 + v * kLanes);
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        // A weight of 0 has a score of kLowestExponent or less, down to −inf, and 0 · −inf would be NaN.
        const VF x = hn::Max(hn::Set(d, kLowestExponent), s[v][j]);
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

  /// bounds[r]: a score that top_k keys of row r reach, close to the highest such; −inf when there are fewer groups than that.
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

  /// Writes the rows whose maximum of the i-th bucket is at least floors[r], each with every four keys of the bucket, and as much more as
  /// fills vectors; returns how many these are. A floor of NaN is not reached.
  HWY_INLINE int RowsThatReach(const float* floors, std::int64_t i, std::int32_t* reach) const {
    const DF d;
    const DI di;
    const int fours = 1 << (shift - kBucketShift);
    int n = 0;
    REGARD_UNROLL for (int v = 0; v < kQueryVectors; ++v) {
      const VF maxima = hn::Load(d, rows.maxima + i * kQueryRows + v * kLanes);
      const MF reaches = hn::Ge(maxima, hn::Load(d, floors + v * kLanes));
      if constexpr (kCompresses) {
        const int count = static_cast<int>(hn::CountTrue(d, reaches));
        // In registers: Zen 4 takes hundreds of cycles to compress into memory.
        const VI which = hn::Compress(hn::Iota(di, v * kLanes), hn::RebindMask(di, reaches));
        for (std::int32_t four = 0; four < fours; ++four, n += count) {
          const VI code = hn::Add(which, hn::Set(di, (static_cast<std::int32_t>(i) * fours + four) * kQueryRoom));
          hn::StoreU(code, di, reach + n);
        }
      } else if (HWY_UNLIKELY(!hn::AllFalse(d, reaches))) {
        static_assert(kCompresses || kLanes <= 8);
        std::uint8_t bytes[8] = {};
        hn::StoreMaskBits(d, reaches, bytes);
        for (std::int32_t four = 0; four < fours; ++four) {
          for (std::uint32_t left = bytes[0]; left != 0; left &= left - 1) {
            const int row = v * kLanes + static_cast<int>(hwy::Num0BitsBelowLS1Bit_Nonzero32(left));
            reach[n++] = (static_cast<std::int32_t>(i) * fours + four) * kQueryRoom + row;
          }
        }
      }
    }
    return n;
  }

 private:
  template <int NV>
  HWY_INLINE void KeepLargest(const TilePlace& at, const QueryBlock& block, const VF (&largest)[NV]) {
    const DF d;
    const int lane0 = at.first_vector * kLanes;
    const std::int64_t bucket = ((at.first_key + at.key) >> shift) - rows.first_bucket;
    float* HWY_RESTRICT to = rows.maxima + bucket * kQueryRows + lane0;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF score = hn::Sub(largest[v], hn::Load(d, block.neg_ref + lane0 + v * kLanes));
      hn::Store(hn::Max(score, hn::Load(d, to + v * kLanes)), d, to + v * kLanes);
    }
  }

  template <int kPlaces>
  HWY_NOINLINE void FindBoundsOf(std::int64_t top_k, int lane0, float* bounds) const {
    const DF d;
    VF largest[kPlaces];
    REGARD_UNROLL_LONG for (int place = 0; place < kPlaces; ++place) largest[place] = hn::Set(d, -kInf);
    const std::int64_t groups = std::min(rows.num_buckets, kGroupsPerPlace * top_k);
    for (std::int64_t group = 0; group < groups; ++group) {
      VF maximum = hn::Load(d, rows.maxima + group * kQueryRows + lane0);
      for (std::int64_t bucket = group + groups; bucket < rows.num_buckets; bucket += groups) {
        maximum = hn::Max(maximum, hn::Load(d, rows.maxima + bucket * kQueryRows + lane0));
      }
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

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
