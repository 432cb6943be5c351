// Weights of one tile, kKeyTile keys by NV vectors of queries, from scores and the rows' final lse: what the second pass computes.
#if defined(REGARD_KERNELS_WEIGHT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_WEIGHT_TILE_INL_H_
#undef REGARD_KERNELS_WEIGHT_TILE_INL_H_
#else
#define REGARD_KERNELS_WEIGHT_TILE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "kernels/query_block-inl.h"
#include "kernels/score_tile-inl.h"
#include "kernels/tile_products-inl.h"
#include "kernels/visibility-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// What a call keeps at hand, in the caller's scratch. keys->weights [kKeyBlock, kQueryRows] has 0 wherever nothing was visible.
struct WeightScratch {
  QueryBlock* block;
  KeyBlock* keys;
  float* key_sums;   // [kKeyBlock, kLanes]: of each key the weights of all vectors of rows, lane by lane
  float* undefined;  // [kQueryRows]: NaN for a row whose lse is NaN, else 0
  bool any_undefined;
};

HWY_INLINE std::size_t WeightScratchBytes(std::int64_t head_dim) {
  const std::int64_t zeros = (std::max<std::int64_t>(head_dim, kKeyBlock) + 15) / 16 * 16;
  const std::int64_t floats =
      zeros + kQueryRows + kKeyBlock * (2 * kQueryRows + kLanes + Padded(head_dim)) + head_dim * kQueryRows;
  return (sizeof(QueryBlock) + sizeof(KeyBlock) + static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
}

HWY_INLINE WeightScratch PlaceWeightScratch(void* memory, std::int64_t head_dim) {
  std::uint8_t* at = static_cast<std::uint8_t*>(memory);
  WeightScratch scratch;
  scratch.block = new (at) QueryBlock;
  at += sizeof(QueryBlock);
  scratch.keys = new (at) KeyBlock;
  at += sizeof(KeyBlock);
  float* next = reinterpret_cast<float*>(at);
  const auto take = [&next](std::int64_t count) { return std::exchange(next, next + count); };
  scratch.keys->weights = take(kKeyBlock * kQueryRows);
  scratch.keys->bias = take(kKeyBlock * kQueryRows);
  scratch.keys->k_copy = take(kKeyBlock * Padded(head_dim));
  scratch.key_sums = take(kKeyBlock * kLanes);
  scratch.undefined = take(kQueryRows);
  scratch.block->q = reinterpret_cast<Word*>(take(head_dim * kQueryRows));
  scratch.block->acc = nullptr;
  float* zeros = next;
  std::fill_n(zeros, std::max<std::int64_t>(head_dim, kKeyBlock), 0.0f);
  std::fill_n(scratch.keys->weights, kKeyBlock * kQueryRows, 0.0f);
  scratch.keys->zeros = zeros;
  InitKeyBlock(*scratch.keys);
  return scratch;
}

/// Rows whose lse is −inf have no visible score above −inf: exp2 makes 0 of them from any reference.
HWY_INLINE void BeginWeightBlock(const CallConstants& call, const QueryRow* rows, int num_rows, WeightScratch& scratch) {
  BeginQueryBlock(call, rows, num_rows, *scratch.keys, *scratch.block);
  scratch.any_undefined = false;
  for (int r = 0; r < kQueryRows; ++r) {
    const float lse = r < num_rows ? *rows[r].lse : -kInf;
    scratch.block->neg_ref[r] = std::isfinite(lse) ? static_cast<float>(-kLog2E * lse) : 0.0f;
    scratch.undefined[r] = std::isnan(lse) || lse == kInf ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    scratch.any_undefined |= scratch.undefined[r] != 0.0f;
  }
}

/// Takes scores by the final lse, see RunTiles; writes weights and sums of keys.
class PutWeightsAndSums {
 public:
  HWY_INLINE PutWeightsAndSums(const WeightScratch& scratch, int first_vector)
      : weights_(scratch.keys->weights + first_vector * kLanes), sums_(scratch.key_sums) {}

  HWY_INLINE void Begin(int key) { key_ = key; }
  HWY_INLINE void BeginVector(int) {}
  template <class ScoreOf>
  HWY_INLINE void Take(int v, int j, const ScoreOf& score_of) {
    REGARD_UNROLL for (int e = 0; e < kPerWord; ++e) Put(v, j * kPerWord + e, FinalWeight(score_of(e)));
  }
  /// The weight of vector v, counted from the first, with key j of the tile; vectors in ascending order.
  HWY_INLINE void Put(int v, int j, VF weight) {
    const DF d;
    float* const sum = sums_ + (key_ + j) * kLanes;
    hn::Store(weight, d, weights_ + (key_ + j) * kQueryRows + v * kLanes);
    hn::Store(v == 0 ? weight : hn::Add(hn::Load(d, sum), weight), d, sum);
  }
  HWY_INLINE void EndVector(int) {}
  HWY_INLINE bool End() { return true; }

 private:
  float* HWY_RESTRICT weights_;
  float* HWY_RESTRICT sums_;
  std::int64_t key_;
};

template <int NV, bool kPlain>
HWY_NOINLINE void WeightTile(const CallConstants& call, const TilePlace& at, const WeightScratch& scratch) {
  const DF d;
  VF s[NV][kKeyTile];
  RelativeScores<NV, kPlain>(call, at, *scratch.block, *scratch.keys, s);  // relative to −neg_ref, here lse
  PutWeightsAndSums to(scratch, at.first_vector);
  to.Begin(at.key);
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
      VF p = FinalWeight(s[v][j]);
      if constexpr (!kPlain) {
        if (scratch.any_undefined) {
          const VF undefined = hn::Load(d, scratch.undefined + (at.first_vector + v) * kLanes);
          p = hn::IfThenZeroElse(hn::Eq(s[v][j], hn::Set(d, -kInf)), hn::Add(p, undefined));
        }
      }
      to.Put(v, j, p);
    }
  }
}

