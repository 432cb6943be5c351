// Summaries are what the definition's weights give; rows without a value; long lists; errors.
#include "regard/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/summary/comparison.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Summaries : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Fused, Summaries, testing::ValuesIn(FusedPaths()), TestName);

TEST_P(Summaries, AreWhatTheDefinitionsWeightsGive) {
  for (std::uint64_t seed : Seeds(400)) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    Random random(seed);
    CompareWithDefinition(p, GetParam(), Everything(p, random));
    if (HasFailure()) return;
  }
}

// Where all keys are hidden by the lowest number they are visible still, and weigh alike.
TEST_P(Summaries, OfRowsOfLowestBiases) {
  for (const std::int64_t rows : {1, 20}) {
    const Tensor q(DType::kF32, {rows, 2}), k(DType::kF32, {4, 2});
    Tensor bias(DType::kF32, {4});
    std::fill_n(bias.MutableAs<float>(), 4, std::numeric_limits<float>::lowest());
    const Summary s = Summarize(q, k, k, {.bias = bias},
                                {.row_max = true, .row_argmax = true, .entropy = true, .top_k = 5, .first_key_share = true},
                                {.isa = GetParam().isa});
    for (std::int64_t i = 0; i < rows; ++i) {
      EXPECT_NEAR(s.row_max(i), s.lse(i), 1e32);
      EXPECT_EQ(s.row_argmax(i), 0);
      EXPECT_NEAR(s.entropy(i), std::log(4.0), 1e-6);
      EXPECT_EQ(s.first_key_share(i), 0.25);
      for (std::int64_t n = 0; n < 5; ++n) {
        EXPECT_EQ(s.topk_index(i, n), n < 4 ? n : -1);
        EXPECT_EQ(s.topk_weight(i, n), n < 4 ? 0.25 : 0);
      }
    }
  }
}

// Longer than a task and than a block of keys, with few options at a time.
TEST_P(Summaries, OfLongerProblems) {
  for (std::uint64_t seed : Seeds(6)) {
    Random random(seed);
    TestProblem p;
    p.heads = 2;
    p.kv_heads = 1;
    p.q_len = 300 + random.Int(0, 60);
    p.kv_len = 280 + random.Int(0, 100);
    p.head_dim = p.v_dim = 8;
    const auto fill = [&](const Dims& shape) {
      Tensor t(DType::kF32, shape);
      for (std::int64_t n = 0; n < t.num_elements(); ++n) t.MutableAs<float>()[n] = static_cast<float>(1.5 * random.Normal());
      p.memory.push_back(std::move(t));
      return p.memory.back().view();
    };
    p.q = fill({1, 2, p.q_len, 8});
    p.k = fill({1, 1, p.kv_len, 8});
    p.v = fill({1, 1, p.kv_len, 8});
    p.params.causal = seed % 2 == 0;
    p.params.q_offset = p.kv_len - p.q_len;
    if (seed % 3 == 0) p.params.window_left = 40;
    p.threads = 2;
    p.description = "REGARD_TEST_SEED=" + std::to_string(seed);
    SCOPED_TRACE(p.description);
    CompareWithDefinition(p, GetParam(), Everything(p, random));
    if (HasFailure()) return;
  }
}

// Tasks of more rows than are handed to the kernel at a time.
TEST_P(Summaries, OfManyRows) {
  Random random(11);
  TestProblem p;
  p.q_len = 4200;
  p.kv_len = 45;
  p.head_dim = p.v_dim = 4;
  for (const auto& [view, tokens] : {std::pair{&p.q, p.q_len}, {&p.k, p.kv_len}, {&p.v, p.kv_len}}) {
    Tensor tensor(DType::kF32, {1, 1, tokens, 4});
    for (std::int64_t n = 0; n < tensor.num_elements(); ++n)
      tensor.MutableAs<float>()[n] = static_cast<float>(2 * random.Normal());
    p.memory.push_back(std::move(tensor));
    *view = p.memory.back().view();
  }
  p.params.q_offset = -4100;
  p.params.window_right = 4000;
  p.threads = 1;
  CompareWithDefinition(p, GetParam(), Everything(p, random));
}

