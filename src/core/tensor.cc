#include "regard/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "core/copy.h"
#include "core/problem.h"
#include "core/shape_text.h"
#include "regard/error.h"

namespace regard {

// -------------------------------------------------------------------------------------------------------------- Dims

Dims::Dims(std::span<const std::int64_t> values) {
  for (std::int64_t value : values) push_back(value);
}

void Dims::push_back(std::int64_t value) {
  if (size_ == kMaxRank) {
    throw Error(ErrorCode::kUnsupported, "shape: more than " + std::to_string(kMaxRank) + " axes; merge or drop axes first");
  }
  values_[size_++] = value;
}

std::string ToString(const Dims& dims) {
  if (dims.size() == 0) return "scalar";
  std::string text;
  for (std::int64_t value : dims) text += (text.empty() ? "" : "×") + std::to_string(value);
  return text;
}

std::int64_t NumElements(const Dims& shape) {
  std::int64_t product = 1;
  bool zero = false;
  for (std::int64_t dim : shape) {
    if (dim < 0) {
      throw Error(ErrorCode::kInvalidArgument, "shape: dimension " + std::to_string(dim) + " is negative; use 0 or more");
    }
    zero = zero || dim == 0;
  }
  if (zero) return 0;
  for (std::int64_t dim : shape) {
    if (__builtin_mul_overflow(product, dim, &product)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "shape: " + ToString(shape) + " has more than 2^63−1 elements; use smaller dimensions");
    }
  }
  return product;
}

Dims ContiguousStrides(const Dims& shape) {
  Dims strides = shape;
  std::int64_t stride = 1;
  for (int axis = shape.size() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    // Without elements strides do not matter, and their product may exceed the range.
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape[axis], 1), &stride)) stride = 1;
  }
  return strides;
}

// -------------------------------------------------------------------------------------------------------- TensorView

TensorView::TensorView(const void* data, DType dtype, const Dims& shape, const Dims& strides)
    : data_(data), dtype_(dtype), given_(true), shape_(shape), strides_(strides) {
  if (shape.size() != strides.size()) {
    throw Error(ErrorCode::kShapeMismatch, "strides: " + std::to_string(strides.size()) + " values for a tensor with " +
                                               std::to_string(shape.size()) + " " + internal::AxisWord(shape.size()) +
                                               "; give one stride an axis");
  }
  if (NumElements(shape) > 0 && data == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "data: null pointer for a tensor of shape " + ToString(shape) + "; pass its memory");
  }
}

int TensorView::Axis(int axis) const {
  const int from_front = axis < 0 ? axis + rank() : axis;
  if (from_front < 0 || from_front >= rank()) {
    throw Error(ErrorCode::kInvalidArgument, "axis: " + std::to_string(axis) + " of a tensor of shape " + ToString(shape_) +
                                                 "; use " + std::to_string(-rank()) + "…" + std::to_string(rank() - 1));
  }
  return from_front;
}

void TensorView::CheckDType(DType wanted) const {
  if (dtype_ != wanted) {
    throw Error(ErrorCode::kInvalidArgument, "dtype: tensor holds " + std::string(Name(dtype_)) + ", asked for as " +
                                                 std::string(Name(wanted)) + "; convert with Tensor::CopyOf");
  }
}

bool TensorView::IsContiguous() const noexcept {
  if (std::find(shape_.begin(), shape_.end(), 0) != shape_.end()) return true;  // no elements: any order is C order
  std::int64_t expected = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape_[axis] != 1 && strides_[axis] != expected) return false;
    expected *= shape_[axis];
  }
  return true;
}

double TensorView::At(std::initializer_list<std::int64_t> index) const {
  if (static_cast<int>(index.size()) != rank()) {
    throw Error(ErrorCode::kInvalidArgument, "index: " + std::to_string(index.size()) +
                                                 (index.size() == 1 ? " number" : " numbers") + " for a tensor of shape " +
                                                 ToString(shape_) + "; give one an axis");
  }
  std::int64_t offset = 0;
  int axis = 0;
  for (std::int64_t i : index) {
    if (i < 0 || i >= shape_[axis]) {
      throw Error(ErrorCode::kInvalidArgument, "index: " + std::to_string(i) + " on axis " + std::to_string(axis) +
                                                   " of a tensor of shape " + ToString(shape_) + "; stay below the dimension");
    }
    offset += i * strides_[axis++];
  }
  return internal::LoadDouble(data_, dtype_, offset);
}

TensorView TensorView::Transpose(int axis_a, int axis_b) const {
  TensorView result = *this;
  const int a = Axis(axis_a), b = Axis(axis_b);
  std::swap(result.shape_[a], result.shape_[b]);
  std::swap(result.strides_[a], result.strides_[b]);
  return result;
}

