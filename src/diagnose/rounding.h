// How far a correct result may lie from the exact one.
//
// Model: every product, sum and stored intermediate of the computation rounds with unit roundoff u; the result is then stored in the
// observed element type, with its own roundoff. For one row, with n keys and d dimensions,
//
//     δ(u) = c·u·((1 + √d/4)·A + S)          error of a masked score: A = |scale|·‖q‖·max‖k‖ ≥ |scale|·Σ|q·k|, S = largest |masked score| or |sink|
//     ρ(u) = exp(2δ) − 1 + c·u·(4 + 2√n)     relative error of a weight: score and maximum err by δ each, then exp, sum and quotient
//
// Sums of n terms are taken to err like √n, not n: rounding errors are not all of one sign (Higham and Mary 2019). c is 4 for f32, where
// a wide bound still is far below any mistake, and 1 for lower precisions, where it is not. Then
//
//     scores         δ(u)                      lse      δ(u) + c·u·(4 + 2√n)
//     weights        w·ρ(u) + u·10⁻⁴           context  Σ|w·v|·ρ(u), and never more than |context| + max|v|
//
// where the first term of a weight is never more than 1 + w, plus 4u·|result| for scores and lse as they are stored, and the smallest normal
// number of f32, 2^−126, for each product of a sum of scores and contexts, times 1 + max|v| in the context: below it digits are lost.
// A result within these bounds for f32 and the storage type is a match. Low precision is told from a mistake by the same bounds with that
// precision's u, and by their use: true rounding fills a small part of them, in the root mean square (kTypicalUse).
#pragma once

#include <cstdint>

#include "regard/tensor.h"

namespace regard::internal {

/// What arithmetic a result may have been computed in, from narrow to wide bounds. kClose is f32 with ρ ≤ kWidestMatch: for hypotheses,
/// since a mistake that makes scores of 10⁶ must not fit everything because f32 would blur it.
enum class Precision : std::uint8_t { kClose, kF32, kTf32, kBf16 };  // tf32 stands for f16 too: 11 bits both
inline constexpr int kNumPrecisions = 4;
inline constexpr double kUnitRoundoff[kNumPrecisions] = {0x1p-24, 0x1p-24, 0x1p-11, 0x1p-8};
inline constexpr double kWidestMatch = 0.02;

/// Half an ulp relative, and half the smallest subnormal, of a storage type.
struct StorageRoundoff {
  double relative, absolute, largest;
};
StorageRoundoff RoundoffOf(DType dtype);

/// The part of its bound that rounding fills in the root mean square, at most. Measured over the correct outputs of
/// tests/diagnose: below 0.3, also where sums are taken one by one in f16.
inline constexpr double kTypicalUse = 0.45;

/// ρ and δ of one row at each precision, and of ρ the part that sums have whatever the weights are.
struct RowRoundoff {
  double head_dim, num_keys;
  double score[kNumPrecisions], weight[kNumPrecisions], sums[kNumPrecisions], lse[kNumPrecisions];

  /// How far one number of the row may lie from the exact one at precision p, before it is stored. A score is before or after the cap, the bias
  /// and the mask.
  double OfScore(int p, double exact) const;
  double OfWeight(int p, double exact) const;
  double OfLse(int p, double exact) const;
  /// magnitude: Σ w·|v|; largest_value ≥ |v| of all keys. is_average: the weights sum to 1 or less, so that however wrong they are, the context
  /// lies within the values.
  double OfContext(int p, double exact, double magnitude, double largest_value, bool is_average) const;
};
RowRoundoff RoundoffOfRow(std::int64_t head_dim, std::int64_t num_keys, double largest_dot, double largest_score);

/// What a product of merged heads [in_dim] with a row of w_out adds of its own; magnitude: Σ |w·context|.
double RoundoffOfProjection(int p, std::int64_t in_dim, double exact, double magnitude);

}  // namespace regard::internal
