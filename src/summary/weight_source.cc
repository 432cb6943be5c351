#include "summary/weight_source.h"

#include <algorithm>

#include "attention/plan_checks.h"
#include "core/bind.h"
#include "core/copy.h"
#include "core/parallel_for.h"

namespace regard::internal {

const KernelTable& SummaryKernels(const ExecOptions& exec) {
  if (exec.path != Path::kFused) {
    throw Error(ErrorCode::kUnsupported, std::string("path: ") + Name(exec.path) +
                                             " streams no weights; use fused, or ComputeStages and reduce its weights");
  }
  return ResolveKernels(exec.isa);
}

// Weights need no v: k stands in for it.
WeightSource::WeightSource(const TensorView& q, const TensorView& k, const TensorView& lse, const AttentionParams& params,
                           const ExecOptions& exec)
    : WeightSource(PlanShape::Of(q, k, k), {q, k, k}, lse, params, exec) {}

WeightSource::WeightSource(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                           const TensorView& lse, const AttentionParams& params, const ExecOptions& exec)
    : WeightSource(PlanShape::Of(q, cache, sequences), Inputs::Of(q, cache, sequences), lse, params, exec) {}

WeightSource::WeightSource(const PlanShape& shape, const Inputs& run, const TensorView& lse, const AttentionParams& params,
                           const ExecOptions& exec)
    : kernels_(SummaryKernels(exec)), threads_(ResolveThreads(std::max(exec.threads, 0))) {
  if (!lse) throw Error(ErrorCode::kInvalidArgument, "lse: missing; pass the lse that Attention gave for q, k and these options");
  CheckPlan(shape, params, exec).ThrowIfFailed();
  // An lse is bound by the rules of the output that it was; it is only read.
  const MutableTensorView read_only(const_cast<void*>(lse.data()), lse.dtype(), lse.shape(), lse.strides());
  Results results;
  Bind(shape, params, ResolveScale(shape, params), run, {.lse = read_only}, &problem_, &results).ThrowIfFailed();
  const Problem& p = problem_;
  lse_.resize(static_cast<std::size_t>(p.batch * p.heads * p.q_len));
  float* to = lse_.data();
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t i = 0; i < p.q_len; ++i) {
        *to++ = static_cast<float>(LoadDouble(results.lse.data, results.lse.dtype, results.lse.Offset(b, h, i, 0)));
      }
    }
  }
  ScratchLayout layout;
  PlanShape without_v = KernelInputsLayout::ShapeOf(p);
  without_v.v_dim = 0;
  const KernelInputsLayout inputs(without_v, KernelInputsLayout::Options::Of(p), layout);
  workspace_ = Workspace(layout.total());
  inputs_.emplace(p, inputs, workspace_.data(), threads_, KernelInputs::Values::kUnused);
}

QueryRow WeightSource::Row(const Sequence& entry, std::int64_t h, std::int64_t i, std::int64_t key_begin,
                           std::int64_t key_end) const {
  QueryRow row = inputs_->Row(entry, h, i);
  row.lse = const_cast<float*>(lse_.data()) + (entry.batch * problem_.heads + h) * problem_.q_len + i;
  row.key_begin = std::clamp(row.key_begin, key_begin, key_end);
  row.key_end = std::clamp(row.key_end, row.key_begin, key_end);
  return row;
}

}  // namespace regard::internal
