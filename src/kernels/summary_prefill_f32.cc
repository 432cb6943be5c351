// The prefill kernel with a tracker: context and lse, to the bit as fused_prefill_f32.cc, and what each row's scores tell on the way.
// Computes   RowTracking: entropy, the top keys and the weight of the others, row maximum, the first key's share, visible keys.
// Shapes     as fused_prefill_f32.cc; RowTracking says where the results go.
// Method     The loop of prefill_loop-inl.h with the tracker of row_tracker-inl.h; when a block of rows is done its few best buckets are
//            scored again for the exact lists, by top_keys-inl.h.
// Numerics   Lists are exact in the order of their own scores, summed by row_scores-inl.h; a score errs like any. Weights from these and
//            from the row's sum in f32. Entropy: Σ p log2 p in f32, joined in double.
// Cost       on the way: one multiply-add and one maximum a score; at the end of a block of rows 2·k operations a
//            bucket and vector at most, and k + 1 buckets of scores a row. Rows with very many equal keys: a score a key.
// Requires   plan-validated sizes, head_dim >= 1, v_dim >= 0: with 0 only rows are tracked. noexcept, no allocation.
// Dispatch   exported once below.
// See        tests/summary/summary_test.cc.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/summary_prefill_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/tracked_prefill-inl.h"

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(TrackedPrefill);
HWY_EXPORT(TrackedScratchBytes);

void AddSummaryPrefillF32(std::int64_t target, KernelTable& table) {
  table.tracked_prefill = HWY_DISPATCH_TABLE(TrackedPrefill)[DispatchIndex(target)];
  table.tracked_scratch_bytes = HWY_DISPATCH_TABLE(TrackedScratchBytes)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
