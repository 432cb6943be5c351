// Gradients of fused attention, f32 in, f32 accumulate.
// Computes   d_q, d_k and d_v from q, k, v, d_context and what the forward run left, context and lse; nothing of q_len × kv_len is stored.
// Shapes     rows of q [head_dim], context and d_context [v_dim] against k [kv_len, head_dim], v [kv_len, v_dim] -> d_q [head_dim] of each
//            row, written; d_k, d_v [kv_len, dim], added to.
// Method     Recomputation from the lse (Dao et al. 2022, Alg. 4), queries in lanes as in fused_prefill_f32.cc. Per block of queries:
//              delta = Σ d_context · context; d_q = 0
//              per key block:  p = exp2(q k + options − lse), accumulators starting at −lse
//                              g = p · (d_context v − delta), accumulators starting at −delta; · (1 − tanh²) with a soft cap
//                              d_q += g k            like the values of the forward pass
//                              d_v += pᵀ d_context   numbers times rows of d_context, vectors along dim
//                              d_k += gᵀ q           likewise
//            Tiles that no option touches go in runs, with AVX-512 p and g of one between the products of the next (tile_products-inl.h).
//            In the triangle of causal attention all five products take the vectors of queries that see a tile of keys, no others.
//            Four blocks of queries share a block of keys and its gradients. Beside the products of the first that sees them these come from
//            where they were left one turn through all keys ago, line by line (soon_keys-inl.h).
// Numerics   exp2 within 3.5 ulp; invisible pairs weigh exactly 0 and may hold anything; sums of d_q are taken per key block, those of d_k and
//            d_v per block of queries, and then added. A row's bits depend on its own pairs alone; a key's on the rows of the call.
//            Error bound: docs/numerics.md.
// Cost       per key block and kQueryRows rows: kQueryRows · kKeyBlock · (6 · head_dim + 4 · v_dim) flop; per score about 9 more operations
//            on the multiply pipes.
// Requires   plan-validated sizes, dims >= 1, no aliasing. noexcept, no allocation; scratch by BackwardScratchBytes.
// Dispatch   exported once below; tile sizes per target in tile_config-inl.h.
// See        fused_backward_f32_test.cc, tests/properties/gradient_equivalence_test.cc, `regard bench` rows backward; alternatives tried:
//            docs/numerics.md, "Gradients".
#include <algorithm>
#include <utility>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/fused_backward_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/gradient_tile-inl.h"
#include "kernels/key_gradient-inl.h"
#include "kernels/value_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// Blocks of queries that share each block of keys and its gradients, which is worth it when these exceed the second cache level, and when keys
// have to be converted.
inline constexpr int kMaxGradientBlocks = 4;
inline constexpr std::int64_t kGradientCacheBytes = 1 << 20;

std::size_t BackwardScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  return GradientScratchBytes(head_dim, v_dim, kMaxGradientBlocks);
}

/// One block of queries against the n keys from first_key on; false if none sees any. is_first: of those that share them, so that these may
/// have to come from far.
HWY_INLINE bool BackwardKeyBlock(const CallConstants& call, std::int64_t first_key, int n, bool is_first,
                                 const GradientScratch& scratch, GradientBlock& block, float* d_k, float* d_v) {
  const KvHead& kv = call.kv;
  KeyBlock& keys = *scratch.keys;
  const KeySums soon = is_first ? KeySums{d_k, d_v} : KeySums{nullptr, nullptr};
  if (!DeriveKeyBlock<Gradient::kOfScores>(call, first_key, n, soon, block, keys, scratch.d_scores)) return false;
  float* const d_k_rows = d_k + first_key * GradientStride(kv.head_dim);
  float* const d_v_rows = d_v + first_key * GradientStride(kv.v_dim);
  GatherForKeys(keys, keys.weights, block.d_context_rows, block.query.num_rows, kv.v_dim, d_v_rows);
  GatherForKeys(keys, scratch.d_scores, block.q_rows, block.query.num_rows, kv.head_dim, d_k_rows);
  for (std::uint64_t left = block.loose_rows; left != 0; left &= left - 1) {
    const int r = static_cast<int>(hwy::Num0BitsBelowLS1Bit_Nonzero64(left));
    GatherLooseRow(keys, keys.weights, r, block.gradients[r].d_context, kv.v_dim, call.options.dropout_multiplier, d_v_rows);
    const float* const q = FloatQuery(call.options, block.query.rows[r], kv.head_dim, scratch.q_copy);
    GatherLooseRow(keys, scratch.d_scores, r, q, kv.head_dim, call.options.scale, d_k_rows);
  }
  float* const weights = std::exchange(keys.weights, scratch.d_scores);
  AddValues(keys, keys.k.data, keys.k.stride, kv.head_dim, block.query);
  keys.weights = weights;
  return true;
}

void Backward(const KvHead& kv, const RowOptions& options, const QueryRow* rows, const GradientRow* gradients,
              std::int64_t num_rows, float* d_k, float* d_v, void* memory) {
  const GradientScratch scratch = PlaceGradientScratch(memory, kv.head_dim, kv.v_dim, kMaxGradientBlocks);
  const CallConstants call = MakeConstants(kv, options, kTanhPrescale);
  const std::int64_t bytes = 2 * kv.kv_len * (kv.head_dim + kv.v_dim) * static_cast<std::int64_t>(sizeof(float));
  const bool alone = bytes <= kGradientCacheBytes && !NeedsCopies(kv.k) && !NeedsCopies(kv.v);
  const std::int64_t rows_at_once = (alone ? 1 : kMaxGradientBlocks) * kQueryRows;
  for (std::int64_t row = 0; row < num_rows; row += rows_at_once) {
    int num_blocks = 0;
    std::int64_t begin = kv.kv_len, end = 0;
    for (std::int64_t r = row; r < std::min(row + rows_at_once, num_rows); r += kQueryRows) {
      GradientBlock& block = scratch.blocks[num_blocks++];
      const int rows_here = static_cast<int>(std::min<std::int64_t>(kQueryRows, num_rows - r));
      BeginGradientBlock(call, rows + r, gradients + r, rows_here, scratch, block);
      begin = std::min(begin, block.query.min_begin);
      end = std::max(end, block.query.max_end);
    }
    for (std::int64_t key = begin / kKeyBlock * kKeyBlock; key < end; key += kKeyBlock) {
      const int n = static_cast<int>(std::min<std::int64_t>(kKeyBlock, kv.kv_len - key));
      bool is_first = true;
      for (int b = 0; b < num_blocks; ++b) {
        if (BackwardKeyBlock(call, key, n, is_first, scratch, scratch.blocks[b], d_k, d_v)) is_first = false;
      }
    }
    for (int b = 0; b < num_blocks; ++b) FinishGradientBlock(call, scratch.blocks[b]);
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(Backward);
HWY_EXPORT(BackwardScratchBytes);

void AddBackwardF32(std::int64_t target, KernelTable& table) {
  table.backward = HWY_DISPATCH_TABLE(Backward)[DispatchIndex(target)];
  table.backward_scratch_bytes = HWY_DISPATCH_TABLE(BackwardScratchBytes)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
