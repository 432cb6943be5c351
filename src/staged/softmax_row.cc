#include "staged/softmax_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace regard::internal {
namespace {

template <typename T>
T SoftmaxRowOf(T* row, std::int64_t count, T sink) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity(), kNaN = std::numeric_limits<T>::quiet_NaN();
  T largest = sink;
  bool undefined = false;
  for (std::int64_t j = 0; j < count; ++j) {
    undefined |= !(row[j] < kInfinity);
    largest = row[j] > largest ? row[j] : largest;
  }
  if (undefined) {
    for (std::int64_t j = 0; j < count; ++j) row[j] = row[j] == -kInfinity ? 0 : kNaN;
    return kNaN;
  }
  if (largest == -kInfinity) {
    std::fill_n(row, count, T{0});
    return sink;
  }
  T sum = 0;
  for (std::int64_t j = 0; j < count; ++j) sum += row[j] = std::exp(row[j] - largest);
  sum += std::exp(sink - largest);
  for (std::int64_t j = 0; j < count; ++j) row[j] /= sum;
  return largest + std::log(sum);
}

}  // namespace

float SoftmaxRow(float* row, std::int64_t count, float sink) { return SoftmaxRowOf(row, count, sink); }
double SoftmaxRow(double* row, std::int64_t count, double sink) { return SoftmaxRowOf(row, count, sink); }

}  // namespace regard::internal
