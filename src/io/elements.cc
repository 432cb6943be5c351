#include "io/elements.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "io/file_error.h"

namespace regard::io {
namespace {

template <typename T>
void SwapEach(void* data, std::int64_t count) {
  auto* bytes = static_cast<char*>(data);
  for (std::int64_t i = 0; i < count; ++i, bytes += sizeof(T)) std::reverse(bytes, bytes + sizeof(T));
}

void SwapBytes(void* data, std::size_t item_size, std::int64_t count) {
  switch (item_size) {
    case 2:
      return SwapEach<std::uint16_t>(data, count);
    case 4:
      return SwapEach<std::uint32_t>(data, count);
    case 8:
      return SwapEach<std::uint64_t>(data, count);
    default:
      return;  // single bytes
  }
}

// Copies `count` elements in Fortran order, of which the first is element `first` of the array, to their places in C order.
// `counter` holds the index of element `first` along every axis and is moved on.
void Scatter(const char* from, std::int64_t count, std::size_t item_size, const Dims& shape, const Dims& strides, Dims& counter,
             char* to) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < shape.size(); ++axis) offset += counter[axis] * strides[axis];
  for (std::int64_t i = 0; i < count; ++i, from += item_size) {
    std::memcpy(to + static_cast<std::size_t>(offset) * item_size, from, item_size);
    for (int axis = 0; axis < shape.size(); ++axis) {  // the first axis runs fastest
      offset += strides[axis];
      if (++counter[axis] < shape[axis]) break;
      offset -= shape[axis] * strides[axis];
      counter[axis] = 0;
    }
  }
}

void ReadFortran(ByteStream& stream, Tensor& tensor, std::size_t item_size) {
  constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;  // large enough to read fast, too small to count as a second copy
  const std::int64_t total = tensor.num_elements();
  const std::int64_t chunk = std::min<std::int64_t>(total, kChunkBytes / static_cast<std::int64_t>(item_size));
  std::vector<char> buffer(static_cast<std::size_t>(chunk) * item_size);
  const Dims strides = ContiguousStrides(tensor.shape());
  Dims counter = tensor.shape();
  for (int axis = 0; axis < counter.size(); ++axis) counter[axis] = 0;
  for (std::int64_t first = 0; first < total; first += chunk) {
    const std::int64_t count = std::min(chunk, total - first);
    stream.Read(buffer.data(), static_cast<std::uint64_t>(count) * item_size);
    Scatter(buffer.data(), count, item_size, tensor.shape(), strides, counter,
            static_cast<char*>(tensor.mutable_view().mutable_data()));
  }
}

// What is not finite has an exponent of ones.
template <typename Bits>
NotFinite FindExponent(const void* data, std::int64_t count, Bits exponent) {
  const auto has_exponent = [&](std::int64_t i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const char*>(data) + static_cast<std::size_t>(i) * sizeof(Bits), sizeof(Bits));
    return (bits & exponent) == exponent;
  };
  NotFinite found;
  for (std::int64_t i = 0; i < count; ++i) found.count += has_exponent(i) ? 1 : 0;
  if (found.count > 0) {
    while (!has_exponent(found.first)) ++found.first;
  }
  return found;
}

}  // namespace

NotFinite FindNotFinite(const TensorView& tensor) {
  const std::int64_t count = tensor.num_elements();
  switch (tensor.dtype()) {
    case DType::kF64:
      return FindExponent<std::uint64_t>(tensor.data(), count, 0x7FF0'0000'0000'0000);
    case DType::kF32:
      return FindExponent<std::uint32_t>(tensor.data(), count, 0x7F80'0000);
    case DType::kF16:
      return FindExponent<std::uint16_t>(tensor.data(), count, 0x7C00);
    default:
      return FindExponent<std::uint16_t>(tensor.data(), count, 0x7F80);  // bf16
  }
}

Dims CheckedShape(std::string_view where, std::span<const std::uint64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    Fail(ErrorCode::kUnsupported, where, "shape has {} axes, more than {}; merge or drop axes first", dims.size(), kMaxRank);
  }
  Dims shape;
  std::uint64_t product = 1;  // of the dimensions that are not zero: strides are made of it even in an empty array
  for (std::uint64_t dim : dims) {
    if (__builtin_mul_overflow(product, std::max<std::uint64_t>(dim, 1), &product) ||
        product > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      Fail(ErrorCode::kCorruptFile, where, "shape ({}) has more than 2^63-1 elements; the header is damaged",
           fmt::join(dims, ", "));
    }
    shape.push_back(static_cast<std::int64_t>(dim));
  }
  return shape;
}

std::uint64_t CheckedBytes(std::string_view where, const Dims& shape, std::uint64_t item_size) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(NumElements(shape)), item_size, &bytes) ||
      bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    Fail(ErrorCode::kCorruptFile, where, "{} elements of {} bytes exceed 2^63-1 bytes; the header is damaged", ToString(shape),
         item_size);
  }
  return bytes;
}

Tensor ReadElements(ByteStream& stream, DType dtype, const Dims& shape, ByteOrder bytes, ElementOrder elements) {
  Tensor tensor = Tensor::Uninitialized(dtype, shape);
  void* const data = tensor.mutable_view().mutable_data();
  const std::size_t item_size = ItemSize(dtype);
  const std::int64_t count = tensor.num_elements();
  if (elements == ElementOrder::kFortran && shape.size() > 1) {
    ReadFortran(stream, tensor, item_size);
  } else if (count > 0) {
    stream.Read(data, static_cast<std::uint64_t>(count) * item_size);
  }
  if (bytes == ByteOrder::kBig) SwapBytes(data, item_size, count);
  if (dtype == DType::kBool) {
    // A bool may hold 0 and 1 only; NumPy shows every other byte as true.
    auto* flags = static_cast<unsigned char*>(data);
    for (std::int64_t i = 0; i < count; ++i) flags[i] = flags[i] != 0;
  }
  return tensor;
}

}  // namespace regard::io
