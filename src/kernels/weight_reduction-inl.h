// The second pass that reduces weights as they come: what summary_reduce_f32.cc and summary_passes_bf16.cc compile.
#if defined(REGARD_KERNELS_WEIGHT_REDUCTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_WEIGHT_REDUCTION_INL_H_
#undef REGARD_KERNELS_WEIGHT_REDUCTION_INL_H_
#else
#define REGARD_KERNELS_WEIGHT_REDUCTION_INL_H_
#endif

#include <algorithm>

#include "kernels/key_reduction-inl.h"
#include "kernels/row_reduction-inl.h"
#include "kernels/weight_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

HWY_INLINE std::int64_t PooledFloats(const WeightReductions& out) {
  return out.pooled == nullptr ? 0 : (out.pooled_max == nullptr ? 1 : 2) * out.pooled_cols * kQueryRows;
}

inline std::size_t ReduceScratchBytes(std::int64_t head_dim, const WeightReductions& out) {
  return WeightScratchBytes(head_dim) + sizeof(RowState) + static_cast<std::size_t>(PooledFloats(out)) * sizeof(float);
}

inline void ReduceWeights(const KvHead& kv_head, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                          const WeightReductions& out, void* memory) {
  KvHead kv = kv_head;
  kv.v_dim = 0;
  WeightScratch scratch = PlaceWeightScratch(memory, kv.head_dim);
  std::uint8_t* const behind = static_cast<std::uint8_t*>(memory) + WeightScratchBytes(kv.head_dim);
  RowState& state = *new (behind) RowState;
  float* const pools = reinterpret_cast<float*>(behind + sizeof(RowState));
  PooledRows pooled = {nullptr, nullptr};
  if (out.pooled != nullptr) pooled.sum = pools;
  if (out.pooled_max != nullptr) pooled.max = pools + out.pooled_cols * kQueryRows;
  const bool wants_rows = WantsDistance(out) || out.window_share != nullptr || out.sees_key != nullptr;
  const CallConstants call = MakeConstants(kv, options, kTanhPrescale);
  ForEachWeightBlock(
      call, rows, num_rows, scratch,
      [&] {
        if (wants_rows) state = {};
        BeginPooled(out, scratch, pooled);
      },
      [&](std::int64_t row, std::int64_t key, int n) HWY_ATTR {
        if (wants_rows) ReduceRows(kv, out, key, n, scratch, state);
        if (out.key_mass != nullptr) AddKeyMass(scratch, n, out.key_mass + key);
        if (out.key_count != nullptr) CountRows(scratch, n, out.key_count + key);
        if (out.key_top_k > 0) ListTopRows(out, row, key, n, scratch);
        if (out.pooled != nullptr) PoolBlock(out, row, key, n, scratch, pooled);
        if (out.distances != nullptr) AddDistances(kv, out, key, n, scratch);
      },
      [&](std::int64_t row) HWY_ATTR {
        if (wants_rows) FinishRows(out, row, scratch, state);
        FinishPooled(out, row, scratch, pooled);
      });
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
