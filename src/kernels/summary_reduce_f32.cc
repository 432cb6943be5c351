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
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/summary_reduce_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/weight_reduction-inl.h"

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
