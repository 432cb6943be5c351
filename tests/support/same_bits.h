// Whether two results are the same, to the bit.
#pragma once

#include <cstring>

#include "regard/tensor.h"

namespace regard::test {

/// Shape, element type and the bits of every element; views of whatever strides.
inline bool SameBits(const TensorView& a, const TensorView& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const Tensor dense_a = Tensor::CopyOf(a), dense_b = Tensor::CopyOf(b);
  const std::size_t bytes = static_cast<std::size_t>(a.num_elements()) * ItemSize(a.dtype());
  return bytes == 0 || std::memcmp(dense_a.view().data(), dense_b.view().data(), bytes) == 0;
}

}  // namespace regard::test
