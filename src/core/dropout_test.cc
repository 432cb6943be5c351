#include "core/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"

namespace regard::internal {
namespace {

using test::ExpectError;

// Salmon et al. 2011: the known answers that come with their code (kat_vectors, "philox4x32 7").
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, ~std::uint64_t{0}),
            (PhiloxBlock{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0'a4093822),
            (PhiloxBlock{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

// The header's words, with nothing of Apply and Block: counter (key / 8, query, head, batch), 16 bits a key from the low end on.
TEST(DropoutMask, IsTheGeneratorsSixteenBitsOfEachKey) {
  constexpr std::uint64_t kSeed = 0x0123456789abcdef;
  const float p = 0.3f;
  const Tensor mask = DropoutMask({2, 3, 5, 21}, p, kSeed, {.batch = 4, .head = 1, .query = 7, .key = 16});
  const std::uint32_t threshold = 19661;  // 0.3 · 65536 = 19660.8
  const float multiplier = static_cast<float>(65536.0 / (65536 - 19661));
  for (std::uint32_t b = 0; b < 2; ++b) {
    for (std::uint32_t h = 0; h < 3; ++h) {
      for (std::uint32_t i = 0; i < 5; ++i) {
        for (std::uint32_t j = 0; j < 21; ++j) {
          const PhiloxBlock block = Philox({(16 + j) / 8, 7 + i, 1 + h, 4 + b}, kSeed);
          const std::uint32_t number = block[j % 8 / 2] >> (j % 2 * 16) & 0xFFFF;
          ASSERT_EQ(static_cast<float>(mask(b, h, i, j)), number < threshold ? 0 : multiplier) << b << h << i << j;
        }
      }
    }
  }
}

TEST(DropoutMask, OfAPartIsAPartOfTheWhole) {
  const Tensor whole = DropoutMask({3, 4, 9, 40}, 0.5f, 11);
  const Tensor part = DropoutMask({2, 2, 5, 13}, 0.5f, 11, {.batch = 1, .head = 2, .query = 4, .key = 24});
  for (int b = 0; b < 2; ++b) {
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < 5; ++i) {
        for (int j = 0; j < 13; ++j) ASSERT_EQ(part(b, h, i, j), whole(1 + b, 2 + h, 4 + i, 24 + j));
      }
    }
  }
}

// A kept share is a mean of independent draws: off by more than 5.5 of its standard deviations once in 26 million.
constexpr double kDeviations = 5.5;

TEST(DropoutMask, DropsAtItsRate) {
  const Dims shape = {2, 3, 64, 512};
  const double n = static_cast<double>(NumElements(shape));
  for (const float p : {0x1p-16f, 0.01f, 0.1f, 0.25f, 0.5f, 0.9f, 0.999f}) {
    const Tensor mask = DropoutMask(shape, p, 99);
    double dropped = 0, sum = 0;
    for (std::int64_t e = 0; e < mask.num_elements(); ++e) {
      dropped += mask.As<float>()[e] == 0 ? 1 : 0;
      sum += static_cast<double>(mask.As<float>()[e]);
    }
    const double rate = std::round(static_cast<double>(p) * 65536) / 65536,
                 bound = kDeviations * std::sqrt(n * rate * (1 - rate));
    EXPECT_NEAR(dropped, n * rate, bound) << p;
    EXPECT_GT(dropped, 0) << p;
    EXPECT_NEAR(sum / n, 1, bound / n / (1 - rate) + 1e-7) << p;  // the expectation of what it multiplies
  }
}

// Correlation of two masks of n pairs: 0 with a standard deviation of 1/√n when they are independent.
double Correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t n = 0; n < a.size(); ++n) sum += a[n] * b[n];
  return sum / static_cast<double>(a.size());
}

TEST(DropoutMask, IsIndependentAlongEveryAxisAndOfTheSeed) {
  constexpr float kP = 0.3f;
  const double rate = std::round(static_cast<double>(kP) * 65536) / 65536;
  // Standardised: mean 0, variance 1.
  const auto draw = [&](std::uint64_t seed, const DropoutOrigin& origin) {
    const Tensor mask = DropoutMask({2, 2, 64, 256}, kP, seed, origin);
    std::vector<double> values;
    for (std::int64_t e = 0; e < mask.num_elements(); ++e) {
      values.push_back(((mask.As<float>()[e] == 0 ? 1 : 0) - rate) / std::sqrt(rate * (1 - rate)));
    }
    return values;
  };
  const std::vector<double> base = draw(5, {});
  const double bound = kDeviations / std::sqrt(static_cast<double>(base.size()));
  EXPECT_GT(Correlation(base, base), 0.98);
  for (const std::int64_t by : {1, 2, 7, 64, 1 << 16}) {
    EXPECT_LT(std::fabs(Correlation(base, draw(5, {.batch = 2 * by}))), bound) << by;
    EXPECT_LT(std::fabs(Correlation(base, draw(5, {.head = 2 * by}))), bound) << by;
    EXPECT_LT(std::fabs(Correlation(base, draw(5, {.query = by}))), bound) << by;
    EXPECT_LT(std::fabs(Correlation(base, draw(5, {.key = 8 * by}))), bound) << by;
    EXPECT_LT(std::fabs(Correlation(base, draw(5 + static_cast<std::uint64_t>(by), {}))), bound) << by;
    EXPECT_LT(std::fabs(Correlation(base, draw(5 + (static_cast<std::uint64_t>(by) << 32), {}))), bound) << by;
  }
  // Keys of one block of the generator, from one to seven apart, and its next.
  for (std::size_t by = 1; by <= 8; ++by) {
    std::vector<double> moved(base.begin() + static_cast<std::ptrdiff_t>(by), base.end());
    moved.resize(base.size());
    EXPECT_LT(std::fabs(Correlation(base, moved)), bound) << by;
  }
}

// Whole rows are binomial too: their counts vary as they should, neither alike nor too wild. The variance of a sum of n squares of standard
// normal numbers is 2n; that of these counts is a little less.
TEST(DropoutMask, RowsVaryLikeDraws) {
  constexpr std::int64_t kRows = 2000, kKeys = 400;
  const Tensor mask = DropoutMask({1, 1, kRows, kKeys}, 0.5f, 3);
  double chi_square = 0;
  for (std::int64_t i = 0; i < kRows; ++i) {
    double kept = 0;
    for (std::int64_t j = 0; j < kKeys; ++j) kept += mask.As<float>()[i * kKeys + j] != 0 ? 1 : 0;
    chi_square += (kept - kKeys / 2.0) * (kept - kKeys / 2.0) / (kKeys / 4.0);
  }
  EXPECT_NEAR(chi_square, kRows, kDeviations * std::sqrt(2.0 * kRows));
}

TEST(DropoutMask, RoundsProbabilitiesToSixteenBits) {
  const auto drops = [](float p) {
    const Tensor mask = DropoutMask({1, 1, 1, 4000}, p, 1);
    std::int64_t dropped = 0;
    for (std::int64_t j = 0; j < 4000; ++j) dropped += mask.As<float>()[j] == 0 ? 1 : 0;
    return dropped;
  };
  EXPECT_EQ(drops(0), 0);
  EXPECT_EQ(drops(0x1p-18f), 0);  // rounded to 0
  EXPECT_FALSE(Dropout(0x1p-18f, 0, {}).is_on());
  EXPECT_EQ(Dropout(0.25f, 0, {}).multiplier, 4.0f / 3);
  EXPECT_EQ(Dropout(std::nextafter(1.0f, 0.0f), 0, {}).multiplier, 65536);
  EXPECT_GE(drops(std::nextafter(1.0f, 0.0f)), 3999);
}

TEST(DropoutMask, RefusesWhatIsNoMask) {
  for (const float p : {-0.1f, 1.0f, 2.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ExpectError(
        [&] {
          DropoutMask({1, 1, 1, 1}, p, 0);
        },
        ErrorCode::kInvalidArgument, "give a probability of 0 or more and below 1");
  }
  ExpectError(
      [] {
        DropoutMask({1, 1, 1}, 0.1f, 0);
      },
      ErrorCode::kShapeMismatch, "shape: 1×1×1; give [batch, heads, q_len, kv_len]");
  ExpectError(
      [] {
        DropoutMask({1, 1, 1, 1}, 0.1f, 0, {.key = 4});
      },
      ErrorCode::kInvalidArgument, "dropout_origin: key=4 is no multiple of 8");
  ExpectError([] { DropoutMask({1, 1, 1, 1}, 0.1f, 0, {.head = -1}); }, ErrorCode::kInvalidArgument, "dropout_origin: head=-1");
  ExpectError(
      [] {
        DropoutMask({1, 1, 2, 1}, 0.1f, 0, {.query = (std::int64_t{1} << 32) - 1});
      },
      ErrorCode::kInvalidArgument, "dropout_origin: query=4294967295 and 2 from there on");
}

}  // namespace
}  // namespace regard::internal
