#include "staged/matrix_product.h"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

namespace regard::internal {
namespace {

template <typename T>
bool IsTrivial(std::int64_t m, std::int64_t n, std::int64_t k, T* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) return true;
  if (k > 0) return false;
  for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * c_stride, n, T{0});
  return true;
}

}  // namespace

void MultiplyByTransposed(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a, std::int64_t a_stride,
                          const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride) {
  if (IsTrivial(m, n, k, c, c_stride)) return;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(a_stride), b, static_cast<int>(b_stride), 0.0f, c, static_cast<int>(c_stride));
}

void MultiplyByTransposed(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* a, std::int64_t a_stride,
                          const double* b, std::int64_t b_stride, double* c, std::int64_t c_stride) {
  if (IsTrivial(m, n, k, c, c_stride)) return;
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(a_stride), b, static_cast<int>(b_stride), 0.0, c, static_cast<int>(c_stride));
}

void Multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
              std::int64_t b_stride, float* c, std::int64_t c_stride) {
  if (IsTrivial(m, n, k, c, c_stride)) return;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1.0f, a,
              static_cast<int>(a_stride), b, static_cast<int>(b_stride), 0.0f, c, static_cast<int>(c_stride));
}

void Multiply(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t a_stride, const double* b,
              std::int64_t b_stride, double* c, std::int64_t c_stride) {
  if (IsTrivial(m, n, k, c, c_stride)) return;
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1.0, a,
              static_cast<int>(a_stride), b, static_cast<int>(b_stride), 0.0, c, static_cast<int>(c_stride));
}

void MultiplyTransposed(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
                        std::int64_t b_stride, float* c, std::int64_t c_stride) {
  if (IsTrivial(m, n, k, c, c_stride)) return;
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1.0f, a,
              static_cast<int>(a_stride), b, static_cast<int>(b_stride), 0.0f, c, static_cast<int>(c_stride));
}

void AddTransposedProduct(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
                          std::int64_t b_stride, float* c, std::int64_t c_stride) {
  if (m == 0 || n == 0 || k == 0) return;
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1.0f, a,
              static_cast<int>(a_stride), b, static_cast<int>(b_stride), 1.0f, c, static_cast<int>(c_stride));
}

void AddTransposedProduct(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t a_stride, const double* b,
                          std::int64_t b_stride, double* c, std::int64_t c_stride) {
  if (m == 0 || n == 0 || k == 0) return;
  cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1.0, a,
              static_cast<int>(a_stride), b, static_cast<int>(b_stride), 1.0, c, static_cast<int>(c_stride));
}

Status CheckBlasMemory() noexcept {
  // The largest buffer of OpenBLAS' builds is 128 MiB and a page; address space is what limits count.
  constexpr std::size_t kBytes = std::size_t{129} << 20;
  static std::atomic<bool> has_been_had = false;
  if (has_been_had) return {};
  void* const memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Status::Failure(ErrorCode::kOutOfMemory,
                           "memory: %zu bytes of address space for the BLAS' matrix products cannot be had; raise the limit",
                           kBytes);
  }
  munmap(memory, kBytes);
  has_been_had = true;
  return {};
}

}  // namespace regard::internal