TensorView TensorView::Slice(int axis, std::int64_t begin, std::int64_t end) const {
  TensorView result = *this;
  const int a = Axis(axis);
  if (begin < 0 || begin > end || end > shape_[a]) {
    throw Error(ErrorCode::kInvalidArgument, "slice: [" + std::to_string(begin) + ", " + std::to_string(end) + ") of axis " +
                                                 std::to_string(axis) + " of a tensor of shape " + ToString(shape_) +
                                                 "; use 0 ≤ begin ≤ end ≤ the dimension");
  }
  result.shape_[a] = end - begin;
  if (begin < end)
    result.data_ = static_cast<const char*>(data_) + begin * strides_[a] * static_cast<std::int64_t>(ItemSize(dtype_));
  return result;
}

TensorView TensorView::Select(int axis, std::int64_t index) const {
  const int a = Axis(axis);
  const TensorView sliced = Slice(axis, index, index + 1);
  Dims shape, strides;
  for (int i = 0; i < rank(); ++i) {
    if (i == a) continue;
    shape.push_back(shape_[i]);
    strides.push_back(strides_[i]);
  }
  return TensorView(sliced.data_, dtype_, shape, strides);
}

TensorView TensorView::Unsqueeze(int axis) const {
  const int a = axis < 0 ? axis + rank() + 1 : axis;
  if (a < 0 || a > rank()) {
    throw Error(ErrorCode::kInvalidArgument, "axis: " + std::to_string(axis) + " cannot be added to a tensor of shape " +
                                                 ToString(shape_) + "; use 0…" + std::to_string(rank()));
  }
  Dims shape, strides;
  for (int i = 0; i <= rank(); ++i) {
    if (i == a) {
      shape.push_back(1);
      strides.push_back(0);
    }
    if (i < rank()) {
      shape.push_back(shape_[i]);
      strides.push_back(strides_[i]);
    }
  }
  return TensorView(data_, dtype_, shape, strides);
}

TensorView TensorView::Reshape(const Dims& shape) const {
  if (!IsContiguous() || NumElements(shape) != num_elements()) {
    throw Error(ErrorCode::kShapeMismatch, "reshape: " + ToString(shape_) + (IsContiguous() ? "" : " (not contiguous)") + " to " +
                                               ToString(shape) + "; counts must agree and elements lie in C order");
  }
  return TensorView(data_, dtype_, shape);
}

// ------------------------------------------------------------------------------------------------------------ Tensor

namespace {

constexpr std::size_t kSmallAlignment = 64;              // a cache line and an AVX-512 vector
constexpr std::size_t kHugePage = std::size_t{1} << 21;  // 2 MiB: one TLB entry where there were 512

std::size_t ByteCount(DType dtype, const Dims& shape) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(NumElements(shape), static_cast<std::int64_t>(ItemSize(dtype)), &bytes)) {
    throw Error(ErrorCode::kInvalidArgument, "shape: " + ToString(shape) + " exceeds 2^63−1 bytes; use smaller dimensions");
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace

void Tensor::Free::operator()(void* memory) const noexcept { std::free(memory); }

Tensor Tensor::Uninitialized(DType dtype, const Dims& shape) {
  Tensor tensor;
  const std::size_t bytes = ByteCount(dtype, shape);
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kSmallAlignment;
  if (bytes > 0) {
    void* memory = nullptr;
    if (bytes > std::numeric_limits<std::size_t>::max() - alignment ||
        (memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)) == nullptr) {
      throw Error(ErrorCode::kOutOfMemory, "memory: " + std::to_string(bytes) + " bytes for a tensor of shape " +
                                               ToString(shape) + " cannot be had; use a smaller problem or free memory");
    }
    if (alignment == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // best effort: a refusal only costs speed
    tensor.memory_.reset(memory);
  }
  tensor.view_ = MutableTensorView(tensor.memory_.get(), dtype, shape);
  return tensor;
}

Tensor::Tensor(DType dtype, const Dims& shape) {
  *this = Uninitialized(dtype, shape);
  if (memory_ != nullptr) std::memset(memory_.get(), 0, ByteCount(dtype, shape));
}

Tensor::Tensor(const Tensor& other) {
  if (other) *this = CopyOf(other.view_);
}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

Tensor::Tensor(Tensor&& other) noexcept : memory_(std::move(other.memory_)), view_(std::exchange(other.view_, {})) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  memory_ = std::move(other.memory_);
  view_ = std::exchange(other.view_, {});
  return *this;
}

Tensor Tensor::CopyOf(const TensorView& view) { return CopyOf(view, view.dtype()); }

Tensor Tensor::CopyOf(const TensorView& view, DType dtype) {
  if (dtype != view.dtype() && !IsFloat(dtype)) {
    throw Error(ErrorCode::kInvalidArgument, "dtype: cannot convert " + std::string(Name(view.dtype())) + " to " +
                                                 std::string(Name(dtype)) + "; only float types can be converted to");
  }
  Tensor copy = Uninitialized(dtype, view.shape());
  internal::CopyElements(view, copy.view_);
  return copy;
}

TensorView Tensor::CheckedView(const void* data, std::int64_t count, DType dtype, const Dims& shape) {
  if (NumElements(shape) != count) {
    throw Error(ErrorCode::kShapeMismatch, "values: " + std::to_string(count) + " for shape " + ToString(shape) + "; give " +
                                               std::to_string(NumElements(shape)));
  }
  return TensorView(data, dtype, shape);
}

}  // namespace regard
