#include <string>

#include "attention/fused.h"
#include "attention/plan_checks.h"
#include "core/bind.h"
#include "core/parallel_for.h"
#include "core/problem.h"
#include "kernels/kernels.h"
#include "reference/reference.h"
#include "regard/attention.h"
#include "regard/kv_cache.h"
#include "staged/matrix_product.h"
#include "staged/staged.h"

namespace regard {

using internal::KernelTable;

struct Plan::Impl {
  PlanShape shape;
  AttentionParams params;
  ExecOptions exec;
  float scale = 1;
  int threads = 1;
  const KernelTable* kernels = nullptr;  // not of the reference path, which has none
  std::size_t workspace_bytes = 0;
};

namespace {

// What a run converts beforehand, in words. The fused kernels take keys and values of f16 and bf16 as they are.
std::string Copies(const PlanShape& s, bool fused) {
  const auto copied = [fused](DType dtype, bool key_or_value) {
    const bool is_half = dtype == DType::kF16 || dtype == DType::kBF16;
    return dtype != DType::kF32 && !(fused && key_or_value && is_half);
  };
  std::string names;
  const auto add = [&](const char* name, bool is_copied) {
    if (is_copied) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add("q", copied(s.q_dtype, false));
  add("k", copied(s.k_dtype, true));
  add("v", copied(s.v_dtype, true));
  if (!names.empty()) return ", copies " + names + " as f32";
  return s.strided_dim ? ", copies operands without unit stride along dim" : "";
}

bool WantsStages(const Outputs& outputs) { return outputs.scores || outputs.capped || outputs.masked_scores || outputs.weights; }

}  // namespace

const char* Name(Path path) noexcept {
  switch (path) {
    case Path::kFused:
      return "fused";
    case Path::kStaged:
      return "staged";
    case Path::kReference:
      return "reference";
  }
  return "unknown";
}

PlanShape PlanShape::Of(const TensorView& q, const TensorView& k, const TensorView& v) {
  const auto check = [](const char* name, const TensorView& view) {
    if (view && (view.rank() == 4 || view.rank() == 2)) return;
    throw Error(ErrorCode::kShapeMismatch, std::string(name) + ": " + (view ? "shape " + ToString(view.shape()) : "missing") +
                                               "; give [batch, heads, tokens, dim] or [tokens, dim]");
  };
  check("q", q);
  check("k", k);
  check("v", v);
  if (q.rank() != k.rank() || q.rank() != v.rank()) {
    throw Error(ErrorCode::kShapeMismatch, "q, k, v: shapes " + ToString(q.shape()) + ", " + ToString(k.shape()) + " and " +
                                               ToString(v.shape()) + "; give all three 4 axes, or all three 2");
  }
  const auto dim = [](const TensorView& view, int axis) {
    return view.rank() == 4 ? view.dim(axis) : axis < 2 ? 1 : view.dim(axis - 2);
  };
  const auto strided = [](const TensorView& view) { return view.dim(-1) > 1 && view.stride(-1) != 1; };
  return {dim(q, 0),
          dim(q, 1),
          dim(k, 1),
          dim(q, 2),
          dim(k, 2),
          dim(q, 3),
          dim(v, 3),
          q.dtype(),
          k.dtype(),
          v.dtype(),
          strided(q) || strided(k) || strided(v)};
}

PlanShape PlanShape::Of(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences) {
  if (!q || (q.rank() != 4 && q.rank() != 2)) {
    throw Error(ErrorCode::kShapeMismatch, std::string("q: ") + (q ? "shape " + ToString(q.shape()) : "missing") +
                                               "; give [sequences, heads, tokens, dim] or [tokens, dim]");
  }
  const KvCacheOptions& o = cache.options();
  std::int64_t longest = 0;
  for (const SequenceId sequence : sequences) longest = std::max(longest, cache.Length(sequence));
  const bool all_axes = q.rank() == 4;
  return {all_axes ? q.dim(0) : 1,
          all_axes ? q.dim(1) : 1,
          o.kv_heads,
          q.dim(-2),
          longest,
          q.dim(-1),
          o.v_dim,
          q.dtype(),
          o.k_dtype,
          o.v_dtype,
          q.dim(-1) > 1 && q.stride(-1) != 1};
}

Plan::Plan(const PlanShape& shape, const AttentionParams& params, const ExecOptions& exec) {
  internal::CheckPlan(shape, params, exec).ThrowIfFailed();
  auto impl = std::make_shared<Impl>();
  *impl = {shape, params, exec, internal::ResolveScale(shape, params), internal::ResolveThreads(exec.threads)};
  const KernelTable& kernels = internal::ResolveKernels(exec.isa);  // a name that does not run here is an error on every path
  if (exec.path != Path::kReference) impl->kernels = &kernels;
  switch (exec.path) {
    case Path::kFused:
      impl->workspace_bytes = internal::FusedWorkspaceBytes(shape, params, *impl->kernels, impl->threads);
      break;
    case Path::kStaged:
      impl->workspace_bytes = internal::StagedWorkspaceBytes(shape, params, impl->threads);
      break;
    case Path::kReference:
      impl->workspace_bytes = internal::ReferenceWorkspaceBytes(shape, impl->threads);
      break;
  }
  internal::CheckWorkspaceBytes(shape, exec.path, impl->threads, impl->workspace_bytes);
  impl_ = std::move(impl);
}

Plan::~Plan() = default;

std::size_t Plan::WorkspaceBytes() const noexcept { return impl_->workspace_bytes; }
const PlanShape& Plan::shape() const noexcept { return impl_->shape; }
const AttentionParams& Plan::params() const noexcept { return impl_->params; }
const ExecOptions& Plan::exec() const noexcept { return impl_->exec; }
float Plan::scale() const noexcept { return impl_->scale; }
int Plan::threads() const noexcept { return impl_->threads; }

std::string Plan::Description() const {
  const PlanShape& s = impl_->shape;
  std::string text = Name(impl_->exec.path);
  const bool fused = impl_->exec.path == Path::kFused;
  if (fused) text += std::string(", ") + impl_->kernels->target;
  text += ", " + std::to_string(impl_->threads) + (impl_->threads == 1 ? " thread" : " threads");
  if (fused) text += ", " + internal::KernelChoice(s.q_len, s.heads / s.kv_heads, static_cast<bool>(impl_->params.q_segments));
  return impl_->exec.path == Path::kReference ? text : text + Copies(s, fused);
}

Status Plan::Run(const Inputs& inputs, const Outputs& outputs, Workspace& workspace) const noexcept {
  const Impl& plan = *impl_;
  if (workspace.size() < plan.workspace_bytes) {
    return Status::Failure(ErrorCode::kInvalidArgument, "workspace: %zu bytes, but this plan needs %zu; use MakeWorkspace",
                           workspace.size(), plan.workspace_bytes);
  }
  if (plan.exec.path == Path::kFused && WantsStages(outputs)) {
    return Status::Failure(ErrorCode::kUnsupported,
                           "outputs: the fused path holds no scores or weights; use path staged or reference, ComputeStages, or "
                           "leave the stages out");
  }
  internal::Problem problem;
  internal::Results results;
  if (Status status = internal::Bind(plan.shape, plan.params, plan.scale, inputs, outputs, &problem, &results); !status.ok())
    return status;
  switch (plan.exec.path) {
    case Path::kFused:
      internal::RunFused(problem, *plan.kernels, plan.exec, plan.threads, workspace.data(), &results);
      break;
    case Path::kStaged:
      if (Status status = internal::CheckBlasMemory(); !status.ok()) return status;
      internal::RunStaged(problem, *plan.kernels, plan.exec, plan.threads, workspace.data(), &results);
      break;
    case Path::kReference:
      internal::RunReference(problem, plan.exec, plan.threads, workspace.data(), &results);
      break;
  }
  if (plan.exec.stop_token.stop_requested())
    return Status::Failure(ErrorCode::kCancelled, "stopped on request; outputs are unspecified");
  if (outputs.empty_rows != nullptr) *outputs.empty_rows = results.empty_rows;
  return {};
}

}  // namespace regard
