// The reference's gradients against differences of its own forward pass, in double, every option combined. Nothing of the derivation is
// used here: a loss is computed again with one number moved.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "tests/support/gradients.h"
#include "tests/support/paths.h"
#include "tests/support/placement.h"
#include "tests/support/random_problem.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A dense copy in double that the problem then looks at, and that may be changed.
MutableTensorView MakeOwn(TestProblem& p, TensorView& view, double factor = 1) {
  Tensor copy = Tensor::CopyOf(view, DType::kF64);
  for (std::int64_t n = 0; n < copy.num_elements(); ++n) copy.MutableAs<double>()[n] *= factor;
  const MutableTensorView own = copy.mutable_view();
  view = own;
  p.memory.push_back(std::move(copy));
  return own;
}

// L = Σ d_context · context.
double Loss(const TestProblem& p, const GradientCase& c) {
  const RunResult r = RunPath(ReferencePath(), p, {.stages = false, .threads = 1});
  double loss = 0;
  std::size_t n = 0;
  ForEachIndex(c.d_context.shape(), [&](const Dims& index) { loss += r.context.values[n++] * Get(c.d_context, index); });
  return loss;
}

// Fourth-order central difference. With scores and values of size 1, steps of 2^−9 leave some 1e−11 of truncation and 1e−13 of rounding.
double Difference(const TestProblem& p, const GradientCase& c, double* x) {
  constexpr double kStep = 0x1p-9;
  const double at = *x;
  const auto loss_at = [&](double moved) {
    *x = at + moved;
    return Loss(p, c);
  };
  const double near = loss_at(kStep) - loss_at(-kStep), far = loss_at(2 * kStep) - loss_at(-2 * kStep);
  *x = at;
  return (8 * near - far) / (12 * kStep);
}

TEST(FiniteDifference, TheReferenceDerivesWhatItComputes) {
  constexpr double kTolerance = 1e-9;
  ProblemOptions options;
  options.any_type = options.any_layout = options.empty_shapes = false;
  options.max_tokens = 12;
  options.dropout = true;
  std::map<std::string, double> largest;  // by gradient: the largest number that was checked
  std::map<std::string, std::int64_t> checked;
  for (std::uint64_t seed : Seeds(700)) {
    TestProblem p = MakeProblem(seed, options);
    if (p.family == Family::kWide || p.family == Family::kDenormal) continue;  // a step would not be small
    SCOPED_TRACE(p.description);
    Random random(seed);
    const bool steep = p.family == Family::kRising || p.family == Family::kFalling || p.family == Family::kOneHot;
    std::map<std::string, MutableTensorView> inputs;
    inputs["d_q"] = MakeOwn(p, p.q, (steep ? 0.1 : 1) * (std::sqrt(1.0 / 5)));
    inputs["d_k"] = MakeOwn(p, p.k, std::sqrt(1.0 / 5));
    double v_size = 0;
    ForEachIndex(p.v.shape(), [&](const Dims& index) { v_size = std::max(v_size, std::fabs(Get(p.v, index))); });
    inputs["d_v"] = MakeOwn(p, p.v, v_size > 0 ? 1 / v_size : 1);
    if (p.params.bias) inputs["d_bias"] = MakeOwn(p, p.params.bias);
    for (std::int64_t n = 0; p.params.bias && n < p.params.bias.num_elements(); ++n) {
      // Beside −1e9 a step of a score is a rounding error.
      double& bias = inputs["d_bias"].MutableAs<double>()[n];
      if (std::isfinite(bias)) bias = std::max(bias, -20.0);
    }
    if (p.params.alibi_slopes) inputs["d_alibi_slopes"] = MakeOwn(p, p.params.alibi_slopes);
    if (p.params.sinks) inputs["d_sinks"] = MakeOwn(p, p.params.sinks);
    const GradientCase c(seed, p, false);
    double d_size = 0;  // how much a step may change the loss
    ForEachIndex(c.d_context.shape(), [&](const Dims& index) { d_size += std::fabs(Get(c.d_context, index)); });
    const GradientResult gradients = RunBackward(ReferencePath(), p, c);
    for (const auto& [name, grid] : gradients.All()) {
      const auto input = inputs.find(name);
      if (input == inputs.end() || grid->values.empty()) continue;
      for (int sample = 0; sample < 3; ++sample) {
        const auto n = random.Int(0, static_cast<std::int64_t>(grid->values.size()) - 1);
        double* const x = input->second.MutableAs<double>() + n;
        const double gradient = grid->values[static_cast<std::size_t>(n)];
        if (*x == -kInfinity) {  // a hidden cell, or no sink
          ASSERT_EQ(gradient, 0) << name;
          continue;
        }
        // ALiBi multiplies a slope's step by distances of up to the number of tokens.
        const double reach = name == "d_alibi_slopes" ? 1e3 : 1;
        ASSERT_NEAR(gradient, Difference(p, c, x), kTolerance * reach * d_size) << name << " element " << n;
        largest[name] = std::max(largest[name], std::fabs(gradient) / d_size);
        ++checked[name];
      }
    }
  }
  if (Seeds(2).size() == 1) return;
  for (const char* name : {"d_q", "d_k", "d_v", "d_bias", "d_alibi_slopes", "d_sinks"}) {
    EXPECT_GE(checked[name], 200) << name;
    EXPECT_GE(largest[name], 1e-2) << name << ": the numbers checked are too small to show a mistake";
  }
}

}  // namespace
}  // namespace regard::test
