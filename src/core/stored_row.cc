#include "core/stored_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/copy.h"
#include "core/problem.h"

namespace regard::internal {
namespace {

// Rows are converted by the piece, so that a piece of floats fits on the stack.
constexpr std::int64_t kPiece = 256;

// Calls use(begin, numbers, length) for pieces of the row as floats, where they lie if they can.
template <typename Use>
void ForEachPiece(const void* from, DType dtype, std::int64_t stride, std::int64_t count, const Use& use) {
  if (dtype == DType::kF32 && stride == 1) return use(0, static_cast<const float*>(from), count);
  float piece[kPiece];
  const auto item = static_cast<std::int64_t>(ItemSize(dtype));
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    const std::int64_t length = std::min(kPiece, count - begin);
    LoadRow(static_cast<const char*>(from) + begin * stride * item, dtype, stride, length, piece);
    use(begin, piece, length);
  }
}

// The bits of the largest magnitude: magnitudes order as their bits do, infinity above all numbers and NaN above that.
std::uint32_t LargestMagnitude(const float* numbers, std::int64_t count, std::uint32_t largest) {
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<std::uint32_t>(numbers[i]) & 0x7FFFFFFFu);
  return largest;
}

// max/127 rounded up, so that no element exceeds 127 steps, not even where floats are so small that rounding changes much.
float ScaleOf(float max) {
  const float scale = static_cast<float>(static_cast<double>(max) / 127);
  return static_cast<double>(scale) * 127 < max ? std::nextafter(scale, std::numeric_limits<float>::infinity()) : scale;
}

void Quantise(const float* numbers, std::int64_t count, float scale, std::int8_t* to) {
  constexpr float kRound = 12582912;  // 1.5·2²³: what is added to it is rounded to a whole number, ties to even
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<std::int8_t>(static_cast<std::int32_t>((numbers[i] / scale + kRound) - kRound));
}

void StoreQuantised(const void* from, DType dtype, std::int64_t stride, std::int64_t count, std::int8_t* to, float* scale) {
  std::uint32_t largest = 0;
  ForEachPiece(from, dtype, stride, count, [&](std::int64_t, const float* numbers, std::int64_t length) {
    largest = LargestMagnitude(numbers, length, largest);
  });
  const float max = std::bit_cast<float>(largest);
  if (max == 0 || !std::isfinite(max)) {
    std::fill_n(to, count, std::int8_t{0});
    *scale = max == 0 ? 0 : std::numeric_limits<float>::quiet_NaN();
    return;
  }
  *scale = ScaleOf(max);
  ForEachPiece(from, dtype, stride, count, [&](std::int64_t begin, const float* numbers, std::int64_t length) {
    Quantise(numbers, length, *scale, to + begin);
  });
}

}  // namespace

void LoadStored(const StoredRow& row, std::int64_t count, double* to) {
  for (std::int64_t d = 0; d < count; ++d) to[d] = LoadDouble(row.data, row.dtype, d * row.stride);
  if (row.dtype != DType::kI8) return;
  for (std::int64_t d = 0; d < count; ++d) to[d] *= row.scale;
}

void LoadStored(const StoredRow& row, std::int64_t count, float* to) {
  LoadRow(row.data, row.dtype, row.stride, count, to);
  if (row.dtype != DType::kI8) return;
  for (std::int64_t d = 0; d < count; ++d) to[d] *= row.scale;
}

double LoadStored(const StoredRow& row, std::int64_t index) {
  return LoadDouble(row.data, row.dtype, index * row.stride) * static_cast<double>(row.scale);
}

void StoreRow(const void* from, DType from_dtype, std::int64_t stride, std::int64_t count, DType to_dtype, void* to,
              float* scale) {
  if (to_dtype == DType::kI8) return StoreQuantised(from, from_dtype, stride, count, static_cast<std::int8_t*>(to), scale);
  if (from_dtype == to_dtype && stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * ItemSize(to_dtype));
  } else if (to_dtype == DType::kF32) {
    LoadRow(from, from_dtype, stride, count, static_cast<float*>(to));
  } else if (from_dtype == DType::kF32 && stride == 1) {
    StoreRow(static_cast<const float*>(from), count, to, to_dtype, 1);
  } else {
    for (std::int64_t i = 0; i < count; ++i) StoreDouble(to, to_dtype, i, LoadDouble(from, from_dtype, i * stride));
  }
}

}  // namespace regard::internal
