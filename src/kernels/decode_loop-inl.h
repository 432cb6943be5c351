// The loop of decode over sub-blocks of keys.
#if defined(REGARD_KERNELS_DECODE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_DECODE_LOOP_INL_H_
#undef REGARD_KERNELS_DECODE_LOOP_INL_H_
#else
#define REGARD_KERNELS_DECODE_LOOP_INL_H_
#endif

#include <algorithm>
#include <new>
#include <utility>

#include "kernels/decode_f32-inl.h"
#include "kernels/decode_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

template <class Products>
HWY_INLINE void AttendSubBlock(const DecodeCall& call, const Products& products, std::int64_t first_key, DecodeScratch& scratch) {
  const KvHead& kv = call.constants.kv;
  DecodeRow* const rows = scratch.rows;
  constexpr int kKeys = Products::kKeys;
  SubBlock at = {first_key, static_cast<int>(std::min<std::int64_t>(kKeys, kv.kv_len - first_key)), true};
  if (first_key >= call.all_begin && first_key + kKeys <= call.all_end) {
    for (int r = 0; r < call.num_rows; ++r) {
      rows[r].visible = FirstKeys(kKeys);
      rows[r].saw_key = true;
    }
  } else if (!SetVisible<kKeys>(call, rows, at)) {
    return;
  }
  products.Score(call, at, scratch);
  SoftmaxRows<kKeys>(call, at, rows);
  if (HWY_UNLIKELY(call.constants.options.dropout_threshold > 0)) DropRowWeights<kKeys>(call, at, rows);
  products.Weigh(call, at, scratch);
}

template <class Products>
HWY_INLINE std::size_t DecodeScratchFor(std::int64_t head_dim, std::int64_t v_dim) {
  const std::int64_t floats = kMaxDecodeRows * (Products::QuerySize(head_dim) + Products::Pad(v_dim)) +
                              kSubBlock * (Products::Pad(head_dim) + Products::Pad(v_dim));
  return sizeof(DecodeScratch) + static_cast<std::size_t>(floats) * sizeof(float);
}

template <class Products>
HWY_INLINE DecodeScratch& BeginDecode(const DecodeCall& call, const Products& products, const QueryRow* rows, void* memory) {
  const KvHead& kv = call.constants.kv;
  DecodeScratch& scratch = *new (memory) DecodeScratch;
  float* floats = reinterpret_cast<float*>(static_cast<std::uint8_t*>(memory) + sizeof(DecodeScratch));
  scratch.k_copy = std::exchange(floats, floats + kSubBlock * Products::Pad(kv.head_dim));
  scratch.v_copy = std::exchange(floats, floats + kSubBlock * Products::Pad(kv.v_dim));
  for (int r = 0; r < call.num_rows; ++r) {
    DecodeRow& row = scratch.rows[r];
    row.row = rows + r;
    row.q = std::exchange(floats, floats + Products::QuerySize(kv.head_dim));
    row.acc = std::exchange(floats, floats + Products::Pad(kv.v_dim));
    row.neg_ref = 0.0f;
    row.threshold = -kInf;
    row.saw_key = false;
    std::fill(std::begin(row.row_sum), std::end(row.row_sum), 0.0f);
    std::fill_n(row.q, Products::QuerySize(kv.head_dim), 0.0f);
    products.PackQuery(call, rows[r], scratch.k_copy, row.q);
    std::fill_n(row.acc, Products::Pad(kv.v_dim), 0.0f);
  }
  return scratch;
}

template <class Products>
HWY_INLINE void DecodeKeys(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                           std::int64_t first_key, std::int64_t last_key, float* row_ref, float* row_sum, float* acc,
                           std::int64_t acc_stride, std::uint8_t* saw_key, void* memory) {
  DecodeCall call = {MakeConstants(kv, options, kTanhPrescale),
                     first_key,
                     last_key,
                     first_key,
                     last_key,
                     Products::Pad(kv.v_dim),
                     static_cast<int>(num_rows)};
  for (int r = 0; r < call.num_rows; ++r) {
    call.all_begin = std::max(call.all_begin, rows[r].key_begin);
    call.all_end = options.has_mask || options.has_bias ? 0 : std::min(call.all_end, rows[r].key_end);
  }
  const Products products(kv);
  DecodeScratch& scratch = BeginDecode(call, products, rows, memory);
  constexpr int kKeys = Products::kKeys;
  for (std::int64_t key = first_key / kKeys * kKeys; key < last_key; key += kKeys) AttendSubBlock(call, products, key, scratch);
  for (int r = 0; r < call.num_rows; ++r) {
    const DecodeRow& row = scratch.rows[r];
    float sum = 0.0f;
    for (const float lane : row.row_sum) sum += lane;
    row_sum[r] = sum;
    row_ref[r] = row.threshold == -kInf ? -kInf : -row.neg_ref;
    saw_key[r] = row.saw_key;
    for (std::int64_t c = 0; c < kv.v_dim; ++c) acc[r * acc_stride + c] = row.acc[products.AccColumn(c)] + 0.0f;  // −0 becomes +0
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
