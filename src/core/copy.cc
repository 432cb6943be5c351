#include "core/copy.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace regard::internal {
namespace {

// Calls f(offset_from, offset_to) at the start of every run along the last axis. The shape has no zero in it.
template <typename F>
void ForEachRow(const TensorView& from, const TensorView& to, F&& f) {
  std::int64_t index[kMaxRank] = {}, offset_from = 0, offset_to = 0;
  for (;;) {
    f(offset_from, offset_to);
    int axis = std::min(from.rank(), kMaxRank) - 2;  // counts like an odometer, last but one axis fastest
    for (; axis >= 0; --axis) {
      offset_from += from.strides()[axis];
      offset_to += to.strides()[axis];
      if (++index[axis] < from.shape()[axis]) break;
      offset_from -= index[axis] * from.strides()[axis];
      offset_to -= index[axis] * to.strides()[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

template <typename T>
void CopyRun(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride, std::int64_t count) {
  if (count == 0) return;  // the pointers may then be null, which memcpy does not allow
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

void CopySameType(std::size_t item_size, const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride,
                  std::int64_t count) {
  switch (item_size) {
    case 1:
      return CopyRun(reinterpret_cast<const std::uint8_t*>(from), from_stride, reinterpret_cast<std::uint8_t*>(to), to_stride,
                     count);
    case 2:
      return CopyRun(reinterpret_cast<const std::uint16_t*>(from), from_stride, reinterpret_cast<std::uint16_t*>(to), to_stride,
                     count);
    case 4:
      return CopyRun(reinterpret_cast<const std::uint32_t*>(from), from_stride, reinterpret_cast<std::uint32_t*>(to), to_stride,
                     count);
    default:
      return CopyRun(reinterpret_cast<const std::uint64_t*>(from), from_stride, reinterpret_cast<std::uint64_t*>(to), to_stride,
                     count);
  }
}

}  // namespace

void LoadRow(const void* data, DType dtype, std::int64_t stride, std::int64_t count, float* to) {
  switch (dtype) {
    case DType::kF32:
      CopyRun(static_cast<const float*>(data), stride, to, 1, count);
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < count; ++i) to[i] = ToFloat(static_cast<const F16*>(data)[i * stride]);
      return;
    case DType::kBF16:
      for (std::int64_t i = 0; i < count; ++i) to[i] = ToFloat(static_cast<const BF16*>(data)[i * stride]);
      return;
    default:
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(LoadDouble(data, dtype, i * stride));
  }
}

void LoadBiasRow(const void* data, DType dtype, std::int64_t stride, std::int64_t count, float* to) {
  if (dtype != DType::kF64) return LoadRow(data, dtype, stride, count, to);
  constexpr double kLargest = std::numeric_limits<float>::max();
  const double* const from = static_cast<const double*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = from[i * stride];
    to[i] = static_cast<float>(std::isfinite(value) ? std::clamp(value, -kLargest, kLargest) : value);
  }
}

void CopyElements(const TensorView& from, const MutableTensorView& to) {
  assert(from.shape() == to.shape());
  if (from.num_elements() == 0) return;
  const bool scalar = from.rank() == 0;
  const std::int64_t count = scalar ? 1 : from.shape()[from.rank() - 1];
  const std::int64_t from_stride = scalar ? 1 : from.strides()[from.rank() - 1];
  const std::int64_t to_stride = scalar ? 1 : to.strides()[to.rank() - 1];
  const auto from_size = static_cast<std::int64_t>(ItemSize(from.dtype())),
             to_size = static_cast<std::int64_t>(ItemSize(to.dtype()));
  const char* const source = static_cast<const char*>(from.data());
  char* const target = static_cast<char*>(to.mutable_data());
  ForEachRow(from, to, [&](std::int64_t offset_from, std::int64_t offset_to) {
    const char* const row = source + offset_from * from_size;
    char* const out = target + offset_to * to_size;
    if (from.dtype() == to.dtype()) {
      CopySameType(ItemSize(from.dtype()), row, from_stride, out, to_stride, count);
    } else if (to.dtype() == DType::kF32 && to_stride == 1) {
      LoadRow(row, from.dtype(), from_stride, count, reinterpret_cast<float*>(out));
    } else {
      for (std::int64_t i = 0; i < count; ++i)
        StoreDouble(out, to.dtype(), i * to_stride, LoadDouble(row, from.dtype(), i * from_stride));
    }
  });
}

}  // namespace regard::internal
