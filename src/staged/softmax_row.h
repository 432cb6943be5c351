// Softmax of one row in place, in double; the ISA room has the same for float (KernelTable::softmax_row).
#pragma once

#include <cstdint>

namespace regard::internal {

/// row [count] of scores becomes weights; returns the lse, natural log. Each exp and the logarithm within 1 ulp; the sum in order.
///   all −inf or count = 0   weights 0; the lse is −inf
///   a NaN or +inf in it     weights NaN but for scores of −inf, which weigh 0 in any row; the lse is NaN
double SoftmaxRow(double* row, std::int64_t count);

}  // namespace regard::internal
