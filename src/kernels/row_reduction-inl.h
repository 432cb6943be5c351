// What the second pass takes of each query row: lanes are rows, so that most of it is vertical.
#if defined(REGARD_KERNELS_ROW_REDUCTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ROW_REDUCTION_INL_H_
#undef REGARD_KERNELS_ROW_REDUCTION_INL_H_
#else
#define REGARD_KERNELS_ROW_REDUCTION_INL_H_
#endif

#include "kernels/weight_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Of the rows of one block, over the keys so far. Sums are taken per key block in f32 and over blocks in double.
struct RowState {
  alignas(64) float threshold[kQueryRows];  // the score to exceed: −inf until the list is full, +inf for a missing row
  std::int64_t listed[kQueryRows];          // entries of each list
  std::int64_t num_visible[kQueryRows];
  double weight[kQueryRows];                // Σ w
  double entropy[kQueryRows];               // −Σ w log2 w
  double mean[kQueryRows], m2[kQueryRows];  // of the key's number under the weights; m2 = Σ w (key − mean)²
  double first[kQueryRows], window[kQueryRows];
  float* list_score;  // [kQueryRows, top_k]
};

HWY_INLINE void BeginRows(const QueryBlock& block, RowState& state) {
  for (int r = 0; r < kQueryRows; ++r) {
    state.threshold[r] = r < block.num_rows ? -kInf : kInf;
    state.listed[r] = state.num_visible[r] = 0;
    state.weight[r] = state.entropy[r] = state.mean[r] = state.m2[r] = state.first[r] = state.window[r] = 0;
  }
}

/// Puts a key that exceeds the threshold into its row's list. Equal scores stay in the order they came: the lower key first.
HWY_NOINLINE inline void InsertKey(std::int64_t top_k, float score, std::int64_t key, std::int64_t* listed, float* scores,
                                   std::int64_t* list_keys, float* threshold) {
  std::int64_t at = *listed < top_k ? (*listed)++ : top_k - 1;
  for (; at > 0 && scores[at - 1] < score; --at) {
    scores[at] = scores[at - 1];
    list_keys[at] = list_keys[at - 1];
  }
  scores[at] = score;
  list_keys[at] = key;
  if (*listed == top_k) *threshold = scores[top_k - 1];
}

HWY_INLINE void ListTopKeys(const WeightReductions& out, std::int64_t row, std::int64_t first_key, int n,
                            const WeightScratch& scratch, RowState& state) {
  const DF d;
  for (int key = 0; key < n; ++key) {
    for (int v = 0; v < scratch.block->num_vectors; ++v) {
      const float* const scores = scratch.scores + key * kQueryRows + v * kLanes;
      const MF exceeds = hn::Gt(hn::Load(d, scores), hn::Load(d, state.threshold + v * kLanes));
      if (HWY_LIKELY(hn::AllFalse(d, exceeds))) continue;
      for (int lane = 0; lane < kLanes; ++lane) {
        const int r = v * kLanes + lane;
        if (!(scores[lane] > state.threshold[r])) continue;
        InsertKey(out.top_k, scores[lane], first_key + key, state.listed + r, state.list_score + r * out.top_k,
                  out.topk_key + (row + r) * out.top_k, state.threshold + r);
      }
    }
  }
}

/// Joins a block's weight, mean and spread to a row's (Chan, Golub and LeVeque 1983).
HWY_INLINE void JoinMoments(double weight, double mean, double m2, double& all_weight, double& all_mean, double& all_m2) {
  if (weight == 0) return;
  const double total = all_weight + weight, delta = mean - all_mean;
  all_m2 += m2 + delta * delta * all_weight * (weight / total);
  all_mean += delta * (weight / total);
  all_weight = total;
}

/// One block's weights of one vector of rows: their sum, and the mean and spread of the key's number counted from the block's first.
struct VectorMoments {
  VF weight, mean, m2;
};
HWY_INLINE VectorMoments MomentsOf(const float* weights, int n, bool distance) {
  const DF d;
  VF sum = hn::Zero(d);
  VF first_moment = hn::Zero(d);
  for (int key = 0; key < n; ++key) {
    const VF w = hn::Load(d, weights + key * kQueryRows);
    sum = hn::Add(sum, w);
    if (distance) first_moment = hn::MulAdd(w, hn::Set(d, static_cast<float>(key)), first_moment);
  }
  VectorMoments moments = {sum, hn::Zero(d), hn::Zero(d)};
  if (!distance) return moments;
  moments.mean = hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), hn::Zero(d), hn::Div(first_moment, sum));
  for (int key = 0; key < n; ++key) {
    const VF from_mean = hn::Sub(hn::Set(d, static_cast<float>(key)), moments.mean);
    moments.m2 = hn::MulAdd(hn::Mul(hn::Load(d, weights + key * kQueryRows), from_mean), from_mean, moments.m2);
  }
  return moments;
}

HWY_INLINE void CountVisible(const WeightScratch& scratch, int n, RowState& state) {
  const KeyBlock& keys = *scratch.keys;
  for (int r = 0; r < scratch.block->num_rows; ++r) {
    std::int64_t count = keys.has_visible ? 0 : n;
    for (int key = 0; keys.has_visible && key < n; ++key) count += static_cast<std::int64_t>(keys.visible[key] >> r & 1);
    state.num_visible[r] += count;
  }
}