template <bool kPlain, int NV = 1>
HWY_INLINE void WeightTileOf(int num_vectors, const CallConstants& call, const TilePlace& at, const WeightScratch& scratch) {
  if constexpr (NV < kQueryVectors) {
    if (num_vectors != NV) return WeightTileOf<kPlain, NV + 1>(num_vectors, call, at, scratch);
  }
  WeightTile<NV, kPlain>(call, at, scratch);
}

/// Tiles [tile, end) that every row sees, no option touches and all vectors hold, in a run. Bits are those of WeightTile.
HWY_NOINLINE inline void WeightRun(const CallConstants& call, int tile, int end, const WeightScratch& scratch) {
  KeyBlock& keys = *scratch.keys;
  PutWeightsAndSums put(scratch, 0);
  RunTiles<kQueryVectors>(ScoreProducts(call, *scratch.block, keys, 0, false), tile, end, keys.tile, put);
}

/// Zeros on the vectors of a tile that no row needs.
HWY_INLINE void ClearTile(const WeightScratch& scratch, int key, int first_vector, int end_vector) {
  const DF d;
  for (int j = key; j < key + kKeyTile; ++j) {
    for (int v = first_vector; v < end_vector; ++v) {
      hn::Store(hn::Zero(d), d, scratch.keys->weights + j * kQueryRows + v * kLanes);
    }
  }
}

/// Weights of the block's rows for the n keys from first_key on. Returns false, with nothing computed, when no row sees any of them.
HWY_INLINE bool WeighKeyBlock(const CallConstants& call, std::int64_t first_key, int n, WeightScratch& scratch) {
  const RowOptions& options = call.options;
  QueryBlock& block = *scratch.block;
  KeyBlock& keys = *scratch.keys;
  if (!SetVisible(call, block, first_key, n, keys)) return false;
  // Lanes without a row must weigh nothing; they are hidden like keys.
  const bool missing_rows = block.num_rows != block.num_vectors * kLanes;
  if (missing_rows && !keys.has_visible) {
    SetVisibleFromIntervals(block, first_key, n, keys);
    keys.has_visible = true;
  }
  BindKeys(call.kv, first_key, n, keys);
  if (options.has_bias) PackBias(block, n, keys);
  if (options.has_alibi) SetDistances(block, keys);
  const bool plain = options.soft_cap == 0 && !options.has_bias && !options.has_alibi && !missing_rows && !scratch.any_undefined;
  const auto rows_of = [&](int key) HWY_ATTR {
    return keys.has_visible ? RowsThatSee(keys, key, block.all_rows) : TileRows{block.all_rows, true, {0, block.num_vectors - 1}};
  };
  const bool runs = plain && block.num_vectors == kQueryVectors && WordsOf(call.kv.head_dim) >= MinRunWords(kQueryVectors);
  for (int key = 0; key < n; key += kKeyTile) {
    const TileRows rows = rows_of(key);
    if (rows.some == 0) {
      ClearTile(scratch, key, 0, kQueryVectors);
      std::fill_n(scratch.key_sums + key * kLanes, kKeyTile * kLanes, 0.0f);
      continue;
    }
    block.saw_key |= rows.some;
    if (runs && rows.all) {
      int end = keys.has_visible ? key + kKeyTile : n;
      while (end < n && rows_of(end).all) end += kKeyTile;
      WeightRun(call, key / kKeyTile, end / kKeyTile, scratch);
      key = end - kKeyTile;
      continue;
    }
    const auto [first, last] = rows.vectors;
    ClearTile(scratch, key, 0, first);
    ClearTile(scratch, key, last + 1, kQueryVectors);
    const TilePlace at = {first_key, key, first};
    if (rows.all && plain) {
      WeightTileOf<true>(last - first + 1, call, at, scratch);
    } else {
      WeightTileOf<false>(last - first + 1, call, at, scratch);
    }
  }
  return true;
}

/// Calls visit(first_row, first_key, n) with scratch.block and scratch.keys holding the rows and their weights, for every block of
/// rows × keys where some row sees some key: rows ascending, then keys. begin() precedes and done(first_row) follows the visits of
/// each block of rows.
template <class Begin, class Visit, class Done>
HWY_INLINE void ForEachWeightBlock(const CallConstants& call, const QueryRow* rows, std::int64_t num_rows, WeightScratch& scratch,
                                   const Begin& begin, const Visit& visit, const Done& done) {
  for (std::int64_t row = 0; row < num_rows; row += kQueryRows) {
    const int rows_here = static_cast<int>(std::min<std::int64_t>(kQueryRows, num_rows - row));
    BeginWeightBlock(call, rows + row, rows_here, scratch);
    begin();
    const QueryBlock& block = *scratch.block;
    for (std::int64_t key = block.min_begin / kKeyBlock * kKeyBlock; key < block.max_end; key += kKeyBlock) {
      const int n = static_cast<int>(std::min<std::int64_t>(kKeyBlock, call.kv.kv_len - key));
      if (WeighKeyBlock(call, key, n, scratch)) visit(row, key, n);
    }
    done(row);
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
