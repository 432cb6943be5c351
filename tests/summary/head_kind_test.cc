// What a head is called, on heads made to be of each kind: one-hot weights of a known share, and the same weights through Summarize.
#include "summary/head_kind.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "regard/summary.h"

namespace regard::test {
namespace {

constexpr std::int64_t kTokens = 40;

// Weights [40, 40] as ln w in a bias over scores that are all 0; rows that sum to 1 are kept as they are.
Summary Judge(const std::function<double(std::int64_t i, std::int64_t j)>& weight, const AttentionParams& params = {}) {
  const Tensor q(DType::kF32, {kTokens, 1});
  Tensor bias(DType::kF32, {kTokens, kTokens});
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t j = 0; j < kTokens; ++j)
      bias.MutableAs<float>()[i * kTokens + j] = static_cast<float>(std::log(std::max(weight(i, j), 1e-30)));
  }
  AttentionParams with_bias = params;
  with_bias.bias = bias;
  return Summarize(q, q, q, with_bias, {.head_kind = true});
}

void Expect(HeadKind kind, double score, const Summary& summary) {
  EXPECT_STREQ(Name(summary.head_kind[0]), Name(kind));
  EXPECT_NEAR(summary.head_score(), score, 1e-5);
}

// `share` of the weight on the key `target(i)`, or all on key i where there is none; the rest evenly on the keys that are farthest away.
std::function<double(std::int64_t, std::int64_t)> OneHot(double share, const std::function<std::int64_t(std::int64_t)>& target) {
  return [share, target](std::int64_t i, std::int64_t j) {
    const std::int64_t key = target(i);
    const std::int64_t first_far = i < kTokens / 2 ? kTokens - 8 : 1;  // eight keys far from i, never key 0
    const double far = j >= first_far && j < first_far + 8 ? (1 - share) / 8 : 0;
    return j == key ? share + far : far;
  };
}

TEST(HeadKindTest, PreviousToken) {
  // Query 0 has no previous token.
  const auto weight = OneHot(0.8, [](std::int64_t i) { return i == 0 ? kTokens / 2 + 3 : i - 1; });
  const Summary summary = Judge(weight);
  double share = 0;
  for (std::int64_t i = 1; i < kTokens; ++i) share += weight(i, i - 1) / kTokens;
  Expect(HeadKind::kPreviousToken, share, summary);
  EXPECT_GT(share, 0.7);
}

TEST(HeadKindTest, Self) {
  Expect(HeadKind::kSelf, 0.8, Judge(OneHot(0.8, [](std::int64_t i) { return i; })));
}

TEST(HeadKindTest, FirstToken) {
  Expect(HeadKind::kFirstToken, 0.8, Judge(OneHot(0.8, [](std::int64_t) { return 0; })));
}

TEST(HeadKindTest, FirstTokenOfItsOwnSegment) {
  Tensor segments(DType::kI32, {kTokens});
  for (std::int64_t t = 0; t < kTokens; ++t) segments.MutableAs<std::int32_t>()[t] = t < 22 ? 3 : 5;
  const Summary summary = Judge([](std::int64_t i, std::int64_t j) { return j == (i < 22 ? 0 : 22) ? 1.0 : 0.0; },
                                {.q_segments = segments, .kv_segments = segments});
  Expect(HeadKind::kFirstToken, 1, summary);
}

// Half of the weight within eight tokens is enough, but on none of the places that have names of their own.
TEST(HeadKindTest, LocalReachesEightTokens) {
  const auto at_distance = [](std::int64_t d) {
    return [d](std::int64_t i, std::int64_t j) { return j == (i >= d ? i - d : i + d) ? 1.0 : 0.0; };
  };
  Expect(HeadKind::kLocal, 1, Judge(at_distance(8)));
  EXPECT_STRNE(Name(Judge(at_distance(9)).head_kind[0]), "local");
}

TEST(HeadKindTest, DiagonalBandIsAFixedDistance) {
  // Distance 12 for the queries that have it, give or take two; the others look ahead by as much.
  const Summary summary = Judge([](std::int64_t i, std::int64_t j) {
    const std::int64_t key = i >= 14 ? i - 12 + i % 3 - 1 : i + 20;
    return j == key ? 1.0 : 0.0;
  });
  Expect(HeadKind::kDiagonalBand, 26.0 / 40, summary);
}

TEST(HeadKindTest, Uniform) {
  Expect(HeadKind::kUniform, 1, Judge([](std::int64_t, std::int64_t) { return 1.0 / kTokens; }));
  // Causal: the first query has a single key and counts as 1; more than half of the weight is local.
  Expect(HeadKind::kUniform, 1, Judge([](std::int64_t, std::int64_t) { return 1.0 / kTokens; }, {.causal = true}));
}

