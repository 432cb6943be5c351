// From bytes of a file to the elements of a tensor, and the checks of shapes that strangers wrote.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/byte_source.h"
#include "regard/tensor.h"

namespace regard::io {

// All formats but .npy store little-endian elements, and this room copies them as they are.
static_assert(std::endian::native == std::endian::little, "the io room reads and writes elements of a little-endian machine");

/// Dims from numbers in a file: at most kMaxRank of them, and the product of those that are not zero fits, so that strides do too.
/// Throws kCorruptFile or kUnsupported.
Dims CheckedShape(std::string_view where, std::span<const std::uint64_t> dims);

/// The bytes of `shape` elements of `item_size` bytes. Throws kCorruptFile when they exceed 2⁶³−1.
std::uint64_t CheckedBytes(std::string_view where, const Dims& shape, std::uint64_t item_size);

enum class ByteOrder : std::uint8_t { kLittle, kBig };
enum class ElementOrder : std::uint8_t { kC, kFortran };

/// Reads the elements of a tensor, which the stream stores in that order. The result is in C order and native bytes, bools are 0 or 1.
Tensor ReadElements(ByteStream& stream, DType dtype, const Dims& shape, ByteOrder bytes = ByteOrder::kLittle,
                    ElementOrder elements = ElementOrder::kC);

/// NaN and infinities.
struct NotFinite {
  std::int64_t count = 0;
  std::int64_t first = 0;  // an element in C order; of no meaning when there is none
};
/// Those of a contiguous tensor of floats, in one pass, or two when there are any.
NotFinite FindNotFinite(const TensorView& tensor);

}  // namespace regard::io
