// The one-line calls: a plan, a workspace and a run.
#include "regard/attention.h"

#include "regard/kv_cache.h"

namespace regard {
namespace {

// [batch, heads, q_len, last], or without what q's rank 2 has not; last < 0 leaves the axis out.
Dims ResultShape(const TensorView& q, std::int64_t last) {
  Dims shape;
  for (int axis = 0; axis < q.rank() - 1; ++axis) shape.push_back(q.dim(axis));
  if (last >= 0) shape.push_back(last);
  return shape;
}

DType StageType(Path path) { return path == Path::kReference ? DType::kF64 : DType::kF32; }

AttentionResult RunAttention(const Inputs& inputs, const PlanShape& shape, DType context, const AttentionParams& params,
                             const ExecOptions& exec) {
  const Plan plan(shape, params, exec);
  AttentionResult result{Tensor::Uninitialized(context, ResultShape(inputs.q, shape.v_dim)),
                         Tensor::Uninitialized(StageType(exec.path), ResultShape(inputs.q, -1))};
  Workspace workspace = plan.MakeWorkspace();
  plan.Run(inputs, {.context = result.context.mutable_view(), .lse = result.lse.mutable_view(), .empty_rows = &result.empty_rows},
           workspace)
      .ThrowIfFailed();
  return result;
}

Stages RunStages(const Inputs& inputs, const PlanShape& shape, const AttentionParams& params, const ExecOptions& exec) {
  ExecOptions staged = exec;
  if (staged.path == Path::kFused) staged.path = Path::kStaged;
  const Plan plan(shape, params, staged);
  const DType type = StageType(staged.path);
  const auto stage = [&] { return Tensor::Uninitialized(type, ResultShape(inputs.q, shape.kv_len)); };
  Stages s{stage(),
           stage(),
           stage(),
           stage(),
           Tensor::Uninitialized(type, ResultShape(inputs.q, shape.v_dim)),
           Tensor::Uninitialized(type, ResultShape(inputs.q, -1))};
  Workspace workspace = plan.MakeWorkspace();
  plan.Run(inputs,
           {.context = s.context.mutable_view(),
            .lse = s.lse.mutable_view(),
            .scores = s.scores.mutable_view(),
            .capped = s.capped.mutable_view(),
            .masked_scores = s.masked_scores.mutable_view(),
            .weights = s.weights.mutable_view(),
            .empty_rows = &s.empty_rows},
           workspace)
      .ThrowIfFailed();
  return s;
}

}  // namespace

AttentionResult Attention(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionParams& params,
                          const ExecOptions& exec) {
  return RunAttention({q, k, v}, PlanShape::Of(q, k, v), v.dtype(), params, exec);
}

AttentionResult Attention(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                          const AttentionParams& params, const ExecOptions& exec) {
  const DType v_dtype = cache.options().v_dtype;
  return RunAttention(Inputs::Of(q, cache, sequences), PlanShape::Of(q, cache, sequences),
                      v_dtype == DType::kI8 ? DType::kF32 : v_dtype, params, exec);
}

Stages ComputeStages(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionParams& params,
                     const ExecOptions& exec) {
  return RunStages({q, k, v}, PlanShape::Of(q, k, v), params, exec);
}

Stages ComputeStages(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                     const AttentionParams& params, const ExecOptions& exec) {
  return RunStages(Inputs::Of(q, cache, sequences), PlanShape::Of(q, cache, sequences), params, exec);
}

}  // namespace regard
