// The smallest inputs that tell right from wrong, with their exact results, by every path. Each probe exposes mistakes that were made
// in public; what they would have given instead is noted beside it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "regard/attention.h"
#include "regard/projections.h"
#include "tests/support/paths.h"
#include "tests/support/placement.h"

namespace regard::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// Scores and values here are small integers; results carry a few roundings of f32, 6e-8 each.
constexpr double kTolerance = 5e-7;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class Probes : public testing::TestWithParam<PathCase> {
 protected:
  AttentionResult Run(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionParams& params) {
    return Attention(q, k, v, params, {.path = GetParam().path, .isa = GetParam().isa});
  }
  AttentionResult Run(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionParams& params) {
    return Run(q.view(), k.view(), v.view(), params);
  }
  // The weights of rank-2 q and k, by giving each key its own axis of v.
  std::vector<std::vector<double>> Weights(const Tensor& q, const Tensor& k, const AttentionParams& params) {
    const Tensor identity = Identity(k.dim(0));
    const AttentionResult r = Run(q, k, identity, params);
    std::vector<std::vector<double>> rows;
    for (std::int64_t i = 0; i < q.dim(0); ++i) {
      rows.emplace_back();
      for (std::int64_t j = 0; j < k.dim(0); ++j) rows.back().push_back(r.context(i, j));
    }
    return rows;
  }
  static Tensor Identity(std::int64_t n) {
    Tensor identity(DType::kF32, {n, n});
    for (std::int64_t i = 0; i < n; ++i) identity.MutableAs<float>()[i * n + i] = 1;
    return identity;
  }
};

INSTANTIATE_TEST_SUITE_P(EveryPath, Probes, testing::ValuesIn(AllPaths()), TestName);

Tensor Column(std::initializer_list<float> values) {
  return Tensor::Of<float>({static_cast<std::int64_t>(values.size()), 1}, values);
}
Tensor Zeros(std::int64_t rows, std::int64_t columns) { return Tensor(DType::kF32, {rows, columns}); }

void ExpectRow(const std::vector<double>& row, const std::vector<double>& expected, double tolerance = kTolerance) {
  ASSERT_EQ(row.size(), expected.size());
  for (std::size_t j = 0; j < row.size(); ++j) EXPECT_NEAR(row[j], expected[j], tolerance) << "key " << j;
}

TEST_P(Probes, P1SoftmaxRunsOverKeys) {  // over queries: context 1.962, 1.038; weights transposed: 1.269, 1.731
  const Tensor q = Column({1, 0}), k = Column({0, 1}), v = Column({1, 2});
  const auto w = Weights(q, k, {.scale = 1.0f});
  ExpectRow(w[0], {Sigmoid(-1), Sigmoid(1)});
  ExpectRow(w[1], {0.5, 0.5});
  const AttentionResult r = Run(q, k, v, {.scale = 1.0f});
  EXPECT_NEAR(r.context(0, 0), 1 + Sigmoid(1), kTolerance);
  EXPECT_NEAR(r.context(1, 0), 1.5, kTolerance);
}

TEST_P(Probes, P2ScaleIsOneOverTheRootOfHeadDim) {  // none .982; twice .731; inverted .9997
  const Tensor q = Tensor::Of<float>({1, 4}, {4, 0, 0, 0}), k = Tensor::Of<float>({2, 4}, {1, 0, 0, 0, 0, 0, 0, 0});
  ExpectRow(Weights(q, k, {})[0], {Sigmoid(2), Sigmoid(-2)});
}

