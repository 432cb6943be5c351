// The other layers against differences of their own forward pass, in double, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nn/gradient_check.h"
#include "regard/nn.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace regard::nn {
namespace {

using test::ExpectError;
using test::Numbers;

TEST(Block, DerivesWhatItComputes) {
  Block block({.embed_dim = 6, .num_heads = 2, .dtype = DType::kF64}, 7);
  block.attn.params.causal = true;
  ParameterList parameters;
  block.AppendParameters("", &parameters);
  ASSERT_EQ(parameters.size(), 16u);
  FillAll(parameters, 0.4, 3);
  Tensor x = Numbers(DType::kF64, {2, 4, 6}, 1);
  const Tensor d_y = Numbers(DType::kF64, {2, 4, 6}, 2);
  Block::Cache cache;
  block.Forward(x, &cache);
  const Tensor d_x = block.Backward(x, cache, d_y);
  const auto loss = [&] { return SumOfProducts(block.Forward(x), d_y); };
  ExpectGradient("x", x, d_x, loss);
  for (const auto& [name, parameter] : parameters) {
    if (name != "attn.k_proj.bias") ExpectGradient(name, parameter->value, parameter->grad, loss);
  }
}

TEST(Block, GoesThroughGpt2sNamesAndBack) {
  const MultiheadAttention::Shape shape{.embed_dim = 6, .num_heads = 2, .dtype = DType::kF64};
  Block block(shape, 6), loaded(shape, 6);  // square matrices fit either way round
  ParameterList parameters;
  block.AppendParameters("", &parameters);
  FillAll(parameters, 0.4, 3);
  StateDict state;
  block.SaveState(&state, "h.0.");
  EXPECT_EQ(state.size(), 12u);
  EXPECT_EQ(state.at("h.0.mlp.c_fc.weight")(1, 4), block.mlp.c_fc.weight.value(4, 1));
  loaded.LoadState(state, "h.0.");
  const Tensor x = Numbers(DType::kF64, {1, 3, 6}, 1), expected = block.Forward(x), y = loaded.Forward(x);
  for (int t = 0; t < 3; ++t) {
    for (int d = 0; d < 6; ++d) EXPECT_EQ(y(0, t, d), expected(0, t, d));
  }
  ExpectError([&] { loaded.LoadState(StateOf(parameters), ""); }, ErrorCode::kInvalidArgument, "c_fc.weight");
}

TEST(RmsNorm, FollowsItsFormulaAndDerivesIt) {
  RmsNorm norm(5, DType::kF64);
  norm.epsilon = 0.25;  // large enough to show
  ParameterList parameters;
  norm.AppendParameters("norm", &parameters);
  ASSERT_EQ(parameters.size(), 1u);
  EXPECT_EQ(parameters[0].name, "norm.weight");
  EXPECT_EQ(norm.weight.value(3), 1);
  FillAll(parameters, 0.7, 4);
  Tensor x = Numbers(DType::kF64, {3, 5}, 1);
  const Tensor d_y = Numbers(DType::kF64, {3, 5}, 2);
  RmsNorm::Cache cache;
  const Tensor y = norm.Forward(x, &cache);
  for (int r = 0; r < 3; ++r) {
    double squares = 0;
    for (int d = 0; d < 5; ++d) squares += x(r, d) * x(r, d);
    for (int d = 0; d < 5; ++d) EXPECT_NEAR(y(r, d), x(r, d) / std::sqrt(squares / 5 + 0.25) * norm.weight.value(d), 1e-14);
  }
  const Tensor d_x = norm.Backward(x, cache, d_y);
  const auto loss = [&] { return SumOfProducts(norm.Forward(x), d_y); };
  ExpectGradient("x", x, d_x, loss);
  ExpectGradients(parameters, loss);
}

TEST(CrossEntropy, FromIndicesToALossAndBack) {
  Embedding embedding(5, 3, DType::kF64);
  Linear head(3, 5, true, DType::kF64);
  ParameterList parameters;
  embedding.AppendParameters("embedding", &parameters);
  head.AppendParameters("head", &parameters);
  FillAll(parameters, 0.7, 3);
  const Tensor indices = Tensor::Of<std::int32_t>({2, 3}, {4, 0, 4, 1, 3, 2}),
               targets = Tensor::Of<std::int32_t>({2, 3}, {0, 4, 1, 1, 2, 3});
  const auto loss = [&] { return CrossEntropy(head.Forward(embedding.Forward(indices)), targets); };
  const Tensor x = embedding.Forward(indices), logits = head.Forward(x);
  ASSERT_EQ(x.shape(), (Dims{2, 3, 3}));
  EXPECT_EQ(x(1, 1, 2), embedding.weight.value(3, 2));
  double expected = 0;
  for (int b = 0; b < 2; ++b) {
    for (int t = 0; t < 3; ++t) {
      double sum = 0;
      for (int c = 0; c < 5; ++c) sum += std::exp(logits(b, t, c));
      expected -= std::log(std::exp(logits(b, t, static_cast<int>(targets(b, t)))) / sum) / 6;
    }
  }
  Tensor d_logits;
  EXPECT_NEAR(CrossEntropy(logits, targets, &d_logits), expected, 1e-13);
  embedding.Backward(indices, head.Backward(x, d_logits));
  ExpectGradients(parameters, loss);
}

TEST(CrossEntropy, LargeLogitsAreNoTrouble) {
  const Tensor logits = Tensor::Of<float>({1, 3}, {3e38f, -3e38f, 0}), targets = Tensor::Of<std::int32_t>({1}, {0});
  Tensor d_logits;
  EXPECT_EQ(CrossEntropy(logits, targets, &d_logits), 0);
  EXPECT_EQ(d_logits(0, 0), 0);
  const Tensor nan = Tensor::Of<float>({1, 2}, {std::numeric_limits<float>::quiet_NaN(), 0});
  EXPECT_TRUE(std::isnan(CrossEntropy(nan, targets)));
}

TEST(InitNormal, IsTheSameForASeedAndHasItsSpread) {
  Linear a(40, 50), b(40, 50);
  ParameterList of_a, of_b;
  a.AppendParameters("a", &of_a);
  b.AppendParameters("b", &of_b);
  InitNormal(of_a, 0.5, 3);
  InitNormal(of_b, 0.5, 3);
  double sum = 0, squares = 0;
  for (int n = 0; n < 2000; ++n) {
    const double x = a.weight.value.As<float>()[n];
    EXPECT_EQ(x, b.weight.value.As<float>()[n]);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 2000, 0, 5 * 0.5 / std::sqrt(2000));                // five standard errors
  EXPECT_NEAR(squares / 2000, 0.25, 5 * 0.25 * std::sqrt(2.0 / 2000));  // likewise
  EXPECT_EQ(a.bias.value(7), 0);
  InitNormal(of_b, 0.5, 4);
  EXPECT_NE(a.weight.value(0, 0), b.weight.value(0, 0));
}

TEST(StateDicts, ComeBackByName) {
  Linear a(3, 2), b(3, 2);
  ParameterList of_a, of_b;
  a.AppendParameters("x", &of_a);
  b.AppendParameters("x", &of_b);
  FillAll(of_a, 1, 5);
  LoadState(StateOf(of_a), of_b);
  EXPECT_EQ(b.weight.value(1, 2), a.weight.value(1, 2));
  EXPECT_EQ(b.bias.value(1), a.bias.value(1));
  ExpectError([&] { LoadState({}, of_b); }, ErrorCode::kInvalidArgument, "x.weight: not in the state");
}

TEST(Layers, RefuseWhatDoesNotFit) {
  const Tensor x = Numbers(DType::kF32, {4, 3}, 1), wide = Numbers(DType::kF64, {4, 3}, 1);
  Linear linear(3, 2);
  ExpectError([&] { linear.Forward({}); }, ErrorCode::kInvalidArgument, "x: missing");
  ExpectError([&] { linear.Backward(x, x); }, ErrorCode::kShapeMismatch, "d_y: shape 4×3; give [.., 2]");
  ExpectError([&] { Linear(0, 2); }, ErrorCode::kInvalidArgument, "shape: 2×0");
  const TensorView long_x = View(x.As<float>(), {std::int64_t{1} << 31, 3});  // refused before it is read
  ExpectError([&] { linear.Forward(long_x); }, ErrorCode::kUnsupported, "x: 2147483648 rows, more than CBLAS counts; give fewer");
  ExpectError([&] { linear.Backward(long_x, x); }, ErrorCode::kUnsupported, "x: 2147483648 rows");
  StateDict state;
  linear.SaveState(&state, "fc");
  ExpectError([&] { linear.LoadState(state, "fc", MatrixOrder::kInOut); }, ErrorCode::kShapeMismatch,
              "fc.weight: shape 2×3; this layer has 3×2");
  LayerNorm norm(3);
  ExpectError([&] { norm.Backward(x, {}, x); }, ErrorCode::kInvalidArgument, "cache: not of these inputs");
  ExpectError([&] { norm.Forward(wide); }, ErrorCode::kInvalidArgument, "x: element type f64");
  RmsNorm rms(3);
  ExpectError([&] { rms.Backward(x, {}, x); }, ErrorCode::kInvalidArgument, "cache: not of these inputs");
  ExpectError([&] { rms.Forward(wide); }, ErrorCode::kInvalidArgument, "x: element type f64");
  for (const double epsilon : {-1.0, -1e-12, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    norm.epsilon = rms.epsilon = epsilon;
    ExpectError([&] { norm.Forward(x); }, ErrorCode::kInvalidArgument, "epsilon: ");
    ExpectError([&] { rms.Forward(x); }, ErrorCode::kInvalidArgument, "epsilon: ");
  }
  norm.epsilon = rms.epsilon = 0;
  EXPECT_TRUE(norm.Forward(x) && rms.Forward(x));
  Mlp mlp(3, 4);
  ExpectError([&] { mlp.Backward(x, {}, x); }, ErrorCode::kInvalidArgument, "cache: empty");
  Block block({.embed_dim = 3, .num_heads = 1}, 4);
  ExpectError([&] { block.Backward(x, {}, x); }, ErrorCode::kInvalidArgument, "cache: empty");
  Embedding embedding(5, 2);
  ExpectError(
      [&] {
        embedding.Forward(Tensor::Of<std::int32_t>({2}, {4, 5}));
      },
      ErrorCode::kInvalidArgument, "indices: 5; give 0 to 4");
  ExpectError([&] { embedding.Forward(Tensor::Of<std::int32_t>({1}, {-1})); }, ErrorCode::kInvalidArgument, "indices: -1");
  ExpectError([&] { embedding.Forward(x); }, ErrorCode::kInvalidArgument, "indices: element type f32");
  for (const Tensor& indices : {Tensor(), Tensor(DType::kI32, {}), Tensor(DType::kI32, {1, 1, 1, 1, 1, 1, 1, 1})}) {
    ExpectError([&] { embedding.Forward(indices); }, ErrorCode::kInvalidArgument,
                "indices: missing, a scalar or of too many axes; give i32 [..]");
  }
  const Tensor targets = Tensor::Of<std::int32_t>({4}, {0, 1, 2, 3});
  ExpectError([&] { CrossEntropy(x, targets); }, ErrorCode::kInvalidArgument, "targets: 3; give 0 to 2");
  for (const Tensor& logits : {Tensor(), Tensor(DType::kF32, {4})}) {
    ExpectError([&] { CrossEntropy(logits, targets); }, ErrorCode::kShapeMismatch,
                "logits: missing, or fewer than two axes; give [.., classes]");
  }
  ExpectError([&] { CrossEntropy(x, Tensor::Of<std::int32_t>({2}, {0, 1})); }, ErrorCode::kShapeMismatch, "targets: shape 2");
  ExpectError([&] { CrossEntropy(Tensor(DType::kF32, {0, 3}), targets); }, ErrorCode::kShapeMismatch, "is empty");
  AdamW optimizer;
  optimizer.first["fc.weight"] = Tensor(DType::kF32, {3, 3});
  ParameterList parameters;
  linear.AppendParameters("fc", &parameters);
  ExpectError([&] { optimizer.Step(parameters); }, ErrorCode::kShapeMismatch, "fc.weight: its moment has shape 3×3");
}

}  // namespace
}  // namespace regard::nn
