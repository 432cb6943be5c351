#include "nn/dense.h"
#include "nn/state.h"
#include "regard/nn.h"
#include "staged/matrix_product.h"

namespace regard::nn {
namespace {

void CheckProductSizes(std::int64_t rows) {
  if (rows <= internal::kLongestProductAxis) return;
  Fail(ErrorCode::kUnsupported, "x: " + std::to_string(rows) + " rows, more than CBLAS counts; give fewer at a time");
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, DType dtype) : weight(MakeParameter(dtype, {out, in})) {
  if (with_bias) bias = MakeParameter(dtype, {out});
}

Tensor Linear::Forward(const TensorView& x) const {
  CheckMade(weight);
  const DType dtype = weight.value.dtype();
  const std::int64_t n_in = in(), n_out = out();
  const Dense dense("x", x, n_in, dtype);
  CheckProductSizes(dense.rows());
  Tensor y = Tensor::Uninitialized(dtype, WithColumns(dense.shape(), n_out));
  WithType(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const out_rows = y.MutableAs<T>();
    internal::MultiplyByTransposed(dense.rows(), n_out, n_in, T{1}, dense.As<T>(), n_in, weight.value.As<T>(), n_in, out_rows,
                                   n_out);
    if (!bias.value) return;
    const T* const b = bias.value.As<T>();
    for (std::int64_t r = 0; r < dense.rows(); ++r) {
      for (std::int64_t o = 0; o < n_out; ++o) out_rows[r * n_out + o] += b[o];
    }
  });
  return y;
}

Tensor Linear::Backward(const TensorView& x, const TensorView& d_y) {
  CheckMade(weight);
  const DType dtype = weight.value.dtype();
  const std::int64_t n_in = in(), n_out = out();
  const Dense dense("x", x, n_in, dtype);
  CheckProductSizes(dense.rows());
  const Dense d_out = DenseLike("d_y", d_y, WithColumns(dense.shape(), n_out), dtype);
  Tensor d_x = Tensor::Uninitialized(dtype, dense.shape());
  WithType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = dense.rows();
    internal::Multiply(rows, n_in, n_out, d_out.As<T>(), n_out, weight.value.As<T>(), n_in, d_x.MutableAs<T>(), n_in);
    internal::AddTransposedProduct(n_out, n_in, rows, d_out.As<T>(), n_out, dense.As<T>(), n_in, weight.grad.MutableAs<T>(),
                                   n_in);
    if (!bias.value) return;
    T* const d_bias = bias.grad.MutableAs<T>();
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* const d_row = d_out.As<T>() + r * n_out;
      for (std::int64_t o = 0; o < n_out; ++o) d_bias[o] += d_row[o];
    }
  });
  return d_x;
}

void Linear::LoadState(const StateDict& state, const std::string& name, MatrixOrder order) {
  Tensor matrix = FromState(state, name + ".weight", weight.value, order == MatrixOrder::kInOut);
  if (bias.value) {
    bias.value = FromState(state, name + ".bias", bias.value);
  } else if (FindState(state, name + ".bias") != nullptr) {
    Fail(ErrorCode::kShapeMismatch, name + ".bias: in the state, but this layer has none; make it with a bias");
  }
  weight.value = std::move(matrix);
}

void Linear::SaveState(StateDict* state, const std::string& name, MatrixOrder order) const {
  const TensorView matrix = weight.value;
  (*state)[name + ".weight"] = Tensor::CopyOf(order == MatrixOrder::kInOut ? matrix.Transpose(0, 1) : matrix);
  if (bias.value) (*state)[name + ".bias"] = bias.value;
}

void Linear::AppendParameters(const std::string& name, ParameterList* list) {
  Append(name + ".weight", weight, list);
  Append(name + ".bias", bias, list);
}

}  // namespace regard::nn
