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

/// What a run of tiles applies to scores. With kVisibility they are clamped, too: hidden ones are −inf.
enum class RunOption { kNone, kBias, kVisibility };

struct RunChoice {
  bool may_run;
  RunOption option;
};

/// Whether tiles that `rows` see may be weighed in a run. Every row needs a reference. Of options a run takes one, known to the compiler:
/// asked about between the products, they cost more than a run wins (with a bias 1.26 times the time of none; so 1.13).
HWY_INLINE RunChoice ChooseRun(const CallConstants& call, const QueryBlock& block, const KeyBlock& keys, const TileRows& rows) {
  const int num_vectors = rows.vectors.Count();
  const bool in_time = WordsOf(call.kv.head_dim) >= MinRunWords(num_vectors);
  if (call.options.soft_cap > 0 || call.options.has_alibi || !block.all_referenced || !in_time) return {false, RunOption::kNone};
  if (rows.all && num_vectors == kQueryVectors && !block.has_faint) {
    return {true, call.options.has_bias ? RunOption::kBias : RunOption::kNone};
  }
  return {keys.has_visible && !call.options.has_bias, RunOption::kVisibility};
}

/// What a run does with scores: an option, weights, and what is to be done beside each tile.
template <int NV, RunOption kOption, class Tracker, class Beside>
class RunWeights {
 public:
  HWY_INLINE RunWeights(std::int64_t first_key, int first_vector, QueryBlock& block, KeyBlock& keys, Tracker& tracker,
                        const Beside& beside)
      : lane0_(first_vector * kLanes), keys_(keys), beside_(beside), weights_(first_key, first_vector, block, keys, tracker) {}

  HWY_INLINE void Begin(int key) { weights_.Begin(key); }
  HWY_INLINE void BeginVector(int v) { weights_.BeginVector(v); }
  template <class ScoreOf>
  HWY_INLINE void Take(int v, int j, const ScoreOf& score_of) {
    weights_.Take(
        v, j, [&](int e) HWY_ATTR __attribute__((always_inline)) {
          const int key = weights_.key() + j * kPerWord + e, lane0 = lane0_ + v * kLanes;
          const VF score = score_of(e);
          if constexpr (kOption == RunOption::kBias) return hn::Add(score, hn::Load(DF(), keys_.bias + key * kQueryRows + lane0));
          if constexpr (kOption == RunOption::kVisibility) return HideUnseen(keys_, key, lane0, score);
          return score;
        });
  }
  HWY_INLINE void EndVector(int v) { weights_.EndVector(v); }
  HWY_INLINE bool End() {
    if (HWY_UNLIKELY(!weights_.End())) return false;
    beside_(weights_.key() / kKeyTile);
    return true;
  }

 private:
  const int lane0_;
  const KeyBlock& keys_;
  const Beside& beside_;
  CalmWeights<NV, kOption == RunOption::kVisibility, Tracker> weights_;
};

/// Tiles [tile, end) on the same NV vectors of rows in a run. kOption: what ChooseRun said. Bits are those of ScoreTile. Returns the first
/// tile that was not calm, which is as if never touched, or else end. beside(tile) is called once for each that it takes.
template <int NV, RunOption kOption, class Tracker, class Beside>
HWY_NOINLINE int ScoreRun(const CallConstants& call, std::int64_t first_key, int first_vector, int tile, int end,
                          QueryBlock& block, KeyBlock& keys, Tracker& tracker, const Beside& beside) {
  if constexpr (NV == kQueryVectors) first_vector = 0;  // known to the compiler
  RunWeights<NV, kOption, Tracker, Beside> weights(first_key, first_vector, block, keys, tracker, beside);
  return RunTiles<NV>(ScoreProducts(call, block, keys, first_vector * kLanes, false), tile, end, keys.tile, weights);
}

/// Where a run ends after fewer tiles because one was not calm, the rest of the key block goes tile by tile: references are on the move, and each such
/// end costs the products of a tile.
inline constexpr int kFewTiles = 4;

/// ScoreRun of a number of vectors.
template <int NV = 1, class... Args>
HWY_INLINE int ScoreRunOf(int num_vectors, RunOption option, Args&&... args) {
  if constexpr (NV < kQueryVectors) {
    if (num_vectors != NV) return ScoreRunOf<NV + 1>(num_vectors, option, args...);
  } else {
    if (option == RunOption::kNone) return ScoreRun<NV, RunOption::kNone>(args...);
    if (option == RunOption::kBias) return ScoreRun<NV, RunOption::kBias>(args...);
  }
  return ScoreRun<NV, RunOption::kVisibility>(args...);
}

/// All scores of a key block: fills weights, block_sum and the stretches.
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
  bool runs = true;
  keys.all_seen = true;
  for (TileVectors& vectors : keys.scored) vectors = {0, -1};
  const int step = call.descending ? -1 : 1, end = call.descending ? -1 : num_tiles;
  for (int tile = call.descending ? num_tiles - 1 : 0; tile != end;) {
    const TileRows rows = rows_of(tile);
    if (rows.some == 0) {
      beside(tile);
      tile += step;
      continue;
    }
    block.saw_key |= rows.some;
    keys.all_seen &= rows.all;
    const int num_vectors = rows.vectors.Count();
    if (const RunChoice run = ChooseRun(call, block, keys, rows); runs && run.may_run) {
      int run_end = keys.has_visible ? tile + 1 : num_tiles;
      for (; run_end < num_tiles; ++run_end) {
        const TileRows next_rows = rows_of(run_end);
        if (next_rows.all != rows.all || next_rows.vectors != rows.vectors) break;
        block.saw_key |= next_rows.some;
      }
      const int done =
          ScoreRunOf(num_vectors, run.option, call, first_key, rows.vectors.first, tile, run_end, block, keys, tracker, beside);
      std::fill(keys.scored + tile, keys.scored + done, rows.vectors);
      runs = done - tile >= kFewTiles || done == run_end;
      tile = done;  // seen like those before it, if it is not the end
      if (tile == run_end) continue;
      block.has_faint |= options.has_bias;  // biases that hide keys with large numbers come by the thousand
    }
    const bool plain = rows.all && plain_scores;
    const TilePlace at = {first_key, tile * kKeyTile, rows.vectors.first};
    if (plain) {
      ScoreTileOf<true>(num_vectors, call, at, block, keys, tracker);
    } else {
      ScoreTileOf<false>(num_vectors, call, at, block, keys, tracker);
    }
    keys.scored[tile] = rows.vectors;
    beside(tile);
    tile += step;
  }
  FindStretches(n, keys);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