// One key that is NaN for the second query alone, and a third query that sees nothing.
TEST_P(Summaries, UndefinedAndEmptyRows) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const Tensor q = Tensor::Of<float>({4, 1}, {1, 1, 1, 2}), k = Tensor::Of<float>({3, 1}, {0, 1, kNaN});
  const Tensor mask = Tensor::Of<bool>({4, 3}, {true, true, false, true, true, true, false, false, false, true, true, false});
  const Summary s = Summarize(q, k, Tensor::Of<float>({3, 1}, {1, 2, 3}), {.q_offset = 0, .mask = mask},
                              {.row_max = true,
                               .row_argmax = true,
                               .entropy = true,
                               .top_k = 2,
                               .distance = true,
                               .first_key_share = true,
                               .window_share = 1,
                               .key_mass_mean = true,
                               .pooled_rows = 4,
                               .pooled_cols = 1,
                               .pooled_max = true,
                               .head_kind = true},
                              {.isa = GetParam().isa});
  for (const Tensor* tensor :
       {&s.row_max, &s.entropy, &s.topk_tail, &s.distance_mean, &s.distance_std, &s.first_key_share, &s.window_share}) {
    EXPECT_TRUE(std::isnan((*tensor)(1))) << "the undefined row";
    EXPECT_FALSE(std::isnan((*tensor)(0)) || std::isnan((*tensor)(3))) << "its neighbours";
  }
  EXPECT_EQ(s.row_argmax(0), 1);
  EXPECT_EQ(s.row_argmax(1), -1);
  EXPECT_EQ(s.row_argmax(2), -1);
  EXPECT_EQ(s.row_max(2), -kInfinity);
  for (const Tensor* tensor : {&s.entropy, &s.topk_tail, &s.first_key_share, &s.window_share}) EXPECT_EQ((*tensor)(2), 0);
  EXPECT_TRUE(std::isnan(s.distance_mean(2)) && std::isnan(s.distance_std(2)));
  EXPECT_TRUE(std::isnan(s.topk_weight(1, 0)) && s.topk_index(1, 0) == -1);
  EXPECT_TRUE(std::isnan(s.key_mass_mean(0))) << "one of the queries that see it is undefined";
  EXPECT_NEAR(s.pooled(0, 0), 1, 1e-6);
  EXPECT_TRUE(std::isnan(s.pooled(1, 0)) && std::isnan(s.pooled_max(1, 0)));
  EXPECT_TRUE(std::isnan(s.pooled(2, 0)) && std::isnan(s.pooled_max(2, 0)));
  EXPECT_EQ(s.head_kind[0], HeadKind::kMixed);
  EXPECT_TRUE(std::isnan(s.head_score()));
}

// Lists longer than those that are tracked on the way, and more equal keys than can be ranked.
TEST_P(Summaries, LongListsAndEqualKeys) {
  constexpr std::int64_t kTokens = 700, kDim = 4;
  Random random(5);
  Tensor q(DType::kF32, {kTokens, kDim}), k(DType::kF32, {kTokens, kDim});
  for (std::int64_t n = 0; n < kTokens * kDim; ++n) q.MutableAs<float>()[n] = static_cast<float>(random.Normal());
  // Three keys in turn, each 233 times: a row's list is the first of its best key.
  for (std::int64_t j = 0; j < kTokens; ++j) {
    for (std::int64_t d = 0; d < kDim; ++d) k.MutableAs<float>()[j * kDim + d] = (j % 3 == d) ? 2.0f : 0.25f;
  }
  for (const int top_k : {1, 5, 33, 100}) {
    const Summary s = Summarize(q, k, k, {}, {.top_k = top_k}, {.isa = GetParam().isa});
    for (std::int64_t i = 0; i < kTokens; ++i) {
      const std::int64_t best = s.topk_index.As<std::int64_t>()[i * top_k];
      ASSERT_LT(best, 3);
      for (int n = 0; n < top_k; ++n) ASSERT_EQ(s.topk_index(i, n), best + 3 * n) << "row " << i << " of top " << top_k;
    }
  }
}

// Keys of norm 0 times queries whose norm overflows: the bound of their roundings is NaN. A bias tells the keys apart.
TEST_P(Summaries, TopKeysWhereTheBoundOfRoundingsIsNaN) {
  constexpr std::int64_t kQueries = 30, kKeys = 300, kDim = 5, kTop = 3;
  Random random(6);
  Tensor q(DType::kF32, {kQueries, kDim}), bias(DType::kF32, {kQueries, kKeys});
  std::fill_n(q.MutableAs<float>(), kQueries * kDim, -1e20f);
  for (std::int64_t n = 0; n < kQueries * kKeys; ++n) bias.MutableAs<float>()[n] = static_cast<float>(random.Normal());
  const Tensor k(DType::kF32, {kKeys, kDim});
  const Summary s = Summarize(q, k, k, {.bias = bias}, {.top_k = kTop}, {.isa = GetParam().isa});
  for (std::int64_t i = 0; i < kQueries; ++i) {
    const float* const row = bias.As<float>() + i * kKeys;
    std::vector<std::int64_t> expected(kKeys);
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::stable_sort(expected, std::greater<>(), [row](std::int64_t j) { return row[j]; });
    for (std::int64_t n = 0; n < kTop; ++n) {
      EXPECT_EQ(s.topk_index(i, n), expected[static_cast<std::size_t>(n)]) << "row " << i << ", place " << n;
      EXPECT_NEAR(s.topk_weight(i, n), std::exp(row[expected[static_cast<std::size_t>(n)]] - s.lse(i)), 1e-6);
    }
  }
}

