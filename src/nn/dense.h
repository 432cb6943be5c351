// What every layer begins with: its operands checked, contiguous, and counted as rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "core/parallel_for.h"
#include "regard/error.h"
#include "regard/nn.h"
#include "regard/tensor.h"

namespace regard::nn {

[[noreturn]] inline void Fail(ErrorCode code, const std::string& message) { throw Error(code, message); }

inline std::string TypeName(DType dtype) { return std::string(Name(dtype)); }

/// Layers are f32, or f64 for checks.
inline void CheckLayerType(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF64) return;
  Fail(ErrorCode::kUnsupported, "dtype: " + TypeName(dtype) + "; layers are f32, or f64 for checks");
}

/// A layer that was declared without sizes has no parameters yet, and computes nothing.
inline void CheckMade(const Parameter& weight) {
  if (weight.value) return;
  Fail(ErrorCode::kInvalidArgument,
       "layer: made without sizes, so without parameters; give them first, as in nn::Linear(64, 192)");
}

/// What norms add before they take a root.
inline void CheckEpsilon(double epsilon) {
  if (epsilon >= 0 && std::isfinite(epsilon)) return;
  char value[32];
  std::snprintf(value, sizeof value, "%g", epsilon);
  Fail(ErrorCode::kInvalidArgument, std::string("epsilon: ") + value + "; give a finite number of 0 or more, such as 1e-5");
}

/// A view [.., columns] of the layer's type as a contiguous matrix [rows, columns]; copied only when it is not contiguous.
class Dense {
 public:
  Dense(const char* name, const TensorView& view, std::int64_t columns, DType dtype) : view_(view) {
    if (!view)
      Fail(ErrorCode::kInvalidArgument, std::string(name) + ": missing; pass a tensor [.., " + std::to_string(columns) + "]");
    if (view.dtype() != dtype) {
      Fail(ErrorCode::kInvalidArgument, std::string(name) + ": element type " + TypeName(view.dtype()) + "; this layer is " +
                                            TypeName(dtype) + ", convert it");
    }
    if (view.rank() == 0 || view.dim(-1) != columns) {
      Fail(ErrorCode::kShapeMismatch,
           std::string(name) + ": shape " + ToString(view.shape()) + "; give [.., " + std::to_string(columns) + "]");
    }
    if (!view.IsContiguous()) {
      copy_ = Tensor::CopyOf(view);
      view_ = copy_;
    }
    rows_ = columns == 0 ? 0 : view.num_elements() / columns;
  }

  std::int64_t rows() const { return rows_; }
  const Dims& shape() const { return view_.shape(); }
  template <typename T>
  const T* As() const {
    return view_.As<T>();
  }

 private:
  Tensor copy_;
  TensorView view_;
  std::int64_t rows_ = 0;
};

/// The same, and with exactly this shape: a gradient by something.
inline Dense DenseLike(const char* name, const TensorView& view, const Dims& shape, DType dtype) {
  Dense dense(name, view, shape[shape.size() - 1], dtype);
  if (!(dense.shape() == shape)) {
    Fail(ErrorCode::kShapeMismatch, std::string(name) + ": shape " + ToString(dense.shape()) + "; give " + ToString(shape));
  }
  return dense;
}

inline Dims WithColumns(Dims shape, std::int64_t columns) {
  shape[shape.size() - 1] = columns;
  return shape;
}

/// Calls body(T{}) with the C++ type of a layer's elements.
template <typename Body>
auto WithType(DType dtype, const Body& body) {
  return dtype == DType::kF64 ? body(double{}) : body(float{});
}

/// What Forward leaves must be there in Backward.
inline void CheckCache(const Tensor& of_forward) {
  if (!of_forward) Fail(ErrorCode::kInvalidArgument, "cache: empty; pass the one that Forward filled");
}

/// to += what, element by element; both contiguous, of one shape and type.
inline void AddTo(Tensor& to, const Tensor& what) {
  WithType(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* const sums = to.MutableAs<T>();
    const T* const terms = what.As<T>();
    const std::int64_t count = to.num_elements();
    for (std::int64_t n = 0; n < count; ++n) sums[n] += terms[n];
  });
}

/// body(row) for every row, on OpenMP's threads. Rows must not depend on each other.
template <typename Body>
void ForEachRow(std::int64_t rows, const Body& body) {
  constexpr std::int64_t kBlock = 32;  // some thousand numbers: far more work than handing a task out
  internal::ParallelFor(internal::ResolveThreads(0), (rows + kBlock - 1) / kBlock, [&](std::int64_t block, int) {
    const std::int64_t end = rows < (block + 1) * kBlock ? rows : (block + 1) * kBlock;
    for (std::int64_t row = block * kBlock; row < end; ++row) body(row);
  });
}

}  // namespace regard::nn
