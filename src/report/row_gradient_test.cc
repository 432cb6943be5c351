#include "report/row_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "regard/backward.h"
#include "report/explanation.h"
#include "report/six_tokens.h"
#include "tests/support/numbers.h"

namespace regard::report {
namespace {

using test::Numbers;

// One query against five keys under every rule that has a word in the gradient.
struct OneRow {
  Tensor q = Numbers(DType::kF64, {1, 2, 1, 4}, 1), k = Numbers(DType::kF64, {1, 1, 5, 4}, 2),
         v = Numbers(DType::kF64, {1, 1, 5, 3}, 3);
  Tensor bias = Numbers(DType::kF64, {1, 5}, 4), sinks = Tensor::Of<double>({2}, {0.5, -0.25});
  Call call{q, k, v, {}};
  OneRow() {
    call.params.scale = 0.25f;
    call.params.soft_cap = 3;
    call.params.bias = bias;
    call.params.sinks = sinks;
    call.params.window_left = 3;  // hides the first key
    call.params.q_offset = 4;
  }
};

TEST(RowGradient, IsWhatAttentionBackwardSaysOfTheRow) {
  const OneRow r;
  const ExecOptions reference{.path = Path::kReference, .threads = 1};
  const AttentionResult forward = Attention(r.q, r.k, r.v, r.call.params, reference);
  Tensor d_context(DType::kF64, {1, 2, 1, 3});  // of head 1 alone
  const std::vector<double> of_row = {0.7, -1.2, 0.4};
  for (int d = 0; d < 3; ++d) d_context.MutableAs<double>()[3 + d] = of_row[static_cast<std::size_t>(d)];
  const AttentionGrads grads = AttentionBackward(r.q, r.k, r.v, forward.context, forward.lse, d_context, r.call.params, reference,
                                                 {.d_bias = true, .d_sinks = true});
  const RowGradient g = Differentiate(Explain(r.call, {0, 1, 0}, reference), of_row);
  EXPECT_FALSE(g.of_sum);
  constexpr double kRounding = 1e-14;  // some ten products of numbers below 10
  double d_bias_sum = 0;
  for (int j = 0; j < 5; ++j) {
    const KeyGradient& key = g.keys[static_cast<std::size_t>(j)];
    EXPECT_NEAR(key.d_masked, grads.d_bias(0, j), kRounding);
    double d_k = 0, d_v = 0;
    for (int d = 0; d < 4; ++d) d_k += grads.d_k(0, 0, j, d) * grads.d_k(0, 0, j, d);
    for (int d = 0; d < 3; ++d) d_v += grads.d_v(0, 0, j, d) * grads.d_v(0, 0, j, d);
    EXPECT_NEAR(key.d_k_norm, std::sqrt(d_k), kRounding);
    EXPECT_NEAR(key.d_v_norm, std::sqrt(d_v), kRounding);
    d_bias_sum += std::fabs(key.d_masked);
  }
  EXPECT_EQ(g.keys[0].d_masked, 0);
  EXPECT_GT(d_bias_sum, 0.1);
  for (int d = 0; d < 4; ++d) EXPECT_NEAR(g.d_q[static_cast<std::size_t>(d)], grads.d_q(0, 1, 0, d), kRounding);
  EXPECT_NEAR(g.d_sink, grads.d_sinks(1), kRounding);
  EXPECT_GT(std::fabs(g.d_sink), 1e-3);
}

TEST(RowGradient, WithoutAContextGradientTheLossIsTheSum) {
  const Explanation e = Explain(SixTokensCall(), {0, 0, 1}, {.threads = 1});
  const RowGradient g = Differentiate(e, {});
  EXPECT_TRUE(g.of_sum);
  double sum = 0, scores = 0;
  for (const double x : e.per_token) sum += x;
  for (std::size_t j = 0; j < 6; ++j) {
    double row = 0;
    for (int d = 0; d < 3; ++d) row += e.v(static_cast<std::int64_t>(j), d);
    EXPECT_NEAR(g.keys[j].d_weight, row, 1e-14);
    EXPECT_NEAR(g.keys[j].d_score, e.keys[j].weight * (row - sum), 1e-14);
    scores += g.keys[j].d_score;
  }
  EXPECT_NEAR(g.delta, sum, 1e-14);
  EXPECT_NEAR(scores, 0, 1e-14);  // what one key gains the others lose
}

std::string TextOf(const Explanation& e, std::size_t keys) {
  ExplanationLabels labels;
  for (std::size_t j = 0; j < keys; ++j) labels.key_labels.push_back(std::to_string(j));
  return Show(e, labels);
}

TEST(RowGradient, OfARowThatSeesNoKeyIsZero) {
  OneRow r;
  r.call.params.window_left = 3;
  r.call.params.q_offset = 20;
  Explanation e = Explain(r.call, {0, 1, 0}, {.threads = 1});
  e.gradient = Differentiate(e, {0.7, -1.2, 0.4});
  ASSERT_EQ(e.visible, 0);
  EXPECT_EQ(e.gradient->d_sink, 0);
  EXPECT_EQ(e.gradient->d_q, std::vector<double>(4));
  const std::string text = TextOf(e, 5);
  EXPECT_NE(text.find("gradients of a loss L by this row: all 0, since its context does not depend on any q, k or v\n"),
            std::string::npos)
      << text;
}

TEST(RowGradient, OfANaNSaysSo) {
  const OneRow r;
  Explanation e = Explain(r.call, {0, 1, 0}, {.threads = 1});
  e.gradient = Differentiate(e, {0.7, std::nan(""), 0.4});
  const std::string text = TextOf(e, 5);
  EXPECT_NE(
      text.find("  1 of the 3 numbers of d_context is not finite, first that of dim 1: what follows from it says nothing\n"),
      std::string::npos)
      << text;
}

TEST(RowGradient, TheThirdStageHasNoScores) {
  const Tensor weights = Tensor::Of<float>({1, 1, 1, 3}, {0.5f, 0, 0.25f}), v = Numbers(DType::kF32, {1, 1, 3, 2}, 1);
  Explanation e = ExplainThirdStage(weights, v, {0, 0, 0});
  e.gradient = Differentiate(e, {2, -1});
  EXPECT_NEAR(e.gradient->keys[2].d_weight, 2 * v(0, 0, 2, 0) - v(0, 0, 2, 1), 1e-6);
  EXPECT_NEAR(e.gradient->keys[0].d_v_norm, 0.5 * std::sqrt(5.0), 1e-14);
  EXPECT_TRUE(e.gradient->d_q.empty());
  const std::string text = TextOf(e, 3);
  EXPECT_NE(text.find("d_weight = d_context·v: what L gains as this weight grows\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("d_score"), std::string::npos) << text;
}

}  // namespace
}  // namespace regard::report
