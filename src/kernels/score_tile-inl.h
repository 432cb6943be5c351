// Scores of one tile, kKeyTile keys by NV vectors of queries, and their weights.
#if defined(REGARD_KERNELS_SCORE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_SCORE_TILE_INL_H_
#undef REGARD_KERNELS_SCORE_TILE_INL_H_
#else
#define REGARD_KERNELS_SCORE_TILE_INL_H_
#endif

#include "kernels/query_block-inl.h"
#include "kernels/tile_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Where a tile lies.
struct TilePlace {
  std::int64_t first_key;  // of the key block
  int key;                 // of the tile, in the block
  int first_vector;        // of the query block
};

/// The largest score of one vector's lanes that is neither NaN nor +inf; −inf if there is none.
HWY_INLINE VF LargestSound(const VF (&s)[kKeyTile]) {
  const DF d;
  const VF minus_inf = hn::Set(d, -kInf);
  VF largest = minus_inf;
  REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
    largest = hn::Max(largest, hn::IfThenElse(hn::Lt(s[j], hn::Set(d, kInf)), s[j], minus_inf));
  }
  return largest;
}

/// Brings what the lanes of one vector have summed from their old reference to the one they have now; lanes that stayed are multiplied by
/// exactly 1.
HWY_NOINLINE inline void Rescale(std::int64_t v_dim, int vector, const float* old_neg_ref, QueryBlock& block, KeyBlock& keys) {
  const DF d;
  const int lane0 = vector * kLanes;
  // A lane without a reference has summed nothing yet; its factor could be exp2(+1000).
  const MF had_reference = hn::Gt(hn::Load(d, block.threshold + lane0), hn::Set(d, -kInf));
  const VF delta = hn::Sub(hn::Load(d, block.neg_ref + lane0), hn::Load(d, old_neg_ref));
  if (hn::AllFalse(d, hn::And(had_reference, hn::Ne(delta, hn::Zero(d))))) return;
  // A reference moves up, but for scores beyond 10¹⁰, which rounding may move down; the factor stays finite even then.
  const VF factor = hn::IfThenElse(had_reference, Exp2(hn::Min(delta, hn::Set(d, 64.0f))), hn::Set(d, 1.0f));
  const auto scale = [&](float* values) HWY_ATTR { hn::Store(hn::Mul(hn::Load(d, values), factor), d, values); };
  scale(block.row_sum + lane0);
  scale(block.block_sum + lane0);
  for (std::int64_t c = 0; block.acc_is_set && c < v_dim; ++c) scale(block.acc + c * kQueryRows + lane0);
  for (int tile = 0; tile < kTiles; ++tile) {
    if (!keys.scored[tile].Has(vector)) continue;
    Word* const words = WeightWords(keys) + tile * kTileWords * kQueryRows + lane0;
    for (int j = 0; j < kTileWords; ++j) ScaleWords(words + j * kQueryRows, factor);
  }
}

/// Which of a vector of rows, from lane0 on, see one key of a block that has words of visibility.
HWY_INLINE MF SeesKey(const KeyBlock& keys, int key, int lane0) {
  const DU du;
  const VU word = hn::Set(du, static_cast<std::uint32_t>(keys.visible[key] >> (lane0 & 32)));
  return hn::RebindMask(DF(), hn::TestBit(word, hn::Load(du, keys.lane_bit + lane0)));
}

/// The score of such rows: −inf in those that do not see the key.
HWY_INLINE VF HideUnseen(const KeyBlock& keys, int key, int lane0, VF score) {
  return hn::IfThenElse(SeesKey(keys, key, lane0), score, hn::Set(DF(), -kInf));
}

