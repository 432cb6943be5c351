#include "regard/stages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/shape_text.h"
#include "kernels/kernels.h"
#include "regard/error.h"
#include "staged/matrix_product.h"
#include "staged/softmax_row.h"

namespace regard {
namespace {

using internal::kLongestProductAxis;

std::string Quote(const char* name, const TensorView& x) { return std::string(name) + ": shape " + ToString(x.shape()); }

void CheckOperand(const char* name, const TensorView& x, int min_rank) {
  if (!x) throw Error(ErrorCode::kInvalidArgument, std::string(name) + ": missing; pass a tensor");
  if (!IsFloat(x.dtype())) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name) + ": element type " + std::string(Name(x.dtype())) +
                                                 " is not a float type; convert it to f32, f16, bf16 or f64");
  }
  if (x.rank() < min_rank) {
    throw Error(ErrorCode::kShapeMismatch, Quote(name, x) + " has " + std::to_string(x.rank()) + " " +
                                               internal::AxisWord(x.rank()) + "; give " + std::to_string(min_rank) + " or more" +
                                               (min_rank == 2 ? ", [.., tokens, dim]" : ""));
  }
  for (std::int64_t dim : x.shape()) {
    if (dim > kLongestProductAxis) throw Error(ErrorCode::kUnsupported, Quote(name, x) + " has an axis beyond 2^31−1; split it");
  }
}

void CheckLeadingAxes(const char* a_name, const TensorView& a, const char* b_name, const TensorView& b) {
  bool equal = a.rank() == b.rank();
  for (int axis = 0; equal && axis < a.rank() - 2; ++axis) equal = a.dim(axis) == b.dim(axis);
  if (!equal) {
    throw Error(ErrorCode::kShapeMismatch, Quote(b_name, b) + " does not match " + a_name + "'s " + ToString(a.shape()) +
                                               "; make all axes but the last two equal");
  }
}

DType CommonType(const TensorView& a, const TensorView& b) {
  return a.dtype() == DType::kF64 && b.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
}

// The matrices [rows, columns] that lie along the last two axes, as elements of type T with unit stride along columns. Copies
// only what a product cannot read where it lies.
template <typename T>
class Matrices {
 public:
  explicit Matrices(const TensorView& x) : view_(x) {
    const bool readable =
        x.dtype() == DTypeOf<T>() && (x.stride(-1) == 1 || x.dim(-1) == 1) && internal::IsProductStride(x.stride(-2), x.dim(-1));
    if (readable) return;
    copy_ = Tensor::CopyOf(x, DTypeOf<T>());
    view_ = copy_;
  }

  std::int64_t rows() const { return view_.dim(-2); }
  std::int64_t columns() const { return view_.dim(-1); }
  std::int64_t row_stride() const { return std::max<std::int64_t>(view_.stride(-2), 1); }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < view_.rank() - 2; ++axis) product *= view_.dim(axis);
    return product;
  }
  // The n-th matrix, counting the leading axes in C order.
  const T* operator[](std::int64_t n) const {
    std::int64_t offset = 0;
    for (int axis = view_.rank() - 3; axis >= 0; --axis) {
      offset += n % view_.dim(axis) * view_.stride(axis);
      n /= view_.dim(axis);
    }
    return view_.As<T>() + offset;
  }

 private:
  Tensor copy_;
  TensorView view_;
};

// The leading axes of x, then the given ones.
Dims ShapeLike(const TensorView& x, std::initializer_list<std::int64_t> last) {
  Dims shape;
  for (int axis = 0; axis < x.rank() - 2; ++axis) shape.push_back(x.dim(axis));
  for (std::int64_t dim : last) shape.push_back(dim);
  return shape;
}

float CheckScoreOperands(const TensorView& q, const TensorView& k, const ScoreOptions& options) {
  CheckOperand("q", q, 2);
  CheckOperand("k", k, 2);
  CheckLeadingAxes("q", q, "k", k);
  if (q.dim(-1) != k.dim(-1)) {
    throw Error(ErrorCode::kShapeMismatch, "k: dim=" + std::to_string(k.dim(-1)) +
                                               ", expected q's dim=" + std::to_string(q.dim(-1)) + "; check the axis order");
  }
  const float scale = options.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(q.dim(-1)))));
  if (scale == 0 || !std::isfinite(scale)) {
    throw Error(ErrorCode::kInvalidArgument, "scale: " + std::to_string(scale) +
                                                 "; give a finite number other than 0, or leave it out for 1/sqrt(dim), dim ≥ 1");
  }
  return scale;
}

template <typename T>
Tensor ScoresOf(const TensorView& q_view, const TensorView& k_view, T scale) {
  const Matrices<T> q(q_view), k(k_view);
  internal::CheckBlasMemory().ThrowIfFailed();
  Tensor scores = Tensor::Uninitialized(DTypeOf<T>(), ShapeLike(q_view, {q.rows(), k.rows()}));
  for (std::int64_t n = 0; n < q.count(); ++n) {
    internal::MultiplyByTransposed(q.rows(), k.rows(), q.columns(), scale, q[n], q.row_stride(), k[n], k.row_stride(),
                                   scores.MutableAs<T>() + n * q.rows() * k.rows(), k.rows() > 0 ? k.rows() : 1);
  }
  return scores;
}

template <typename T>
Tensor ScoresByLoopsOf(const TensorView& q_view, const TensorView& k_view, T scale) {
  const Matrices<T> q(q_view), k(k_view);
  Tensor scores = Tensor::Uninitialized(DTypeOf<T>(), ShapeLike(q_view, {q.rows(), k.rows()}));
  T* score = scores.MutableAs<T>();
  for (std::int64_t n = 0; n < q.count(); ++n) {
    for (std::int64_t i = 0; i < q.rows(); ++i) {
      const T* const query = q[n] + i * q.row_stride();
      for (std::int64_t j = 0; j < k.rows(); ++j) {
        const T* const key = k[n] + j * k.row_stride();
        T dot = 0;
        for (std::int64_t d = 0; d < q.columns(); ++d) dot += query[d] * key[d];
        *score++ = scale * dot;
      }
    }
  }
  return scores;
}