TEST_P(Probes, P3BottomRightCausal) {  // top-left rows: [1,0,0,0], [1/2,1/2,0,0]
  const auto w = Weights(Zeros(2, 1), Zeros(4, 1), {.causal = true, .q_offset = 2});
  ExpectRow(w[0], {1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
  ExpectRow(w[1], {0.25, 0.25, 0.25, 0.25});
  const auto top_left = Weights(Zeros(2, 1), Zeros(4, 1), {.causal = true, .q_offset = 0});
  ExpectRow(top_left[0], {1, 0, 0, 0});
  ExpectRow(top_left[1], {0.5, 0.5, 0, 0});
}

TEST_P(Probes, P4OneCausalQuerySeesEveryKeyBeforeIt) {  // top-left [1,0,0,0]
  ExpectRow(Weights(Zeros(1, 1), Zeros(4, 1), {.causal = true, .q_offset = 3})[0], {0.25, 0.25, 0.25, 0.25});
}

TEST_P(Probes, P5MaskTrueMeansMayAttend) {  // ignored [.245,.090,.665]; inverted [0,0,1]; added as 0/1 [.422,.155,.422]
  const bool mask[] = {true, true, false};
  ExpectRow(Weights(Column({1}), Column({2, 1, 3}), {.scale = 1.0f, .mask = View(mask, {3})})[0], {Sigmoid(1), Sigmoid(-1), 0});
}

TEST_P(Probes, P6AFullyMaskedRowIsZero) {  // −inf fill NaN; finite fill 1.5
  const bool mask[] = {true, true, false, false};
  const AttentionResult r = Run(Column({0, 0}), Column({0, 0}), Column({1, 2}), {.mask = View(mask, {2, 2})});
  EXPECT_NEAR(r.context(0, 0), 1.5, kTolerance);
  EXPECT_EQ(r.context(1, 0), 0);
}

TEST_P(Probes, P7NeighbouringQueryHeadsShareAKvHead) {  // modulo [10,20,10,20]
  const Tensor q(DType::kF32, {1, 4, 1, 1}), k(DType::kF32, {1, 2, 1, 1}), v = Tensor::Of<float>({1, 2, 1, 1}, {10, 20});
  const AttentionResult r = Run(q, k, v, {});
  for (int h = 0; h < 4; ++h) EXPECT_EQ(r.context(0, h, 0, 0), h < 2 ? 10 : 20) << h;
}

TEST_P(Probes, P8OneKeyGivesItsValueAndItsScore) {
  const AttentionResult r = Run(Column({3}), Column({2}), Tensor::Of<float>({1, 2}, {-7, 0.3f}), {.scale = 1.0f});
  EXPECT_EQ(r.context(0, 0), -7);
  EXPECT_EQ(r.context(0, 1), 0.3f);
  EXPECT_NEAR(r.lse(0), 6, 6 * kTolerance);
}

TEST_P(Probes, P11ScaleComesBeforeTheRangeOfF16) {  // raw dot 102400 > 65504: inf, then NaN
  Tensor x(DType::kF16, {2, 64});
  for (std::int64_t n = 0; n < 64; ++n) x.MutableAs<F16>()[n] = ToF16(40);
  const AttentionResult r = Run(x, x, Column({1, 0}), {});
  EXPECT_NEAR(r.lse(0), 12800, 1e-3);
  EXPECT_EQ(r.context(0, 0), 1);
  EXPECT_NEAR(r.context(1, 0), 0.5, kTolerance);
}

TEST_P(Probes, P12ARisingMaximumRescalesWhatWasSummed) {  // accumulator not rescaled [.881,.881]
  ExpectRow(Weights(Column({1}), Column({0, 2}), {.scale = 1.0f})[0], {Sigmoid(-2), Sigmoid(2)});
  // The same with a whole run of keys on each side of the rise, at lengths around every tile and split.
  for (std::int64_t n : {1, 7, 15, 16, 17, 31, 33, 63, 65, 127, 129, 255, 257, 513}) {
    Tensor k = Zeros(2 * n, 1), v = Zeros(2 * n, 1);
    for (std::int64_t j = 0; j < n; ++j) {
      k.MutableAs<float>()[n + j] = 30;
      v.MutableAs<float>()[n + j] = 1;
    }
    k.MutableAs<float>()[2 * n - 1] = 31;
    const double last = std::exp(1.0), rest = static_cast<double>(n - 1);
    const AttentionResult r = Run(Column({1}), k, v, {.scale = 1.0f});
    EXPECT_NEAR(r.context(0, 0), 1, kTolerance + static_cast<double>(2 * n) * 0x1p-24) << n;  // a sum of 2n terms
    EXPECT_NEAR(r.lse(0), 30 + std::log(rest + last), 30 * kTolerance) << n;
  }
}

TEST_P(Probes, P13ScoresFarBelowZero) {  // maximum starting at 0: 0 or NaN
  // Scores of this size in units of log2 are rounded by 1443·2^−24 each.
  ExpectRow(Weights(Column({-1}), Column({1000, 1001}), {.scale = 1.0f})[0], {Sigmoid(1), Sigmoid(-1)}, 2 * 1443 * 0x1p-24);
}

TEST_P(Probes, P14ScoresFarAboveZero) {  // no maximum: inf/inf
  ExpectRow(Weights(Column({1}), Column({100, 0}), {.scale = 1.0f})[0], {1, 0});
}

TEST_P(Probes, P15KeysBeyondTheLastBlockDoNotCount) {
  for (std::int64_t n = 1; n <= 140; ++n) {
    Tensor v = Zeros(n, 1);
    for (std::int64_t j = 0; j < n; ++j) v.MutableAs<float>()[j] = 1;
    for (std::int64_t queries : {1, 20}) {
      const AttentionResult r = Run(Zeros(queries, 1), Zeros(n, 1), v, {});
      // The context is the sum of the weights, in whatever order.
      EXPECT_NEAR(r.context(queries - 1, 0), 1, static_cast<double>(n + 4) * 0x1p-24) << n << " keys";
      EXPECT_NEAR(r.lse(queries - 1), std::log(static_cast<double>(n)), 5 * kTolerance) << n << " keys";
    }
  }
}

TEST_P(Probes, P16TheCapComesBeforeTheMask) {  // after it: [.731,.269]
  const bool mask[] = {true, false};
  ExpectRow(Weights(Column({1}), Column({0, 0}), {.soft_cap = 1, .mask = View(mask, {2})})[0], {1, 0});
}

TEST_P(Probes, P17TheCapIsTanh) {  // x·tanh(x/c): [1, 0]
  const double capped = std::tanh(10.0);
  ExpectRow(Weights(Column({1}), Column({10, 0}), {.scale = 1.0f, .soft_cap = 1})[0], {Sigmoid(capped), Sigmoid(-capped)});
}

TEST_P(Probes, P18ASinkCountsOnceInTheDenominator) {  // missing [1/2,1/2]; twice [1/4,1/4]
  const Tensor sinks = Tensor::Of<float>({1}, {0});
  ExpectRow(Weights(Column({1}), Column({0, 0}), {.sinks = sinks})[0], {1 / 3.0, 1 / 3.0});
  EXPECT_NEAR(Run(Column({1}), Column({0, 0}), Column({1, 1}), {.sinks = sinks}).lse(0), std::log(3.0), 2 * kTolerance);
}

TEST_P(Probes, P19AlibiSubtractsSlopeTimesDistance) {  // slope 1: [.269,.731]
  const Tensor slopes = Tensor::Of<float>({1}, {0.5f});
  ExpectRow(Weights(Zeros(2, 1), Zeros(2, 1), {.causal = true, .alibi_slopes = slopes})[1], {Sigmoid(-0.5), Sigmoid(0.5)});
}

TEST_P(Probes, P20AWindowOfTwoIsTheQueryAndOneBefore) {  // W + 1: [0,1/3,1/3,1/3]
  ExpectRow(Weights(Zeros(4, 1), Zeros(4, 1), {.causal = true, .window_left = 1})[3], {0, 0, 0.5, 0.5});
  ExpectRow(Weights(Zeros(4, 1), Zeros(4, 1), {.window_right = 1})[1], {1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
}

TEST_P(Probes, P22WhatAMaskHidesMayBeNaN) {
  const bool mask[] = {true, false};
  for (bool in_key : {true, false}) {
    const AttentionResult r =
        Run(Column({0, 0}), Column({1, in_key ? kNaN : 1}), Column({3, in_key ? 1 : kNaN}), {.mask = View(mask, {2})});
    EXPECT_EQ(r.context(0, 0), 3);
    EXPECT_EQ(r.context(1, 0), 3);
  }
}

TEST_P(Probes, P23PackedDocumentsDoNotMix) {  // leak: [1/3,1/3,1/3,0]
  const std::int32_t documents[] = {0, 0, 1, 1};
  const TensorView segments = View(documents, {4});
  const auto w = Weights(Zeros(4, 1), Zeros(4, 1), {.causal = true, .q_segments = segments, .kv_segments = segments});
  ExpectRow(w[1], {0.5, 0.5, 0, 0});
  ExpectRow(w[2], {0, 0, 1, 0});
}

TEST_P(Probes, P25EachHeadHasItsOwnSoftmax) {  // joint: 1/2 per head
  const Tensor x(DType::kF32, {1, 2, 2, 1}), ones = Tensor::Of<float>({1, 2, 2, 1}, {1, 1, 1, 1});
  const AttentionResult r = Run(x, x, ones, {});
  for (int h = 0; h < 2; ++h) EXPECT_NEAR(r.context(0, h, 0, 0), 1, kTolerance);
}

// The six tokens of the course (Raschka, Build a Large Language Model (From Scratch), chapter 3) to its four decimals.
TEST_P(Probes, TheSixTokensOfTheCourse) {
  const Tensor x = Tensor::Of<float>({6, 3}, {0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f, 0.22f, 0.58f, 0.33f,
                                              0.77f, 0.25f, 0.10f, 0.05f, 0.80f, 0.55f});
  const double scores[] = {0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865},
               weights[] = {0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581}, context[] = {0.4419, 0.6515, 0.5683};
  constexpr double kFourDecimals = 0.5e-4 + 1e-6;
  const AttentionResult r = Run(x, x, x, {.scale = 1.0f});
  for (int d = 0; d < 3; ++d) EXPECT_NEAR(r.context(1, d), context[d], kFourDecimals);
  const auto w = Weights(x, x, {.scale = 1.0f});
  for (std::size_t j = 0; j < 6; ++j) EXPECT_NEAR(w[1][j], weights[j], kFourDecimals);
  EXPECT_NEAR(w[0][1], 0.2006, kFourDecimals);
  if (!GetParam().has_stages()) return;
  const Stages stages = ComputeStages(x, x, x, {.scale = 1.0f}, {.path = GetParam().path});
  for (int j = 0; j < 6; ++j) {
    EXPECT_NEAR(stages.scores(1, j), scores[j], kFourDecimals);
    EXPECT_NEAR(stages.weights(1, j), weights[j], kFourDecimals);
  }
  for (int d = 0; d < 3; ++d) EXPECT_NEAR(stages.context(1, d), context[d], kFourDecimals);
}

TEST(Merging, P9HeadsAreMergedSideBySide) {  // without a transpose: [0,1], [10,11]
  const Tensor context = Tensor::Of<float>({1, 2, 2, 1}, {0, 1, 10, 11});
  const Tensor merged = ProjectContext(context, {});
  ASSERT_EQ(merged.shape(), (Dims{1, 2, 2}));
  EXPECT_EQ(merged(0, 0, 0), 0);
  EXPECT_EQ(merged(0, 0, 1), 10);
  EXPECT_EQ(merged(0, 1, 0), 1);
  EXPECT_EQ(merged(0, 1, 1), 11);
}

}  // namespace
}  // namespace regard::test
