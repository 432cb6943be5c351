// Scores of one key block: its tiles in turn, single or in runs, and what is asked for beside them.
#if defined(REGARD_KERNELS_SCORE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_SCORE_BLOCK_INL_H_
#undef REGARD_KERNELS_SCORE_BLOCK_INL_H_
#else
#define REGARD_KERNELS_SCORE_BLOCK_INL_H_
#endif

#include <algorithm>

#include "hwy/cache_control.h"
#include "kernels/score_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// The rows that take a block's place when it is done.
struct NextRows {
  const QueryRow* rows;
  int num_rows;
  bool are_due;  // no block of keys follows the one at work
};

/// A row on its way into the second cache level: the first is full of what is at work.
HWY_INLINE void PrefetchRow(const void* row, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const std::uint8_t*>(row) + i, 0, 2);
}

/// Beside the last block of keys: the contexts that are to be written, and the queries of the next rows, a few per tile. All at once they
/// would wait for each other as long as their reader does without.
HWY_INLINE void PrefetchRows(const CallConstants& call, const QueryBlock& block, const NextRows& next, int tile, int num_tiles) {
  const int begin = tile * kQueryRows / num_tiles, end = (tile + 1) * kQueryRows / num_tiles;
  for (int r = begin; r < std::min(end, block.num_rows); ++r) {
    PrefetchRow(block.rows[r].context, call.kv.v_dim * static_cast<std::int64_t>(sizeof(float)));
  }
  for (int r = begin; r < std::min(end, next.num_rows); ++r) {
    PrefetchRow(next.rows[r].q, call.kv.head_dim * StoredBytes(call.options.q_type));
  }
}

/// The masks and biases that the next key block will read, a few rows per tile. A block takes only some bytes of each row, so
/// that every row is a stream of its own: more than prefetchers follow. Bias rows: 8 lines a block.
HWY_INLINE void PrefetchOptions(const CallConstants& call, const QueryBlock& block, std::int64_t next_key, int tile) {
  constexpr int kRowsPerTile = (kQueryRows + kTiles - 1) / kTiles;
  const RowOptions& options = call.options;
  for (int r = tile * kRowsPerTile; r < std::min((tile + 1) * kRowsPerTile, block.num_rows); ++r) {
    const QueryRow& row = block.rows[r];
    if (next_key >= row.key_end || next_key + kKeyBlock <= row.key_begin) continue;
    if (options.has_bias && options.bias_key_stride == 1) {
      for (int k = 0; k <= kKeyBlock; k += 16) hwy::Prefetch(row.bias + std::min(next_key + k, row.key_end - 1));
    }
    if (options.has_mask && options.mask_key_stride == 1) {
      for (int k = 0; k <= kKeyBlock; k += 64) hwy::Prefetch(row.mask + std::min(next_key + k, row.key_end - 1));
    }
  }
}

/// Words of the next tile's products behind each vector of weights in a run. At T = 2,048, full, in parts of the time tile by tile: bf16 97.6 and
/// 98.8 % (head_dim 64 and 128), f32 100 and 98.9 %; 1, 2 or 4 words: longer; inner loops instead of this unrolling: 105 %.
inline constexpr int kWordsBetween = 3;
inline constexpr int kRunWords = kQueryVectors * kTileWords * kWordsBetween;

/// Whether tiles that all rows see may be weighed in a run: every row has a reference, and scores are neither faint nor altered, but for a bias.
HWY_INLINE bool MayRun(const CallConstants& call, const QueryBlock& block) {
  return call.options.soft_cap == 0 && !call.options.has_alibi && block.num_vectors == kQueryVectors && block.all_referenced &&
         !block.has_faint && WordsOf(call.kv.head_dim) >= kRunWords;
}

