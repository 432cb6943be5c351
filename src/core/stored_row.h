// One row of keys or values, wherever it is stored: read as numbers, and written into a cache.
#pragma once

#include <cstdint>

#include "core/internal_api.h"
#include "regard/tensor.h"

namespace regard::internal {

/// Element d of the row is the number at data[d · stride], times scale.
struct StoredRow {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t stride = 1;  // in elements
  float scale = 1;          // of i8; else 1
};

/// The numbers, exact.
void LoadStored(const StoredRow& row, std::int64_t count, double* to);
/// The same, rounded once.
void LoadStored(const StoredRow& row, std::int64_t count, float* to);
/// One of them, exact.
double LoadStored(const StoredRow& row, std::int64_t index);

/// Writes a row of `count` floats of any type to dense `to`: f32, f16 and bf16 rounded once, to nearest, ties to even; i8 as *scale says:
///   scale = max|x|/127, rounded up; an element is x/scale rounded, within ±127: it errs by at most scale/2·(1 + 2⁻¹⁶)
///   all zero             elements and scale 0
///   NaN or ±inf in it    elements 0 and scale NaN, so that every number of the row is NaN
/// f64 is rounded to f32 before it becomes i8. `scale` is null but for i8.
void StoreRow(const void* from, DType from_dtype, std::int64_t stride, std::int64_t count, DType to_dtype, void* to,
              float* scale);

}  // namespace regard::internal
