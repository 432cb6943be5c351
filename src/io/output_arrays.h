// Arrays on their way out, checked and contiguous.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io.h"

namespace regard::io {

/// Borrows `arrays` and the memory of their tensors; copies those that are not contiguous.
class OutputArrays {
 public:
  /// Throws kInvalidArgument unless all names differ, are not empty and are UTF-8 without NUL.
  OutputArrays(const std::string& path, const std::vector<OutputArray>& arrays);

  /// The elements of array `i` in C order; empty for strings.
  std::string_view Bytes(std::size_t i) const { return bytes_[i]; }

 private:
  std::vector<Tensor> copies_;
  std::vector<std::string_view> bytes_;
};

/// The elements of a contiguous tensor.
std::string_view BytesOf(const TensorView& tensor);

}  // namespace regard::io
