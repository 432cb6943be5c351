// The fused gradients of what the options bring: bias, ALiBi slopes and sinks. Sums in f64, each by one task in a fixed order.
//
// A bias may be broadcast along any axis, and its gradient is then a sum over all pairs that share an element. That needs pairs in another
// order than d_q, d_k and d_v do, so their gradients are computed once more: two of the five products of a backward run, only when asked for.
#pragma once

#include <cstddef>

#include "attention/gradient_rows.h"
#include "attention/kernel_inputs.h"
#include "core/bind_backward.h"
#include "core/scratch.h"
#include "kernels/kernels.h"

namespace regard::internal {

struct OptionGradientsLayout {
  OptionGradientsLayout(const PlanShape& shape, bool has_bias, bool has_alibi, const KernelTable& kernels, int threads,
                        ScratchLayout& layout);

  std::size_t sums, kernel;   // per thread
  std::int64_t kernel_bytes;  // of one thread
};

class OptionGradients {
 public:
  OptionGradients(const KernelInputs& inputs, const Gradients& gradients, const KernelTable& kernels, int threads,
                  const GradientRowsLayout& rows, const OptionGradientsLayout& layout, std::byte* workspace)
      : inputs_(inputs),
        p_(inputs.problem()),
        g_(gradients),
        kernels_(kernels),
        threads_(threads),
        rows_layout_(rows),
        layout_(layout),
        workspace_(workspace) {}

  std::int64_t num_tasks() const;
  /// Fills the gradients that have memory.
  void Run(RunControl& control) const;

 private:
  void OfBias(std::int64_t task, int thread) const;
  double OfSlope(std::int64_t h, int thread) const;

  const KernelInputs& inputs_;
  const Problem& p_;
  const Gradients& g_;
  const KernelTable& kernels_;
  const int threads_;
  const GradientRowsLayout& rows_layout_;
  const OptionGradientsLayout& layout_;
  std::byte* const workspace_;
};

}  // namespace regard::internal
