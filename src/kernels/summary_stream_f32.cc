// The second pass that hands out weights: every block of rows × keys that is not all zero by the rules.
// Computes   weights = exp(options(scale q kT) − lse), given the lse of each row.
// Shapes     rows of q [head_dim] against k [kv_len, head_dim] -> blocks [≤ kKeyBlock keys, kQueryRows rows], rows in lanes.
// Method     Score tiles as in fused_prefill_f32.cc, with accumulators that start at −lse in log2 units and so need no maximum.
//            Tiles that no option touches go in runs, as there.
// Numerics   exp2 within 3.5 ulp, after the rounding of the score and of the lse; invisible keys weigh exactly 0 and may hold anything; none
//            exceeds 1. A weight's bits depend on its own q, k, lse and options alone. A row whose lse is NaN weighs NaN but for
//            scores of −inf.
// Cost       per block 2 · kQueryRows · kKeyBlock · head_dim flop and one exp2 a weight.
// Requires   plan-validated sizes, head_dim >= 1, v unused. noexcept if the visitor is, no allocation.
// Dispatch   exported once below.
// See        tests/summary/weights_test.cc.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/summary_stream_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/weight_stream-inl.h"

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(StreamWeights);
HWY_EXPORT(StreamScratchBytes);

void AddSummaryStreamF32(std::int64_t target, KernelTable& table) {
  table.stream_weights = HWY_DISPATCH_TABLE(StreamWeights)[DispatchIndex(target)];
  table.stream_scratch_bytes = HWY_DISPATCH_TABLE(StreamScratchBytes)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
