// The second pass that hands out weights: what summary_stream_f32.cc and summary_passes_bf16.cc compile.
#if defined(REGARD_KERNELS_WEIGHT_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_WEIGHT_STREAM_INL_H_
#undef REGARD_KERNELS_WEIGHT_STREAM_INL_H_
#else
#define REGARD_KERNELS_WEIGHT_STREAM_INL_H_
#endif

#include <algorithm>

#include "kernels/weight_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

inline std::size_t StreamScratchBytes(std::int64_t head_dim) { return WeightScratchBytes(head_dim); }

inline void StreamWeights(const KvHead& kv_head, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                          WeightVisitor visit, void* visitor, void* memory) {
  KvHead kv = kv_head;
  kv.v_dim = 0;
  WeightScratch scratch = PlaceWeightScratch(memory, kv.head_dim);
  const CallConstants call = MakeConstants(kv, options, kTanhPrescale);
  ForEachWeightBlock(
      call, rows, num_rows, scratch, [] {},
      [&](std::int64_t row, std::int64_t key, int n) {
        const KeyBlock& keys = *scratch.keys;
        bool fully_visible = true;
        for (int j = 0; keys.has_visible && j < n; ++j) fully_visible &= keys.visible[j] == scratch.block->all_rows;
        visit(visitor, {row, scratch.block->num_rows, key, n, keys.weights, kQueryRows, fully_visible});
      },
      [](std::int64_t) {});
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
