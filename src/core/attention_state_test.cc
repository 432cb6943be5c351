#include "core/attention_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace regard::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The state of some masked scores (natural units) and one value each.
struct OneElement {
  AttentionState state;
  float acc = 0;

  OneElement() = default;
  OneElement(const std::vector<float>& scores, const std::vector<float>& values) {
    constexpr float kLog2e = std::numbers::log2e_v<float>;
    for (float score : scores) state.row_ref = std::max(state.row_ref, score * kLog2e);
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const float weight = std::exp2(scores[j] * kLog2e - state.row_ref);
      state.row_sum += weight;
      acc += weight * values[j];
    }
  }
  void MergeFrom(OneElement& other) {
    state.acc = &acc;
    other.state.acc = &other.acc;
    Merge(state, other.state, 1);
  }
  float Context(float sink = -kInfinity) const { return acc * Finish(state, sink).factor; }
  float Lse(float sink = -kInfinity) const { return Finish(state, sink).lse; }
};

TEST(AttentionState, IdentityIsNeutralOnBothSides) {
  OneElement left({1, -2}, {3, 5}), identity;
  const float context = left.Context(), lse = left.Lse();
  left.MergeFrom(identity);
  EXPECT_EQ(left.Context(), context);
  EXPECT_EQ(left.Lse(), lse);
  OneElement empty;
  empty.MergeFrom(left);
  EXPECT_EQ(empty.Context(), context);
  EXPECT_EQ(empty.Lse(), lse);
  OneElement nothing, nothing_else;
  nothing.MergeFrom(nothing_else);
  EXPECT_EQ(nothing.Lse(), -kInfinity);
  EXPECT_EQ(nothing.Context(), 0);
}

TEST(AttentionState, KeysSplitOneAndThreeMergeToAQuarter) {  // a merge that mixes bases of the logarithm gives .170
  OneElement first({0}, {1}), rest({0, 0, 0}, {0, 0, 0});
  first.MergeFrom(rest);
  EXPECT_NEAR(first.Context(), 0.25, 1e-7);
  EXPECT_NEAR(first.Lse(), std::log(4.0), 2e-7);
}

TEST(AttentionState, AnyOrderGivesTheWhole) {
  const std::vector<std::vector<float>> scores = {{3, -1}, {200}, {-150, 190, 199.5f}};
  const std::vector<std::vector<float>> values = {{1, 2}, {-4}, {7, 8, 9}};
  OneElement whole({3, -1, 200, -150, 190, 199.5f}, {1, 2, -4, 7, 8, 9});
  std::vector<int> order = {0, 1, 2};
  do {
    OneElement merged;
    for (int n : order) {
      OneElement part(scores[static_cast<std::size_t>(n)], values[static_cast<std::size_t>(n)]);
      merged.MergeFrom(part);
    }
    // 200·log2 e is rounded by 289·2^−24 in each part.
    EXPECT_NEAR(merged.Context(), whole.Context(), 13 * 3 * 289 * 0x1p-24);
    EXPECT_NEAR(merged.Lse(), whole.Lse(), 3 * 289 * 0x1p-24);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(AttentionState, ASinkCountsOnce) {
  const OneElement two({0, 0}, {1, 1});
  EXPECT_NEAR(two.Context(0), 2 / 3.0, 1e-7);
  EXPECT_NEAR(two.Lse(0), std::log(3.0), 2e-7);
  EXPECT_NEAR(two.Context(1000), 0, 0);  // a sink far above takes everything
  EXPECT_NEAR(two.Lse(1000), 1000, 1e-4);
  EXPECT_NEAR(two.Context(-1000), 1, 1e-7);  // far below, nothing
  EXPECT_NEAR(two.Lse(-1000), std::log(2.0), 2e-7);
}

TEST(AttentionState, AnEmptyRowIsItsSink) {
  const OneElement nothing;
  EXPECT_EQ(nothing.Lse(0.5f), 0.5f);
  EXPECT_EQ(nothing.Lse(), -kInfinity);
  EXPECT_EQ(nothing.Context(0.5f), 0);
}

TEST(AttentionState, NaNStays) {
  OneElement spoiled({1}, {1}), clean({2}, {2});
  spoiled.state.row_sum = std::numeric_limits<float>::quiet_NaN();
  clean.MergeFrom(spoiled);
  EXPECT_TRUE(std::isnan(clean.Lse()));
  EXPECT_TRUE(std::isnan(clean.Context()));
}

}  // namespace
}  // namespace regard::internal
