// Arrays: element types, strided views of memory somebody else owns, and tensors that own theirs.
//
//     float q[2 * 3 * 4] = {...};
//     regard::TensorView view = regard::View(q, {2, 3, 4});            // C order
//     regard::TensorView heads_last = view.Transpose(0, 1);            // no copy
//     regard::Tensor copy = regard::Tensor::CopyOf(heads_last);        // contiguous, owned
//     double x = copy(1, 0, 2);                                        // any element type, checked index
//
// Strides are in elements and may be zero or negative. Nothing here computes attention; nothing here is thread-aware:
// distinct tensors may be used from distinct threads, one tensor may be read from many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "regard/export.h"

namespace regard {

// ---------------------------------------------------------------------------------------------------- element types

enum class DType : std::uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

/// IEEE binary16 and bfloat16 as storage: the bits, no arithmetic.
struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

/// Exact for every value; NaN stays NaN.
REGARD_API float ToFloat(F16 x) noexcept;
REGARD_API float ToFloat(BF16 x) noexcept;
/// Round to nearest, ties to even; too large becomes infinity; NaN stays NaN. `ToF16(double)` rounds once.
REGARD_API F16 ToF16(double x) noexcept;
REGARD_API BF16 ToBF16(double x) noexcept;

REGARD_API std::size_t ItemSize(DType dtype) noexcept;                     // in bytes
REGARD_API std::string_view Name(DType dtype) noexcept;                    // "f32", "bf16", "i64", "bool", …
REGARD_API bool IsFloat(DType dtype) noexcept;                             // f64, f32, f16, bf16
REGARD_API bool IsInteger(DType dtype) noexcept;                           // signed or unsigned; bool is not an integer
REGARD_API bool ParseDType(std::string_view name, DType* dtype) noexcept;  // the inverse of Name; false if unknown

template <typename T>
constexpr DType DTypeOf() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, double>)
    return DType::kF64;
  else if constexpr (std::is_same_v<U, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<U, F16>)
    return DType::kF16;
  else if constexpr (std::is_same_v<U, BF16>)
    return DType::kBF16;
  else if constexpr (std::is_same_v<U, bool>)
    return DType::kBool;
  else {
    static_assert(std::is_integral_v<U>, "regard has no element type for this C++ type");
    constexpr int kLog2 = sizeof(U) == 8 ? 0 : sizeof(U) == 4 ? 1 : sizeof(U) == 2 ? 2 : 3;
    return static_cast<DType>(static_cast<int>(std::is_signed_v<U> ? DType::kI64 : DType::kU64) + kLog2);
  }
}

// -------------------------------------------------------------------------------------------------- shapes, strides

inline constexpr int kMaxRank = 8;

/// A short list of integers: a shape or strides. More than kMaxRank entries is an Error.
class REGARD_API Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const std::int64_t> values);

  int size() const noexcept { return size_; }
  std::int64_t& operator[](int i) noexcept { return values_[i]; }
  std::int64_t operator[](int i) const noexcept { return values_[i]; }
  const std::int64_t* begin() const noexcept { return values_; }
  const std::int64_t* end() const noexcept { return values_ + size_; }
  void push_back(std::int64_t value);
  friend bool operator==(const Dims& a, const Dims& b) noexcept { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  std::int64_t values_[kMaxRank] = {};
  int size_ = 0;
};

/// "2×3×4"; a scalar's empty shape is "scalar".
REGARD_API std::string ToString(const Dims& dims);
/// The number of elements. Error if a dimension is negative or the product exceeds 2⁶³−1.
REGARD_API std::int64_t NumElements(const Dims& shape);
/// C order: the last axis has stride 1.
REGARD_API Dims ContiguousStrides(const Dims& shape);

// ------------------------------------------------------------------------------------------------------------ views

/// A read-only strided window on memory somebody else owns. Default-constructed it stands for "no tensor given". Constructors throw Error
/// for a null pointer unless the shape has no elements, and for strides of another number than the shape's axes.
class REGARD_API TensorView {
 public:
  TensorView() = default;
  TensorView(const void* data, DType dtype, const Dims& shape) : TensorView(data, dtype, shape, ContiguousStrides(shape)) {}
  TensorView(const void* data, DType dtype, const Dims& shape, const Dims& strides);

  /// Whether a tensor was given at all; a given tensor may still have no elements.
  explicit operator bool() const noexcept { return given_; }
  const void* data() const noexcept { return data_; }
  DType dtype() const noexcept { return dtype_; }
  const Dims& shape() const noexcept { return shape_; }
  const Dims& strides() const noexcept { return strides_; }
  int rank() const noexcept { return shape_.size(); }
  /// Negative axes count from the end. Error when out of range.
  std::int64_t dim(int axis) const { return shape_[Axis(axis)]; }
  std::int64_t stride(int axis) const { return strides_[Axis(axis)]; }
  std::int64_t num_elements() const { return NumElements(shape_); }
  bool IsContiguous() const noexcept;

