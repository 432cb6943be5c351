// The second pass that reduces weights as they come: what is known of each row, each key, each bin of a pooled map.
// Computes   WeightReductions of weights = exp(options(scale q kT) − lse), given the lse of each row.
// Shapes     rows of q [head_dim] against k [kv_len, head_dim]; results as WeightReductions says.
// Method     The blocks of summary_stream_f32.cc, rows in lanes, each reduced while it is in the first cache levels:
//              per block of rows, per block of keys: weights
//                rows  sums and moments over keys, vertical
//                keys  sums across lanes, 16 keys together; a list per key
//                bins  sums over the keys of a column bin, vertical; across lanes once a block of rows
// Numerics   f32 within a block, double across blocks. A weight at −127 or less in log2 units counts as 0.
//            distance_std: two passes over a block, joined by Chan, Golub and LeVeque 1983; nothing cancels.
// Cost       2 · head_dim flop and one exp2 a weight; reductions of 1 to 3 operations a weight each. Lists: one compare a weight, and
//            about 25 ns an entry; k·(1 + ln(n/k)) entries a list when scores come in random order.
// Requires   plan-validated sizes, head_dim >= 1, v unused. noexcept, no allocation.
// Dispatch   exported once below.
// See        tests/summary/summary_test.cc.
#include <algorithm>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/summary_reduce_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/key_reduction-inl.h"
#include "kernels/row_reduction-inl.h"
#include "kernels/weight_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

HWY_INLINE std::int64_t PooledFloats(const WeightReductions& out) {
  return out.pooled == nullptr ? 0 : (out.pooled_max == nullptr ? 1 : 2) * out.pooled_cols * kQueryRows;
}

std::size_t ReduceScratchBytes(std::int64_t head_dim, const WeightReductions& out) {
  return WeightScratchBytes(head_dim) + sizeof(RowState) + static_cast<std::size_t>(PooledFloats(out)) * sizeof(float);
}

void ReduceWeights(const KvHead& kv_head, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
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
        BeginPooled(out, pooled);
      },
      [&](std::int64_t row, std::int64_t key, int n) HWY_ATTR {
        if (wants_rows) ReduceRows(kv, out, key, n, scratch, state);
        if (out.key_mass != nullptr) AddKeyMass(scratch, n, out.key_mass + key);
        if (out.key_count != nullptr) CountRows(scratch, n, out.key_count + key);
        if (out.key_top_k > 0) ListTopRows(out, row, key, n, scratch);
        if (out.pooled != nullptr) PoolBlock(out, kv.kv_len, key, n, scratch, pooled);
        if (out.distances != nullptr) AddDistances(kv, out, key, n, scratch);
      },
      [&](std::int64_t row) HWY_ATTR {
        if (wants_rows) FinishRows(out, row, scratch, state);
        FinishPooled(out, row, scratch, pooled);
      });
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(ReduceWeights);
HWY_EXPORT(ReduceScratchBytes);

void AddSummaryReduceF32(std::int64_t target, KernelTable& table) {
  table.reduce_weights = HWY_DISPATCH_TABLE(ReduceWeights)[DispatchIndex(target)];
  table.reduce_scratch_bytes = HWY_DISPATCH_TABLE(ReduceScratchBytes)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
