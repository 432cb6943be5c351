// One tile of the backward kernels, kKeyTile keys by NV vectors of queries: weights from scores and the rows' lse, and the gradients by the
// scores.
#if defined(REGARD_KERNELS_GRADIENT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_GRADIENT_TILE_INL_H_
#undef REGARD_KERNELS_GRADIENT_TILE_INL_H_
#else
#define REGARD_KERNELS_GRADIENT_TILE_INL_H_
#endif

#include "kernels/dropout-inl.h"
#include "kernels/exp2-inl.h"
#include "kernels/gradient_block-inl.h"
#include "kernels/score_tile-inl.h"
#include "kernels/soon_keys-inl.h"
#include "kernels/tile_products-inl.h"
#include "kernels/visibility-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

static_assert(kPerWord == 1, "a sum is taken as it is, without FinishScore, and a word has one key");

/// Which gradient a tile is asked for.
enum class Gradient {
  kOfScores,        // by scale · q·k: through the soft cap
  kOfMaskedScores,  // by what is exponentiated, as a bias needs it
};

/// Takes sums of d_context · v − delta that no option touches, see RunTiles; writes gradients by scores.
class PutGradients {
 public:
  HWY_INLINE PutGradients(const float* weights, float* d_scores) : weights_(weights), d_scores_(d_scores) {}

  HWY_INLINE void Begin(int key) { first_ = key * kQueryRows; }
  HWY_INLINE void BeginVector(int) {}
  template <class SumOf>
  HWY_INLINE void Take(int v, int j, const SumOf& sum_of) {
    const DF d;
    const std::int64_t place = first_ + j * kQueryRows + v * kLanes;
    hn::Store(hn::Mul(sum_of(0), hn::Load(d, weights_ + place)), d, d_scores_ + place);
  }
  HWY_INLINE void EndVector(int) {}
  HWY_INLINE bool End() { return true; }

 private:
  const float* HWY_RESTRICT weights_;  // [kKeyBlock, kQueryRows]
  float* HWY_RESTRICT d_scores_;       // likewise
  std::int64_t first_;
};

/// The products of d_context, from lane0 on, and the values of a block. They start at −delta, and the subtraction is free.
HWY_INLINE TileProducts<SoonKeys> GradientProducts(const CallConstants& call, const GradientBlock& block, const KeyBlock& keys,
                                                   const SoonKeys& soon, int lane0) {
  return {block.d_context + lane0, block.neg_delta + lane0, keys.v, keys.num_keys, call.kv.v_dim, 1.0f, soon};
}

/// Writes the weights of the tile [kKeyBlock, kQueryRows], exactly 0 where a key is not visible, and with a soft cap its slope to where the
/// gradient will be. kPlain: no option touches the scores and every row sees every key.
template <int NV, bool kPlain>
HWY_NOINLINE void WeightTile(const CallConstants& call, const TilePlace& at, const GradientBlock& block, const KeyBlock& keys,
                             const SoonKeys& soon, float* HWY_RESTRICT d_scores) {
  const DF d;
  const int lane0 = at.first_vector * kLanes;
  const std::int64_t place = at.key * kQueryRows + lane0;
  const bool capped = !kPlain && call.options.soft_cap > 0;
  VF s[NV][kKeyTile];
  ScoreProducts(call, block.query, keys, lane0, capped, soon).Sum(at.key, s);
  if constexpr (!kPlain) {
    if (capped) {
      REGARD_UNROLL for (int v = 0; v < NV; ++v) {
        REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
          const VF tanh = TanhOfScaled(s[v][j]);
          hn::Store(hn::NegMulAdd(tanh, tanh, hn::Set(d, 1.0f)), d, d_scores + place + j * kQueryRows + v * kLanes);
        }
      }
    }
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        s[v][j] = ApplyOptions(call, block.query, keys, at.key + j, lane0 + v * kLanes, s[v][j]);
      }
    }
  }
  PutWeights put(keys.weights + lane0);
  GiveTile(at.key, s, put);
}

/// Weights that are dropped change their sign, for DeriveTile, until ClearDropped.
HWY_NOINLINE inline void MarkDropped(const CallConstants& call, std::int64_t first_key, int n, const QueryBlock& block,
                                     const KeyBlock& keys) {
  const DF d;
  const VU above = hn::Set(DU(), (call.options.dropout_threshold << 16) - 1);
  const auto mark = [&](int key, int lane0, const DropoutWords& words) HWY_ATTR {
    float* HWY_RESTRICT to = keys.weights + key * kQueryRows + lane0;
    REGARD_UNROLL for (int j = 0; j < kDropoutKeys; ++j, to += kQueryRows) {
      const VF weight = hn::Load(d, to);
      hn::Store(hn::IfThenElse(KeptKey(words, j, above), weight, hn::Neg(weight)), d, to);
    }
  };
  ForEachDropoutGroup(call, first_key, n, block, keys, mark);
}

