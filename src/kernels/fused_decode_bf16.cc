// Fused attention for few query rows by dot products: of pairs of bf16 numbers where q, k and v are bf16, of fours of bytes where k and v are
// int8: the decode of AVX3_BF16.
// Computes   what fused_decode_f32.cc computes; calls where q, k or v hold anything else go there.
// Shapes     as there; k and v are read where they are stored.
// Method     as there, by the same headers; decode_bf16-inl.h has what differs. A step of vdpbf16ps multiplies two neighbours of q and k, or
//            two keys' weights and values, and adds both products to an f32. vpdpbusd adds four of bytes to an integer; see decode_i8-inl.h.
// Numerics   q, k and v are used as they are, products are exact, sums f32. scale · log2 e multiplies the score, not q, which would round it
//            again. Weights are rounded to bf16 for their products with v, 2^−9 relative each; row_sum takes them unrounded, and so does
//            lse. vdpbf16ps takes numbers below 2^−126 as 0, and leaves such sums 0.
//            int8: q is rounded to a 32,639th of its largest element, weights times scales to a 32,767th of the largest of 32 or less; sums
//            are exact.
// Cost       half the bytes and half the multiplications of f32 for the same softmax.
// Requires   as there, and a CPU with AVX512_BF16.
// Dispatch   by targets.cc into the table of AVX3_BF16; Highway's own dispatch does not know it.
// See        fused_decode_bf16_test.cc, `regard bench` rows decode/…/bf16; docs/numerics.md.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/fused_decode_bf16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "hwy/contrib/math/math-inl.h"
#include "kernels/bf16_target-inl.h"
//
#if REGARD_BF16_DOT
#include "kernels/decode_bf16-inl.h"
#include "kernels/decode_i8-inl.h"
#include "kernels/decode_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

struct Bf16Products {
  static constexpr int kKeys = kSubBlock;

  Bf16Products(const KvHead&) {}

  static std::int64_t Pad(std::int64_t dim) { return Bf16Padded(dim); }
  static std::int64_t QuerySize(std::int64_t dim) { return Bf16Padded(dim); }
  static std::int64_t AccColumn(std::int64_t c) { return HWY_NAMESPACE::AccColumn(c); }
  static HWY_INLINE void PackQuery(const DecodeCall& call, const QueryRow& row, float*, float* q) {
    PackBf16Query(row.q, call.constants.kv.head_dim, q);
  }
  static HWY_INLINE void Score(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) {
    const KvHead& kv = call.constants.kv;
    const Bf16Rows keys = WholeBf16Rows(kv.k, at, kv.kv_len, kv.head_dim, scratch.k_copy);
    ScoreAllBf16Rows(keys, Bf16Padded(kv.head_dim), call.constants.q_factor, scratch.rows, call.num_rows);
  }
  static HWY_INLINE void Weigh(const DecodeCall& call, const SubBlock& at, DecodeScratch& scratch) {
    const KvHead& kv = call.constants.kv;
    const Bf16Rows values = WholeBf16Rows(kv.v, at, kv.kv_len, kv.v_dim, scratch.v_copy);
    MultiplyAllBf16Rows(values, Bf16Padded(kv.v_dim), at, scratch, call.num_rows);
  }
};

inline std::size_t DecodeScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  return std::max(DecodeScratchFor<Bf16Products>(head_dim, v_dim), DecodeScratchFor<I8Products>(head_dim, v_dim));
}

inline void DecodeBf16(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                       std::int64_t first_key, std::int64_t last_key, float* row_ref, float* row_sum, float* acc,
                       std::int64_t acc_stride, std::uint8_t* saw_key, void* memory) {
  DecodeKeys<Bf16Products>(kv, options, rows, num_rows, first_key, last_key, row_ref, row_sum, acc, acc_stride, saw_key, memory);
}

inline void DecodeI8(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                     std::int64_t first_key, std::int64_t last_key, float* row_ref, float* row_sum, float* acc,
                     std::int64_t acc_stride, std::uint8_t* saw_key, void* memory) {
  DecodeKeys<I8Products>(kv, options, rows, num_rows, first_key, last_key, row_ref, row_sum, acc, acc_stride, saw_key, memory);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // REGARD_BF16_DOT

#if HWY_ONCE && REGARD_HAVE_BF16_TARGET
namespace regard::internal {
namespace {

bool IsBf16(const KvHead& kv, const RowOptions& options) {
  return options.q_type == DType::kBF16 && kv.k.dtype == DType::kBF16 && kv.v.dtype == DType::kBF16;
}

std::size_t DecodeScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  return std::max(N_AVX3_BF16::DecodeScratchBytes(head_dim, v_dim), Avx3Kernels().decode_scratch_bytes(head_dim, v_dim));
}

void Decode(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows, std::int64_t first_key,
            std::int64_t last_key, float* row_ref, float* row_sum, float* acc, std::int64_t acc_stride, std::uint8_t* saw_key,
            void* scratch) {
  const auto run = IsBf16(kv, options)                 ? N_AVX3_BF16::DecodeBf16
                   : N_AVX3_BF16::I8Products::Take(kv) ? N_AVX3_BF16::DecodeI8
                                                       : Avx3Kernels().decode;
  run(kv, options, rows, num_rows, first_key, last_key, row_ref, row_sum, acc, acc_stride, saw_key, scratch);
}

}  // namespace

void AddDecodeBf16(KernelTable& table) {
  table.decode = Decode;
  table.decode_scratch_bytes = DecodeScratchBytes;
}

}  // namespace regard::internal
#endif
