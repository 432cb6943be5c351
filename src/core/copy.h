// Copies elements between strided views of equal shape, converting between element types.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "regard/tensor.h"

namespace regard::internal {

/// to = from, element by element. Equal types are copied bit for bit; otherwise the target is a float type and each value is
/// rounded once. Shapes must be equal.
void CopyElements(const TensorView& from, const MutableTensorView& to);

/// A row of `count` elements with stride `stride` as floats.
void LoadRow(const void* data, DType dtype, std::int64_t stride, std::int64_t count, float* to);

/// The inverse for f32, f16 and bf16: each value is rounded once, to nearest, ties to even; NaN stays NaN.
void StoreRow(const float* from, std::int64_t count, void* data, DType dtype, std::int64_t stride);

/// LoadRow for a bias, where only a stored −inf hides a key: f64 values beyond the range of float become its largest finite value, so
/// that a mask filled with the smallest double does not become one filled with −inf.
void LoadBiasRow(const void* data, DType dtype, std::int64_t stride, std::int64_t count, float* to);

}  // namespace regard::internal
