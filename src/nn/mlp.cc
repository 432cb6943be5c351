#include <cmath>

#include "nn/dense.h"
#include "regard/nn.h"

namespace regard::nn {
namespace {

// To an absolute 2⁻²³ in float, which is what 1 + tanh needs; a third of the time of std::tanh.
template <typename T>
T Tanh(T x) {
  return 1 - 2 / (1 + std::exp(2 * x));
}

constexpr double kSqrt2OverPi = 0.79788456080286535588, kCubic = 0.044715;  // Hendrycks and Gimpel 2016

}  // namespace

Mlp::Mlp(std::int64_t dim, std::int64_t hidden_dim, DType dtype)
    : c_fc(dim, hidden_dim, true, dtype), c_proj(hidden_dim, dim, true, dtype) {}

Tensor Mlp::Forward(const TensorView& x, Cache* cache) const {
  Tensor hidden = c_fc.Forward(x);
  Tensor tanh = Tensor::Uninitialized(hidden.dtype(), hidden.shape()),
         activated = Tensor::Uninitialized(hidden.dtype(), hidden.shape());
  const std::int64_t columns = hidden.dim(-1);
  WithType(hidden.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* const h = hidden.As<T>();
    T* const t = tanh.MutableAs<T>();
    T* const a = activated.MutableAs<T>();
    ForEachRow(hidden.num_elements() / columns, [&](std::int64_t r) {
      for (std::int64_t n = r * columns; n < (r + 1) * columns; ++n) {
        t[n] = Tanh(static_cast<T>(kSqrt2OverPi) * (h[n] + static_cast<T>(kCubic) * h[n] * h[n] * h[n]));
        a[n] = T{0.5} * h[n] * (1 + t[n]);
      }
    });
  });
  Tensor y = c_proj.Forward(activated);
  if (cache != nullptr) *cache = {std::move(hidden), std::move(tanh), std::move(activated)};
  return y;
}

Tensor Mlp::Backward(const TensorView& x, const Cache& cache, const TensorView& d_y) {
  CheckCache(cache.hidden);
  Tensor d_hidden = c_proj.Backward(cache.activated, d_y);
  const std::int64_t columns = d_hidden.dim(-1);
  WithType(d_hidden.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* const h = cache.hidden.As<T>();
    const T* const t = cache.tanh.As<T>();
    T* const d = d_hidden.MutableAs<T>();
    ForEachRow(d_hidden.num_elements() / columns, [&](std::int64_t r) {
      for (std::int64_t n = r * columns; n < (r + 1) * columns; ++n) {
        const T inner = static_cast<T>(kSqrt2OverPi) * (1 + 3 * static_cast<T>(kCubic) * h[n] * h[n]);
        d[n] *= T{0.5} * (1 + t[n]) + T{0.5} * h[n] * (1 - t[n] * t[n]) * inner;
      }
    });
  });
  return c_fc.Backward(x, d_hidden);
}

void Mlp::AppendParameters(const std::string& prefix, ParameterList* list) {
  c_fc.AppendParameters(prefix + "fc", list);
  c_proj.AppendParameters(prefix + "proj", list);
}

}  // namespace regard::nn
