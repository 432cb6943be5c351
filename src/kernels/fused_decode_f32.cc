// Fused attention for few query rows, f32 accumulate; k and v as they are stored, converted to f32 where they are something else.
// Computes   the online-softmax state of each row over keys [first_key, last_key): acc = weights v, row_sum, row_ref. Splits of the keys
//            are merged and finished by the caller.
// Shapes     up to kMaxDecodeRows rows of q [head_dim] against k [kv_len, head_dim], v [kv_len, v_dim] -> acc [rows, v_dim].
// Method     The keys in sub-blocks of kSubBlock, on a grid from key 0. All rows share each row of k and v: it comes from memory once.
//            per sub-block: s = q k; sums across lanes for all keys together. With AVX-512 one key row after the other, one or two query
//                           rows on each, from registers; elsewhere 2, 4 or 8 key rows at once, for 4, 2 or 1 query rows
//                           s = s + options − row_ref, keys in lanes; where s > threshold: move row_ref, rescale the row
//                           p = exp2(s); row_sum += p, per lane; acc += (p v summed over the sub-block from 0)
// Numerics   as fused_prefill_f32.cc; the two do not share bits, since they sum in different orders.
// Cost       bound by reading k and v: kSubBlock · (head_dim + v_dim) floats per sub-block, in ascending addresses. From cache it runs at
//            42 GB/s for 4 rows of 128 on Zen 4 at 3.7 GHz, a third above what memory gives; both hide behind each other as far as
//            the prefetchers of the machine go. Order decides how far, with AVX-512: four key rows at once fell to a third of the read bandwidth,
//            v in two column halves to two thirds, sub-blocks of 32 or 64 keys lost a quarter, software prefetch of the next
//            sub-block into the first cache level a third; line by line, two sub-blocks on and into the second level it wins a sixth
//            (kDecodeKeysAhead). Without AVX-512 lines are asked for in order, which won a quarter of the time (soon_lines-inl.h). Where k and v
//            lie matters as well (equal offsets in huge pages: up to 20 points).
// Requires   plan-validated sizes, dims >= 1, no aliasing. noexcept, no allocation; scratch by DecodeScratchBytes.
// Dispatch   exported once below.
// See        fused_decode_f32_test.cc, `regard bench` rows decode.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/fused_decode_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/decode_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

std::size_t DecodeScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  return DecodeScratchFor<F32Products>(head_dim, v_dim);
}

void Decode(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows, std::int64_t first_key,
            std::int64_t last_key, float* row_ref, float* row_sum, float* acc, std::int64_t acc_stride, std::uint8_t* saw_key,
            void* memory) {
  DecodeKeys<F32Products>(kv, options, rows, num_rows, first_key, last_key, row_ref, row_sum, acc, acc_stride, saw_key, memory);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(Decode);
HWY_EXPORT(DecodeScratchBytes);

void AddDecodeF32(std::int64_t target, KernelTable& table) {
  table.decode = HWY_DISPATCH_TABLE(Decode)[DispatchIndex(target)];
  table.decode_scratch_bytes = HWY_DISPATCH_TABLE(DecodeScratchBytes)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
