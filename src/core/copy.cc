#include "core/copy.h"

#include <algorithm>
#include <bit>
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

// ToFloat, ToF16 and ToBF16 (regard/tensor.h) without branches, in the integer arithmetic of 32 bits that compilers make vectors of: rows are
// converted beside kernels that leave no time to waste.

float FloatOfF16(F16 x) {
  // Exponent and fraction in the places of f32's, and the bias of the exponent made up by an exact product; inf and NaN keep the largest one.
  const std::uint32_t magnitude = x.bits & 0x7FFFu, sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  return std::bit_cast<float>(finite | sign | (magnitude > 0x7BFFu ? 0x7F800000u : 0));
}

F16 F16OfFloat(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), magnitude = bits & 0x7FFFFFFFu;
  // Rounded in place, then with the other bias; what carries out of the fraction belongs to the exponent, up to infinity.
  const std::uint32_t normal = (magnitude + 0xFFFu + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  // Below 2⁻¹⁴ adding 0.5 leaves the multiple of 2⁻²⁴ in the low bits.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  const std::uint32_t special = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
  const std::uint32_t result = magnitude >= 0x47800000u ? special : magnitude < 0x38800000u ? subnormal : normal;
  return {static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000u))};
}

BF16 BF16OfFloat(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
  return {static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? (bits >> 16) | 0x40u : rounded)};
}

// Types whose every value is a float.
bool IsFloatOrLess(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

void LoadDoubles(const char* data, DType dtype, std::int64_t stride, std::int64_t count, double* to) {
  constexpr std::int64_t kBlock = 256;
  float floats[kBlock];
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t n = std::min(kBlock, count - first);
    LoadRow(data + first * stride * static_cast<std::int64_t>(ItemSize(dtype)), dtype, stride, n, floats);
    std::copy_n(floats, n, to + first);
  }
}

}  // namespace

void StoreRow(const float* from, std::int64_t count, void* data, DType dtype, std::int64_t stride) {
  const auto each = [&](auto* to, const auto& convert) {
    if (stride == 1) {
      for (std::int64_t i = 0; i < count; ++i) to[i] = convert(from[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i * stride] = convert(from[i]);
    }
  };
  switch (dtype) {
    case DType::kF32:
      return CopyRun(from, 1, static_cast<float*>(data), stride, count);
    case DType::kF16:
      return each(static_cast<F16*>(data), F16OfFloat);
    case DType::kBF16:
      return each(static_cast<BF16*>(data), BF16OfFloat);
    default:
      for (std::int64_t i = 0; i < count; ++i) StoreDouble(data, dtype, i * stride, from[i]);
  }
}

void LoadRow(const void* data, DType dtype, std::int64_t stride, std::int64_t count, float* to) {
  const auto each = [&](const auto* from, const auto& convert) {
    if (stride == 1) {
      for (std::int64_t i = 0; i < count; ++i) to[i] = convert(from[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i] = convert(from[i * stride]);
    }
  };
  switch (dtype) {
    case DType::kF32:
      CopyRun(static_cast<const float*>(data), stride, to, 1, count);
      return;
    case DType::kF16:
      return each(static_cast<const F16*>(data), FloatOfF16);
    case DType::kBF16:
      return each(static_cast<const BF16*>(data),
                  [](BF16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); });
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
    } else if (to.dtype() == DType::kF64 && to_stride == 1 && IsFloatOrLess(from.dtype())) {
      LoadDoubles(row, from.dtype(), from_stride, count, reinterpret_cast<double*>(out));
    } else {
      for (std::int64_t i = 0; i < count; ++i)
        StoreDouble(out, to.dtype(), i * to_stride, LoadDouble(row, from.dtype(), i * from_stride));
    }
  });
}

}  // namespace regard::internal