/// Soft cap, bias, ALiBi and visibility on the score of a vector of rows, from lane0 on, with one key of the block, in this order.
HWY_INLINE VF ApplyOptions(const CallConstants& call, const QueryBlock& block, const KeyBlock& keys, int key, int lane0,
                           VF score) {
  const DF d;
  if (call.options.soft_cap > 0) {
    score = hn::MulAdd(TanhOfScaled(score), hn::Set(d, call.cap_log2), hn::Load(d, block.neg_ref + lane0));
  }
  if (call.options.has_bias) score = hn::Add(score, hn::Load(d, keys.bias + key * kQueryRows + lane0));
  if (call.options.has_alibi) {
    const VF distance = hn::Abs(hn::Sub(hn::Load(d, keys.distance + lane0), hn::Set(d, keys.offset[key])));
    score = hn::MulAdd(hn::Load(d, block.neg_slope + lane0), distance, score);
  }
  return keys.has_visible ? HideUnseen(keys, key, lane0, score) : score;
}

/// The products of queries, from lane0 on, and the keys of the block. They start at the references, which makes scores relative for nothing;
/// capped: at 0, since the soft cap has to see raw scores.
template <class Soon = NoSoon>
HWY_INLINE TileProducts<Soon> ScoreProducts(const CallConstants& call, const QueryBlock& block, const KeyBlock& keys, int lane0,
                                            bool capped, const Soon& soon = {}) {
  const float* const starts = capped ? keys.zeros : block.neg_ref + lane0;
  return {block.q + lane0, starts, keys.k, keys.num_keys, WordsOf(call.kv.head_dim), call.q_factor, soon};
}

/// Scores of the tile relative to the references, all options applied. kPlain: no option touches them and every row sees every key.
template <int NV, bool kPlain>
HWY_INLINE void RelativeScores(const CallConstants& call, const TilePlace& at, const QueryBlock& block, const KeyBlock& keys,
                               VF (&s)[NV][kKeyTile]) {
  const int lane0 = at.first_vector * kLanes;
  const TileProducts<> products = ScoreProducts(call, block, keys, lane0, !kPlain && call.options.soft_cap > 0);
  products.Sum(at.key, s);
  products.Finish(s);
  if constexpr (!kPlain) {
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        s[v][j] = ApplyOptions(call, block, keys, at.key + j, lane0 + v * kLanes, s[v][j]);
      }
    }
  }
}

/// Takes scores, see RunTiles; writes the weights of a tile and adds them to block_sum if the tile is calm, which shows at its end. Otherwise
/// the weights are garbage, and nothing else is touched. Unless kClamps, a tile with scores below −111.5 or so is not calm either.
template <int NV, bool kClamps, class Tracker>
class CalmWeights {
 public:
  HWY_INLINE CalmWeights(std::int64_t first_key, int first_vector, QueryBlock& block, KeyBlock& keys, Tracker& tracker)
      : first_key_(first_key), first_vector_(first_vector), block_(block), keys_(keys), tracked_(tracker) {}

  HWY_INLINE void Begin(int key) {
    key_ = key;
    words_ = WeightWords(keys_) + key / kPerWord * kQueryRows + first_vector_ * kLanes;
    check_ = {};
  }
  HWY_INLINE void BeginVector(int v) {
    sum_[v] = hn::Load(DF(), block_.block_sum + LaneOf(v));
    tracked_.BeginVector(LaneOf(v));
  }
  template <class ScoreOf>
  HWY_INLINE void Take(int v, int j, const ScoreOf& score_of) {
    VF p[kPerWord];
    REGARD_UNROLL for (int e = 0; e < kPerWord; ++e) {
      const VF score = score_of(e);
      const VF x = kClamps ? ClampForExp2(score) : score;
      const VF rounded = RoundExponent(x);
      check_.Add(rounded);
      p[e] = Exp2OfRounded(x, rounded);
      sum_[v] = hn::Add(sum_[v], p[e]);
      tracked_.Take(score, x, p[e]);
    }
    hn::Store(ToWords(p), DW(), words_ + j * kQueryRows + v * kLanes);
  }
  HWY_INLINE void EndVector(int v) { tracked_.EndVector(LaneOf(v)); }
  HWY_INLINE bool End() {
    if (HWY_UNLIKELY(!check_.AllCalm())) return false;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) hn::Store(sum_[v], DF(), block_.block_sum + LaneOf(v));
    tracked_.template Keep<NV>({first_key_, key_, first_vector_}, block_);
    return true;
  }

  HWY_INLINE int key() const { return key_; }

 private:
  HWY_INLINE int LaneOf(int v) const { return (first_vector_ + v) * kLanes; }

  const std::int64_t first_key_;
  const int first_vector_;
  int key_;
  QueryBlock& block_;
  KeyBlock& keys_;
  Word* HWY_RESTRICT words_;
  CalmCheck<kClamps> check_;
  VF sum_[NV];
  typename Tracker::Tiles tracked_;
};