// Finite keys whose squares overflow, of scores that lie closer than their roundings: halves of a product cancel. A list of 40 is of scores of
// all keys, and begins with any shorter one.
TEST_P(Summaries, TopKeysWhereSquaresOverflow) {
  constexpr std::int64_t kQueries = 30, kKeys = 1000, kHalf = 19, kDim = 2 * kHalf, kTop = 8;
  Random random(7);
  Tensor q(DType::kF32, {kQueries, kDim}), k(DType::kF32, {kKeys, kDim});
  for (std::int64_t i = 0; i < kQueries; ++i) {
    float* const row = q.MutableAs<float>() + i * kDim;
    for (std::int64_t c = 0; c < kHalf; ++c) row[c] = row[c + kHalf] = static_cast<float>(1e-15 * random.Normal());
  }
  for (std::int64_t n = 0; n < kKeys * kDim; ++n) {
    k.MutableAs<float>()[n] = static_cast<float>((n % kDim < kHalf ? 1e20 : -1e20) + 1e14 * random.Normal());
  }
  const Summary some = Summarize(q, k, k, {}, {.top_k = kTop}, {.isa = GetParam().isa});
  const Summary all = Summarize(q, k, k, {}, {.top_k = 40}, {.isa = GetParam().isa});
  for (std::int64_t i = 0; i < kQueries; ++i) {
    for (std::int64_t n = 0; n < kTop; ++n)
      EXPECT_EQ(some.topk_index(i, n), all.topk_index(i, n)) << "row " << i << ", place " << n;
  }
}

// All keys but one are hidden by name, and a list needs some of those: their scores lose in the pass what the list's own do not.
TEST_P(Summaries, ListsReachKeysWithBiasesOfThousands) {
  constexpr std::int64_t kRows = 40, kKeys = 48, kDim = 32;
  Tensor q(DType::kF32, {kRows, kDim}), k(DType::kF32, {kKeys, kDim}), bias(DType::kF32, {kKeys});
  for (std::int64_t n = 0; n < kRows * kDim; ++n)
    q.MutableAs<float>()[n] = 0.2f * std::sin(1.7f * static_cast<float>(n * n % 211));
  for (std::int64_t n = 0; n < kKeys * kDim; ++n)
    k.MutableAs<float>()[n] = 0.2f * std::sin(2.3f * static_cast<float>(n * n % 197));
  for (std::int64_t j = 0; j < kKeys; ++j) bias.MutableAs<float>()[j] = j == 21 ? 0.0f : -1e4f;
  const Summary s = Summarize(q, k, k, {.bias = bias}, {.top_k = 4}, {.isa = GetParam().isa});
  for (std::int64_t i = 0; i < kRows; ++i) {
    EXPECT_EQ(s.topk_index(i, 0), 21);
    for (int n = 1; n < 4; ++n) EXPECT_GE(s.topk_index(i, n), 0) << "row " << i << ", place " << n;
  }
}

std::string MessageOf(const SummaryOptions& options, const ExecOptions& exec = {}) {
  const Tensor q(DType::kF32, {5, 2}), k(DType::kF32, {7, 2});
  try {
    Summarize(q, k, k, {}, options, exec);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SummaryErrors, NameTheOption) {
  EXPECT_EQ(MessageOf({.top_k = -1}), "top_k: -1 is negative; give 0 or more");
  EXPECT_EQ(MessageOf({.pooled_rows = 3}), "pooled_rows, pooled_cols: 3 and 0; give both or neither");
  EXPECT_EQ(MessageOf({.pooled_max = true}), "pooled_max: needs bins; give pooled_rows and pooled_cols");
  EXPECT_EQ(MessageOf({.heads = {1}}), "heads: 1 of 1; give 0…0, or none for all");
  EXPECT_EQ(MessageOf({.window_share = -2}), "window_share: -2 is negative; give 0 or more");
  EXPECT_EQ(MessageOf({.distance = true}),
            "q_offset: not stated, and distance needs it since q_len=5 ≠ kv_len=7; give 0 (top-left: PyTorch, ONNX) or 2 "
            "(bottom-right: FlashAttention, FlashInfer, MLX)");
  EXPECT_EQ(MessageOf({}, {.path = Path::kReference}),
            "path: reference streams no weights; use fused, or ComputeStages and reduce its weights");
}

}  // namespace
}  // namespace regard::test