/// Weights of single keys and of windows.
HWY_INLINE void AddShares(const WeightReductions& out, std::int64_t row, std::int64_t first_key, int n,
                          const WeightScratch& scratch, RowState& state) {
  for (int r = 0; r < scratch.block->num_rows; ++r) {
    const float* const weights = scratch.keys->weights + r;
    if (out.first_key_share != nullptr) {
      const std::int64_t key = out.first_key[row + r] - first_key;
      if (key >= 0 && key < n) state.first[r] += weights[key * kQueryRows];
    }
    if (out.window_share != nullptr) {
      const std::int64_t center = scratch.block->rows[r].position - first_key;
      const std::int64_t begin = std::max<std::int64_t>(0, center - out.window);
      const std::int64_t end = std::min<std::int64_t>(n, center + out.window + 1);
      for (std::int64_t key = begin; key < end; ++key) state.window[r] += weights[key * kQueryRows];
    }
  }
}

/// One block of keys for all rows.
HWY_INLINE void ReduceRows(const WeightReductions& out, std::int64_t row, std::int64_t first_key, int n,
                           const WeightScratch& scratch, RowState& state) {
  const DF d;
  const bool distance = out.distance_mean != nullptr || out.distance_std != nullptr;
  if (out.top_k > 0) ListTopKeys(out, row, first_key, n, scratch, state);
  for (int v = 0; v < scratch.block->num_vectors; ++v) {
    const float* const weights = scratch.keys->weights + v * kLanes;
    if (distance || out.topk_tail != nullptr) {
      const VectorMoments moments = MomentsOf(weights, n, distance);
      alignas(64) float weight[kLanes], mean[kLanes], m2[kLanes];
      hn::Store(moments.weight, d, weight);
      hn::Store(moments.mean, d, mean);
      hn::Store(moments.m2, d, m2);
      for (int lane = 0; lane < kLanes; ++lane) {
        const int r = v * kLanes + lane;
        JoinMoments(weight[lane], static_cast<double>(first_key) + mean[lane], m2[lane], state.weight[r], state.mean[r],
                    state.m2[r]);
      }
    }
    if (out.entropy != nullptr) {
      VF sum = hn::Zero(d);
      for (int key = 0; key < n; ++key) {
        // log2 w, at least −127 where w is 0: there 0 · −inf would be NaN.
        VF log_weight = hn::Load(d, scratch.scores + key * kQueryRows + v * kLanes);
        log_weight = hn::Max(hn::Set(d, -127.0f), hn::Min(log_weight, hn::Zero(d)));
        sum = hn::NegMulAdd(hn::Load(d, weights + key * kQueryRows), log_weight, sum);
      }
      alignas(64) float entropy[kLanes];
      hn::Store(sum, d, entropy);
      for (int lane = 0; lane < kLanes; ++lane) state.entropy[v * kLanes + lane] += entropy[lane];
    }
  }
  if (out.num_visible != nullptr || out.entropy != nullptr) CountVisible(scratch, n, state);
  if (out.first_key_share != nullptr || out.window_share != nullptr) AddShares(out, row, first_key, n, scratch, state);
}

/// Writes the list of one row; returns the weight in it.
HWY_INLINE double FinishList(const WeightReductions& out, std::int64_t row, int r, const WeightScratch& scratch,
                             RowState& state) {
  const DF d;
  const std::int64_t at = (row + r) * out.top_k;
  const bool undefined = scratch.undefined[r] != 0.0f;
  double listed_weight = 0;
  for (std::int64_t i = 0; i < out.top_k; ++i) {
    const bool listed = i < state.listed[r] && !undefined;
    float weight = undefined ? scratch.undefined[r] : 0.0f;
    if (listed) weight = hn::GetLane(Exp2(hn::Min(hn::Set(d, state.list_score[r * out.top_k + i]), hn::Zero(d))));
    if (!listed) out.topk_key[at + i] = -1;
    out.topk_weight[at + i] = weight;
    listed_weight += weight;
  }
  return listed_weight;
}

HWY_INLINE void FinishRows(const WeightReductions& out, std::int64_t row, const WeightScratch& scratch, RowState& state) {
  constexpr double kLn2 = 1 / kLog2E;
  for (int r = 0; r < scratch.block->num_rows; ++r) {
    const double undefined = scratch.undefined[r];
    const QueryRow& query = scratch.block->rows[r];
    const double listed_weight = out.top_k > 0 ? FinishList(out, row, r, scratch, state) : 0;
    const auto put = [&](float* to, double value) {
      if (to != nullptr) to[row + r] = static_cast<float>(value + undefined);
    };
    // The list of a row with fewer keys than places holds them all.
    put(out.topk_tail, state.listed[r] < out.top_k ? 0 : std::max(0.0, state.weight[r] - listed_weight));
    const double largest =
        state.listed[r] > 0 ? kLn2 * (state.list_score[r * out.top_k] - static_cast<double>(scratch.block->neg_ref[r])) : -kInf;
    put(out.row_max, largest);
    const double keys_and_sink = static_cast<double>(state.num_visible[r]) + (query.sink > -kInf ? 1 : 0);
    put(out.entropy, std::min(kLn2 * state.entropy[r], std::log(std::max(1.0, keys_and_sink))));
    const bool weightless = state.weight[r] == 0;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    put(out.distance_mean, weightless ? nan : static_cast<double>(query.position) - state.mean[r]);
    put(out.distance_std, weightless ? nan : std::sqrt(state.m2[r] / state.weight[r]));
    put(out.first_key_share, state.first[r]);
    put(out.window_share, state.window[r]);
    if (out.sees_key != nullptr) out.sees_key[row + r] = scratch.block->saw_key >> r & 1;
    if (out.num_visible != nullptr) out.num_visible[row + r] = state.num_visible[r];
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
