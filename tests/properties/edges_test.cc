// The edge rules of the contract, one by one, by every path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "tests/support/paths.h"
#include "tests/support/placement.h"

namespace regard::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class Edges : public testing::TestWithParam<PathCase> {
 protected:
  AttentionResult Run(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionParams& params) {
    return Attention(q, k, v, params, {.path = GetParam().path, .isa = GetParam().isa});
  }
};

INSTANTIATE_TEST_SUITE_P(EveryPath, Edges, testing::ValuesIn(AllPaths()), TestName);

// Scores are the first argument with k = 1: q [1, 1], k [n, 1].
Tensor Column(std::initializer_list<float> values) {
  return Tensor::Of<float>({static_cast<std::int64_t>(values.size()), 1}, values);
}

TEST_P(Edges, AQueryThatSeesNothingGivesZerosAndIsCounted) {
  const Tensor q = Column({1, 2}), k = Column({1, 1}), v = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  const bool mask[] = {true, true, false, false};
  const AttentionResult r = Run(q, k, v, {.scale = 1.0f, .mask = View(mask, {2, 2})});
  EXPECT_EQ(r.empty_rows, 1);
  EXPECT_EQ(r.context(1, 0), 0);
  EXPECT_EQ(r.context(1, 1), 0);
  EXPECT_EQ(r.lse(1), -kInfinity);
  EXPECT_NEAR(r.context(0, 0), 2, 1e-6);
}

TEST_P(Edges, AnEmptyRowsLseIsItsSink) {
  const Tensor q = Column({1}), k = Column({1}), v = Column({5}), sinks = Tensor::Of<float>({1}, {0.75f});
  const bool mask[] = {false};
  const AttentionResult r = Run(q, k, v, {.mask = View(mask, {1, 1}), .sinks = sinks});
  EXPECT_EQ(r.empty_rows, 1);
  EXPECT_EQ(r.context(0, 0), 0);
  EXPECT_NEAR(r.lse(0), 0.75, 1e-7);
}

TEST_P(Edges, ASinkOfMinusInfinityIsNone) {
  const Tensor q = Column({1}), k = Column({0, 1}), v = Column({3, 5});
  const Tensor none = Tensor::Of<float>({1}, {-kInfinity});
  const AttentionResult with = Run(q, k, v, {.sinks = none}), without = Run(q, k, v, {});
  EXPECT_EQ(with.context(0, 0), without.context(0, 0));
  EXPECT_EQ(with.lse(0), without.lse(0));
}

TEST_P(Edges, NoKeysMakeEveryRowEmpty) {
  const Tensor q(DType::kF32, {3, 2}), k(DType::kF32, {0, 2}), v(DType::kF32, {0, 2});
  const AttentionResult r = Run(q, k, v, {});
  EXPECT_EQ(r.empty_rows, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(r.context(i, 0), 0);
    EXPECT_EQ(r.lse(i), -kInfinity);
  }
}

TEST_P(Edges, NoQueriesOrNoBatchGiveEmptyResults) {
  const Tensor k(DType::kF32, {3, 2}), none(DType::kF32, {0, 2});
  EXPECT_EQ(Run(none, k, k, {}).context.shape(), (Dims{0, 2}));
  const Tensor q4(DType::kF32, {0, 2, 4, 2}), k4(DType::kF32, {0, 1, 3, 2});
  const AttentionResult r = Run(q4, k4, k4, {});
  EXPECT_EQ(r.context.shape(), (Dims{0, 2, 4, 2}));
  EXPECT_EQ(r.lse.shape(), (Dims{0, 2, 4}));
  EXPECT_EQ(r.empty_rows, 0);
}

TEST_P(Edges, AVisibleScoreOfMinusInfinityWeighsNothing) {
  const Tensor q = Column({1}), k = Column({0, -kInfinity, 0}), v = Column({1, 100, 3});
  const AttentionResult r = Run(q, k, v, {.scale = 1.0f});
  EXPECT_NEAR(r.context(0, 0), 2, 1e-6);
  EXPECT_NEAR(r.lse(0), std::log(2.0), 1e-6);
  EXPECT_EQ(r.empty_rows, 0);
}

TEST_P(Edges, OnlyScoresOfMinusInfinityGiveZerosThatAreNotAnEmptyRow) {
  const Tensor q = Column({1}), k = Column({-kInfinity, -kInfinity}), v = Column({1, 2});
  const AttentionResult r = Run(q, k, v, {.scale = 1.0f});
  EXPECT_EQ(r.context(0, 0), 0);
  EXPECT_EQ(r.lse(0), -kInfinity);
  EXPECT_EQ(r.empty_rows, 0);
}

