#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/split_mix64.h"
#include "nn/dense.h"
#include "nn/state.h"
#include "regard/nn.h"

namespace regard::nn {

Parameter MakeParameter(DType dtype, const Dims& shape) {
  CheckLayerType(dtype);
  for (const std::int64_t dim : shape) {
    if (dim < 1)
      Fail(ErrorCode::kInvalidArgument, "shape: " + ToString(shape) + " of a parameter; give 1 or more along each axis");
  }
  return {Tensor(dtype, shape), Tensor(dtype, shape)};
}

void Append(const std::string& name, Parameter& parameter, ParameterList* list) {
  if (parameter.value) list->push_back({name, &parameter});
}

void ZeroGrads(const ParameterList& parameters) {
  for (const auto& [name, parameter] : parameters) {
    WithType(parameter->value.dtype(),
             [&, p = parameter](auto zero) { std::fill_n(p->grad.MutableAs<decltype(zero)>(), p->grad.num_elements(), zero); });
  }
}

double GradNorm(const ParameterList& parameters) {
  double sum = 0;
  for (const auto& [name, parameter] : parameters) {
    WithType(parameter->value.dtype(), [&, p = parameter](auto zero) {
      const auto* grad = p->grad.As<decltype(zero)>();
      for (std::int64_t n = 0; n < p->grad.num_elements(); ++n)
        sum += static_cast<double>(grad[n]) * static_cast<double>(grad[n]);
    });
  }
  return std::sqrt(sum);
}

void InitNormal(const ParameterList& parameters, double std, std::uint64_t seed) {
  internal::SplitMix64 bits(seed);
  const auto uniform = [&bits] { return static_cast<double>(bits.Next() >> 11) * 0x1p-53; };  // [0, 1)
  for (const auto& [name, parameter] : parameters) {
    if (parameter->value.rank() < 2) continue;
    WithType(parameter->value.dtype(), [&, p = parameter](auto zero) {
      using T = decltype(zero);
      for (std::int64_t n = 0; n < p->value.num_elements(); ++n) {  // Box and Muller 1958
        const double radius = std::sqrt(-2 * std::log(1 - uniform()));
        p->value.MutableAs<T>()[n] = static_cast<T>(std * radius * std::cos(2 * std::numbers::pi * uniform()));
      }
    });
  }
}

StateDict StateOf(const ParameterList& parameters) {
  StateDict state;
  for (const auto& [name, parameter] : parameters) state.emplace(name, parameter->value);
  return state;
}

void LoadState(const StateDict& state, const ParameterList& parameters) {
  for (const auto& [name, parameter] : parameters) parameter->value = FromState(state, name, parameter->value);
}

// ------------------------------------------------------------------------------------------------------ state dicts

const Tensor* FindState(const StateDict& state, const std::string& name) {
  const auto found = state.find(name);
  return found == state.end() ? nullptr : &found->second;
}

Tensor FromState(const StateDict& state, const std::string& name, const Tensor& like, bool transposed) {
  const Tensor* found = FindState(state, name);
  if (found == nullptr) Fail(ErrorCode::kInvalidArgument, name + ": not in the state; check the prefix and the format");
  if (!IsFloat(found->dtype()))
    Fail(ErrorCode::kInvalidArgument, name + ": element type " + TypeName(found->dtype()) + "; give a float type");
  const TensorView view = transposed && found->rank() == 2 ? found->view().Transpose(0, 1) : found->view();
  if (!(view.shape() == like.shape())) {
    Fail(ErrorCode::kShapeMismatch, name + ": shape " + ToString(found->shape()) + "; this layer has " +
                                        ToString(transposed ? like.view().Transpose(0, 1).shape() : like.shape()) +
                                        ", make it with other sizes");
  }
  return Tensor::CopyOf(view, like.dtype());
}

}  // namespace regard::nn