TEST(HeadKindTest, UniformInShortCausalTexts) {
  for (const std::int64_t tokens : {3, 10, 16, 32}) {
    const Tensor q(DType::kF32, {tokens, 1});
    Expect(HeadKind::kUniform, 1, Summarize(q, q, q, {.causal = true}, {.head_kind = true}));
  }
  // Sixteen tokens of which a query sees nine: nearly uniform among all, but all of it local.
  Tensor q(DType::kF32, {16, 1}), bias(DType::kF32, {16, 16});
  for (std::int64_t i = 0; i < 16; ++i) {
    for (std::int64_t j = 0; j < 16; ++j) bias.MutableAs<float>()[i * 16 + j] = i - j > 8 ? -20.0f : 0;
  }
  const Tensor one(DType::kF32, {1, 1});
  Expect(HeadKind::kSelf, 1, Summarize(one, one, one, {.causal = true}, {.head_kind = true}));
  const Summary local = Summarize(q, q, q, {.causal = true, .bias = bias}, {.head_kind = true});
  Expect(HeadKind::kLocal, 1, local);
}

TEST(HeadKindTest, MixedHasTheLargestShare) {
  const Summary summary = Judge(OneHot(0.45, [](std::int64_t i) { return i; }));
  Expect(HeadKind::kMixed, 0.45, summary);
}

// The judgement alone, at its borders.
internal::HeadEvidence Evidence(double previous, double self, double first, double uniformity) {
  internal::HeadEvidence evidence{.queries = 10, .first_key = 10 * first, .uniformity = 10 * uniformity, .first_distance = -30};
  evidence.distances.assign(61, 0.0);
  evidence.distances[31] = 10 * previous;
  evidence.distances[30] = 10 * self;
  return evidence;
}

TEST(HeadKindTest, HalfOfTheWeightAndNineTenthsOfTheEntropyAreEnough) {
  EXPECT_EQ(JudgeHead(Evidence(0.5, 0, 0, 0)).kind, HeadKind::kPreviousToken);
  EXPECT_EQ(JudgeHead(Evidence(0.499, 0, 0, 0)).kind, HeadKind::kMixed);
  EXPECT_EQ(JudgeHead(Evidence(0, 0.5, 0, 0)).kind, HeadKind::kSelf);
  EXPECT_EQ(JudgeHead(Evidence(0.3, 0.3, 0, 0)).kind, HeadKind::kLocal);
  EXPECT_EQ(JudgeHead(Evidence(0, 0, 0.5, 0)).kind, HeadKind::kFirstToken);
  EXPECT_EQ(JudgeHead(Evidence(0, 0, 0, 0.9)).kind, HeadKind::kUniform);
  EXPECT_EQ(JudgeHead(Evidence(0, 0, 0, 0.899)).kind, HeadKind::kMixed);
  EXPECT_EQ(JudgeHead(Evidence(0.5, 0.5, 0.5, 0.8)).kind, HeadKind::kPreviousToken) << "the first that fits";
  EXPECT_EQ(JudgeHead(Evidence(0, 0.92, 0, 0.92)).kind, HeadKind::kSelf);
  EXPECT_EQ(JudgeHead(Evidence(0, 0.91, 0, 0.92)).kind, HeadKind::kUniform);
  EXPECT_EQ(JudgeHead(Evidence(0, 0.88, 0, 0.89)).kind, HeadKind::kSelf) << "not uniform enough";
}

TEST(HeadKindTest, NothingKnownIsMixedWithoutAScore) {
  const internal::HeadVerdict none = internal::JudgeHead({});
  EXPECT_EQ(none.kind, HeadKind::kMixed);
  EXPECT_TRUE(std::isnan(none.score));
  const internal::HeadVerdict undefined = JudgeHead(Evidence(1, 0, 0, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(undefined.kind, HeadKind::kMixed);
  EXPECT_TRUE(std::isnan(undefined.score));
}

// A query whose only key gives it no number, among sound ones.
TEST(HeadKindTest, OneUndefinedRowIsEnough) {
  Tensor q(DType::kF32, {3, 1});
  q.MutableAs<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const Summary summary = Summarize(q, Tensor::Of<float>({3, 1}, {1, 2, 3}), q, {.causal = true}, {.head_kind = true});
  EXPECT_EQ(summary.head_kind[0], HeadKind::kMixed);
  EXPECT_TRUE(std::isnan(summary.head_score()));
}

}  // namespace
}  // namespace regard::test
