#include "attention/kernel_inputs.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "core/kv_cache.h"

namespace regard::internal {
namespace {

// A bias of another element type is copied as it is broadcast: repeated axes keep length 1.
void BiasDims(const Problem& p, std::int64_t dims[4]) {
  const std::int64_t full[4] = {p.batch, p.heads, p.q_len, p.kv_len};
  for (int axis = 0; axis < 4; ++axis) {
    dims[axis] = p.bias.stride[axis] == 0 ? std::min<std::int64_t>(full[axis], 1) : full[axis];
  }
}

// Keys or values of one head of a cache.
StoredRows CachedRows(const RunLayout& layout, const std::vector<const void*>& runs) {
  return {runs.empty() ? nullptr : runs.front(), layout.dim, layout.dtype, runs.size() > 1 ? runs.data() : nullptr,
          layout.page_len};
}

bool Strided(const View4& view, std::int64_t last_dim) {
  return !IsFloatOperand({view.data, DType::kF32, {0, 0, 0, view.stride[3]}}, last_dim);
}

}  // namespace

KernelInputsLayout::KernelInputsLayout(const PlanShape& s, const Options& options, ScratchLayout& layout) {
  row_keys = layout.Add<RowKeys>(SaturatingProduct(s.batch, s.q_len));
  sequences = layout.Add<Sequence>(MostSequences(s.batch, s.q_len, s.kv_len, options.packed));
  q = layout.Add<float>(StoredCopySize(s.q_dtype, s.strided_dim, s.batch, s.heads, s.q_len, s.head_dim));
  k = layout.Add<float>(StoredCopySize(s.k_dtype, s.strided_dim, s.batch, s.kv_heads, s.kv_len, s.head_dim));
  v = layout.Add<float>(StoredCopySize(s.v_dtype, s.strided_dim, s.batch, s.kv_heads, s.kv_len, s.v_dim));
  bias = layout.Add<float>(options.bias_count);
}

KernelInputsLayout::Options KernelInputsLayout::Options::Of(const PlanShape& capacity, const AttentionParams& params) {
  Options options{0, static_cast<bool>(params.q_segments) || static_cast<bool>(params.kv_segments)};
  if (!params.bias || params.bias.dtype() == DType::kF32) return options;
  const std::int64_t full[4] = {capacity.batch, capacity.heads, capacity.q_len, capacity.kv_len};
  options.bias_count = 1;
  for (int axis = 0; axis < params.bias.rank() && axis < 4; ++axis) {
    if (params.bias.dim(-1 - axis) != 1) options.bias_count = SaturatingProduct(options.bias_count, full[3 - axis]);
  }
  return options;
}

KernelInputsLayout::Options KernelInputsLayout::Options::Of(const Problem& p) {
  const bool packed = p.q_segments.data != nullptr;
  if (p.bias.data == nullptr || p.bias.dtype == DType::kF32) return {0, packed};
  std::int64_t dims[4];
  BiasDims(p, dims);
  return {dims[0] * dims[1] * dims[2] * dims[3], packed};
}

PlanShape KernelInputsLayout::ShapeOf(const Problem& p) {
  return {p.batch,
          p.heads,
          p.kv_heads,
          p.q_len,
          p.kv_len,
          p.head_dim,
          p.v_dim,
          p.q.dtype,
          p.k.dtype,
          p.v.dtype,
          Strided(p.q, p.head_dim) || (!p.is_cached() && (Strided(p.k, p.head_dim) || Strided(p.v, p.v_dim)))};
}

KernelInputs::KernelInputs(const Problem& problem, const KernelInputsLayout& layout, std::byte* workspace, int threads,
                           Values values)
    : p_(problem) {
  const auto at = [workspace](std::size_t offset) { return reinterpret_cast<float*>(workspace + offset); };
  RowKeys* const row_keys = reinterpret_cast<RowKeys*>(workspace + layout.row_keys);
  ComputeRowKeys(p_, row_keys);
  row_keys_ = row_keys;
  Sequence* const sequences = reinterpret_cast<Sequence*>(workspace + layout.sequences);
  std::size_t num_sequences = 0;
  for (std::int64_t b = 0; p_.q_len > 0 && b < p_.batch; ++b) {
    if (p_.dropout.is_on()) {
      sequences[num_sequences++] = Entry(b);
      continue;
    }
    for (SequenceWalk walk(p_, b); walk.Next(&sequences[num_sequences]);) ++num_sequences;
  }
  sequences_ = {sequences, num_sequences};
  const std::int64_t q_dims[4] = {p_.batch, p_.heads, p_.q_len, p_.head_dim};
  const std::int64_t k_dims[4] = {p_.batch, p_.kv_heads, p_.kv_len, p_.head_dim};
  const std::int64_t v_dims[4] = {p_.batch, p_.kv_heads, p_.kv_len, p_.v_dim};
  q_ = MakeStoredOperand(p_.q, q_dims, at(layout.q), threads);
  if (!p_.is_cached()) k_ = MakeStoredOperand(p_.k, k_dims, at(layout.k), threads);
  if (!p_.is_cached() && values == Values::kUsed) v_ = MakeStoredOperand(p_.v, v_dims, at(layout.v), threads);
  v_.dtype = StoredType(p_.v.dtype);  // takes part in the choice of kernels even where it is not read
  if (p_.bias.data != nullptr) BindBias(at(layout.bias), threads);
  options_ = {p_.scale,
              p_.soft_cap,
              p_.mask.data != nullptr ? p_.mask.stride[3] : 0,
              bias_key_stride_,
              p_.mask.data != nullptr && p_.kv_len > 0,  // without keys, a copied bias has no elements to look at
              p_.bias.data != nullptr && p_.kv_len > 0,
              p_.alibi_slopes.data != nullptr,
              q_.dtype,
              p_.dropout.threshold,
              p_.dropout.multiplier,
              p_.dropout.seed,
              p_.dropout.origin.key / kDropoutKeys};
}

void KernelInputs::BindBias(float* copy, int threads) {
  if (p_.bias.dtype == DType::kF32) {
    bias_ = {static_cast<const float*>(p_.bias.data), {p_.bias.stride[0], p_.bias.stride[1], p_.bias.stride[2], 1}};
    bias_key_stride_ = p_.bias.stride[3];
    return;
  }
  std::int64_t dims[4];
  BiasDims(p_, dims);
  bias_ = MakeFloatOperand(p_.bias, dims, copy, threads, LoadBiasRow);
  for (int axis = 0; axis < 3; ++axis) {
    if (p_.bias.stride[axis] == 0) bias_.stride[axis] = 0;
  }
  bias_key_stride_ = p_.bias.stride[3] == 0 ? 0 : 1;
}

KvHead KernelInputs::Head(const Sequence& sequence, std::int64_t kv_head) const {
  if (p_.is_cached()) {
    const CachedSequence& s = p_.cached.Sequence(sequence.batch);
    const auto h = static_cast<std::size_t>(p_.cached.first_kv_head + kv_head);
    const PagePool& pool = p_.cached.cache->pool;
    return {
        CachedRows(pool.k(), s.k_runs[h]), CachedRows(pool.v(), s.v_runs[h]), s.length, p_.head_dim, p_.v_dim, s.KeyPositions()};
  }
  return {{k_.Row(sequence.batch, kv_head, sequence.first_key), k_.stride[2], k_.dtype},
          {v_.Row(sequence.batch, kv_head, sequence.first_key), v_.stride[2], v_.dtype},
          sequence.kv_len,
          p_.head_dim,
          p_.v_dim};
}

float KernelInputs::Sink(std::int64_t h) const {
  if (p_.sinks.data == nullptr) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(LoadDouble(p_.sinks.data, p_.sinks.dtype, h * p_.sinks.stride[1]));
}

HeadRows KernelInputs::Rows(const Sequence& sequence, std::int64_t h) const {
  const std::int64_t b = sequence.batch, query = sequence.first_query;
  HeadRows rows;
  rows.keys_ = &Keys(b, query);
  rows.first_key_ = sequence.first_key;
  QueryRow& first = rows.first_;
  first.q = q_.Row(b, h, query);
  if (first.q != nullptr) rows.q_stride_ = q_.stride[2] * static_cast<std::int64_t>(ItemSize(q_.dtype));
  first.sink = Sink(h);
  if (options_.has_alibi) {
    first.alibi_slope =
        static_cast<float>(LoadDouble(p_.alibi_slopes.data, p_.alibi_slopes.dtype, h * p_.alibi_slopes.stride[1]));
  }
  if (options_.has_mask) {
    first.mask = static_cast<const std::uint8_t*>(p_.mask.data) + p_.mask.Offset(b, h, query, sequence.first_key);
    rows.mask_stride_ = p_.mask.stride[2];
  }
  if (options_.has_bias) {
    first.bias = bias_.Row(b, h, query) + sequence.first_key * bias_key_stride_;
    rows.bias_stride_ = bias_.stride[2];
  }
  first.batch = static_cast<std::uint32_t>(p_.dropout.origin.batch + b);
  first.head = static_cast<std::uint32_t>(p_.dropout.origin.head + h);
  first.query = static_cast<std::uint32_t>(p_.dropout.origin.query + query);
  return rows;
}

}  // namespace regard::internal
