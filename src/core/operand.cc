#include "core/operand.h"

#include <algorithm>

#include "core/parallel_for.h"
#include "core/scratch.h"

namespace regard::internal {
namespace {

// Calls copy_row(from, row) for each row of the view, in the order of a dense copy, spread over threads.
template <typename CopyRow>
void CopyRows(const View4& view, const std::int64_t dims[4], int threads, const CopyRow& copy_row) {
  const auto item = static_cast<std::int64_t>(ItemSize(view.dtype));
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(dims[3], 1));  // a quarter of an L2
  const std::int64_t rows = dims[0] * dims[1] * dims[2];
  ParallelFor(threads, (rows + rows_per_task - 1) / rows_per_task, [&](std::int64_t task, int) {
    for (std::int64_t row = task * rows_per_task; row < std::min(rows, (task + 1) * rows_per_task); ++row) {
      const std::int64_t t = row % dims[2], h = row / dims[2] % dims[1], b = row / dims[2] / dims[1];
      copy_row(static_cast<const char*>(view.data) + view.Offset(b, h, t, 0) * item, row);
    }
  });
}

bool IsStoredType(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

}  // namespace

bool IsFloatOperand(const View4& view, std::int64_t last_dim) {
  return view.dtype == DType::kF32 && (view.stride[3] == 1 || last_dim <= 1);
}

std::int64_t OperandCopySize(DType dtype, bool strided_dim, std::int64_t batch, std::int64_t heads, std::int64_t length,
                             std::int64_t dim) {
  return dtype == DType::kF32 && !strided_dim ? 0 : SaturatingProduct(batch, heads, length, dim);
}

FloatOperand MakeFloatOperand(const View4& view, const std::int64_t dims[4], float* copy, int threads, decltype(LoadRow)* load) {
  if (IsFloatOperand(view, dims[3])) {
    return {static_cast<const float*>(view.data), {view.stride[0], view.stride[1], view.stride[2], 1}};
  }
  CopyRows(view, dims, threads,
           [&](const void* from, std::int64_t row) { load(from, view.dtype, view.stride[3], dims[3], copy + row * dims[3]); });
  return {copy, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}};
}

bool IsStoredOperand(const View4& view, std::int64_t last_dim) {
  return IsStoredType(view.dtype) && (view.stride[3] == 1 || last_dim <= 1);
}

std::int64_t StoredCopySize(DType dtype, bool strided_dim, std::int64_t batch, std::int64_t heads, std::int64_t length,
                            std::int64_t dim) {
  if (dtype == DType::kI8) return 0;  // in a cache
  return IsStoredType(dtype) && !strided_dim ? 0 : SaturatingProduct(batch, heads, length, dim);
}

DType StoredType(DType dtype) { return IsStoredType(dtype) ? dtype : DType::kF32; }

StoredOperand MakeStoredOperand(const View4& view, const std::int64_t dims[4], float* copy, int threads) {
  if (IsStoredOperand(view, dims[3])) {
    return {view.data, view.dtype, {view.stride[0], view.stride[1], view.stride[2], 1}};
  }
  if (view.dtype == DType::kF16 || view.dtype == DType::kBF16) {  // keeps its type, and so the kernel and the bits
    auto* const to = reinterpret_cast<std::uint16_t*>(copy);
    CopyRows(view, dims, threads, [&](const void* from, std::int64_t row) {
      for (std::int64_t c = 0; c < dims[3]; ++c)
        to[row * dims[3] + c] = static_cast<const std::uint16_t*>(from)[c * view.stride[3]];
    });
    return {copy, view.dtype, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}};
  }
  const FloatOperand copied = MakeFloatOperand(view, dims, copy, threads);
  return {copied.data, DType::kF32, {copied.stride[0], copied.stride[1], copied.stride[2], 1}};
}

}  // namespace regard::internal