TEST_P(Edges, AVisibleScoreOfInfinityOrNaNSpoilsItsRow) {
  for (float bad : {kInfinity, kNaN}) {
    const Tensor q = Column({1, 0.5f}), k = Column({0, bad, 1}), v = Column({1, 2, 3});
    const bool mask[] = {true, true, true, true, false, true};  // query 1 does not see it
    const AttentionResult r = Run(q, k, v, {.scale = 1.0f, .mask = View(mask, {2, 3})});
    EXPECT_TRUE(std::isnan(r.context(0, 0))) << bad;
    EXPECT_TRUE(std::isnan(r.lse(0))) << bad;
    EXPECT_NEAR(r.lse(1), std::log(1 + std::exp(0.5)), 1e-6) << bad;
    EXPECT_TRUE(std::isfinite(r.context(1, 0))) << bad;
  }
}

TEST_P(Edges, ABiasOfInfinityOrNaNSpoilsItsRow) {
  for (float bad : {kInfinity, kNaN}) {
    const Tensor q = Column({1}), k = Column({0, 1}), v = Column({1, 2}), bias = Tensor::Of<float>({2}, {0, bad});
    const AttentionResult r = Run(q, k, v, {.bias = bias});
    EXPECT_TRUE(std::isnan(r.context(0, 0)) && std::isnan(r.lse(0))) << bad;
  }
}

// A −inf that hides another key of the row hides none but that one: with rows and keys enough for every kernel's vectors.
TEST_P(Edges, ABiasOfNaNSpoilsItsRowBesideOneThatHides) {
  constexpr std::int64_t kKeys = 37;
  for (const std::int64_t rows : {1, 20}) {
    Tensor q(DType::kF32, {rows, 1}), kv(DType::kF32, {kKeys, 1}), bias(DType::kF32, {rows, kKeys});
    bias.MutableAs<float>()[5] = kNaN;
    for (std::int64_t i = 0; i < rows; ++i) bias.MutableAs<float>()[i * kKeys + 9] = -kInfinity;
    const AttentionResult r = Run(q, kv, kv, {.bias = bias});
    EXPECT_TRUE(std::isnan(r.context(0, 0)) && std::isnan(r.lse(0))) << rows;
    for (std::int64_t i = 1; i < rows; ++i) EXPECT_NEAR(r.lse(i), std::log(kKeys - 1.0), 1e-6);
  }
}

TEST_P(Edges, ACapMakesInfiniteScoresFinite) {
  const Tensor q = Column({1}), k = Column({kInfinity, -kInfinity}), v = Column({1, 0});
  const AttentionResult r = Run(q, k, v, {.scale = 1.0f, .soft_cap = 2});
  EXPECT_NEAR(r.context(0, 0), 1 / (1 + std::exp(-4.0)), 1e-6);
}

// In log2 units the largest caps would be infinite. For few rows and for many.
TEST_P(Edges, TheLargestCapCapsNothing) {
  for (const std::int64_t rows : {1, 20}) {
    Tensor q(DType::kF32, {rows, 1});
    std::fill_n(q.MutableAs<float>(), rows, 1.0f);
    const Tensor k = Column({0, 1, -2}), v = Column({1, 2, 4});
    const AttentionResult with = Run(q, k, v, {.scale = 1.0f, .soft_cap = std::numeric_limits<float>::max()}),
                          without = Run(q, k, v, {.scale = 1.0f});
    for (std::int64_t i = 0; i < rows; ++i) {
      EXPECT_NEAR(with.context(i, 0), without.context(i, 0), 1e-5);
      EXPECT_NEAR(with.lse(i), without.lse(i), 1e-5);
    }
  }
}

TEST_P(Edges, AVisibleNonFiniteValueSpoilsItsElement) {
  for (float bad : {kInfinity, -kInfinity, kNaN}) {
    const Tensor q = Column({1, 1}), k = Column({0, 0, 0}), v = Tensor::Of<float>({3, 2}, {1, 2, 3, bad, 5, 6});
    const AttentionResult r = Run(q, k, v, {.causal = true, .q_offset = 0});
    EXPECT_EQ(r.context(0, 0), 1);
    EXPECT_EQ(r.context(0, 1), 2);  // query 0 does not see it
    EXPECT_NEAR(r.context(1, 0), 2, 1e-6);
    EXPECT_FALSE(std::isfinite(r.context(1, 1))) << bad;
  }
}

