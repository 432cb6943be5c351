#include "nn/heads.h"

#include <utility>

#include "core/dropout.h"
#include "nn/dense.h"
#include "regard/backward.h"

namespace regard::nn {
namespace {

Tokens RowsOf(const Tensor& rows) { return {rows.dim(0), rows.dim(1), rows.dim(2)}; }

Dims HeadsFirstShape(const Tokens& of, std::int64_t heads) { return {of.batch, heads, of.tokens, of.dim / heads}; }
Dims HeadsFirstStrides(const Tokens& of, std::int64_t heads) { return {of.tokens * of.dim, of.dim / heads, of.dim, 1}; }

// Checks in double take the only path that computes in double.
ExecOptions ExecFor(DType dtype, ExecOptions exec) {
  if (dtype == DType::kF64) exec.path = Path::kReference;
  return exec;
}

}  // namespace

Tokens TokensOf(const char* name, const TensorView& x) {
  if (!x || (x.rank() != 2 && x.rank() != 3)) {
    Fail(ErrorCode::kShapeMismatch, std::string(name) + ": " + (x ? "shape " + ToString(x.shape()) : std::string("missing")) +
                                        "; give [tokens, dim] or [batch, tokens, dim]");
  }
  return {x.rank() == 3 ? x.dim(0) : 1, x.dim(-2), x.dim(-1)};
}

TensorView WithBatch(const TensorView& x) { return x.rank() == 2 ? x.Unsqueeze(0) : x; }

Tensor LikeInput(Tensor y, const TensorView& x) {
  return x.rank() == 3 ? std::move(y) : Tensor::CopyOf(y.view().Reshape({y.dim(1), y.dim(2)}));
}

TensorView HeadsFirst(const Tensor& rows, const Tokens& of, std::int64_t heads) {
  return {rows.view().data(), rows.dtype(), HeadsFirstShape(of, heads), HeadsFirstStrides(of, heads)};
}

MutableTensorView MutableHeadsFirst(Tensor& rows, const Tokens& of, std::int64_t heads) {
  return {rows.mutable_view().mutable_data(), rows.dtype(), HeadsFirstShape(of, heads), HeadsFirstStrides(of, heads)};
}

AttentionParams ParamsOfRun(AttentionParams params, std::optional<std::uint64_t> dropout_seed) {
  internal::CheckDropout(params.dropout).ThrowIfFailed();  // in a run without dropout, too: not first in training
  if (!dropout_seed) params.dropout = 0;
  params.dropout_seed = dropout_seed.value_or(0);
  return params;
}

HeadsResult AttendHeads(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t heads, std::int64_t kv_heads,
                        const AttentionParams& params, const ExecOptions& exec) {
  const Tokens queries = RowsOf(q), values = RowsOf(v);
  const Inputs inputs{HeadsFirst(q, queries, heads), HeadsFirst(k, RowsOf(k), kv_heads), HeadsFirst(v, values, kv_heads)};
  const Tokens contexts{queries.batch, queries.tokens, heads * (values.dim / kv_heads)};
  HeadsResult result{Tensor::Uninitialized(q.dtype(), {contexts.batch, contexts.tokens, contexts.dim}),
                     Tensor::Uninitialized(q.dtype(), {queries.batch, heads, queries.tokens})};
  const Plan plan(PlanShape::Of(inputs.q, inputs.k, inputs.v), params, ExecFor(q.dtype(), exec));
  Workspace workspace = plan.MakeWorkspace();
  Outputs outputs;
  outputs.context = MutableHeadsFirst(result.context, contexts, heads);
  outputs.lse = result.lse.mutable_view();
  plan.Run(inputs, outputs, workspace).ThrowIfFailed();
  return result;
}

HeadsGrads AttendHeadsBackward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& context, const Tensor& lse,
                               const Tensor& d_context, std::int64_t heads, std::int64_t kv_heads, const AttentionParams& params,
                               const ExecOptions& exec) {
  const Tokens queries = RowsOf(q), keys = RowsOf(k), values = RowsOf(v), contexts = RowsOf(context);
  HeadsGrads grads{Tensor::Uninitialized(q.dtype(), q.shape()), Tensor::Uninitialized(k.dtype(), k.shape()),
                   Tensor::Uninitialized(v.dtype(), v.shape())};
  BackwardInputs inputs;
  inputs.forward = {HeadsFirst(q, queries, heads), HeadsFirst(k, keys, kv_heads), HeadsFirst(v, values, kv_heads)};
  inputs.context = HeadsFirst(context, contexts, heads);
  inputs.lse = lse;
  inputs.d_context = HeadsFirst(d_context, contexts, heads);
  BackwardOutputs outputs;
  outputs.d_q = MutableHeadsFirst(grads.d_q, queries, heads);
  outputs.d_k = MutableHeadsFirst(grads.d_k, keys, kv_heads);
  outputs.d_v = MutableHeadsFirst(grads.d_v, values, kv_heads);
  const BackwardPlan plan(PlanShape::Of(inputs.forward.q, inputs.forward.k, inputs.forward.v), params, ExecFor(q.dtype(), exec));
  Workspace workspace = plan.MakeWorkspace();
  plan.Run(inputs, outputs, workspace).ThrowIfFailed();
  return grads;
}

}  // namespace regard::nn