  /// The elements as T. Error when the element type differs.
  template <typename T>
  const T* As() const {
    CheckDType(DTypeOf<T>());
    return static_cast<const T*>(data_);
  }
  /// One element of any type as a double (int64 beyond 2⁵³ rounds). Error when an index is out of range.
  template <typename... Index>
  double operator()(Index... index) const {
    return At({static_cast<std::int64_t>(index)...});
  }
  double At(std::initializer_list<std::int64_t> index) const;

  /// The same memory seen differently; none copies. Axes may be negative.
  TensorView Transpose(int axis_a, int axis_b) const;
  TensorView Slice(int axis, std::int64_t begin, std::int64_t end) const;  // keeps the axis
  TensorView Select(int axis, std::int64_t index) const;                   // drops the axis
  TensorView Unsqueeze(int axis) const;                                    // adds an axis of length 1
  /// A view of the same elements in another shape; Error unless the view is contiguous and the counts agree.
  TensorView Reshape(const Dims& shape) const;

 protected:
  int Axis(int axis) const;
  void CheckDType(DType wanted) const;

  const void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  bool given_ = false;
  Dims shape_, strides_;
};

/// A view one may write through.
class REGARD_API MutableTensorView : public TensorView {
 public:
  MutableTensorView() = default;
  MutableTensorView(void* data, DType dtype, const Dims& shape) : TensorView(data, dtype, shape) {}
  MutableTensorView(void* data, DType dtype, const Dims& shape, const Dims& strides) : TensorView(data, dtype, shape, strides) {}

  void* mutable_data() const noexcept { return const_cast<void*>(data_); }
  template <typename T>
  T* MutableAs() const {
    CheckDType(DTypeOf<T>());
    return static_cast<T*>(mutable_data());
  }
};

/// Wraps caller memory; the caller keeps it alive.
template <typename T>
TensorView View(const T* data, const Dims& shape) {
  return TensorView(data, DTypeOf<T>(), shape);
}
template <typename T>
TensorView View(const T* data, const Dims& shape, const Dims& strides) {
  return TensorView(data, DTypeOf<T>(), shape, strides);
}
template <typename T>
MutableTensorView MutableView(T* data, const Dims& shape) {
  return MutableTensorView(data, DTypeOf<T>(), shape);
}
template <typename T>
MutableTensorView MutableView(T* data, const Dims& shape, const Dims& strides) {
  return MutableTensorView(data, DTypeOf<T>(), shape, strides);
}

// ---------------------------------------------------------------------------------------------------------- tensors

/// Owns contiguous memory, 64-byte aligned (large ones 2 MiB aligned, with huge pages where the system offers them).
/// Copying copies the elements; moving does not.
class REGARD_API Tensor {
 public:
  Tensor() = default;  // no tensor: converts to a view that is "not given"
  /// Elements are zero. Error kOutOfMemory when the memory cannot be had.
  Tensor(DType dtype, const Dims& shape);
  /// Elements are whatever was there; for outputs that are written whole.
  static Tensor Uninitialized(DType dtype, const Dims& shape);
  /// A contiguous copy, converted when `dtype` is another float type (rounding to nearest even).
  static Tensor CopyOf(const TensorView& view);
  static Tensor CopyOf(const TensorView& view, DType dtype);
  /// From values in C order; Error unless there are as many as the shape holds.
  template <typename T>
  static Tensor Of(const Dims& shape, std::initializer_list<T> values) {
    return CopyOf(CheckedView(values.begin(), static_cast<std::int64_t>(values.size()), DTypeOf<T>(), shape));
  }

  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() = default;

  explicit operator bool() const noexcept { return static_cast<bool>(view_); }
  operator TensorView() const noexcept { return view_; }
  const TensorView& view() const noexcept { return view_; }
  MutableTensorView mutable_view() noexcept { return view_; }

  DType dtype() const noexcept { return view_.dtype(); }
  const Dims& shape() const noexcept { return view_.shape(); }
  int rank() const noexcept { return view_.rank(); }
  std::int64_t dim(int axis) const { return view_.dim(axis); }
  std::int64_t num_elements() const { return view_.num_elements(); }
  template <typename T>
  const T* As() const {
    return view_.As<T>();
  }
  template <typename T>
  T* MutableAs() {
    return view_.MutableAs<T>();
  }
  template <typename... Index>
  double operator()(Index... index) const {
    return view_(index...);
  }

 private:
  static TensorView CheckedView(const void* data, std::int64_t count, DType dtype, const Dims& shape);

  struct Free {
    void operator()(void* memory) const noexcept;
  };
  std::unique_ptr<void, Free> memory_;
  MutableTensorView view_;
};

}  // namespace regard