/// Weights that are dropped become 0.
HWY_NOINLINE inline void ClearDropped(int n, const KeyBlock& keys) {
  const DF d;
  for (int tile = 0; tile * kKeyTile < n; ++tile) {
    for (int v = keys.scored[tile].first; v <= keys.scored[tile].last; ++v) {
      float* HWY_RESTRICT to = keys.weights + tile * kKeyTile * kQueryRows + v * kLanes;
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j, to += kQueryRows) {
        hn::Store(hn::ZeroIfNegative(hn::Load(d, to)), d, to);
      }
    }
  }
}

/// Writes the gradients of the tile [kKeyBlock, kQueryRows] from its weights, exactly 0 where a key is not visible.
template <int NV, bool kPlain, Gradient kGradient>
HWY_NOINLINE void DeriveTile(const CallConstants& call, const TilePlace& at, const GradientBlock& block, const KeyBlock& keys,
                             const SoonKeys& soon, float* HWY_RESTRICT d_scores) {
  const DF d;
  const int lane0 = at.first_vector * kLanes;
  const std::int64_t place = at.key * kQueryRows + lane0;
  const bool capped = !kPlain && kGradient == Gradient::kOfScores && call.options.soft_cap > 0;
  VF s[NV][kKeyTile];
  GradientProducts(call, block, keys, soon, lane0).Sum(at.key, s);
  if (HWY_UNLIKELY(call.options.dropout_threshold > 0)) {  // what is dropped has −weight, and −delta alone: (−weight) · delta
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF delta = hn::Neg(hn::Load(d, block.neg_delta + lane0 + v * kLanes));
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        s[v][j] = hn::IfNegativeThenElse(hn::Load(d, keys.weights + place + j * kQueryRows + v * kLanes), delta, s[v][j]);
      }
    }
  }
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
      float* const to = d_scores + place + j * kQueryRows + v * kLanes;
      VF gradient = hn::Mul(s[v][j], hn::Load(d, keys.weights + place + j * kQueryRows + v * kLanes));
      if constexpr (!kPlain) {
        if (capped) gradient = hn::Mul(gradient, hn::Load(d, to));
        if (keys.has_visible) {  // a value that is not visible may hold NaN, and 0 · NaN is NaN
          gradient = hn::IfThenElseZero(SeesKey(keys, at.key + j, lane0 + v * kLanes), gradient);
        }
      }
      hn::Store(gradient, d, to);
    }
  }
}

template <bool kPlain, int NV = 1>
HWY_INLINE void WeightTileOf(int num_vectors, const CallConstants& call, const TilePlace& at, const GradientBlock& block,
                             const KeyBlock& keys, const SoonKeys& soon, float* d_scores) {
  if constexpr (NV < kQueryVectors) {
    if (num_vectors != NV) return WeightTileOf<kPlain, NV + 1>(num_vectors, call, at, block, keys, soon, d_scores);
  }
  WeightTile<NV, kPlain>(call, at, block, keys, soon, d_scores);
}

template <Gradient kGradient, bool kPlain, int NV = 1>
HWY_INLINE void DeriveTileOf(int num_vectors, const CallConstants& call, const TilePlace& at, const GradientBlock& block,
                             const KeyBlock& keys, const SoonKeys& soon, float* d_scores) {
  if constexpr (NV < kQueryVectors) {
    if (num_vectors != NV) return DeriveTileOf<kGradient, kPlain, NV + 1>(num_vectors, call, at, block, keys, soon, d_scores);
  }
  DeriveTile<NV, kPlain, kGradient>(call, at, block, keys, soon, d_scores);
}

/// Plain tiles [tile, end) of all vectors in a run.
HWY_NOINLINE inline void WeightRun(const TileProducts<SoonKeys>& scores, int tile, int end, KeyBlock& keys) {
  PutWeights put(keys.weights);
  RunTiles<kQueryVectors>(scores, tile, end, keys.tile, put);
}
HWY_NOINLINE inline void GradientRun(const TileProducts<SoonKeys>& sums, int tile, int end, KeyBlock& keys, float* d_scores) {
  PutGradients put(keys.weights, d_scores);
  RunTiles<kQueryVectors>(sums, tile, end, keys.tile, put);
}

/// How the tiles of a block are worked on; of no meaning for those that no row sees.
struct TileKinds {
  bool is_plain[kTiles];                              // no option touches the scores and every row sees every key
  bool runs_weights[kTiles], runs_gradients[kTiles];  // may be one of a run
};

