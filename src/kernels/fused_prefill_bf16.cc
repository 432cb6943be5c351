// Fused attention for many query rows, q, k and v of bf16, by bf16 dot products: the prefill and tracked_prefill of AVX3_BF16.
// Computes   what fused_prefill_f32.cc and summary_prefill_f32.cc compute; calls where q, k or v hold anything else go to those.
// Shapes     as theirs; k is read where it is stored, v is paired once a key block.
// Method     as theirs, by the same headers; products-inl.h has what differs. A step of vdpbf16ps multiplies two neighbours of q and k, or
//            two keys' weights and values, and adds both products to an f32. Key blocks are shared by four query blocks.
// Numerics   q, k and v are used as they are, products are exact, sums f32. scale · log2 e multiplies the score, not q, which would round it
//            again. Weights are rounded to bf16 for their products with v, 2^−9 relative each; row_sum takes them unrounded, and so do
//            lse and what is tracked. vdpbf16ps takes numbers below 2^−126 as 0, and leaves such sums 0.
// Cost       per key block and kQueryRows rows: half the steps of f32 at the same rate; per score the same operations beside, and one multiply-add;
//            per pair of keys and 16 columns 6 operations, once for four query blocks.
// Requires   as theirs, and a CPU with AVX512_BF16.
// Dispatch   by targets.cc into the table of AVX3_BF16; Highway's own dispatch does not know it.
// See        fused_prefill_bf16_test.cc, `regard bench` rows prefill/…/bf16; docs/numerics.md.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/fused_prefill_bf16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels/bf16_target-inl.h"
//
#include "kernels/prefill-inl.h"
#include "kernels/tracked_prefill-inl.h"

#if HWY_ONCE && REGARD_HAVE_BF16_TARGET
namespace regard::internal {
namespace {

/// A static rule: v counts also where it is not read, or what is told of a row would depend on whether its context is wanted.
bool IsBf16(const KvHead& kv, const RowOptions& options) {
  return options.q_type == DType::kBF16 && kv.k.dtype == DType::kBF16 && kv.v.dtype == DType::kBF16;
}

std::size_t PrefillScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  return std::max(N_AVX3_BF16::PrefillScratchBytes(head_dim, v_dim), Avx3Kernels().prefill_scratch_bytes(head_dim, v_dim));
}

std::int64_t Prefill(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows, void* scratch) {
  const auto run = IsBf16(kv, options) ? N_AVX3_BF16::Prefill : Avx3Kernels().prefill;
  return run(kv, options, rows, num_rows, scratch);
}

std::size_t TrackedScratchBytes(std::int64_t kv_len, std::int64_t head_dim, std::int64_t v_dim, std::int64_t top_k) {
  return std::max(N_AVX3_BF16::TrackedScratchBytes(kv_len, head_dim, v_dim, top_k),
                  Avx3Kernels().tracked_scratch_bytes(kv_len, head_dim, v_dim, top_k));
}

std::int64_t TrackedPrefill(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                            const RowTracking& tracking, void* scratch) {
  const auto run = IsBf16(kv, options) ? N_AVX3_BF16::TrackedPrefill : Avx3Kernels().tracked_prefill;
  return run(kv, options, rows, num_rows, tracking, scratch);
}

}  // namespace

void AddPrefillBf16(KernelTable& table) {
  table.prefill = Prefill;
  table.prefill_scratch_bytes = PrefillScratchBytes;
  table.tracked_prefill = TrackedPrefill;
  table.tracked_scratch_bytes = TrackedScratchBytes;
}

}  // namespace regard::internal
#endif  // HWY_ONCE
