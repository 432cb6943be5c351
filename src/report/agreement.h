// Do the paths agree? Batched results against the reference, which takes one token at a time in double precision, row by row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/rows.h"

namespace regard::report {

/// How one result differs from the reference.
struct PathDifference {
  std::string path;       // "fused", "staged"
  double max_abs = 0;     // largest |difference| of a context element; infinite where only one side is finite
  double max_rel = 0;     // largest (row's largest |difference|) / (row's largest |reference|)
  RowIndex worst_row;     // the row that uses most of its bound
  double bound_used = 0;  // the part of its rounding-error bound that the worst element uses; beyond 1 is a disagreement

  bool agrees() const { return bound_used <= 1; }
};

struct Agreement {
  RowSample sample;
  std::vector<PathDifference> paths;

  bool agrees() const;
};

/// `context` [rows, v_dim] f64 against the same rows of the reference. The bound of an element is what f32 arithmetic may lose,
/// first order in u = 2⁻²⁴: with ε_j the error of masked score j,
///     ε_j ≤ u·[(head_dim + 16)·(|scale|·Σ_d |q_d·k_jd| + |lse| + 16) + 8·(|bias| + |alibi| + |masked_score_j| + |lse|)]
///     |context_d − reference_d| ≤ Σ_j w_j·ε_j·(|v_jd| + |reference_d|) + (kv_len + 16)·u·Σ_j w_j·|v_jd|
///                               + weight_rounding·Σ_j w_j·|v_jd| + the rounding to `context_type`
/// where the terms are those of the dot product with its inputs and scale rounded, summed from a running reference near the
/// largest score; of exp and its argument (its absolute error grows with the argument); and of a sum in any order. A soft cap has
/// slope ≤ 1 and adds nothing to the first term. Where ε_j is not small, beside biases of millions, the weight may be anything up
/// to w_j·exp(2·ε_j) ≤ 1.
PathDifference CompareRows(const std::string& path, const Call& call, const RowSample& sample, const RowStages& reference,
                           const Tensor& context, DType context_type, double weight_rounding = 0);

/// The third stage alone: weights [rows, kv_len] times v, where `group_size` heads read one of v, each element against a sum in
/// double. `weight_error` bounds the relative error of the weights that `context` was made from: 0 when it was made from these
/// very ones.
PathDifference CompareThirdStage(const std::string& path, const Tensor& weights, const TensorView& v, std::int64_t group_size,
                                 const RowSample& sample, const Tensor& context, DType context_type, double weight_error = 0);

/// One line a path.
std::string Show(const Agreement& agreement, bool name_heads);

}  // namespace regard::report