/// The same of one tile; whether it was calm.
template <int NV, bool kClamps, class Tracker>
HWY_INLINE bool WeighIfCalm(const TilePlace& at, QueryBlock& block, KeyBlock& keys, Tracker& tracker,
                            const VF (&s)[NV][kKeyTile]) {
  CalmWeights<NV, kClamps, Tracker> weights(at.first_key, at.first_vector, block, keys, tracker);
  return GiveTile(at.key, s, weights);
}

/// A weight by the final lse: at most 1, whatever the roundings of score and lse, and whatever lse a caller brings.
HWY_INLINE VF FinalWeight(VF score) { return Exp2(hn::Min(score, hn::Zero(DF()))); }

/// Takes scores by the final lse, see RunTiles; writes weights [kKeyBlock, kQueryRows], from the first of the vectors on.
class PutWeights {
 public:
  HWY_INLINE explicit PutWeights(float* weights) : weights_(weights) {}

  HWY_INLINE void Begin(int key) { at_ = weights_ + key * kQueryRows; }
  HWY_INLINE void BeginVector(int) {}
  template <class ScoreOf>
  HWY_INLINE void Take(int v, int j, const ScoreOf& score_of) {
    REGARD_UNROLL for (int e = 0; e < kPerWord; ++e) {
      hn::Store(FinalWeight(score_of(e)), DF(), at_ + (j * kPerWord + e) * kQueryRows + v * kLanes);
    }
  }
  HWY_INLINE void EndVector(int) {}
  HWY_INLINE bool End() { return true; }

 private:
  float* HWY_RESTRICT weights_;
  float* HWY_RESTRICT at_;
};

/// Where WeighTile leaves weights as f32, [kKeyTile, kQueryRows].
HWY_INLINE float* TileWeights(const TilePlace& at, KeyBlock& keys) {
  return (kPerWord == 1 ? keys.weights + at.key * kQueryRows : keys.tile) + at.first_vector * kLanes;
}

/// Writes the weights of the tile and adds them to block_sum.
template <int NV>
HWY_INLINE void WeighTile(const TilePlace& at, QueryBlock& block, KeyBlock& keys, const VF (&s)[NV][kKeyTile]) {
  const DF d;
  const int lane0 = at.first_vector * kLanes;
  Word* HWY_RESTRICT words = WeightWords(keys) + at.key / kPerWord * kQueryRows + lane0;
  float* HWY_RESTRICT weights = TileWeights(at, keys);
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    VF sum = hn::Load(d, block.block_sum + lane0 + v * kLanes);
    REGARD_UNROLL for (int j = 0; j < kTileWords; ++j) {
      VF p[kPerWord];
      REGARD_UNROLL for (int i = 0; i < kPerWord; ++i) {
        p[i] = Exp2(s[v][j * kPerWord + i]);
        sum = hn::Add(sum, p[i]);
        if constexpr (kPerWord > 1) hn::Store(p[i], d, weights + (j * kPerWord + i) * kQueryRows + v * kLanes);
      }
      hn::Store(ToWords(p), DW(), words + j * kQueryRows + v * kLanes);
    }
    hn::Store(sum, d, block.block_sum + lane0 + v * kLanes);
  }
}

/// Whether no score exceeds its threshold. Written as "all at most", so that a NaN is not calm whatever a target's max does with it.
template <int NV>
HWY_INLINE bool IsCalm(const TilePlace& at, const QueryBlock& block, const VF (&s)[NV][kKeyTile]) {
  const DF d;
  const int lane0 = at.first_vector * kLanes;
  MF calm = hn::Le(s[0][0], hn::Load(d, block.threshold + lane0));
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    const VF threshold = hn::Load(d, block.threshold + lane0 + v * kLanes);
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) calm = hn::And(calm, hn::Le(s[v][j], threshold));
  }
  return hn::AllTrue(d, calm);
}

