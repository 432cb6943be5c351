#include "attention/gradient_rows.h"

#include <algorithm>

#include "core/copy.h"
#include "core/operand.h"

namespace regard::internal {
namespace {

// A row of a view as floats: where it lies, or else its copy.
const float* RowOf(const View4& view, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t dim, float* copy) {
  const std::int64_t offset = view.Offset(b, h, i, 0);
  if (IsFloatOperand(view, dim)) return static_cast<const float*>(view.data) + offset;
  LoadRow(static_cast<const char*>(view.data) + offset * static_cast<std::int64_t>(ItemSize(view.dtype)), view.dtype,
          view.stride[3], dim, copy);
  return copy;
}

}  // namespace

GradientRowsLayout::GradientRowsLayout(const PlanShape& s, int threads, ScratchLayout& layout) {
  const std::int64_t count = SaturatingProduct(threads, kGradientRows);
  rows = layout.Add<QueryRow>(count);
  gradients = layout.Add<GradientRow>(count);
  lse = layout.Add<float>(count);
  context = layout.Add<float>(SaturatingProduct(count, s.v_dim));
  d_context = layout.Add<float>(SaturatingProduct(count, s.v_dim));
  d_q = layout.Add<float>(SaturatingProduct(count, s.head_dim));
}

GradientRowsOfThread::GradientRowsOfThread(const KernelInputs& inputs, const Gradients& gradients,
                                           const GradientRowsLayout& layout, std::byte* workspace, int thread)
    : inputs_(inputs), p_(inputs.problem()), g_(gradients) {
  const std::int64_t first = thread * kGradientRows;
  const auto floats = [&](std::size_t offset, std::int64_t each) {
    return reinterpret_cast<float*>(workspace + offset) + first * each;
  };
  rows_ = reinterpret_cast<QueryRow*>(workspace + layout.rows) + first;
  gradients_ = reinterpret_cast<GradientRow*>(workspace + layout.gradients) + first;
  lse_ = floats(layout.lse, 1);
  context_ = floats(layout.context, p_.v_dim);
  d_context_ = floats(layout.d_context, p_.v_dim);
  d_q_ = floats(layout.d_q, p_.head_dim);
}

void GradientRowsOfThread::Load(std::int64_t n, const Sequence& sequence, std::int64_t h, std::int64_t i) {
  rows_[n] = inputs_.Row(sequence, h, i);
  const std::int64_t b = sequence.batch, query = sequence.first_query + i;
  lse_[n] = static_cast<float>(LoadDouble(g_.lse.data, g_.lse.dtype, g_.lse.Offset(b, h, query, 0)));
  rows_[n].lse = lse_ + n;
  gradients_[n].context = RowOf(g_.context, b, h, query, p_.v_dim, context_ + n * p_.v_dim);
  gradients_[n].d_context = RowOf(g_.d_context, b, h, query, p_.v_dim, d_context_ + n * p_.v_dim);
  gradients_[n].d_q = IsFloatResult(g_.d_q, p_.head_dim) ? static_cast<float*>(g_.d_q.data) + g_.d_q.Offset(b, h, query, 0)
                                                         : d_q_ + n * p_.head_dim;
}

void GradientRowsOfThread::StoreQueryGradient(std::int64_t n, const Sequence& sequence, std::int64_t h, std::int64_t i) const {
  if (g_.d_q.data == nullptr || IsFloatResult(g_.d_q, p_.head_dim)) return;
  StoreGradientRow(g_.d_q, g_.d_q.Offset(sequence.batch, h, sequence.first_query + i, 0), gradients_[n].d_q, p_.head_dim);
}

void GradientRowsOfThread::Clip(std::int64_t n, std::int64_t begin, std::int64_t end) {
  rows_[n].key_begin = std::clamp(rows_[n].key_begin, begin, end);
  rows_[n].key_end = std::clamp(rows_[n].key_end, begin, end);
}

bool IsFloatResult(const MutableView4& view, std::int64_t dim) {
  return view.data != nullptr && view.dtype == DType::kF32 && (view.stride[3] == 1 || dim == 1);
}

void StoreGradientRow(const MutableView4& view, std::int64_t offset, const float* row, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) StoreDouble(view.data, view.dtype, offset + d * view.stride[3], row[d]);
}

}  // namespace regard::internal
