// The gradients by masked scores, handed out block by block: what a bias and ALiBi's slopes ask for, each in its own sum.
// Computes   g = weights · (d_context vT − delta), with weights = exp(options(scale q kT) − lse), delta = Σ d_context · context.
// Shapes     rows of q [head_dim], context and d_context [v_dim] against k [kv_len, head_dim], v [kv_len, v_dim] -> blocks [≤ kKeyBlock
//            keys, kQueryRows rows], rows in lanes.
// Method     The tiles of fused_backward_f32.cc without what follows them.
// Numerics   A number's bits depend on its own pair, lse and delta alone; it is exactly 0 where a key is not visible.
// Cost       per block 2 · kQueryRows · kKeyBlock · (head_dim + v_dim) flop and one exp2 a pair.
// Requires   plan-validated sizes, dims >= 1. noexcept if the visitor is, no allocation.
// Dispatch   exported once below.
// See        fused_backward_f32_test.cc, tests/properties/gradient_equivalence_test.cc.
#include <algorithm>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/score_gradients_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/gradient_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

std::size_t ScoreGradientsScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  return GradientScratchBytes(head_dim, v_dim, 1);
}

/// Zeros where a tile was not computed.
HWY_INLINE void ClearRest(const KeyBlock& keys, int n, float* d_scores) {
  const DF d;
  for (int tile = 0; tile * kKeyTile < n; ++tile) {
    const TileVectors& vectors = keys.scored[tile];
    for (int v = 0; v < kQueryVectors; ++v) {
      if (v >= vectors.first && v <= vectors.last) continue;
      float* const to = d_scores + tile * kKeyTile * kQueryRows + v * kLanes;
      for (int j = 0; j < kKeyTile; ++j) hn::Store(hn::Zero(d), d, to + j * kQueryRows);
    }
  }
}

void StreamScoreGradients(const KvHead& kv, const RowOptions& options, const QueryRow* rows, const GradientRow* gradients,
                          std::int64_t num_rows, WeightVisitor visit, void* visitor, void* memory) {
  const GradientScratch scratch = PlaceGradientScratch(memory, kv.head_dim, kv.v_dim, 1);
  const CallConstants call = MakeConstants(kv, options, kTanhPrescale);
  GradientBlock& block = *scratch.blocks;
  KeyBlock& keys = *scratch.keys;
  for (std::int64_t row = 0; row < num_rows; row += kQueryRows) {
    const int rows_here = static_cast<int>(std::min<std::int64_t>(kQueryRows, num_rows - row));
    BeginGradientBlock(call, rows + row, gradients + row, rows_here, scratch, block);
    for (std::int64_t key = block.query.min_begin / kKeyBlock * kKeyBlock; key < block.query.max_end; key += kKeyBlock) {
      const int n = static_cast<int>(std::min<std::int64_t>(kKeyBlock, kv.kv_len - key));
      if (!DeriveKeyBlock<Gradient::kOfMaskedScores>(call, key, n, {nullptr, nullptr}, block, keys, scratch.d_scores)) continue;
      ClearRest(keys, n, scratch.d_scores);
      visit(visitor, {row, rows_here, key, n, scratch.d_scores, kQueryRows, keys.all_seen});
    }
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(StreamScoreGradients);
HWY_EXPORT(ScoreGradientsScratchBytes);

void AddScoreGradientsF32(std::int64_t target, KernelTable& table) {
  table.stream_score_gradients = HWY_DISPATCH_TABLE(StreamScoreGradients)[DispatchIndex(target)];
  table.score_gradients_scratch_bytes = HWY_DISPATCH_TABLE(ScoreGradientsScratchBytes)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
