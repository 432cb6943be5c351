#include "report/explanation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "report/six_tokens.h"
#include "tests/support/random_problem.h"

namespace regard::report {
namespace {

ExplanationLabels LabelsFor(const Explanation& e) {
  ExplanationLabels labels;
  labels.query_label = std::to_string(e.row.query);
  for (const KeyTerm& key : e.keys) labels.key_labels.push_back(std::string("k").append(std::to_string(key.key)));
  return labels;
}

// The numbers of the lines between `heading` and the next empty line, one list a line.
std::vector<std::vector<double>> NumbersBelow(const std::string& text, const std::string& heading) {
  std::istringstream lines(text.substr(text.find(heading)));
  std::vector<std::vector<double>> rows;
  std::string line;
  std::getline(lines, line);  // the heading
  std::getline(lines, line);  // the columns' names
  while (std::getline(lines, line) && !line.empty()) {
    std::istringstream words(line);
    std::string word;
    words >> word;  // the key
    rows.emplace_back();
    while (words >> word) rows.back().push_back(std::stod(word));
  }
  return rows;
}

TEST(Explain, SixTokensByEveryPath) {
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    const Explanation e = Explain(SixTokensCall(), {0, 0, 1}, {.path = path, .threads = 1});
    const double context[] = {0.4419, 0.6515, 0.5683};
    const double weights[] = {0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581};
    const double scores[] = {0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865};
    for (std::size_t d = 0; d < 3; ++d) EXPECT_NEAR(e.context[d], context[d], 5e-5);
    for (std::size_t j = 0; j < 6; ++j) {
      EXPECT_NEAR(e.keys[j].weight, weights[j], 5e-5);
      EXPECT_NEAR(e.keys[j].score, scores[j], 5e-5);
    }
    EXPECT_LE(e.bound_used, 1);
    EXPECT_LT(e.difference, 2e-7);
  }
}

// Whoever adds and multiplies what is printed arrives at what is printed: within half a unit of the sixth decimal a term.
TEST(Explain, ThePrintedNumbersCanBeRedoneByHand) {
  const Explanation e = Explain(SixTokensCall(), {0, 0, 1}, {.threads = 1});
  const std::string text = Show(e, LabelsFor(e));
  const auto weighted = NumbersBelow(text, "It is the sum of");
  ASSERT_EQ(weighted.size(), 7u);
  double sums[3] = {}, weight_sum = 0;
  for (std::size_t j = 0; j < 6; ++j) {
    ASSERT_EQ(weighted[j].size(), 7u);
    weight_sum += weighted[j][0];
    for (std::size_t d = 0; d < 3; ++d) {
      EXPECT_NEAR(weighted[j][0] * weighted[j][1 + d], weighted[j][4 + d], 1.1e-6);
      sums[d] += weighted[j][4 + d];
    }
  }
  EXPECT_NEAR(weight_sum, 1, 3.1e-6);
  for (std::size_t d = 0; d < 3; ++d) {
    EXPECT_NEAR(sums[d], weighted[6][1 + d], 3.6e-6);
    EXPECT_NEAR(sums[d], e.context[d], 3.6e-6);
  }
  const auto normalised = NumbersBelow(text, "weight = exp(");
  double total = 0;
  for (std::size_t j = 0; j < 6; ++j) {
    EXPECT_NEAR(std::exp(normalised[j][1]), normalised[j][2], 1.1e-6);
    total += normalised[j][2];
  }
  EXPECT_NEAR(total, normalised[6][0], 3.6e-6);
  for (std::size_t j = 0; j < 6; ++j) EXPECT_NEAR(normalised[j][2] / total, normalised[j][3], 2e-6);
  EXPECT_NE(text.find("0.55×0.43 + 0.87×0.15 + 0.66×0.89"), std::string::npos);
}

TEST(Explain, HasTheBitsOfTheWholeRun) {
  const Tensor& x = SixTokens();
  AttentionParams params;
  params.scale = 1;
  const AttentionResult whole = Attention(x, x, x, params, {.threads = 1});
  for (std::int64_t i = 0; i < 6; ++i) {
    const Explanation e = Explain(SixTokensCall(), {0, 0, i}, {.threads = 1});
    for (std::int64_t d = 0; d < 3; ++d) EXPECT_EQ(e.context[static_cast<std::size_t>(d)], whole.context(0, 0, i, d));
  }
}

TEST(Explain, AddsUpUnderEveryRule) {
  for (const std::uint64_t seed : test::Seeds(300)) {
    const test::TestProblem p = test::MakeProblem(seed, {.empty_shapes = false});
    if (p.num_rows() == 0) continue;
    SCOPED_TRACE(p.description);
    const auto rank4 = [](const TensorView& view) { return view.rank() == 4 ? view : view.Unsqueeze(0).Unsqueeze(0); };
    const Call call{rank4(p.q), rank4(p.k), rank4(p.v), p.params};
    const RowIndex row{p.batch - 1, p.heads - 1, p.q_len - 1};
    const Explanation e = Explain(call, row, {.threads = 1});
    EXPECT_LE(e.bound_used, 1);
    double weights = 0;
    for (const KeyTerm& key : e.keys) {
      weights += key.weight;
      if (!key.visible || !std::isfinite(key.masked_score)) continue;
      const double size = std::fabs(key.capped) + std::fabs(key.bias) + std::fabs(key.alibi);
      EXPECT_NEAR(key.masked_score, key.capped + key.bias - key.alibi, 1e-12 * size);
    }
    const double sink_share = e.total > 0 ? e.sink_exp / e.total : 0;
    if (e.visible > 0 && std::isfinite(weights)) {
      EXPECT_NEAR(weights + sink_share, 1, 1e-12);
    }
    EXPECT_FALSE(Show(e, LabelsFor(e)).empty());
  }
}

TEST(Explain, LongRowsShowTheTopAndTheRestAsOneLine) {
  const std::int64_t keys = 100;
  Tensor k(DType::kF32, {1, 1, keys, 2});
  for (std::int64_t j = 0; j < keys; ++j) k.MutableAs<float>()[2 * j] = static_cast<float>(j) / 20;
  const Tensor q = Tensor::Of<float>({1, 1, 1, 2}, {1, 0});
  Call call{q, k, k, {}};
  call.params.scale = 1;
  const Explanation e = Explain(call, {0, 0, 0}, {.threads = 1});
  const std::string text = Show(e, LabelsFor(e));
  EXPECT_NE(text.find("\n  k99"), std::string::npos);
  EXPECT_EQ(text.find("\n  k50 "), std::string::npos);
  EXPECT_NE(text.find("\n  92 others"), std::string::npos);
  // The named keys, the rest and the sum.
  const std::string weighted = text.substr(text.find("It is the sum"), text.find("weight = exp") - text.find("It is the sum"));
  EXPECT_EQ(std::count(weighted.begin(), weighted.end(), '\n'), 1 + 1 + 8 + 1 + 1 + 1);
}

TEST(Explain, AnEmptyRowSaysSo) {
  Call call = SixTokensCall();
  call.params.causal = true;
  call.params.q_offset = -3;
  const Explanation e = Explain(call, {0, 0, 1}, {.threads = 1});
  EXPECT_EQ(e.visible, 0);
  EXPECT_NE(Show(e, LabelsFor(e)).find("sees none of the 6 keys"), std::string::npos);
}

TEST(ExplainThirdStage, MultipliesWeightsWithV) {
  const Call call = SixTokensCall();
  Stages stages = ComputeStages(call.q, call.k, call.v, call.params);
  const Explanation e = ExplainThirdStage(stages.weights, call.v, {0, 0, 1});
  EXPECT_NEAR(e.context[1], 0.6515, 5e-5);
  EXPECT_LE(e.bound_used, 1);
  const std::string text = Show(e, LabelsFor(e));
  EXPECT_EQ(text.find("score"), std::string::npos);
  EXPECT_NE(text.find("per-token row"), std::string::npos);
}

}  // namespace
}  // namespace regard::report
