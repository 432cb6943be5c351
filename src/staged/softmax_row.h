// Softmax of one row in place, with the contract's edge rules in one place.
#pragma once

#include <cstdint>

namespace regard::internal {

/// row [count] of masked scores becomes weights; returns the lse, natural log. A sink of −inf is none.
///   all −inf or count = 0   weights 0; the lse is the sink
///   a NaN or +inf in it     weights NaN but for scores of −inf, which weigh 0 in any row; the lse is NaN
float SoftmaxRow(float* row, std::int64_t count, float sink);
double SoftmaxRow(double* row, std::int64_t count, double sink);

}  // namespace regard::internal
