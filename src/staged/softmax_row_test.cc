#include "staged/softmax_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace regard::internal {
namespace {

template <typename T>
class SoftmaxRowTest : public testing::Test {
 protected:
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  static constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
  static constexpr double kUnit = std::numeric_limits<T>::epsilon() / 2;

  static T Run(std::vector<T>* row, T sink = -kInfinity) {
    // A guard behind the row: lengths that are no multiple of a vector must not touch it.
    row->push_back(T{77});
    const T lse = SoftmaxRow(row->data(), static_cast<std::int64_t>(row->size()) - 1, sink);
    EXPECT_EQ(row->back(), T{77});
    row->pop_back();
    return lse;
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SoftmaxRowTest, Types);

TYPED_TEST(SoftmaxRowTest, FollowsTheDefinitionAtEveryLength) {
  using T = TypeParam;
  double worst = 0;
  for (int n = 1; n <= 200; ++n) {
    for (T sink : {-this->kInfinity, T{0.5}, T{300}}) {
      std::vector<T> row;
      long double sum = 0, top = sink;
      for (int j = 0; j < n; ++j) row.push_back(static_cast<T>(40 * std::sin(1.7 * j + n) + (j % 7 == 3 ? 60 : 0)));
      for (T x : row) top = std::max<long double>(top, x);
      for (T x : row) sum += std::exp(x - top);
      sum += std::exp(static_cast<long double>(sink) - top);
      const std::vector<T> scores = row;
      const T lse = this->Run(&row, sink);
      // Blanchard, Higham and Higham 2021: |x − max| + n + a few roundings, relative.
      for (int j = 0; j < n; ++j) {
        const double right = static_cast<double>(std::exp(scores[static_cast<std::size_t>(j)] - top) / sum);
        const double shift = static_cast<double>(top - scores[static_cast<std::size_t>(j)]);
        const double bound = right * (shift + n + 6) * this->kUnit + std::numeric_limits<T>::min();
        const double error = std::fabs(static_cast<double>(row[static_cast<std::size_t>(j)]) - right);
        ASSERT_LE(error, bound) << n << ", " << j;
        worst = std::max(worst, error / bound);
      }
      const double right = static_cast<double>(top + std::log(sum));
      ASSERT_NEAR(static_cast<double>(lse), right, (n + 6 + 2 * std::fabs(right)) * this->kUnit) << n;
    }
  }
  EXPECT_GT(worst, 0.05);
}

TYPED_TEST(SoftmaxRowTest, AllMinusInfinityIsTheSink) {
  using T = TypeParam;
  std::vector<T> row(9, -this->kInfinity), nothing;
  EXPECT_EQ(this->Run(&row), -this->kInfinity);
  for (T x : row) EXPECT_EQ(x, 0);
  row.assign(9, -this->kInfinity);
  EXPECT_EQ(this->Run(&row, T{1.5}), T{1.5});
  for (T x : row) EXPECT_EQ(x, 0);
  EXPECT_EQ(this->Run(&nothing), -this->kInfinity);
  EXPECT_EQ(this->Run(&nothing, T{2}), T{2});
}

TYPED_TEST(SoftmaxRowTest, NaNOrInfinityAnywhereSpoilsTheRow) {
  using T = TypeParam;
  for (std::size_t n : {1u, 2u, 8u, 17u, 40u}) {
    for (std::size_t at = 0; at < n; ++at) {
      for (T bad : {this->kNaN, this->kInfinity}) {
        std::vector<T> row(n, T{1});
        if (n > 1) row[(at + 1) % n] = -this->kInfinity;
        row[at] = bad;
        EXPECT_TRUE(std::isnan(this->Run(&row, T{0})));
        for (std::size_t j = 0; j < n; ++j)
          EXPECT_TRUE(n > 1 && j == (at + 1) % n ? row[j] == 0 : std::isnan(row[j])) << n << ", " << j;
      }
    }
  }
}

TYPED_TEST(SoftmaxRowTest, ExtremeScores) {
  using T = TypeParam;
  const T lowest = std::numeric_limits<T>::lowest();
  std::vector<T> row = {lowest, lowest};
  EXPECT_EQ(this->Run(&row), lowest);
  EXPECT_EQ(row[0], T{0.5});
  row = {std::numeric_limits<T>::max(), lowest, 0};
  EXPECT_EQ(this->Run(&row), std::numeric_limits<T>::max());
  EXPECT_EQ(row[0], 1);
  EXPECT_EQ(row[1], 0);
  row = {0, -80};  // far down, not gone
  this->Run(&row);
  EXPECT_GT(row[1], 0);
}

}  // namespace
}  // namespace regard::internal
