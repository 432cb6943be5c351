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
  double weight[kQueryRows];                // Σ w
  double mean[kQueryRows], m2[kQueryRows];  // of the key's position under the weights; m2 = Σ w (key − mean)²
  double window[kQueryRows];
};

/// Joins a block's weight, mean and spread to a row's (Chan, Golub and LeVeque 1983).
HWY_INLINE void JoinMoments(double weight, double mean, double m2, double& all_weight, double& all_mean, double& all_m2) {
  if (weight == 0) return;
  const double total = all_weight + weight, delta = mean - all_mean;
  all_m2 += m2 + delta * delta * all_weight * (weight / total);
  all_mean += delta * (weight / total);
  all_weight = total;
}

/// One block's weights of one vector of rows: their sum, and the mean and spread of the key's position counted from the block's origin.
struct VectorMoments {
  VF weight, mean, m2;
};
HWY_INLINE VectorMoments MomentsOf(const float* weights, const float* offsets, int n) {
  const DF d;
  VF sum = hn::Zero(d);
  VF first_moment = hn::Zero(d);
  for (int key = 0; key < n; ++key) {
    const VF w = hn::Load(d, weights + key * kQueryRows);
    sum = hn::Add(sum, w);
    first_moment = hn::MulAdd(w, hn::Set(d, offsets[key]), first_moment);
  }
  const VF mean = hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), hn::Zero(d), hn::Div(first_moment, sum));
  VF m2 = hn::Zero(d);
  for (int key = 0; key < n; ++key) {
    const VF from_mean = hn::Sub(hn::Set(d, offsets[key]), mean);
    m2 = hn::MulAdd(hn::Mul(hn::Load(d, weights + key * kQueryRows), from_mean), from_mean, m2);
  }
  return {sum, mean, m2};
}

HWY_INLINE void AddMoments(int n, const WeightScratch& scratch, RowState& state) {
  const DF d;
  const KeyBlock& keys = *scratch.keys;
  for (int v = 0; v < scratch.block->num_vectors; ++v) {
    const VectorMoments moments = MomentsOf(keys.weights + v * kLanes, keys.offset, n);
    alignas(64) float weight[kLanes], mean[kLanes], m2[kLanes];
    hn::Store(moments.weight, d, weight);
    hn::Store(moments.mean, d, mean);
    hn::Store(moments.m2, d, m2);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int r = v * kLanes + lane;
      JoinMoments(weight[lane], static_cast<double>(keys.origin) + mean[lane], m2[lane], state.weight[r], state.mean[r],
                  state.m2[r]);
    }
  }
}

HWY_INLINE void AddWindows(const KvHead& kv, std::int64_t window, std::int64_t first_key, int n, const WeightScratch& scratch,
                           RowState& state) {
  for (int r = 0; r < scratch.block->num_rows; ++r) {
    const std::int64_t position = scratch.block->rows[r].position;
    std::int64_t begin = std::max<std::int64_t>(0, position - first_key - window);
    std::int64_t end = std::min<std::int64_t>(n, position - first_key + window + 1);
    if (kv.key_positions != nullptr) {
      const std::int64_t* const positions = kv.key_positions + first_key;
      begin = std::lower_bound(positions, positions + n, position - window) - positions;
      end = std::upper_bound(positions, positions + n, position + window) - positions;
    }
    for (std::int64_t key = begin; key < end; ++key) state.window[r] += scratch.keys->weights[key * kQueryRows + r];
  }
}

HWY_INLINE bool WantsDistance(const WeightReductions& out) { return out.distance_mean != nullptr || out.distance_std != nullptr; }

/// One block of keys for all rows.
HWY_INLINE void ReduceRows(const KvHead& kv, const WeightReductions& out, std::int64_t first_key, int n,
                           const WeightScratch& scratch, RowState& state) {
  if (WantsDistance(out)) AddMoments(n, scratch, state);
  if (out.window_share != nullptr) AddWindows(kv, out.window, first_key, n, scratch, state);
}

HWY_INLINE void FinishRows(const WeightReductions& out, std::int64_t row, const WeightScratch& scratch, const RowState& state) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (int r = 0; r < scratch.block->num_rows; ++r) {
    const auto put = [&](float* to, double value) {
      if (to != nullptr) to[row + r] = static_cast<float>(value + scratch.undefined[r]);
    };
    const bool weightless = state.weight[r] == 0;
    put(out.distance_mean, weightless ? kNaN : static_cast<double>(scratch.block->rows[r].position) - state.mean[r]);
    put(out.distance_std, weightless ? kNaN : std::sqrt(state.m2[r] / state.weight[r]));
    put(out.window_share, state.window[r]);
    if (out.sees_key != nullptr) out.sees_key[row + r] = scratch.block->saw_key >> r & 1;
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
