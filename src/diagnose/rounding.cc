#include "diagnose/rounding.h"

#include <algorithm>
#include <cmath>

namespace regard::internal {

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

}  // namespace regard::internal
