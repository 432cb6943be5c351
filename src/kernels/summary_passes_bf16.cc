// The second passes over weights, q and k of bf16, by bf16 dot products: the stream_weights and reduce_weights of AVX3_BF16.
// Computes   what summary_stream_f32.cc and summary_reduce_f32.cc compute; calls where q or k hold anything else go to those.
// Shapes     as theirs; k is read where it is stored.
// Method     as theirs, by the same headers; products-inl.h has what differs.
// Numerics   as theirs: products of bf16 numbers are exact, sums are f32; weights are never rounded to bf16. vdpbf16ps takes numbers below
//            2^−126 as 0.
// Cost       per block head_dim / 2 steps instead of head_dim a score; the rest as theirs.
// Requires   as theirs, and a CPU with AVX512_BF16.
// Dispatch   by targets.cc into the table of AVX3_BF16.
// See        tests/summary.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/summary_passes_bf16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels/bf16_target-inl.h"
//
#include "kernels/weight_reduction-inl.h"
#include "kernels/weight_stream-inl.h"

#if HWY_ONCE && REGARD_HAVE_BF16_TARGET
namespace regard::internal {
namespace {

bool IsBf16(const KvHead& kv, const RowOptions& options) { return options.q_type == DType::kBF16 && kv.k.dtype == DType::kBF16; }

std::size_t StreamScratchBytes(std::int64_t head_dim) {
  return std::max(N_AVX3_BF16::StreamScratchBytes(head_dim), Avx3Kernels().stream_scratch_bytes(head_dim));
}

void StreamWeights(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows, WeightVisitor visit,
                   void* visitor, void* scratch) {
  const auto run = IsBf16(kv, options) ? N_AVX3_BF16::StreamWeights : Avx3Kernels().stream_weights;
  run(kv, options, rows, num_rows, visit, visitor, scratch);
}

std::size_t ReduceScratchBytes(std::int64_t head_dim, const WeightReductions& reductions) {
  return std::max(N_AVX3_BF16::ReduceScratchBytes(head_dim, reductions),
                  Avx3Kernels().reduce_scratch_bytes(head_dim, reductions));
}

void ReduceWeights(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                   const WeightReductions& reductions, void* scratch) {
  const auto run = IsBf16(kv, options) ? N_AVX3_BF16::ReduceWeights : Avx3Kernels().reduce_weights;
  run(kv, options, rows, num_rows, reductions, scratch);
}

}  // namespace

void AddSummaryPassesBf16(KernelTable& table) {
  table.stream_weights = StreamWeights;
  table.stream_scratch_bytes = StreamScratchBytes;
  table.reduce_weights = ReduceWeights;
  table.reduce_scratch_bytes = ReduceScratchBytes;
}

}  // namespace regard::internal
#endif  // HWY_ONCE
