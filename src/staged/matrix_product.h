// The matrix products of the staged and nn rooms, by CBLAS: row-major, unit stride along columns, sizes that fit its 32-bit integers.
//
// How many threads a product uses is the BLAS library's own affair, whatever ExecOptions::threads says. CBLAS has no argument for it, and
// what libraries offer besides, such as openblas_set_num_threads, holds for the whole process: a library must not change that behind the
// back of its program. The command, which is the program, does (cli/blas_threads.h).
#pragma once

#include <cstdint>
#include <limits>

#include "regard/error.h"

namespace regard::internal {

/// c [m, n] = alpha · a [m, k] · bᵀ, where b is [n, k]. k = 0 gives zeros.
void MultiplyByTransposed(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a, std::int64_t a_stride,
                          const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride);
void MultiplyByTransposed(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* a, std::int64_t a_stride,
                          const double* b, std::int64_t b_stride, double* c, std::int64_t c_stride);

/// c [m, n] = a [m, k] · b [k, n]. k = 0 gives zeros.
void Multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
              std::int64_t b_stride, float* c, std::int64_t c_stride);
void Multiply(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t a_stride, const double* b,
              std::int64_t b_stride, double* c, std::int64_t c_stride);

/// c [m, n] = aᵀ · b [k, n], where a is [k, m]. k = 0 gives zeros.
void MultiplyTransposed(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
                        std::int64_t b_stride, float* c, std::int64_t c_stride);
/// c [m, n] += aᵀ · b [k, n], where a is [k, m].
void AddTransposedProduct(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
                          std::int64_t b_stride, float* c, std::int64_t c_stride);
void AddTransposedProduct(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t a_stride, const double* b,
                          std::int64_t b_stride, double* c, std::int64_t c_stride);

/// kOutOfMemory when the BLAS could not have its working memory. OpenBLAS does not say so: a product that it cannot get memory for asks for ever.
/// Looks once a process; to be called before the first product of a run.
Status CheckBlasMemory() noexcept;

inline constexpr std::int64_t kLongestProductAxis = std::numeric_limits<int>::max();

/// Whether a matrix with this row stride can be handed to a product as it is; its columns have unit stride.
inline bool IsProductStride(std::int64_t row_stride, std::int64_t columns) {
  return row_stride >= (columns > 1 ? columns : 1) && row_stride <= kLongestProductAxis;
}

}  // namespace regard::internal
