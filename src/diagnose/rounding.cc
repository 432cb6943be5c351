#include "diagnose/rounding.h"

#include <algorithm>
#include <cmath>

namespace regard::internal {
namespace {

// f32: products and weights below it lose digits, or all of them where a machine takes them for 0.
constexpr double kSmallestNormal = 0x1p-126;

// As a result is stored between the steps of its computation.
double OfStored(int p, double exact) { return 4 * kUnitRoundoff[p] * std::fabs(exact); }

}  // namespace

StorageRoundoff RoundoffOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {0x1p-11, 0x1p-25, 65504};
    case DType::kBF16:
      return {0x1p-8, 0x1p-134, 3.38953139e38};
    default:
      return {0x1p-24, 0x1p-150, 3.40282347e38};  // f64 too: computed in f32 and widened, as far as anyone can tell
  }
}

RowRoundoff RoundoffOfRow(std::int64_t head_dim, std::int64_t num_keys, double largest_dot, double largest_score) {
  RowRoundoff r;
  r.head_dim = static_cast<double>(head_dim);
  r.num_keys = static_cast<double>(num_keys);
  for (int p = 0; p < kNumPrecisions; ++p) {
    const double u = kUnitRoundoff[p] * (p <= static_cast<int>(Precision::kF32) ? 4 : 1);
    r.sums[p] = u * (4 + 2 * std::sqrt(static_cast<double>(num_keys)));
    r.score[p] = u * ((1 + std::sqrt(static_cast<double>(head_dim)) / 4) * largest_dot + largest_score);
    r.weight[p] = std::expm1(std::min(2 * r.score[p], 60.0)) + r.sums[p];
    if (p == 0) r.weight[p] = std::min(r.weight[p], kWidestMatch);
    r.lse[p] = r.score[p] + r.sums[p];
  }
  return r;
}

double RowRoundoff::OfScore(int p, double exact) const { return score[p] + OfStored(p, exact) + head_dim * kSmallestNormal; }

double RowRoundoff::OfWeight(int p, double exact) const {
  return std::min(std::fabs(exact) * weight[p], 1 + std::fabs(exact)) + kUnitRoundoff[p] * 1e-4;
}

double RowRoundoff::OfLse(int p, double exact) const { return lse[p] + OfStored(p, exact); }

double RowRoundoff::OfContext(int p, double exact, double magnitude, double largest_value, bool is_average) const {
  const double of_sum = magnitude * weight[p];
  const double bound = is_average ? std::min(of_sum, std::fabs(exact) + largest_value * (1 + sums[p])) : of_sum;
  return bound + num_keys * kSmallestNormal * (1 + largest_value);
}

double RoundoffOfProjection(int p, std::int64_t in_dim, double exact, double magnitude) {
  return kUnitRoundoff[p] * (4 + std::sqrt(static_cast<double>(in_dim))) * (magnitude + std::fabs(exact));
}

}  // namespace regard::internal
