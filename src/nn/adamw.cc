#include <cmath>

#include "nn/dense.h"
#include "regard/nn.h"

namespace regard::nn {
namespace {

Tensor& MomentOf(std::map<std::string, Tensor>& moments, const std::string& name, const Tensor& value) {
  Tensor& moment = moments[name];
  if (!moment) moment = Tensor(value.dtype(), value.shape());
  if (moment.dtype() != value.dtype() || !(moment.shape() == value.shape())) {
    Fail(ErrorCode::kShapeMismatch, name + ": its moment has shape " + ToString(moment.shape()) + ", the parameter " +
                                        ToString(value.shape()) + "; resume with the model that was saved");
  }
  return moment;
}

}  // namespace

void AdamW::Step(const ParameterList& parameters, double grad_scale) {
  ++steps;
  const double first_share = 1 - std::pow(beta_1, static_cast<double>(steps));
  const double second_share = 1 - std::pow(beta_2, static_cast<double>(steps));
  for (const auto& [name, parameter] : parameters) {
    Tensor& m = MomentOf(first, name, parameter->value);
    Tensor& v = MomentOf(second, name, parameter->value);
    const double decay = parameter->value.rank() >= 2 ? weight_decay : 0;
    WithType(parameter->value.dtype(), [&, p = parameter](auto zero) {
      using T = decltype(zero);
      T* const value = p->value.MutableAs<T>();
      T* const mean = m.MutableAs<T>();
      T* const square = v.MutableAs<T>();
      const T* const grad = p->grad.As<T>();
      const std::int64_t count = p->value.num_elements();
      for (std::int64_t n = 0; n < count; ++n) {
        const double g = grad_scale * static_cast<double>(grad[n]);
        const double m_new = beta_1 * static_cast<double>(mean[n]) + (1 - beta_1) * g;
        const double v_new = beta_2 * static_cast<double>(square[n]) + (1 - beta_2) * g * g;
        mean[n] = static_cast<T>(m_new);
        square[n] = static_cast<T>(v_new);
        const double direction = m_new / first_share / (std::sqrt(v_new / second_share) + epsilon);
        value[n] =
            static_cast<T>(static_cast<double>(value[n]) - learning_rate * (direction + decay * static_cast<double>(value[n])));
      }
    });
  }
}

}  // namespace regard::nn