/// For a tile that is not calm, whose scores stand in keys.tile: moves the references of the lanes that exceed their threshold
/// to their largest score, then weighs.
/// A lane that had a reference has its scores computed again from the new one: what was relative to −10,000 (a bias that models use for
/// "hidden") has kept 3 digits behind the point, not 7, and from −10⁹ the new reference itself is off by 64, so that it is taken again
/// too. Scores beyond 10³⁰ can be further off than that mends; they are held at the threshold. A lane without a reference has its raw
/// scores, from which a difference is as good. A lane that stays keeps its bits. A NaN or +inf poisons row_sum, hence the row, and
/// weighs nothing itself, so that it stays there. weighed [NV, kKeyTile, kLanes]: the scores that weights are made of; null when nobody asks.
template <int NV, bool kPlain>
HWY_NOINLINE void MoveAndWeighTile(const CallConstants& call, const TilePlace& at, QueryBlock& block, KeyBlock& keys,
                                   float* HWY_RESTRICT weighed) {
  const DF d;
  const int lane0 = at.first_vector * kLanes;
  const VF inf = hn::Set(d, kInf);
  const float* scores = keys.tile + lane0;
  alignas(64) float old_neg_ref[NV * kLanes];
  MF had_reference[NV], moves[NV];
  VF s[NV][kKeyTile];
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    const VF threshold = hn::Load(d, block.threshold + lane0 + v * kLanes);
    VF row_sum = hn::Load(d, block.row_sum + lane0 + v * kLanes);
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
      s[v][j] = hn::Load(d, scores + j * kQueryRows + v * kLanes);
      row_sum = hn::IfThenElse(hn::Lt(s[v][j], inf), row_sum, hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
    }
    hn::Store(row_sum, d, block.row_sum + lane0 + v * kLanes);
    const VF neg_ref = hn::Load(d, block.neg_ref + lane0 + v * kLanes);
    hn::Store(neg_ref, d, old_neg_ref + v * kLanes);
    const VF largest = LargestSound(s[v]);
    had_reference[v] = hn::Gt(threshold, hn::Set(d, -kInf));
    moves[v] = hn::Gt(largest, threshold);
    const VF first = hn::IfThenElseZero(hn::AndNot(had_reference[v], moves[v]), largest);
    hn::Store(hn::Sub(neg_ref, first), d, block.neg_ref + lane0 + v * kLanes);
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) s[v][j] = hn::Sub(s[v][j], first);
  }
  for (int round = 0; round < kMaxMoves; ++round) {
    bool settled = true;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF largest = LargestSound(s[v]);
      const MF step = hn::And(hn::And(moves[v], had_reference[v]), hn::Gt(hn::Abs(largest), hn::Set(d, 0.5f)));
      const VF neg_ref = hn::Load(d, block.neg_ref + lane0 + v * kLanes);
      hn::Store(hn::IfThenElse(step, hn::Sub(neg_ref, largest), neg_ref), d, block.neg_ref + lane0 + v * kLanes);
      settled = settled && hn::AllFalse(d, step);
    }
    if (settled) break;
    VF again[NV][kKeyTile];
    RelativeScores<NV, kPlain>(call, at, block, keys, again);
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) s[v][j] = hn::IfThenElse(had_reference[v], again[v][j], s[v][j]);
    }
  }
  for (int v = 0; v < NV; ++v) Rescale(call.kv.v_dim, at.first_vector + v, old_neg_ref + v * kLanes, block, keys);
  const VF highest = hn::Set(d, kRescaleThreshold);
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    float* threshold = block.threshold + lane0 + v * kLanes;
    hn::Store(hn::IfThenElse(moves[v], highest, hn::Load(d, threshold)), d, threshold);
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
      s[v][j] = hn::IfThenElse(hn::Lt(s[v][j], inf), hn::Min(s[v][j], highest), hn::Set(d, -kInf));
    }
  }
  if (weighed != nullptr) {
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) hn::Store(s[v][j], d, weighed + (v * kKeyTile + j) * kLanes);
    }
  }
  WeighTile<NV>(at, block, keys, s);
  block.all_referenced = AllReferenced(block);
}

