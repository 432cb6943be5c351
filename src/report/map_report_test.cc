#include "report/map_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "regard/stages.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/random_problem.h"

namespace regard::report {
namespace {

TensorView WithAllAxes(const TensorView& view) { return view.rank() == 2 ? view.Unsqueeze(0).Unsqueeze(0) : view; }

io::Problem ProblemOf(const test::TestProblem& p) {
  io::Problem problem;
  problem.q = WithAllAxes(p.q);
  problem.k = WithAllAxes(p.k);
  problem.v = WithAllAxes(p.v);
  problem.shape = PlanShape::Of(problem.q, problem.k, problem.v);
  problem.params = p.params;
  problem.scale = p.params.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(p.head_dim))));
  problem.axes = {.batch = true, .heads = true};
  return problem;
}

// Whether no finite score is so large that f32 cannot tell it from its neighbours, as with a bias of −1e9.
bool IsOrdinary(const TensorView& masked_scores) {
  for (std::int64_t i = 0; i < masked_scores.dim(0); ++i) {
    for (std::int64_t j = 0; j < masked_scores.dim(1); ++j) {
      if (std::isfinite(masked_scores(i, j)) && std::fabs(masked_scores(i, j)) > 60) return false;
    }
  }
  return true;
}

// Facts in double, from the definition's whole matrix.
HeadFacts Expected(const TensorView& weights, const TensorView& masked_scores) {
  HeadFacts facts;
  double rows = 0;
  for (std::int64_t i = 0; i < weights.dim(0); ++i) {
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < weights.dim(1); ++j) {
      const double w = weights(i, j);
      largest = std::max(largest, masked_scores(i, j));
      if (w > 0) {
        facts.entropy -= w * std::log(w);
        facts.links.push_back({i, j, w});
      }
    }
    if (std::isinf(largest)) continue;
    ++rows;
    facts.first_key_share += weights(i, 0);
  }
  facts.entropy /= rows;
  facts.first_key_share /= rows;
  std::stable_sort(facts.links.begin(), facts.links.end(),
                   [](const MapLink& a, const MapLink& b) { return a.weight > b.weight; });
  return facts;
}

// Scores here stay below 60 and are sums of at most 100 products: in f32 they, and so ln w, are off by less than 100 · 2⁻²⁴ · 60.
constexpr double kWeightError = 4e-4;