/// Settles keys.scored and keys.all_seen, too.
HWY_INLINE TileKinds SortTiles(const CallConstants& call, int n, const QueryBlock& query, KeyBlock& keys) {
  const RowOptions& options = call.options;
  const bool plain_scores = options.soft_cap == 0 && !options.has_bias && !options.has_alibi;
  TileKinds kinds = {};
  keys.all_seen = true;
  for (TileVectors& vectors : keys.scored) vectors = {0, -1};
  for (int tile = 0; tile * kKeyTile < n; ++tile) {
    TileRows rows = {query.all_rows, true, {0, query.num_vectors - 1}};
    if (keys.has_visible) {
      rows = RowsThatSee(keys, tile * kKeyTile, query.all_rows);
      if (rows.some == 0) continue;
      keys.all_seen &= rows.all;
    }
    keys.scored[tile] = rows.vectors;
    kinds.is_plain[tile] = rows.all && plain_scores;
    const bool runs = kinds.is_plain[tile] && query.num_vectors == kQueryVectors;
    kinds.runs_weights[tile] = runs && call.kv.head_dim >= MinRunWords(kQueryVectors);
    // In fewer dims what is left, one multiplication a score, hides without a run.
    kinds.runs_gradients[tile] = runs && call.kv.v_dim >= 2 * MinRunWords(kQueryVectors) && options.dropout_threshold == 0;
  }
  return kinds;
}

/// Takes the tiles that some row sees in ascending order: run(tile, end) those that may be in one, single(tile, its vectors) each other.
template <class Run, class Single>
HWY_INLINE void ForEachTile(const KeyBlock& keys, const bool (&may_run)[kTiles], const Run& run, const Single& single) {
  for (int tile = 0; tile < kTiles; ++tile) {
    int end = tile;
    while (end < kTiles && may_run[end]) ++end;
    if (end > tile) run(tile, end);
    tile = end;
    if (tile == kTiles) return;
    if (keys.scored[tile].last >= 0) single(tile, keys.scored[tile]);
  }
}

/// Where the gradients of all keys are added up, by GradientStride; null: not soon, and nothing is fetched.
struct KeySums {
  const float *d_k, *d_v;
};

/// rows: those of the block, where `stored` are used where they lie.
HWY_INLINE SoonKeys SoonKeysOf(const KvHead& kv, std::int64_t first_key, const StoredRows& stored, const FloatRows& rows,
                               std::int64_t dim, const float* sums) {
  if (sums == nullptr) return {};
  const std::int64_t stride = GradientStride(dim);
  SoonKeys soon;
  soon.sums = {sums + first_key * stride, stride, GradientRows(kv.kv_len) - first_key};
  if (stored.pages == nullptr && !NeedsCopies(stored)) soon.rows = {rows.data, rows.stride, kv.kv_len - first_key};
  return soon;
}

/// Weights, those that were dropped as 0, and gradients of the block's rows for the n keys from first_key on, and the stretches of keys that
/// have any. Returns false, with nothing computed, when no row sees any of them.
/// First all weights, then all gradients: q and d_context in lanes, 16 KB each at dim 64, would drive each other out of the first cache level.
template <Gradient kGradient>
HWY_INLINE bool DeriveKeyBlock(const CallConstants& call, std::int64_t first_key, int n, const KeySums& sums,
                               GradientBlock& block, KeyBlock& keys, float* d_scores) {
  const KvHead& kv = call.kv;
  const RowOptions& options = call.options;
  QueryBlock& query = block.query;
  if (!SetVisible(call, query, first_key, n, keys)) return false;
  BindKeys(kv, first_key, n, keys);
  if (options.has_bias) PackBias(query, n, keys);
  if (options.has_alibi) SetDistances(query, keys);
  const TileKinds kinds = SortTiles(call, n, query, keys);
  const SoonKeys soon_k = SoonKeysOf(kv, first_key, kv.k, keys.k, kv.head_dim, sums.d_k);
  ForEachTile(
      keys, kinds.runs_weights,
      [&](int tile, int end) HWY_ATTR { WeightRun(ScoreProducts(call, query, keys, 0, false, soon_k), tile, end, keys); },
      [&](int tile, const TileVectors& vectors) HWY_ATTR {
        const TilePlace at = {first_key, tile * kKeyTile, vectors.first};
        const int num_vectors = vectors.Count();
        if (kinds.is_plain[tile]) {
          WeightTileOf<true>(num_vectors, call, at, block, keys, soon_k, d_scores);
        } else {
          WeightTileOf<false>(num_vectors, call, at, block, keys, soon_k, d_scores);
        }
      });
  const bool drops = options.dropout_threshold > 0;
  if (drops) MarkDropped(call, first_key, n, query, keys);
  const SoonKeys soon_v = SoonKeysOf(kv, first_key, kv.v, keys.v, kv.v_dim, sums.d_v);
  ForEachTile(
      keys, kinds.runs_gradients,
      [&](int tile, int end) HWY_ATTR { GradientRun(GradientProducts(call, block, keys, soon_v, 0), tile, end, keys, d_scores); },
      [&](int tile, const TileVectors& vectors) HWY_ATTR {
        const TilePlace at = {first_key, tile * kKeyTile, vectors.first};
        const int num_vectors = vectors.Count();
        if (kinds.is_plain[tile]) {
          DeriveTileOf<kGradient, true>(num_vectors, call, at, block, keys, soon_v, d_scores);
        } else {
          DeriveTileOf<kGradient, false>(num_vectors, call, at, block, keys, soon_v, d_scores);
        }
      });
  if (drops) ClearDropped(n, keys);
  FindStretches(n, keys);
  return true;
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
