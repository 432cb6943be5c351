// q, k and v (and a bias) as the accelerated paths want them: with unit stride along the last axis, as f32, or k and v of the fused path as
// f32, f16 or bf16. Tensors that are so already are used where they lie; others are copied into the workspace once a run, as f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/copy.h"
#include "core/problem.h"

namespace regard::internal {

struct FloatOperand {
  const float* data = nullptr;
  std::int64_t stride[4] = {};  // in floats; the last is 1

  /// Null when there are no elements.
  const float* Row(std::int64_t b, std::int64_t h, std::int64_t t) const {
    if (data == nullptr) return nullptr;
    return data + b * stride[0] + h * stride[1] + t * stride[2];
  }
};

/// Whether a view with `last_dim` elements along dim can be used where it lies.
bool IsFloatOperand(const View4& view, std::int64_t last_dim);

/// Floats of workspace that a copy takes: 0 for what is used in place.
std::int64_t OperandCopySize(DType dtype, bool strided_dim, std::int64_t batch, std::int64_t heads, std::int64_t length,
                             std::int64_t dim);

/// The view itself, or its copy made in `copy` (rows spread over threads) by LoadRow, or LoadBiasRow for a bias.
FloatOperand MakeFloatOperand(const View4& view, const std::int64_t dims[4], float* copy, int threads,
                              decltype(LoadRow)* load = LoadRow);

/// The same for f32, f16 and bf16, which keep their type when they are copied.
struct StoredOperand {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t stride[4] = {};  // in elements; the last is 1

  /// Null when there are no elements.
  const void* Row(std::int64_t b, std::int64_t h, std::int64_t t) const {
    if (data == nullptr) return nullptr;
    return static_cast<const char*>(data) +
           (b * stride[0] + h * stride[1] + t * stride[2]) * static_cast<std::int64_t>(ItemSize(dtype));
  }
};
bool IsStoredOperand(const View4& view, std::int64_t last_dim);
/// The element type that MakeStoredOperand's result has.
DType StoredType(DType dtype);
std::int64_t StoredCopySize(DType dtype, bool strided_dim, std::int64_t batch, std::int64_t heads, std::int64_t length,
                            std::int64_t dim);
StoredOperand MakeStoredOperand(const View4& view, const std::int64_t dims[4], float* copy, int threads);

}  // namespace regard::internal
