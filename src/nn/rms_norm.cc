#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/dense.h"
#include "nn/state.h"
#include "regard/nn.h"

namespace regard::nn {

RmsNorm::RmsNorm(std::int64_t dim, DType dtype) : weight(MakeParameter(dtype, {dim})) {
  WithType(dtype, [&](auto zero) { std::fill_n(weight.value.MutableAs<decltype(zero)>(), dim, decltype(zero){1}); });
}

Tensor RmsNorm::Forward(const TensorView& x, Cache* cache) const {
  CheckMade(weight);
  CheckEpsilon(epsilon);
  const DType dtype = weight.value.dtype();
  const std::int64_t dim = weight.value.dim(0);
  const Dense dense("x", x, dim, dtype);
  Tensor y = Tensor::Uninitialized(dtype, dense.shape()), inverse_rms = Tensor::Uninitialized(DType::kF64, {dense.rows()});
  WithType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const w = weight.value.As<T>();
    T* const out = y.MutableAs<T>();
    ForEachRow(dense.rows(), [&](std::int64_t r) {
      const T* const row = dense.As<T>() + r * dim;
      double squares = 0;
      for (std::int64_t d = 0; d < dim; ++d) squares += static_cast<double>(row[d]) * static_cast<double>(row[d]);
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(dim) + epsilon);
      inverse_rms.MutableAs<double>()[r] = inverse;
      for (std::int64_t d = 0; d < dim; ++d) out[r * dim + d] = static_cast<T>(static_cast<double>(row[d]) * inverse) * w[d];
    });
  });
  if (cache != nullptr) cache->inverse_rms = std::move(inverse_rms);
  return y;
}

// With n for x/rms and g for d_y · weight: d_x = (g − n · mean(g·n)) / rms, the mean over the row.
Tensor RmsNorm::Backward(const TensorView& x, const Cache& cache, const TensorView& d_y) {
  CheckMade(weight);
  const DType dtype = weight.value.dtype();
  const std::int64_t dim = weight.value.dim(0);
  const Dense dense("x", x, dim, dtype);
  const Dense d_out = DenseLike("d_y", d_y, dense.shape(), dtype);
  if (!cache.inverse_rms || cache.inverse_rms.dim(0) != dense.rows())
    Fail(ErrorCode::kInvalidArgument, "cache: not of these inputs; pass the one that Forward filled");
  const double* const inverse_rms = cache.inverse_rms.As<double>();
  Tensor d_x = Tensor::Uninitialized(dtype, dense.shape());
  WithType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const w = weight.value.As<T>();
    const auto g = [&](std::int64_t r, std::int64_t d) {
      return static_cast<double>(d_out.As<T>()[r * dim + d]) * static_cast<double>(w[d]);
    };
    const auto n = [&](std::int64_t r, std::int64_t d) {
      return static_cast<double>(dense.As<T>()[r * dim + d]) * inverse_rms[r];
    };
    ForEachRow(dense.rows(), [&](std::int64_t r) {
      double sum = 0;
      for (std::int64_t d = 0; d < dim; ++d) sum += g(r, d) * n(r, d);
      const double mean = sum / static_cast<double>(dim);
      for (std::int64_t d = 0; d < dim; ++d) {
        d_x.MutableAs<T>()[r * dim + d] = static_cast<T>((g(r, d) - n(r, d) * mean) * inverse_rms[r]);
      }
    });
    T* const d_weight = weight.grad.MutableAs<T>();
    for (std::int64_t r = 0; r < dense.rows(); ++r) {  // sums over rows stay in one thread, in one order
      for (std::int64_t d = 0; d < dim; ++d) d_weight[d] += d_out.As<T>()[r * dim + d] * static_cast<T>(n(r, d));
    }
  });
  return d_x;
}

void RmsNorm::AppendParameters(const std::string& name, ParameterList* list) { Append(name + ".weight", weight, list); }

}  // namespace regard::nn