TEST(MapReportTest, FactsAreThoseOfTheWholeMatrix) {
  int compared = 0;
  for (const std::uint64_t seed : test::Seeds(400)) {
    const test::TestProblem p = test::MakeProblem(seed);
    if (p.family != test::Family::kNormal || p.params.q_segments) continue;  // with segments the first key is the segment's
    SCOPED_TRACE(p.description);
    const io::Problem problem = ProblemOf(p);
    const LayerMap map = MapLayer(problem, {.top_k = 3}, {.threads = 1});
    ASSERT_EQ(map.facts.size(), static_cast<std::size_t>(p.batch * p.heads));
    const Stages stages = ComputeStages(problem.q, problem.k, problem.v, p.params, {.path = Path::kReference});
    if (problem.shape.kv_len == 0) continue;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.heads; ++h) {
        const HeadFacts& facts = map.Facts(static_cast<std::size_t>(b), h);
        const HeadFacts expected =
            Expected(stages.weights.view().Select(0, b).Select(0, h), stages.masked_scores.view().Select(0, b).Select(0, h));
        if (!IsOrdinary(stages.masked_scores.view().Select(0, b).Select(0, h))) continue;
        EXPECT_EQ(facts.batch, b);
        EXPECT_EQ(facts.head, h);
        EXPECT_EQ(facts.kind.has_value(), map.has_positions && !std::isnan(expected.entropy));
        EXPECT_EQ(std::isnan(facts.entropy), std::isnan(expected.entropy));
        if (std::isnan(expected.entropy)) continue;
        EXPECT_NEAR(facts.entropy, expected.entropy, 4 * kWeightError);
        EXPECT_NEAR(facts.first_key_share, expected.first_key_share, kWeightError);
        for (std::size_t n = 0; n < std::min<std::size_t>(3, expected.links.size()); ++n) {
          ASSERT_LT(n, facts.links.size());
          const MapLink& link = facts.links[n];
          EXPECT_NEAR(link.weight, expected.links[n].weight, kWeightError);
          EXPECT_NEAR(link.weight, stages.weights(b, h, link.query, link.key), kWeightError);
        }
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(MapReportTest, LastQueriesKeepTheirPlaces) {
  int compared = 0;
  for (const std::uint64_t seed : test::Seeds(600)) {
    const test::TestProblem p = test::MakeProblem(seed);
    if (p.family != test::Family::kNormal || p.params.q_segments || p.q_len < 2) continue;
    SCOPED_TRACE(p.description);
    const io::Problem whole = ProblemOf(p);
    io::Problem last = whole;
    Tensor offsets;
    const std::int64_t count = (p.q_len + 1) / 2;
    EXPECT_EQ(KeepLastQueries(&last, count, &offsets), p.q_len - count);
    const LayerMap of_whole = MapLayer(whole, {}, {.threads = 1}), of_last = MapLayer(last, {}, {.threads = 1});
    ASSERT_EQ(of_whole.has_positions, of_last.has_positions);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.heads; ++h) {
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t there = p.q_len - count + i;
          const double row_max = of_whole.summary.row_max(b, h, there);
          EXPECT_EQ(std::isinf(row_max), std::isinf(of_last.summary.row_max(b, h, i)));
          if (std::isinf(row_max)) continue;
          EXPECT_NEAR(of_last.summary.row_max(b, h, i), row_max, kWeightError);
          EXPECT_NEAR(of_last.summary.entropy(b, h, i), of_whole.summary.entropy(b, h, there), 4 * kWeightError);
          if (!of_whole.has_positions) continue;
          const double distance = of_whole.summary.distance_mean(b, h, there);
          if (!std::isnan(distance)) {
            EXPECT_NEAR(of_last.summary.distance_mean(b, h, i), distance, kWeightError * 4 * static_cast<double>(p.kv_len));
          }
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 200);
}

TEST(MapReportTest, PositionsAreKnownWhenStatedOrWhenQueriesPairWithKeys) {
  const PlanShape equal{.q_len = 4, .kv_len = 4}, unequal{.q_len = 4, .kv_len = 5};
  EXPECT_TRUE(HasPositions(equal, {}));
  EXPECT_FALSE(HasPositions(unequal, {}));
  EXPECT_TRUE(HasPositions(unequal, {.q_offset = 1}));
  const Tensor q = Tensor::Of<std::int32_t>({4}, {0, 0, 1, 1}), kv = Tensor::Of<std::int32_t>({4}, {0, 0, 0, 1});
  EXPECT_TRUE(HasPositions(equal, {.q_segments = q, .kv_segments = q}));
  EXPECT_FALSE(HasPositions(equal, {.q_segments = q, .kv_segments = kv}));
  EXPECT_TRUE(HasPositions(equal, {.q_offset = 0, .q_segments = q, .kv_segments = kv}));
}

TEST(MapReportTest, LastQueriesRefusesWhatMeansNothing) {
  io::Problem problem;
  problem.shape.q_len = problem.shape.kv_len = 4;
  Tensor offsets;
  EXPECT_THROW(KeepLastQueries(&problem, 0, &offsets), Error);
  EXPECT_EQ(KeepLastQueries(&problem, 4, &offsets), 0);
  EXPECT_EQ(KeepLastQueries(&problem, 9, &offsets), 0);
  const Tensor segments(DType::kI32, {4});
  problem.params.q_segments = segments;
  EXPECT_THROW(KeepLastQueries(&problem, 2, &offsets), Error);
}

// As many queries as keys look as if they stood beside each other.
TEST(MapReportTest, LastQueriesOfAProblemWithoutPlacesAreNotGivenAny) {
  const Tensor q = test::Numbers(DType::kF32, {1, 1, 8, 4}, 1), k = test::Numbers(DType::kF32, {1, 1, 3, 4}, 2);
  io::Problem problem;
  problem.q = q, problem.k = k, problem.v = k;
  problem.shape = PlanShape::Of(q, k, k);
  Tensor offsets;
  const auto refused = [&](std::int64_t count) {
    test::ExpectError(
        [&] { KeepLastQueries(&problem, count, &offsets); }, ErrorCode::kInvalidArgument,
        "--last-queries: where the 8 queries stand on the 3 keys is not stated; state q_offset, top-left 0 or bottom-right -5");
  };
  refused(3);
  problem.params.causal = true;
  refused(2);
  refused(3);
  problem.params.q_offset = -5;
  EXPECT_EQ(KeepLastQueries(&problem, 3, &offsets), 5);
  EXPECT_EQ(problem.params.q_offset.value(), 0);
}

// Query 0 sees no key, query 1 only one whose score is −inf; 2 and 3 see others besides.
TEST(MapReportTest, RowsWithoutWeightAreInNoMeanAndInTheNotes) {
  const Tensor q = Tensor::Of<float>({1, 1, 4, 1}, {1, 1, 1, 1});
  const Tensor k = Tensor::Of<float>({1, 1, 4, 1}, {-std::numeric_limits<float>::infinity(), 0.5f, 0.5f, 9});
  const Tensor v = test::Numbers(DType::kF32, {1, 1, 4, 2}, 1);
  io::Problem problem;
  problem.q = q, problem.k = k, problem.v = v;
  problem.shape = PlanShape::Of(q, k, v);
  problem.params.causal = true;
  problem.params.q_offset = -1;
  const LayerMap map = MapLayer(problem, {}, {.threads = 1});
  EXPECT_EQ(map.summary.empty_rows, 1);
  EXPECT_NEAR(map.Facts(0, 0).entropy, std::log(2.0) / 2, 1e-6);
  EXPECT_EQ(map.Facts(0, 0).first_key_share, 0);
  EXPECT_EQ(map.Facts(0, 0).distance, 0.25);
  EXPECT_EQ(RowNotes(map), (std::vector<std::string>{
                               "1 of 4 rows see no key, so that their weights are 0",
                               "1 of 4 rows see keys, but only scores of -inf, so that their weights are 0; look for Inf and too "
                               "large numbers in q and k"}));
}

class Hostile : public testing::Test {
 protected:
  Hostile() : x_(Tensor::Of<float>({1, 1, 3, 2}, {1, -2, 0.5, 3, -1, 0.25})) {
    problem_.q = problem_.k = problem_.v = x_;
    problem_.shape = PlanShape::Of(x_, x_, x_);
    problem_.q_tokens = problem_.k_tokens = {3, {"\x1b[31mred", "a\nb\u202e", "\xff</script>"}};
    problem_.layer = 4;
    problem_.reading = "read as layer 4, tokens 3";
  }

  Tensor x_;
  io::Problem problem_;
};

TEST_F(Hostile, TokensStayOnTheirLine) {
  std::vector<LayerMap> maps;
  maps.push_back(MapLayer(problem_, {.heads = {0}}, {.threads = 1}));
  const std::string text = ShowMap(maps, {.heads = {0}});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("\u202e"), std::string::npos);
  EXPECT_EQ(text.find('\xff'), std::string::npos);
  EXPECT_NE(text.find("\\x1b[31mred"), std::string::npos) << text;
  EXPECT_NE(text.find("a\\nb"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(MapJson(maps, {0}, {}, {}));
  EXPECT_EQ(json["layers"][0]["layer"], 4);
  EXPECT_EQ(json["layers"][0]["each_head"][0]["pooled"].size(), 3u);
}

TEST_F(Hostile, SeveralLayersHavePrefixes) {
  std::vector<LayerMap> maps;
  maps.push_back(MapLayer(problem_, {}, {.threads = 1}));
  std::vector<Tensor> storage;
  EXPECT_EQ(MapArrays(maps, &storage).front().name, "lse");
  problem_.layer = 7;
  maps.push_back(MapLayer(problem_, {}, {.threads = 1}));
  const std::vector<io::OutputArray> arrays = MapArrays(maps, &storage);
  EXPECT_EQ(arrays.size(), 38u);
  EXPECT_EQ(arrays.front().name, "layers.4.lse");
  EXPECT_EQ(arrays.back().name, "layers.7.head_kind");
  EXPECT_EQ(arrays.back().strings, std::vector<std::string>{Name(maps[1].summary.head_kind[0])});
}

}  // namespace
}  // namespace regard::report