TEST_P(Edges, FillsThatAreNotInfiniteKeepTheRestExact) {
  // Padding on the left, hidden by large negative numbers as models do that avoid −inf.
  constexpr std::int64_t kKeys = 200, kPadding = 100, kQueries = 5, kDim = 8;
  Random random(7);
  Tensor q(DType::kF32, {kQueries, kDim}), k(DType::kF32, {kKeys, kDim}), v(DType::kF32, {kKeys, 3}), bias(DType::kF32, {kKeys});
  for (Tensor* tensor : {&q, &k, &v}) {
    for (std::int64_t n = 0; n < tensor->num_elements(); ++n) tensor->MutableAs<float>()[n] = static_cast<float>(random.Normal());
  }
  const AttentionResult right =
      Attention(q, k.view().Slice(0, kPadding, kKeys), v.view().Slice(0, kPadding, kKeys), {}, {.path = Path::kReference});
  for (float fill : {-1e4f, -1e9f, -1e30f, std::numeric_limits<float>::lowest()}) {
    for (std::int64_t j = 0; j < kPadding; ++j) bias.MutableAs<float>()[j] = fill;
    for (std::int64_t queries : {kQueries, std::int64_t{1}}) {
      const AttentionResult r =
          Attention(q.view().Slice(0, 0, queries), k, v, {.bias = bias}, {.path = GetParam().path, .isa = GetParam().isa});
      for (std::int64_t i = 0; i < queries; ++i) {
        EXPECT_NEAR(r.lse(i), right.lse(i), 4e-6) << fill << ", " << queries << " queries";
        for (int d = 0; d < 3; ++d)
          EXPECT_NEAR(r.context(i, d), right.context(i, d), 2e-6) << fill << ", " << queries << " queries";
      }
    }
  }
}

// The smallest double and the smallest float are no −inf: a row of nothing else is uniform, not empty, and weighs its keys.
TEST_P(Edges, TheSmallestNumberIsNotMinusInfinity) {
  constexpr double kDouble = std::numeric_limits<double>::lowest();
  constexpr float kFloat = std::numeric_limits<float>::lowest();
  const Tensor q = Column({1}), k = Column({0, 1}), v = Column({1, 2});
  for (const Tensor& bias : {Tensor::Of<double>({2}, {kDouble, kDouble}), Tensor::Of<float>({2}, {kFloat, kFloat})}) {
    const AttentionResult r = Run(q, k, v, {.bias = bias});
    EXPECT_EQ(r.empty_rows, 0) << Name(bias.dtype());
    EXPECT_NEAR(r.context(0, 0), 1.5, 1e-6) << Name(bias.dtype());
  }
}

TEST_P(Edges, DistancesAndOffsetsMayBeHuge) {
  const Tensor q = Column({1}), k = Column({0, 0}), v = Column({1, 3}), slopes = Tensor::Of<float>({1}, {1e-12f});
  const std::int64_t far = std::int64_t{1} << 50;
  const AttentionResult r =
      Run(q, k, v,
          {.causal = true, .q_offset = far, .window_left = std::numeric_limits<std::int64_t>::max(), .alibi_slopes = slopes});
  EXPECT_NEAR(r.context(0, 0), 2, 1e-6);
  EXPECT_EQ(Run(q, k, v, {.causal = true, .q_offset = -far}).empty_rows, 1);
}

TEST_P(Edges, ProgressAndStop) {
  const Tensor x(DType::kF32, {2, 3, 5, 4});
  std::vector<double> seen;
  Attention(x, x, x, {}, {.path = GetParam().path, .isa = GetParam().isa, .threads = 2, .on_progress = [&](double done) {
                            seen.push_back(done);
                          }});
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), 1.0);
  for (std::size_t n = 1; n < seen.size(); ++n) EXPECT_GT(seen[n], seen[n - 1]);

  std::stop_source stop;
  stop.request_stop();
  try {
    Attention(x, x, x, {}, {.path = GetParam().path, .isa = GetParam().isa, .stop_token = stop.get_token()});
    FAIL() << "was not stopped";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
}

TEST(Isa, AnUnknownNameIsTheSameErrorOnEveryPath) {
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    try {
      Plan({.q_len = 2, .kv_len = 2, .head_dim = 1, .v_dim = 1}, {}, {.path = path, .isa = "AVX9"});
      ADD_FAILURE() << Name(path) << " accepts it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_TRUE(std::string(error.what()).starts_with("isa: \"AVX9\" does not run here; use one of ")) << error.what();
    }
  }
}

}  // namespace
}  // namespace regard::test
