// What the tests of this room share: gradients against differences of the forward pass, and tensors compared as a whole.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "regard/nn.h"

namespace regard::nn {

inline double LargestOf(const TensorView& x) {
  const Tensor wide = Tensor::CopyOf(x, DType::kF64);
  double largest = 0;
  for (std::int64_t n = 0; n < wide.num_elements(); ++n) largest = std::fmax(largest, std::fabs(wide.As<double>()[n]));
  return largest;
}

/// |actual − expected| ≤ roundings · u · the largest element of `expected`, with u of the type of `actual`.
inline void ExpectClose(const std::string& name, const TensorView& actual, const TensorView& expected, double roundings) {
  ASSERT_EQ(actual.shape(), expected.shape()) << name;
  const Tensor a = Tensor::CopyOf(actual, DType::kF64), e = Tensor::CopyOf(expected, DType::kF64);
  const double unit = actual.dtype() == DType::kF64 ? 0x1p-53 : 0x1p-24, largest = LargestOf(expected);
  ASSERT_GT(largest, 0) << name << ": nothing to compare";
  double worst = 0;
  for (std::int64_t n = 0; n < a.num_elements(); ++n) {
    const double gap = std::fabs(a.As<double>()[n] - e.As<double>()[n]);
    worst = std::isnan(gap) ? std::numeric_limits<double>::infinity() : std::max(worst, gap);
  }
  EXPECT_LE(worst, roundings * unit * largest) << name << ", largest " << largest;
}

/// `gradient` against fourth-order central differences of `loss` by every element of `value`, both f64. With steps of 2⁻¹¹ a loss below 100
/// leaves some 1e−11 of rounding, and truncation is 2e−15 times its fifth derivative; the bound is relative to the largest gradient.
inline void ExpectGradient(const std::string& name, Tensor& value, const TensorView& gradient,
                           const std::function<double()>& loss) {
  constexpr double kStep = 0x1p-11, kTolerance = 1e-8;
  ASSERT_EQ(value.shape(), gradient.shape()) << name;
  const double largest = LargestOf(gradient);
  EXPECT_GT(largest, 1e-3) << name << ": hardly a gradient to check";
  for (std::int64_t n = 0; n < value.num_elements(); ++n) {
    double* const x = value.MutableAs<double>() + n;
    const double at = *x;
    const auto loss_at = [&](double moved) {
      *x = at + moved;
      return loss();
    };
    const double near = loss_at(kStep) - loss_at(-kStep), far = loss_at(2 * kStep) - loss_at(-2 * kStep);
    *x = at;
    EXPECT_NEAR(gradient.As<double>()[n], (8 * near - far) / (12 * kStep), kTolerance * std::max(1.0, largest))
        << name << " " << n;
  }
}

/// Σ a · b: a loss whose gradient by a is b.
inline double SumOfProducts(const TensorView& a, const TensorView& b) {
  double sum = 0;
  for (std::int64_t n = 0; n < a.num_elements(); ++n) sum += a.As<double>()[n] * b.As<double>()[n];
  return sum;
}

/// Parameters of size `std`, biases and weights of norms included, all different.
inline void FillAll(const ParameterList& parameters, double std, std::uint64_t seed) {
  for (const auto& [name, parameter] : parameters) {
    Parameter matrix{Tensor(parameter->value.dtype(), {1, parameter->value.num_elements()}), {}};
    InitNormal({{name, &matrix}}, std, seed++);
    parameter->value = Tensor::CopyOf(matrix.value.view().Reshape(parameter->value.shape()));
  }
}

/// Every parameter's grad, which a run of backward must have left, against differences of `loss`.
inline void ExpectGradients(const ParameterList& parameters, const std::function<double()>& loss) {
  for (const auto& [name, parameter] : parameters) ExpectGradient(name, parameter->value, parameter->grad, loss);
}

}  // namespace regard::nn
