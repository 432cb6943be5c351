#include <algorithm>
#include <cmath>

#include "nn/dense.h"
#include "nn/state.h"
#include "regard/nn.h"

namespace regard::nn {

LayerNorm::LayerNorm(std::int64_t dim, DType dtype) : weight(MakeParameter(dtype, {dim})), bias(MakeParameter(dtype, {dim})) {
  WithType(dtype, [&](auto zero) { std::fill_n(weight.value.MutableAs<decltype(zero)>(), dim, decltype(zero){1}); });
}

Tensor LayerNorm::Forward(const TensorView& x, Cache* cache) const {
  CheckMade(weight);
  CheckEpsilon(epsilon);
  const DType dtype = weight.value.dtype();
  const std::int64_t dim = weight.value.dim(0);
  const Dense dense("x", x, dim, dtype);
  Tensor y = Tensor::Uninitialized(dtype, dense.shape());
  Cache own;
  Cache& kept = cache != nullptr ? *cache : own;
  kept.mean = Tensor::Uninitialized(DType::kF64, {dense.rows()});
  kept.inverse_std = Tensor::Uninitialized(DType::kF64, {dense.rows()});
  WithType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const w = weight.value.As<T>();
    const T* const b = bias.value.As<T>();
    T* const out = y.MutableAs<T>();
    ForEachRow(dense.rows(), [&](std::int64_t r) {
      const T* const row = dense.As<T>() + r * dim;
      double sum = 0, squares = 0;
      for (std::int64_t d = 0; d < dim; ++d) sum += static_cast<double>(row[d]);
      const double mean = sum / static_cast<double>(dim);
      for (std::int64_t d = 0; d < dim; ++d)
        squares += (static_cast<double>(row[d]) - mean) * (static_cast<double>(row[d]) - mean);
      const double inverse_std = 1 / std::sqrt(squares / static_cast<double>(dim) + epsilon);
      kept.mean.MutableAs<double>()[r] = mean;
      kept.inverse_std.MutableAs<double>()[r] = inverse_std;
      for (std::int64_t d = 0; d < dim; ++d) {
        const T normed = static_cast<T>((static_cast<double>(row[d]) - mean) * inverse_std);
        out[r * dim + d] = normed * w[d] + b[d];
      }
    });
  });
  return y;
}

// With n for (x − mean)/std and g for d_y · weight: d_x = (g − mean(g) − n · mean(g·n)) / std, means over the row.
Tensor LayerNorm::Backward(const TensorView& x, const Cache& cache, const TensorView& d_y) {
  CheckMade(weight);
  const DType dtype = weight.value.dtype();
  const std::int64_t dim = weight.value.dim(0);
  const Dense dense("x", x, dim, dtype);
  const Dense d_out = DenseLike("d_y", d_y, dense.shape(), dtype);
  if (!cache.mean || cache.mean.dim(0) != dense.rows())
    Fail(ErrorCode::kInvalidArgument, "cache: not of these inputs; pass the one that Forward filled");
  const double* const mean = cache.mean.As<double>();
  const double* const inverse_std = cache.inverse_std.As<double>();
  Tensor d_x = Tensor::Uninitialized(dtype, dense.shape());
  WithType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const w = weight.value.As<T>();
    ForEachRow(dense.rows(), [&](std::int64_t r) {
      const T* const row = dense.As<T>() + r * dim;
      const T* const d_row = d_out.As<T>() + r * dim;
      double g_sum = 0, gn_sum = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        const double g = static_cast<double>(d_row[d]) * static_cast<double>(w[d]);
        g_sum += g;
        gn_sum += g * (static_cast<double>(row[d]) - mean[r]) * inverse_std[r];
      }
      T* const d_x_row = d_x.MutableAs<T>() + r * dim;
      const double g_mean = g_sum / static_cast<double>(dim), gn_mean = gn_sum / static_cast<double>(dim);
      for (std::int64_t d = 0; d < dim; ++d) {
        const double g = static_cast<double>(d_row[d]) * static_cast<double>(w[d]);
        const double n = (static_cast<double>(row[d]) - mean[r]) * inverse_std[r];
        d_x_row[d] = static_cast<T>((g - g_mean - n * gn_mean) * inverse_std[r]);
      }
    });
    T* const d_weight = weight.grad.MutableAs<T>();
    T* const d_bias = bias.grad.MutableAs<T>();
    for (std::int64_t r = 0; r < dense.rows(); ++r) {  // sums over rows stay in one thread, in one order
      const T* const row = dense.As<T>() + r * dim;
      const T* const d_row = d_out.As<T>() + r * dim;
      for (std::int64_t d = 0; d < dim; ++d) {
        const double n = (static_cast<double>(row[d]) - mean[r]) * inverse_std[r];
        d_weight[d] += d_row[d] * static_cast<T>(n);
        d_bias[d] += d_row[d];
      }
    }
  });
  return d_x;
}

void LayerNorm::AppendParameters(const std::string& name, ParameterList* list) {
  Append(name + ".weight", weight, list);
  Append(name + ".bias", bias, list);
}

}  // namespace regard::nn
