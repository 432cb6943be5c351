// Fused attention for many query rows, f32 in, f32 accumulate.
// Computes   context = softmax(options(scale q kT)) v and lse, reading k and v once per group of query blocks.
// Shapes     rows of q [head_dim] against k [kv_len, head_dim], v [kv_len, v_dim] -> context [v_dim], lse. Rows anywhere; k and v by row
//            stride in elements; no alignment.
// Method     Online softmax (Milakov & Gimelshein 2018, Alg. 3) over key blocks (Dao et al. 2022, Alg. 1), queries in lanes: a vector
//            holds one score of kLanes queries, so max, sum and reference are vertical operations.
//            per query block: pack q transposed, scaled to log2 units; state = no reference, 0, 0
//              per key block on a grid of kKeyBlock keys from key 0:
//                per tile of kKeyTile keys: s = q k − row_ref + options; where s > threshold: move row_ref, rescale that lane;
//                                           p = exp2(s); block_sum += p
//                row_sum += block_sum; acc += (p v summed over the block from 0)
//            Most tiles go in runs, with AVX-512 p of one between the products of the next (tile_products-inl.h).
//            finish: context = acc / row_sum; lse = ln 2 · row_ref + ln row_sum; the sink's term added here
// Numerics   exp2 within 3.5 ulp; invisible keys weigh exactly 0 and may hold anything; a row's bits depend on its own q, keys and
//            options alone: lanes never mix, tiles and blocks sit on an absolute grid, an invisible key adds exactly nothing.
//            Rows that see no key give 0 and −inf. Error bound: docs/numerics.md.
// Cost       per key block and kQueryRows rows: 2 · kQueryRows · kKeyBlock · (head_dim + v_dim) flop; per score about 7 more
//            operations on the multiply pipes, which caps the rate near 95 % of peak at dims 64 and 97.5 % at 128.
// Requires   plan-validated sizes, dims >= 1, no aliasing. noexcept, no allocation; scratch by PrefillScratchBytes.
// Dispatch   exported once below; tile sizes per target in tile_config-inl.h.
// See        fused_prefill_f32_test.cc, `regard bench` rows prefill; alternatives tried: docs/numerics.md, "Ladder".
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/fused_prefill_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/prefill-inl.h"

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(Prefill);
HWY_EXPORT(PrefillScratchBytes);
HWY_EXPORT(PrefillRows);

void AddPrefillF32(std::int64_t target, KernelTable& table) {
  table.prefill = HWY_DISPATCH_TABLE(Prefill)[DispatchIndex(target)];
  table.prefill_scratch_bytes = HWY_DISPATCH_TABLE(PrefillScratchBytes)[DispatchIndex(target)];
  table.prefill_rows = HWY_DISPATCH_TABLE(PrefillRows)[DispatchIndex(target)]();
}

}  // namespace regard::internal
#endif  // HWY_ONCE
