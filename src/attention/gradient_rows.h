// Query rows with what their gradients need, as the backward kernels take them: some 256 at a time, in memory of the thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/kernel_inputs.h"
#include "core/bind_backward.h"
#include "core/scratch.h"
#include "kernels/kernels.h"

namespace regard::internal {

/// Rows of one kernel call: a block of keys and its gradients serve four blocks of queries.
inline constexpr std::int64_t kGradientRows = 256;

/// Where the rows of all threads lie in a workspace; see ScratchLayout.
struct GradientRowsLayout {
  GradientRowsLayout(const PlanShape& shape, int threads, ScratchLayout& layout);

  std::size_t rows, gradients, lse, context, d_context, d_q;
};

/// The rows of one thread.
class GradientRowsOfThread {
 public:
  GradientRowsOfThread(const KernelInputs& inputs, const Gradients& gradients, const GradientRowsLayout& layout,
                       std::byte* workspace, int thread);

  /// Row n becomes query i of a sequence, in head h. Values that are f32 with unit stride stay where they lie, and so does its d_q.
  void Load(std::int64_t n, const Sequence& sequence, std::int64_t h, std::int64_t i);
  /// d_q of row n into the result, if it is wanted and is not there already.
  void StoreQueryGradient(std::int64_t n, const Sequence& sequence, std::int64_t h, std::int64_t i) const;
  /// Row n sees keys of [begin, end) only.
  void Clip(std::int64_t n, std::int64_t begin, std::int64_t end);

  const QueryRow* rows() const { return rows_; }
  const GradientRow* gradients() const { return gradients_; }

 private:
  const KernelInputs& inputs_;
  const Problem& p_;
  const Gradients& g_;
  QueryRow* rows_;  // [kGradientRows], as all below
  GradientRow* gradients_;
  float *lse_, *context_, *d_context_, *d_q_;
};

/// Whether rows of a result of dim columns can be written where they will lie.
bool IsFloatResult(const MutableView4& view, std::int64_t dim);
void StoreGradientRow(const MutableView4& view, std::int64_t offset, const float* row, std::int64_t dim);

}  // namespace regard::internal
