// The prefill kernel: what fused_prefill_f32.cc and fused_prefill_bf16.cc compile.
#if defined(REGARD_KERNELS_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_PREFILL_INL_H_
#undef REGARD_KERNELS_PREFILL_INL_H_
#else
#define REGARD_KERNELS_PREFILL_INL_H_
#endif

#include "kernels/prefill_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

inline std::size_t PrefillScratchBytes(std::int64_t head_dim, std::int64_t v_dim) { return LoopScratchBytes(head_dim, v_dim); }

inline std::int64_t PrefillRows() { return kMaxQueryBlocks * kQueryRows; }

inline std::int64_t Prefill(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                            void* memory) {
  const PrefillScratch scratch = PlaceScratch(memory, kv.head_dim, kv.v_dim);
  const CallConstants call = MakeConstants(kv, options, kTanhPrescale);
  return AttendRows(
      call, rows, num_rows, scratch, [](int) { return NoTracker{}; }, [](std::int64_t, int) {});
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
