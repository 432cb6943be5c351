// How the state of one query row becomes its context and lse.
#pragma once

#include <cmath>
#include <limits>

namespace regard::internal {

struct FinishedRow {
  float factor;  // multiplies the unnormalised context
  float lse;     // natural log, the sink's term included
};

/// row_sum weights at reference row_ref (log2 units); sink in natural units, −inf is none. Adds the sink's term here and once.
/// No weight at all: factor 0, and lse is the sink. NaN in row_sum makes both NaN.
inline FinishedRow FinishRow(float row_ref, float row_sum, float sink) {
  constexpr double kLn2 = 0.6931471805599453;
  if (row_sum == 0.0f) return {0.0f, sink};
  const double lse = kLn2 * row_ref + std::log(static_cast<double>(row_sum));
  if (sink == -std::numeric_limits<float>::infinity()) return {1.0f / row_sum, static_cast<float>(lse)};
  // The share of the keys in all weight is 1/(1 + e^(sink − lse)), which neither overflows nor cancels.
  const double sink_over_keys = std::exp(sink - lse);
  const double share = 1.0 / (1.0 + sink_over_keys);
  const double lse_with_sink = sink > lse ? sink + std::log1p(std::exp(lse - sink)) : lse + std::log1p(sink_over_keys);
  return {static_cast<float>(share / row_sum), static_cast<float>(lse_with_sink)};
}

}  // namespace regard::internal
