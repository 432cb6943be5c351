// What the reference path says about one query row, in double, and how far f32 may be from it.
//
// With u = 2⁻²⁴, weights w_j and masked scores m_j of the row, and rounding errors taken as independent and at most u each, so that n of
// them add up to about √n (Higham and Mary 2019):
//     ε_j = u·[(√dim + 8)·|scale|·Σ_d |q_d·k_jd| + 8·(|m_j| + |lse|)]            of masked score j: products, scale, cap, bias, exp
//     |Δcontext_d| ≤ 4·√(Σ_j (w_j·ε_j·(|v_jd| + |context_d|))²) + 2·(√n + 8)·u·Σ_j w_j·|v_jd| + rounding to the element type
//                    and, where weights are rounded to b for their products with v, 4·b·√(Σ_j (w_j·v_jd)²) more
//                    and, where int8 is taken as integers, with r of weights and s_j the scale of v_j, 4·r·√(Σ_j (max of w·s near j · v_jd/s_j)²)
//                    with dropout v_jd times the multiplier of w_j
//     |Δlse|       ≤ 4·√(Σ_j (w_j·ε_j)²) + 2·(√n + 8)·u + 4·u·|lse|
//     |Δw_j|       ≤ w_j·(4·ε_j + bound of lse)
//     |Δentropy|   ≤ 4·√(Σ_j (w_j·ε_j·(1 + |ln w_j|))²) + (bound of lse + 2·(√n + 8)·u)·(1 + entropy)
// over the n visible keys. That holds for inputs like the workload's; a kernel that skips one tile of keys, or shifts a mask by one, is
// out of bounds by far. Where q is rounded to integers, to r of its largest element, ε_j has r·max|q|·|scale|·√(Σ_d k_jd²) more. A
// weight that is computed afterwards, as exp(m_j − lse) by a sum that starts at −lse,
// has √dim·u·|lse| more in ε_j.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/integer_rounding.h"
#include "measure/workload.h"
#include "regard/stages.h"

namespace regard::measure {

inline constexpr double kUnit = 0x1p-24;  // u: the largest relative error of rounding to f32

/// The largest relative error of rounding to a stored type.
double StorageUnit(DType dtype);

/// 2·(√n + 8)·u: what adding n numbers may err by, as a part of the sum of their absolute values.
double SumError(std::int64_t count);

/// What ε_j depends on: a query and a key of `dim` numbers, at the default scale. The sum of products starts at `start`, which is rounded with
/// them: 0, or −lse where weights are computed afterwards.
struct ScoreTerms {
  const double *q, *k;
  std::int64_t dim;
  double masked_score, lse;
  double start = 0;
};
double ScoreError(const ScoreTerms& terms);

class RowCheck {
 public:
  /// weight_unit: what weights are rounded to for their products with v, beyond f32.
  explicit RowCheck(const Workload::Row& row, double weight_unit = 0, const internal::IntegerRounding& integers = {});

  std::int64_t keys() const { return keys_; }
  double Context(std::int64_t d) const { return contexts_[static_cast<std::size_t>(d)]; }
  double Lse() const { return reference_.lse(0, 0, 0); }
  double MaskedScore(std::int64_t j) const { return reference_.masked_scores(0, 0, 0, j); }
  double Weight(std::int64_t j) const { return reference_.weights(0, 0, 0, j); }
  double Entropy() const;

  double ContextBound(std::int64_t d, DType stored) const;
  double LseBound() const;
  double MaskedScoreBound(std::int64_t j) const { return 4 * score_error_[static_cast<std::size_t>(j)]; }
  double EntropyBound() const;

 private:
  double Multiplier(std::int64_t j) const { return multipliers_ ? multipliers_(0, 0, 0, j) : 1; }
  void SumValues(const Workload::Row& row, double weight_unit, const internal::IntegerRounding& integers);

  std::int64_t keys_;
  Stages reference_;
  Tensor multipliers_;                        // of weights by dropout, [1, 1, 1, keys]; not given without
  std::vector<double> score_error_;           // ε_j; 0 for a key that is not visible
  std::int64_t visible_ = 0;                  // n
  std::vector<double> contexts_;              // of each d
  std::vector<double> squares_, magnitudes_;  // of each d: Σ of the squares under the root, Σ_j w_j·|v_jd|
};

}  // namespace regard::measure
