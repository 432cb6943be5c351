#include "report/stage_facts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "report/six_tokens.h"

namespace regard::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(SquareFacts, OfTheSixTokens) {
  const Call call = SixTokensCall();
  const RowSample sample = AllRowsOf(call);
  const RowStages stages = ComputeRows(call, sample, {.path = Path::kReference});
  const SquareFacts scores = SquareFactsOf(stages.scores, {}, sample);
  ASSERT_TRUE(scores.first && scores.largest);
  EXPECT_NEAR(scores.first->value, 0.9544, 5e-5);
  EXPECT_NEAR(scores.first->mirrored, 0.9544, 5e-5);
  EXPECT_EQ(scores.largest->Difference(), 0);
  EXPECT_NEAR(scores.diagonal.largest, 1.4950, 5e-5);
  EXPECT_NEAR(scores.off_diagonal.largest, 1.4754, 5e-5);
  const SquareFacts weights = SquareFactsOf(stages.weights, stages.masked_scores, sample);
  EXPECT_NEAR(weights.first->value, 0.2006, 5e-5);
  EXPECT_NEAR(weights.first->mirrored, 0.1385, 5e-5);
  EXPECT_EQ(weights.largest->cell.query, 1);
  EXPECT_EQ(weights.largest->key, 4);
  EXPECT_NEAR(weights.largest->value, 0.1082, 5e-5);
  EXPECT_NEAR(weights.largest->mirrored, 0.1958, 5e-5);
}

TEST(SquareFacts, LeaveOutWhatIsNotVisible) {
  Call call = SixTokensCall();
  call.params.causal = true;
  const RowSample sample = AllRowsOf(call);
  const RowStages stages = ComputeRows(call, sample, {.path = Path::kReference});
  const SquareFacts weights = SquareFactsOf(stages.weights, stages.masked_scores, sample);
  EXPECT_FALSE(weights.largest);  // no pair of cells is visible both ways
  EXPECT_EQ(weights.off_diagonal.finite, 15);
  EXPECT_GT(weights.off_diagonal.smallest, 0);
}

TEST(SquareFacts, CompareSampledRowsWithinTheirHead) {
  const Tensor values = Tensor::Of<double>({3, 3}, {1, 2, 3, 4, 5, 6, 10, 20, 30});
  const RowSample sample{{{0, 0, 0}, {0, 0, 2}, {0, 1, 1}}, false, 6};
  const SquareFacts facts = SquareFactsOf(values, {}, sample);
  ASSERT_TRUE(facts.largest);
  EXPECT_EQ(facts.largest->value, 3);     // [0, 2] of head 0
  EXPECT_EQ(facts.largest->mirrored, 4);  // [2, 0] of head 0; head 1 has no second row
  EXPECT_FALSE(facts.first);
  EXPECT_EQ(facts.diagonal.smallest, 1);
  EXPECT_EQ(facts.diagonal.largest, 20);
}

TEST(WeightSums, OfTheSixTokens) {
  const Call call = SixTokensCall();
  const RowSample sample = AllRowsOf(call);
  const WeightSums sums = SumsOf(ComputeRows(call, sample, {.path = Path::kReference}).weights, sample);
  EXPECT_NEAR(sums.rows.smallest, 1, 1e-15);
  EXPECT_NEAR(sums.rows.largest, 1, 1e-15);
  const double expected[] = {.922, 1.297, 1.279, .797, .754, .951};
  ASSERT_EQ(sums.each_column.size(), 6u);
  for (std::size_t j = 0; j < 6; ++j) EXPECT_NEAR(sums.each_column[j], expected[j], 5e-4);
}

TEST(WeightSums, EmptyRowsAreNotAmongRowSums) {
  const WeightSums sums = SumsOf(Tensor::Of<double>({2, 2}, {0, 0, 0.25, 0.5}), {{{0, 0, 0}, {0, 0, 1}}, false, 9});
  EXPECT_EQ(sums.rows.finite, 1);
  EXPECT_EQ(sums.rows.smallest, 0.75);
  EXPECT_EQ(sums.each_row.size(), 2u);
  EXPECT_FALSE(sums.columns);  // not every row was looked at
}

TEST(Range, CountsWhatIsNotFinite) {
  Range range;
  for (const double x : {-2.0, kInfinity, std::nan(""), 3.0, -kInfinity, -kInfinity}) range.Add(x);
  EXPECT_EQ(Show(range), "-2.0000 … 3.0000, 2 × -inf, 1 × +inf, 1 × NaN");
  Range none;
  EXPECT_EQ(Show(none), "no value");  // of an empty tensor, or where every cell is hidden
  none.Add(-kInfinity);
  EXPECT_EQ(Show(none), "no finite value, 1 × -inf");
  Range tiny;
  tiny.Add(3.5e-42);
  tiny.Add(1);
  EXPECT_EQ(Show(tiny), "3.5e-42 … 1.0000");
  none.Add(tiny);
  EXPECT_EQ(none.smallest, 3.5e-42);
  EXPECT_EQ(none.finite, 2);
}

}  // namespace
}  // namespace regard::report
