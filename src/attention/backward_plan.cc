#include <memory>
#include <utility>

#include "attention/fused_backward.h"
#include "attention/plan_checks.h"
#include "core/bind.h"
#include "core/bind_backward.h"
#include "core/copy.h"
#include "core/parallel_for.h"
#include "reference/backward.h"
#include "regard/backward.h"
#include "regard/kv_cache.h"
#include "staged/backward.h"
#include "staged/matrix_product.h"

namespace regard {

struct BackwardPlan::Impl {
  PlanShape shape;
  AttentionParams params;
  ExecOptions exec;
  float scale = 1;
  int threads = 1;
  const internal::KernelTable* kernels = nullptr;
  std::size_t workspace_bytes = 0;
};

namespace {

void FillWithZeros(const MutableTensorView& view) {
  constexpr float kZero = 0;
  Dims strides;
  for (int axis = 0; axis < view.rank(); ++axis) strides.push_back(0);
  if (view) internal::CopyElements(View(&kZero, view.shape(), strides), view);
}

}  // namespace

BackwardPlan::BackwardPlan(const PlanShape& shape, const AttentionParams& params, const ExecOptions& exec) {
  internal::CheckPlan(shape, params, exec).ThrowIfFailed();
  auto impl = std::make_shared<Impl>();
  *impl = {shape, params, exec, internal::ResolveScale(shape, params), internal::ResolveThreads(exec.threads)};
  impl->kernels = &internal::ResolveKernels(exec.isa);  // a name that does not run here is an error on every path
  switch (exec.path) {
    case Path::kFused:
      impl->workspace_bytes = internal::FusedBackwardWorkspaceBytes(shape, params, *impl->kernels, impl->threads);
      break;
    case Path::kStaged:
      impl->workspace_bytes = internal::StagedBackwardWorkspaceBytes(shape, params, impl->threads);
      break;
    case Path::kReference:
      impl->workspace_bytes = internal::ReferenceBackwardWorkspaceBytes(shape, impl->threads);
      break;
  }
  internal::CheckWorkspaceBytes(shape, exec.path, impl->threads, impl->workspace_bytes);
  impl_ = std::move(impl);
}

BackwardPlan::~BackwardPlan() = default;

std::size_t BackwardPlan::WorkspaceBytes() const noexcept { return impl_->workspace_bytes; }
const PlanShape& BackwardPlan::shape() const noexcept { return impl_->shape; }
const AttentionParams& BackwardPlan::params() const noexcept { return impl_->params; }
const ExecOptions& BackwardPlan::exec() const noexcept { return impl_->exec; }
float BackwardPlan::scale() const noexcept { return impl_->scale; }
int BackwardPlan::threads() const noexcept { return impl_->threads; }

Status BackwardPlan::Run(const BackwardInputs& inputs, const BackwardOutputs& outputs, Workspace& workspace) const noexcept {
  const Impl& plan = *impl_;
  if (workspace.size() < plan.workspace_bytes) {
    return Status::Failure(ErrorCode::kInvalidArgument, "workspace: %zu bytes, but this plan needs %zu; use MakeWorkspace",
                           workspace.size(), plan.workspace_bytes);
  }
  internal::Problem problem;
  internal::Gradients gradients;
  if (Status status = internal::BindBackward(plan.shape, plan.params, plan.scale, inputs, outputs, &problem, &gradients);
      !status.ok())
    return status;
  if (problem.batch == 0 || problem.q_len == 0 || problem.kv_len == 0) {  // no pair: of however many sequences and heads
    for (const MutableTensorView& view :
         {outputs.d_q, outputs.d_k, outputs.d_v, outputs.d_bias, outputs.d_alibi_slopes, outputs.d_sinks}) {
      FillWithZeros(view);
    }
    return {};
  }
  switch (plan.exec.path) {
    case Path::kFused:
      internal::RunFusedBackward(problem, gradients, *plan.kernels, plan.exec, plan.threads, workspace.data());
      break;
    case Path::kStaged:
      if (Status status = internal::CheckBlasMemory(); !status.ok()) return status;
      internal::RunStagedBackward(problem, gradients, plan.exec, plan.threads, workspace.data());
      break;
    case Path::kReference:
      internal::RunReferenceBackward(problem, gradients, plan.exec, plan.threads, workspace.data());
      break;
  }
  if (plan.exec.stop_token.stop_requested())
    return Status::Failure(ErrorCode::kCancelled, "stopped on request; outputs are unspecified");
  return {};
}

namespace {

// d_k and d_v are there already, in the shapes and types of what they are the gradients of.
AttentionGrads RunBackward(const BackwardPlan& plan, const BackwardInputs& inputs, Tensor d_k, Tensor d_v,
                           const ExtraGrads& extra) {
  const AttentionParams& params = plan.params();
  const auto like = [](const TensorView& view) { return Tensor::Uninitialized(view.dtype(), view.shape()); };
  AttentionGrads grads{.d_q = like(inputs.forward.q), .d_k = std::move(d_k), .d_v = std::move(d_v)};
  BackwardOutputs outputs{.d_q = grads.d_q.mutable_view(), .d_k = grads.d_k.mutable_view(), .d_v = grads.d_v.mutable_view()};
  const auto want = [&](bool wanted, const char* name, const TensorView& of, Tensor& gradient, MutableTensorView& output) {
    if (!wanted) return;
    if (!of) {
      throw Error(ErrorCode::kInvalidArgument,
                  "d_" + std::string(name) + ": wanted without " + name + "; give the params " + name + ", or leave it out");
    }
    gradient = like(of);
    output = gradient.mutable_view();
  };
  want(extra.d_bias, "bias", params.bias, grads.d_bias, outputs.d_bias);
  want(extra.d_alibi_slopes, "alibi_slopes", params.alibi_slopes, grads.d_alibi_slopes, outputs.d_alibi_slopes);
  want(extra.d_sinks, "sinks", params.sinks, grads.d_sinks, outputs.d_sinks);
  Workspace workspace = plan.MakeWorkspace();
  plan.Run(inputs, outputs, workspace).ThrowIfFailed();
  return grads;
}

}  // namespace

AttentionGrads AttentionBackward(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& context,
                                 const TensorView& lse, const TensorView& d_context, const AttentionParams& params,
                                 const ExecOptions& exec, const ExtraGrads& extra) {
  const BackwardPlan plan(PlanShape::Of(q, k, v), params, exec);
  return RunBackward(plan, {{q, k, v}, context, lse, d_context}, Tensor::Uninitialized(k.dtype(), k.shape()),
                     Tensor::Uninitialized(v.dtype(), v.shape()), extra);
}

AttentionGrads AttentionBackward(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                                 const TensorView& context, const TensorView& lse, const TensorView& d_context,
                                 const AttentionParams& params, const ExecOptions& exec, const ExtraGrads& extra) {
  const PlanShape shape = PlanShape::Of(q, cache, sequences);
  const BackwardPlan plan(shape, params, exec);
  const auto like_keys = [&](DType stored, std::int64_t dim) {
    const Dims all = {shape.batch, shape.kv_heads, shape.kv_len, dim}, one = {shape.kv_len, dim};
    return Tensor::Uninitialized(stored == DType::kI8 ? DType::kF32 : stored, q.rank() == 4 ? all : one);
  };
  return RunBackward(plan, {Inputs::Of(q, cache, sequences), context, lse, d_context}, like_keys(shape.k_dtype, shape.head_dim),
                     like_keys(shape.v_dtype, shape.v_dim), extra);
}

}  // namespace regard
