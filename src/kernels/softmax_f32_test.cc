#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernel_case.h"
#include "kernels/kernels.h"

namespace regard::internal {
namespace {

class SoftmaxF32Test : public PerTarget {
 protected:
  static constexpr double kUnit = 0x1p-24;

  float Softmax(std::vector<float>* row, float sink = -kInfinity) const {
    // A guard behind the row: lengths that are no multiple of a vector must not touch it.
    row->push_back(77);
    const float lse = kernels().softmax_row(row->data(), static_cast<std::int64_t>(row->size()) - 1, sink);
    EXPECT_EQ(row->back(), 77);
    row->pop_back();
    return lse;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, SoftmaxF32Test, testing::ValuesIn(CompiledTargetNames()), CaseName);

TEST_P(SoftmaxF32Test, FollowsTheDefinitionAtEveryLength) {
  double worst = 0;
  for (int n = 1; n <= 200; ++n) {
    for (float sink : {-kInfinity, 0.5f, 300.0f}) {
      std::vector<float> row;
      for (int j = 0; j < n; ++j) row.push_back(static_cast<float>(40 * std::sin(1.7 * j + n) + (j % 7 == 3 ? 60 : 0)));
      double top = sink, sum = 0;
      for (float x : row) top = std::max<double>(top, x);
      for (float x : row) sum += std::exp(x - top);
      sum += std::exp(sink - top);
      const std::vector<float> scores = row;
      const float lse = Softmax(&row, sink);
      // Blanchard, Higham and Higham 2021, relative: |x − max| for the shift, 2 for exp in the weight and in the sum, n for the sum,
      // 3 for the division by multiplication.
      for (std::size_t j = 0; j < row.size(); ++j) {
        const double right = std::exp(scores[j] - top) / sum;
        const double bound = right * ((top - scores[j]) + n + 7) * kUnit + std::numeric_limits<float>::min();
        ASSERT_LE(std::fabs(row[j] - right), bound) << n << ", " << j;
        worst = std::max(worst, std::fabs(row[j] - right) / bound);
      }
      const double right = top + std::log(sum);
      ASSERT_NEAR(lse, right, (n + 7 + std::fabs(top) + 2 * std::fabs(right)) * kUnit) << n;
    }
  }
  EXPECT_GT(worst, 0.05) << "the inputs exercise no rounding";
}

TEST_P(SoftmaxF32Test, AllMinusInfinityIsTheSink) {
  for (std::size_t n : {0u, 1u, 9u, 32u}) {
    for (float sink : {-kInfinity, 1.5f}) {
      std::vector<float> row(n, -kInfinity);
      EXPECT_EQ(Softmax(&row, sink), sink);
      for (float x : row) EXPECT_EQ(x, 0);
    }
  }
}

TEST_P(SoftmaxF32Test, NaNOrInfinityAnywhereSpoilsTheRow) {
  for (std::size_t n : {1u, 2u, 8u, 17u, 40u}) {
    for (std::size_t at = 0; at < n; ++at) {
      for (float bad : {kNaN, kInfinity}) {
        std::vector<float> row(n, 1.0f);
        if (n > 1) row[(at + 1) % n] = -kInfinity;
        row[at] = bad;
        EXPECT_TRUE(std::isnan(Softmax(&row, 0)));
        for (std::size_t j = 0; j < n; ++j)
          EXPECT_TRUE(n > 1 && j == (at + 1) % n ? row[j] == 0 : std::isnan(row[j])) << n << ", " << j;
      }
    }
  }
}

TEST_P(SoftmaxF32Test, ExtremeScores) {
  constexpr float kLowest = std::numeric_limits<float>::lowest(), kLargest = std::numeric_limits<float>::max();
  std::vector<float> row = {kLowest, kLowest};
  EXPECT_EQ(Softmax(&row), kLowest);
  EXPECT_EQ(row[0], 0.5f);
  row = {kLargest, kLowest, 0};
  EXPECT_EQ(Softmax(&row), kLargest);
  EXPECT_EQ(row[0], 1);
  EXPECT_EQ(row[1], 0);
  row = {0, -80};  // far down, not gone
  Softmax(&row);
  EXPECT_GT(row[1], 0);
}

TEST_P(SoftmaxF32Test, SoftCapFollowsTanh) {
  double worst = 0;
  for (float cap : {1e-3f, 0.5f, 30.0f, 1e30f}) {
    for (int n = 1; n <= 40; ++n) {
      std::vector<float> row;
      for (int j = 0; j < n; ++j) row.push_back(cap * static_cast<float>(std::sin(2.1 * j + n) * std::pow(10.0, j % 7 - 5)));
      const std::vector<float> scores = row;
      row.push_back(77);
      kernels().soft_cap_row(row.data(), n, cap);
      ASSERT_EQ(row.back(), 77);
      for (std::size_t j = 0; j < scores.size(); ++j) {
        const double right = cap * std::tanh(static_cast<double>(scores[j]) / cap);
        const double bound =
            11 * kUnit * std::fabs(right) + std::numeric_limits<float>::denorm_min();  // 4 ulp, and three roundings
        ASSERT_NEAR(row[j], right, bound) << cap << ", " << scores[j];
        worst = std::max(worst, std::fabs(row[j] - right) / bound);
      }
    }
  }
  EXPECT_GT(worst, 0.05) << "the inputs exercise no rounding";
  std::vector<float> row = {kInfinity, -kInfinity, kNaN, 0};
  kernels().soft_cap_row(row.data(), 4, 2);
  EXPECT_EQ(row[0], 2);
  EXPECT_EQ(row[1], -2);
  EXPECT_TRUE(std::isnan(row[2]));
  EXPECT_EQ(row[3], 0);
  row = {0, 1};
  kernels().soft_cap_row(row.data(), 2, std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(row[0], 0);
  EXPECT_EQ(row[1], std::numeric_limits<float>::denorm_min());
}

}  // namespace
}  // namespace regard::internal
