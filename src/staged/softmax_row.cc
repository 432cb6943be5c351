#include "staged/softmax_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace regard::internal {

double SoftmaxRow(double* row, std::int64_t count) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  double largest = -kInfinity;
  bool undefined = false;
  for (std::int64_t j = 0; j < count; ++j) {
    undefined |= !(row[j] < kInfinity);
    largest = row[j] > largest ? row[j] : largest;
  }
  if (undefined) {
    for (std::int64_t j = 0; j < count; ++j) row[j] = row[j] == -kInfinity ? 0 : kNaN;
    return kNaN;
  }
  if (largest == -kInfinity) {  // exp(−inf − (−inf)) would be NaN
    std::fill_n(row, count, 0.0);
    return -kInfinity;
  }
  double sum = 0;
  for (std::int64_t j = 0; j < count; ++j) sum += row[j] = std::exp(row[j] - largest);
  for (std::int64_t j = 0; j < count; ++j) row[j] /= sum;
  return largest + std::log(sum);
}

}  // namespace regard::internal
