// The one-line calls: a plan, a workspace and a run.
#include "regard/attention.h"

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

}  // namespace

AttentionResult Attention(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionParams& params,
                          const ExecOptions& exec) {
  const Plan plan(PlanShape::Of(q, k, v), params, exec);
  AttentionResult result{Tensor::Uninitialized(v.dtype(), ResultShape(q, v.dim(-1))),
                         Tensor::Uninitialized(StageType(exec.path), ResultShape(q, -1))};
  Workspace workspace = plan.MakeWorkspace();
  plan.Run({q, k, v},
           {.context = result.context.mutable_view(), .lse = result.lse.mutable_view(), .empty_rows = &result.empty_rows},
           workspace)
      .ThrowIfFailed();
  return result;
}

Stages ComputeStages(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionParams& params,
                     const ExecOptions& exec) {
  ExecOptions staged = exec;
  if (staged.path == Path::kFused) staged.path = Path::kStaged;
  const Plan plan(PlanShape::Of(q, k, v), params, staged);
  const DType type = StageType(staged.path);
  const auto stage = [&] { return Tensor::Uninitialized(type, ResultShape(q, k.dim(-2))); };
  Stages s{stage(),
           stage(),
           stage(),
           stage(),
           Tensor::Uninitialized(type, ResultShape(q, v.dim(-1))),
           Tensor::Uninitialized(type, ResultShape(q, -1))};
  Workspace workspace = plan.MakeWorkspace();
  plan.Run({q, k, v},
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

}  // namespace regard