/// Tiles [tile, end), the weights of each between the products of the next: what exponentials do beside multiply-adds runs in pipes that products
/// leave idle. Bits are those of ScoreTile. Returns the first tile that was not calm, which is as if never touched, or else end.
/// beside(tile) is called once for each that it takes.
template <bool kBiased, class Tracker, class Beside>
HWY_NOINLINE int ScoreRun(const CallConstants& call, std::int64_t first_key, int tile, int end, QueryBlock& block, KeyBlock& keys,
                          Tracker& tracker, const Beside& beside) {
  const DF d;
  constexpr int NV = kQueryVectors;
  const std::int64_t words = WordsOf(call.kv.head_dim);
  typename Tracker::Tiles tracked(tracker);
  VF s[NV][kKeyTile];
  RelativeScores<NV, true>(call, {first_key, tile * kKeyTile, 0}, block, keys, s);
  if constexpr (kBiased) AddBias<NV>(keys, {first_key, tile * kKeyTile, 0}, s);
  for (; tile + 1 < end; ++tile) {
    float* HWY_RESTRICT scores = keys.tile;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF from = StartOfProducts(hn::Load(d, block.neg_ref + v * kLanes));
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        hn::Store(s[v][j], d, scores + (v * kKeyTile + j) * kLanes);
        s[v][j] = from;
      }
    }
    const TileKeys next(keys, (tile + 1) * kKeyTile);
    const Word* HWY_RESTRICT q = block.q;
    std::int64_t i = 0;
    Word* HWY_RESTRICT weights = WeightWords(keys) + tile * kTileWords * kQueryRows;
    CalmCheck<false> check;
    VF sum[NV];
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      sum[v] = hn::Load(d, block.block_sum + v * kLanes);
      tracked.BeginVector(v * kLanes);
      REGARD_UNROLL for (int j = 0; j < kTileWords; ++j) {
        VF p[kPerWord];
        REGARD_UNROLL for (int e = 0; e < kPerWord; ++e) {
          const VF x = hn::Load(d, scores + (v * kKeyTile + j * kPerWord + e) * kLanes);
          const VF rounded = RoundExponent(x);
          check.Add(rounded);
          p[e] = Exp2OfRounded(x, rounded);
          sum[v] = hn::Add(sum[v], p[e]);
          tracked.Take(x, x, p[e]);
        }
        hn::Store(ToWords(p), DW(), weights + j * kQueryRows + v * kLanes);
        REGARD_UNROLL for (int n = 0; n < kWordsBetween; ++n, ++i, q += kQueryRows) MultiplyWord(q, next, i, s);
      }
      tracked.EndVector(v * kLanes);
    }
    for (; i < words; ++i, q += kQueryRows) MultiplyWord(q, next, i, s);
    if (HWY_UNLIKELY(!check.AllCalm())) return tile;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) hn::Store(sum[v], d, block.block_sum + v * kLanes);
    tracked.template Keep<NV>({first_key, tile * kKeyTile, 0}, block);
    beside(tile);
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF start = hn::Load(d, block.neg_ref + v * kLanes);
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) s[v][j] = FinishScore(s[v][j], start, call.q_factor);
    }
    if constexpr (kBiased) AddBias<NV>(keys, {first_key, (tile + 1) * kKeyTile, 0}, s);
  }
  if (HWY_UNLIKELY((!WeighIfCalm<NV, false>({first_key, tile * kKeyTile, 0}, block, keys, tracker, s)))) return tile;
  beside(tile);
  return end;
}

/// All scores of a key block: fills weights, block_sum and the segments.
template <class Tracker>
HWY_INLINE void ScoreKeyBlock(const CallConstants& call, std::int64_t first_key, int n, QueryBlock& block, KeyBlock& keys,
                              const NextRows& next, Tracker& tracker) {
  const RowOptions& options = call.options;
  const bool plain_scores = options.soft_cap == 0 && !options.has_bias && !options.has_alibi;
  const int num_tiles = (n + kKeyTile - 1) / kKeyTile;
  // Inlined for sure: what only prefetches is pure to GCC 12, which drops its calls.
  const auto beside = [&](int i) HWY_ATTR __attribute__((always_inline)) {
    if (next.are_due) PrefetchRows(call, block, next, i, num_tiles);
    if (options.has_mask || options.has_bias) {
      PrefetchOptions(call, block, first_key + (call.descending ? -kKeyBlock : kKeyBlock), i);
    }
  };
  const TileVectors all_vectors = {0, block.num_vectors - 1};
  const auto rows_of = [&](int tile) HWY_ATTR {
    return keys.has_visible ? RowsThatSee(keys, tile * kKeyTile, block.all_rows) : TileRows{block.all_rows, true, all_vectors};
  };
  keys.all_seen = true;
  for (TileVectors& vectors : keys.scored) vectors = {0, -1};
  for (int i = 0; i < num_tiles; ++i) {
    int tile = call.descending ? num_tiles - 1 - i : i;
    const TileRows rows = rows_of(tile);
    if (rows.some == 0) {
      beside(i);
      continue;
    }
    block.saw_key |= rows.some;
    keys.all_seen &= rows.all;
    const bool plain = rows.all && plain_scores;
    if constexpr (kRunsTiles) {
      if (rows.all && MayRun(call, block)) {
        int end = tile + 1;
        while (end < num_tiles && rows_of(end).all) ++end;
        const int done = options.has_bias ? ScoreRun<true>(call, first_key, tile, end, block, keys, tracker, beside)
                                          : ScoreRun<false>(call, first_key, tile, end, block, keys, tracker, beside);
        std::fill(keys.scored + tile, keys.scored + done, all_vectors);
        i = done - 1;
        if (done == end) continue;
        block.has_faint |= options.has_bias;  // biases that hide keys with large numbers come by the thousand
        tile = i = done;                      // not calm, and seen by all rows like those before it
      }
    }
    const int num_vectors = rows.vectors.last - rows.vectors.first + 1;
    const TilePlace at = {first_key, tile * kKeyTile, rows.vectors.first};
    if (plain) {
      ScoreTileOf<true>(num_vectors, call, at, block, keys, tracker);
    } else {
      ScoreTileOf<false>(num_vectors, call, at, block, keys, tracker);
    }
    keys.scored[tile] = rows.vectors;
    beside(i);
  }
  FindSegments(n, keys);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