void CheckContextOperands(const TensorView& weights, const TensorView& v) {
  CheckOperand("weights", weights, 2);
  CheckOperand("v", v, 2);
  CheckLeadingAxes("weights", weights, "v", v);
  if (weights.dim(-1) != v.dim(-2)) {
    throw Error(ErrorCode::kShapeMismatch, "v: kv_len=" + std::to_string(v.dim(-2)) + ", expected weights' last axis=" +
                                               std::to_string(weights.dim(-1)) + "; check the axis order");
  }
}

template <typename T>
Tensor ContextOf(const TensorView& weights_view, const TensorView& v_view) {
  const Matrices<T> weights(weights_view), v(v_view);
  internal::CheckBlasMemory().ThrowIfFailed();
  Tensor context = Tensor::Uninitialized(DTypeOf<T>(), ShapeLike(v_view, {weights.rows(), v.columns()}));
  for (std::int64_t n = 0; n < weights.count(); ++n) {
    internal::Multiply(weights.rows(), v.columns(), weights.columns(), weights[n], weights.row_stride(), v[n], v.row_stride(),
                       context.MutableAs<T>() + n * weights.rows() * v.columns(), v.columns() > 0 ? v.columns() : 1);
  }
  return context;
}

template <typename T>
Tensor ContextForTokenOf(const TensorView& weights_view, const TensorView& v_view, std::int64_t token) {
  const Matrices<T> weights(weights_view), v(v_view);
  Tensor result(DTypeOf<T>(), ShapeLike(v_view, {v.columns()}));
  for (std::int64_t n = 0; n < v.count(); ++n) {
    T* const context = result.MutableAs<T>() + n * v.columns();
    for (std::int64_t j = 0; j < v.rows(); ++j) {
      const T weight = weights[n][token * weights.row_stride() + j];
      for (std::int64_t d = 0; d < v.columns(); ++d) context[d] += weight * v[n][j * v.row_stride() + d];
    }
  }
  return result;
}

double SoftmaxRow(double* row, std::int64_t count) { return internal::SoftmaxRow(row, count); }
float SoftmaxRow(float* row, std::int64_t count) {
  return internal::FindKernels("")->softmax_row(row, count, -std::numeric_limits<float>::infinity());
}

template <typename T>
Tensor SoftmaxOf(const TensorView& x, int axis) {
  Tensor result = Tensor::CopyOf(x, DTypeOf<T>());
  if (result.num_elements() == 0) return result;
  const std::int64_t length = x.dim(axis), stride = result.view().stride(axis);
  T* const data = result.MutableAs<T>();
  std::vector<T> slice(stride == 1 ? 0 : static_cast<std::size_t>(length));
  for (std::int64_t n = 0; n < result.num_elements() / length; ++n) {
    T* const first = data + n / stride * length * stride + n % stride;
    if (stride == 1) {
      SoftmaxRow(first, length);
      continue;
    }
    for (std::int64_t i = 0; i < length; ++i) slice[static_cast<std::size_t>(i)] = first[i * stride];
    SoftmaxRow(slice.data(), length);
    for (std::int64_t i = 0; i < length; ++i) first[i * stride] = slice[static_cast<std::size_t>(i)];
  }
  return result;
}

}  // namespace

Tensor Scores(const TensorView& q, const TensorView& k, const ScoreOptions& options) {
  const float scale = CheckScoreOperands(q, k, options);
  return CommonType(q, k) == DType::kF64 ? ScoresOf<double>(q, k, scale) : ScoresOf<float>(q, k, scale);
}

Tensor ScoresByLoops(const TensorView& q, const TensorView& k, const ScoreOptions& options) {
  const float scale = CheckScoreOperands(q, k, options);
  return CommonType(q, k) == DType::kF64 ? ScoresByLoopsOf<double>(q, k, scale) : ScoresByLoopsOf<float>(q, k, scale);
}

Tensor Softmax(const TensorView& x, int dim) {
  CheckOperand("x", x, 1);
  if (dim < -x.rank() || dim >= x.rank()) {
    throw Error(ErrorCode::kInvalidArgument, "dim: " + std::to_string(dim) + " of a tensor of shape " + ToString(x.shape()) +
                                                 "; use " + std::to_string(-x.rank()) + "…" + std::to_string(x.rank() - 1));
  }
  return x.dtype() == DType::kF64 ? SoftmaxOf<double>(x, dim) : SoftmaxOf<float>(x, dim);
}

Tensor Context(const TensorView& weights, const TensorView& v) {
  CheckContextOperands(weights, v);
  return CommonType(weights, v) == DType::kF64 ? ContextOf<double>(weights, v) : ContextOf<float>(weights, v);
}

Tensor ContextForToken(const TensorView& weights, const TensorView& v, std::int64_t token) {
  CheckContextOperands(weights, v);
  if (token < 0 || token >= weights.dim(-2)) {
    throw Error(ErrorCode::kInvalidArgument, "token: " + std::to_string(token) + " of " + std::to_string(weights.dim(-2)) +
                                                 " queries; use a row of weights " + ToString(weights.shape()));
  }
  return CommonType(weights, v) == DType::kF64 ? ContextForTokenOf<double>(weights, v, token)
                                               : ContextForTokenOf<float>(weights, v, token);
}

}  // namespace regard
