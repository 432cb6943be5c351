// Room summary: what people want to know from the weights, at any length. What to reduce and how results merge; the vectorised
// reductions live in the ISA room.
//
// A WeightSource is q, k, lse and the options, checked and bound, ready for the second pass over the weights.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "attention/kernel_inputs.h"
#include "regard/attention.h"

namespace regard::internal {

/// The kernels for exec.isa; Error unless exec.path is fused and the isa runs here.
const KernelTable& SummaryKernels(const ExecOptions& exec);

class WeightSource {
 public:
  /// Throws Error. Memory: a row table, lse, and copies of q and k that are f64 or have no unit stride along dim.
  WeightSource(const TensorView& q, const TensorView& k, const TensorView& lse, const AttentionParams& params,
               const ExecOptions& exec);
  WeightSource(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences, const TensorView& lse,
               const AttentionParams& params, const ExecOptions& exec);
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  const Problem& problem() const { return problem_; }
  const KernelInputs& inputs() const { return *inputs_; }
  const KernelTable& kernels() const { return kernels_; }
  int threads() const { return threads_; }

  /// Query i of a batch entry with its lse in place; the keys it sees are narrowed to [key_begin, key_end). Keys are counted from the
  /// entry's first, packed or not: a weight's bits do not depend on where its key lies.
  QueryRow Row(const Sequence& entry, std::int64_t h, std::int64_t i, std::int64_t key_begin, std::int64_t key_end) const;

 private:
  WeightSource(const PlanShape& shape, const Inputs& inputs, const TensorView& lse, const AttentionParams& params,
               const ExecOptions& exec);

  const KernelTable& kernels_;
  int threads_;
  Problem problem_;
  std::vector<float> lse_;  // [batch, heads, q_len]
  Workspace workspace_;
  std::optional<KernelInputs> inputs_;
};

}  // namespace regard::internal