/// What the caller follows of the scores beside the weights: nothing. row_tracker-inl.h has another; weights have the same bits with either.
struct NoTracker {
  static constexpr bool kFollows = false;
  struct Tiles {
    HWY_INLINE explicit Tiles(NoTracker&) {}
    HWY_INLINE void BeginVector(int) {}
    HWY_INLINE void Take(VF, VF, VF) {}
    HWY_INLINE void EndVector(int) {}
    template <int NV>
    HWY_INLINE void Keep(const TilePlace&, const QueryBlock&) {}
  };
};

/// Nearly every tile is calm, so it is weighed first and judged after; one that was not has its scores taken once more. Rows with scores
/// far below their reference would pay that again and again: has_faint sends their block to the clamping variant. Rows without a reference
/// need an answer before anything is weighed.
template <int NV, bool kPlain, class Tracker>
HWY_NOINLINE void ScoreTile(const CallConstants& call, const TilePlace& at, QueryBlock& block, KeyBlock& keys, Tracker& tracker) {
  VF s[NV][kKeyTile];
  RelativeScores<NV, kPlain>(call, at, block, keys, s);
  bool is_calm;
  if (HWY_LIKELY(block.all_referenced)) {
    if (kPlain && HWY_LIKELY(!block.has_faint)) {
      if (HWY_LIKELY((WeighIfCalm<NV, false>(at, block, keys, tracker, s)))) return;
    } else {
      if (HWY_LIKELY((WeighIfCalm<NV, true>(at, block, keys, tracker, s)))) return;
    }
    RelativeScores<NV, kPlain>(call, at, block, keys, s);
    is_calm = IsCalm<NV>(at, block, s);
    if (is_calm) block.has_faint = true;
  } else {
    is_calm = IsCalm<NV>(at, block, s);
  }
  if (HWY_UNLIKELY(!is_calm)) {
    float* scores = keys.tile + at.first_vector * kLanes;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) hn::Store(s[v][j], DF(), scores + j * kQueryRows + v * kLanes);
    }
    if constexpr (Tracker::kFollows) {
      tracker.template BeforeMove<NV>(at, block);
      const float* HWY_RESTRICT weighed = tracker.rows.weighed;
      MoveAndWeighTile<NV, kPlain>(call, at, block, keys, tracker.rows.weighed);
      tracker.template AfterMove<NV>(at, block);
      REGARD_UNROLL for (int v = 0; v < NV; ++v) {
        REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) s[v][j] = hn::Load(DF(), weighed + (v * kKeyTile + j) * kLanes);
      }
      tracker.template TakeScores<NV>(at, block, s);
      tracker.template TakeWeights<NV>(at, keys, s);
    } else {
      MoveAndWeighTile<NV, kPlain>(call, at, block, keys, nullptr);
    }
  } else {
    // What needs the scores alone comes first: the registers they are in are wanted for their exponentials.
    if constexpr (Tracker::kFollows) tracker.template TakeScores<NV>(at, block, s);
    WeighTile<NV>(at, block, keys, s);
    if constexpr (Tracker::kFollows) tracker.template TakeWeights<NV>(at, keys, s);
  }
}

template <bool kPlain, int NV = 1, class Tracker>
HWY_INLINE void ScoreTileOf(int num_vectors, const CallConstants& call, const TilePlace& at, QueryBlock& block, KeyBlock& keys,
                            Tracker& tracker) {
  if constexpr (NV < kQueryVectors) {
    if (num_vectors != NV) return ScoreTileOf<kPlain, NV + 1>(num_vectors, call, at, block, keys, tracker);
  }
  ScoreTile<NV, kPlain>(call, at, block, keys, tracker);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
