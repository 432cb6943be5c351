// A linear map of a problem, y = x·matrixᵀ + bias, and whether one fits.
#pragma once

#include <string>

#include "core/internal_api.h"
#include "regard/tensor.h"

namespace regard::internal {

/// Names for messages, the matrix [out, in] and its bias [out], either or both left out.
struct Linear {
  const char* matrix_name;
  const char* bias_name;
  const TensorView& matrix;
  const TensorView& bias;
};

/// Throws Error where x is given with a type that is no float.
REGARD_INTERNAL_API void CheckFloat(const char* name, const TensorView& x);

/// Throws Error where types are no floats, the bias has no matrix or not its rows, or the matrix, if given, does not fit: `hint` is what the
/// message says then behind its shape.
REGARD_INTERNAL_API void CheckLinear(const Linear& linear, bool fits, const std::string& hint);

}  // namespace regard::internal
