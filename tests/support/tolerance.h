// How far a path may be from the definition: one table of roundings, and bounds derived from it for each number of a result.
//
// With unit roundoff u (2^−24 in f32), γ(n) = n·u for a sum or product of n terms in any order (Higham 2002, section 3.1), and all
// magnitudes taken from the reference's stages:
//
//   scores         γ(head_dim + s)·|scale|·Σ|q||k|                          s: multiplications by scale and log2 e
//                  fused sums from −reference on instead of 0: + γ(head_dim + s)·(|max of the row| + r)
//   capped         the error of scores times the slope of the cap, at most 1, + t·u·|capped|       t: tanh and two roundings
//   masked_scores  the error of capped + m·u·(|capped| + |bias| + |alibi|)  m: conversions, products and sums
//   weights        Blanchard, Higham and Higham 2021, the shifted softmax: with a_j = error of masked_scores_j +
//                  x·u·|masked_scores_j − max| the relative error of exp_j is expm1(a_j) + e·u; that of the sum is the mean of those under
//                  the weights, + γ of the sum; a weight's is both together + 2u
//   lse            ln(1 + relative error of the sum) + l·u·(|max| + |ln sum|)         ibid., the shifted log-sum-exp
//   context        Σ w|v|·(relative error of w + γ of the product + rounding of the weights)
//                  with dropout w times its multiplier, which is one more rounding
//
// plus the underflow unit where numbers are that small, or those numbers themselves where they are taken as 0, and half a unit of the stored
// type. Sums of n > 64 terms are taken as
// 8·√n instead of n (Higham and Mary 2019, λ = 8: fails with probability below 1e−13).
//
// Bounds that are never approached test nothing. ErrorLedger keeps the largest error/bound of a whole run for each path and stage
// and fails it below kIdle: then either the inputs exercise no rounding, or a result is compared with itself, or a bound is too loose.
#pragma once

#include <map>
#include <string>

#include "kernels/integer_rounding.h"
#include "tests/support/paths.h"
#include "tests/support/random_problem.h"

namespace regard::test {

/// The roundings of one path; see above for the letters.
struct Arithmetic {
  double unit;             // u
  double smallest;         // results below may be flushed or lose digits: the smallest normal number
  double score_roundings;  // s
  double tanh_roundings;   // t
  double mask_roundings;   // m
  double shift_roundings;  // x
  double exp_roundings;    // e
  double lse_roundings;    // l
  double reference_lag;    // r
};
const Arithmetic& ArithmeticOf(Path path);

/// The growth of a sum of so many terms, in units: see above.
double Growth(double terms);
/// Rounding an f64 input to the path's f32 is one more error of each operand.
double ConversionRoundings(DType dtype, const Arithmetic& arithmetic);

/// What dropout multiplies the weights of a problem by, [rows, kv_len]; without a tensor, and so 1 everywhere, where there is none.
class Multipliers {
 public:
  explicit Multipliers(const TestProblem& problem);
  double at(std::int64_t row, std::int64_t key) const { return values_ ? values_.As<float>()[row * kv_len_ + key] : 1; }
  /// Roundings that they bring.
  double roundings() const { return values_ ? 1 : 0; }
  /// What is kept is multiplied by it, and on the fused path so is what was lost below the smallest number.
  double of_kept() const { return of_kept_; }

 private:
  std::int64_t kv_len_;
  double of_kept_ = 1;
  Tensor values_;
};

/// Half the distance between neighbours of a stored float type near `value`; 0 for f64.
double StoredHalfUnit(DType dtype, double value);

/// Largest absolute error that the derivation allows for each number; [rows, columns] as the results.
struct Bounds {
  Grid scores, capped, masked_scores, weights, context, lse;
};
/// integers: what the path takes q and weights as, where keys and values are int8 in a cache (i8 of the problem is stated as f64): scores err by
/// scale·rounding·max|q|·Σ|k| more, context by ScaledWeights::Error.
Bounds ErrorBounds(const TestProblem& problem, const RunResult& reference, const PathCase& path,
                   const internal::IntegerRounding& integers = {});

class ErrorLedger {
 public:
  /// Short caches reach 0.093 with the problems that Clang draws, whose order of evaluation is its own.
  static constexpr double kIdle = 0.08;

  /// Compares all stages that `result` has with the reference's. Failures name path, stage, cell, values and bound, and what
  /// `regard check` makes of them (diagnosis.h).
  void Compare(const PathCase& path, const TestProblem& problem, const RunResult& result, const RunResult& reference,
               const Bounds& bounds);
  /// One number of a result after the other. Fails, and says where, when one is further off than its bound and half a unit of its stored
  /// type; `name` is what the ledger keeps. Returns whether all is well.
  bool CompareGrid(const std::string& name, const Grid& result, const Grid& reference, const Grid& bound, double unit);
  /// Fails for each stage of each path whose largest error/bound stayed below kIdle.
  void ExpectAlive() const;
  std::string Summary() const;

 private:
  std::map<std::string, double> worst_;  // "staged weights" -> largest error/bound
};

}  // namespace regard::test
