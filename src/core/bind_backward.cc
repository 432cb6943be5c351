#include "core/bind_backward.h"

#include "core/bind.h"
#include "core/overlap.h"
#include "core/shape_text.h"

namespace regard::internal {
namespace {

using enum ErrorCode;

// The memory of a view whose axes are the last ones of rank 4.
void Aim(const TensorView& from, int first_axis, View4* to) {
  *to = {from.data(), from.dtype(), {}};
  for (int axis = 0; axis < from.rank(); ++axis) to->stride[first_axis + axis] = from.strides()[axis];
}
void Aim(const MutableTensorView& from, int first_axis, MutableView4* to) {
  *to = {from.mutable_data(), from.dtype(), {}};
  for (int axis = 0; axis < from.rank(); ++axis) to->stride[first_axis + axis] = from.strides()[axis];
}

// A float tensor of exactly this shape.
template <typename From, typename To>
Status BindAs(const char* name, const From& view, const Dims& expected, int first_axis, To* out) {
  if (!(view.shape() == expected)) {
    return Status::Failure(kShapeMismatch, "%s: shape %s; give %s", name, ShapeText(view.shape()).text, ShapeText(expected).text);
  }
  if (!IsFloat(view.dtype())) {
    return Status::Failure(kInvalidArgument, "%s: element type %s; give a float type", name, Name(view.dtype()).data());
  }
  Aim(view, first_axis, out);
  return {};
}

// Tensors of tokens have the rank of q: [a, b, c, d] without the first two in rank 2, and without the last where has_last is false.
template <typename From, typename To>
Status BindTokens(const char* name, const From& view, int q_rank, const std::int64_t full[4], bool has_last, To* out) {
  Dims expected;
  for (int axis = 4 - q_rank; axis < (has_last ? 4 : 3); ++axis) expected.push_back(full[axis]);
  return BindAs(name, view, expected, 4 - q_rank, out);
}

Status BindGiven(const char* name, const TensorView& view, int q_rank, const std::int64_t full[4], bool has_last, View4* out) {
  if (!view)
    return Status::Failure(kInvalidArgument, "%s: missing; pass context and lse of the forward run, and d_context", name);
  return BindTokens(name, view, q_rank, full, has_last, out);
}

Status BindWanted(const char* name, const MutableTensorView& view, int q_rank, const std::int64_t full[4], MutableView4* out) {
  return view ? BindTokens(name, view, q_rank, full, true, out) : Status{};
}

// The gradient of a tensor of the options, which has its shape.
Status BindOptionGradient(const char* name, const MutableTensorView& view, const char* option, const TensorView& own,
                          const TensorView& planned, int first_axis, MutableView4* out) {
  if (!view) return {};
  const TensorView& of = own ? own : planned;
  if (!of)
    return Status::Failure(kInvalidArgument, "%s: wanted without %s; give the params %s, or leave it out", name, option, option);
  return BindAs(name, view, of.shape(), first_axis, out);
}

}  // namespace

Status BindBackward(const PlanShape& capacity, const AttentionParams& params, float scale, const BackwardInputs& in,
                    const BackwardOutputs& out, Problem* p, Gradients* g) noexcept {
  *g = Gradients{};
  Results none;
  Status s;
  if (!(s = Bind(capacity, params, scale, in.forward, {}, p, &none)).ok()) return s;
  const int rank = in.forward.q.rank();
  const std::int64_t context[4] = {p->batch, p->heads, p->q_len, p->v_dim};
  const std::int64_t q[4] = {p->batch, p->heads, p->q_len, p->head_dim};
  const std::int64_t k[4] = {p->batch, p->kv_heads, p->kv_len, p->head_dim};
  const std::int64_t v[4] = {p->batch, p->kv_heads, p->kv_len, p->v_dim};
  if (!(s = BindGiven("context", in.context, rank, context, true, &g->context)).ok()) return s;
  if (!(s = BindGiven("lse", in.lse, rank, context, false, &g->lse)).ok()) return s;
  if (!(s = BindGiven("d_context", in.d_context, rank, context, true, &g->d_context)).ok()) return s;
  if (!(s = BindWanted("d_q", out.d_q, rank, q, &g->d_q)).ok()) return s;
  if (!(s = BindWanted("d_k", out.d_k, rank, k, &g->d_k)).ok()) return s;
  if (!(s = BindWanted("d_v", out.d_v, rank, v, &g->d_v)).ok()) return s;

  const Inputs& own = in.forward;
  const int bias_axis = 4 - (own.bias ? own.bias : params.bias).rank();
  if (!(s = BindOptionGradient("d_bias", out.d_bias, "bias", own.bias, params.bias, bias_axis, &g->d_bias)).ok()) return s;
  for (int axis = 0; axis < 4; ++axis) {
    g->d_bias_dim[axis] = axis < bias_axis || !out.d_bias ? 1 : out.d_bias.shape()[axis - bias_axis];
    if (g->d_bias_dim[axis] == 1) g->d_bias.stride[axis] = 0;
  }
  if (!(s = BindOptionGradient("d_alibi_slopes", out.d_alibi_slopes, "alibi_slopes", own.alibi_slopes, params.alibi_slopes, 1,
                               &g->d_alibi_slopes))
           .ok())
    return s;
  if (!(s = BindOptionGradient("d_sinks", out.d_sinks, "sinks", own.sinks, params.sinks, 1, &g->d_sinks)).ok()) return s;
  return CheckOverlap(params, in, out);
}

}  // namespace regard::internal
