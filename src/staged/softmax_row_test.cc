#include "staged/softmax_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace regard::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Softmax(std::vector<double>* row) { return SoftmaxRow(row->data(), static_cast<std::int64_t>(row->size())); }

TEST(SoftmaxRow, FollowsTheDefinition) {
  double worst = 0;
  for (int n = 1; n <= 60; ++n) {
    std::vector<double> row;
    for (int j = 0; j < n; ++j) row.push_back(40 * std::sin(1.7 * j + n) + (j % 7 == 3 ? 60 : 0));
    long double top = row[0], sum = 0;
    for (double x : row) top = std::max<long double>(top, x);
    for (double x : row) sum += std::exp(x - top);
    const std::vector<double> scores = row;
    const double lse = Softmax(&row);
    // Blanchard, Higham and Higham 2021, relative: |x − max| for the shift, 2 for exp in the weight and in the sum, n for the sum, 1 for
    // the division.
    for (std::size_t j = 0; j < row.size(); ++j) {
      const double right = static_cast<double>(std::exp(scores[j] - top) / sum);
      const double bound = right * (static_cast<double>(top - scores[j]) + n + 5) * 0x1p-53;
      ASSERT_LE(std::fabs(row[j] - right), bound) << n << ", " << j;
      worst = std::max(worst, std::fabs(row[j] - right) / bound);
    }
    const double right = static_cast<double>(top + std::log(sum));
    ASSERT_NEAR(lse, right, (n + 5 + 2 * std::fabs(right)) * 0x1p-53) << n;
  }
  EXPECT_GT(worst, 0.05) << "the inputs exercise no rounding";
}

TEST(SoftmaxRow, Edges) {
  std::vector<double> row(3, -kInfinity), nothing;
  EXPECT_EQ(Softmax(&row), -kInfinity);
  EXPECT_EQ(row, std::vector<double>(3, 0));
  EXPECT_EQ(Softmax(&nothing), -kInfinity);
  for (double bad : {kNaN, kInfinity}) {
    row = {1, bad, -kInfinity};
    EXPECT_TRUE(std::isnan(Softmax(&row)));
    EXPECT_TRUE(std::isnan(row[0]) && std::isnan(row[1]));
    EXPECT_EQ(row[2], 0);
  }
  row = {-1e308, -1e308};
  EXPECT_EQ(Softmax(&row), -1e308);
  EXPECT_EQ(row[0], 0.5);
}

}  // namespace
}  // namespace regard::internal
