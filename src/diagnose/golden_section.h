// Where a function of one valley between low and high is least. The valley of a sum of squares is known to about the square root of the
// rounding unit.
//     const double scale = GoldenSection([&](double x) { return Misfit(x); }, 0.5, 2.0);
#pragma once

#include <cmath>

namespace regard::internal {

template <typename Function>
double GoldenSection(const Function& f, double low, double high) {
  constexpr double kGolden = 0.6180339887498949;
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low), at_a = f(a), at_b = f(b);
  for (int step = 0; step < 60 && std::fabs(high - low) > 1e-9 * std::fabs(low + high); ++step) {
    if (at_a < at_b) {
      high = b, b = a, at_b = at_a, a = high - kGolden * (high - low), at_a = f(a);
    } else {
      low = a, a = b, at_a = at_b, b = low + kGolden * (high - low), at_b = f(b);
    }
  }
  return at_a < at_b ? a : b;
}

}  // namespace regard::internal
