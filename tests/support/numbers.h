// Numbers that expose mistakes: signed, asymmetric, and different from element to element.
#pragma once

#include <cmath>
#include <cstdint>

#include "regard/tensor.h"

namespace regard::test {

/// A tensor of numbers in [−2, 2.6], rounded to `dtype`; other seeds give others.
inline Tensor Numbers(DType dtype, const Dims& shape, double seed) {
  Tensor tensor(DType::kF64, shape);
  for (std::int64_t n = 0; n < tensor.num_elements(); ++n) {
    tensor.MutableAs<double>()[n] = 2.3 * std::sin(seed + 1.7 * static_cast<double>(n * n % 211)) + 0.3;
  }
  return Tensor::CopyOf(tensor, dtype);
}

}  // namespace regard::test
