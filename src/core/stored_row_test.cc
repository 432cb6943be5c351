#include "core/stored_row.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/problem.h"
#include "tests/support/random.h"

namespace regard::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Quantised {
  std::vector<std::int8_t> elements;
  float scale;
  double At(std::size_t i) const { return static_cast<double>(elements[i]) * static_cast<double>(scale); }
};

Quantised Quantise(const std::vector<float>& row) {
  Quantised q{std::vector<std::int8_t>(row.size(), 77), -1};
  StoreRow(row.data(), DType::kF32, 1, static_cast<std::int64_t>(row.size()), DType::kI8, q.elements.data(), &q.scale);
  return q;
}

// Rows of every magnitude, down to subnormal and up to the largest numbers, of every length around a vector's.
TEST(StoredRow, I8ErrsByHalfAStep) {
  test::Random random(3);
  double worst = 0;
  for (int round = 0; round < 20000; ++round) {
    const double magnitude = std::ldexp(1.0, static_cast<int>(random.Int(-148, 127)));
    std::vector<float> row(static_cast<std::size_t>(random.Int(1, 40)));
    for (float& x : row) x = static_cast<float>(std::min(magnitude, 0x1.fp126) * random.Uniform(-1.9, 2));
    const Quantised q = Quantise(row);
    bool at_limit = false;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double error = std::fabs(q.At(i) - static_cast<double>(row[i])), bound = q.scale * (0.5 + 0x1p-17);
      ASSERT_LE(error, bound) << "row of " << magnitude << ": " << row[i] << " became " << q.At(i);
      ASSERT_GE(q.elements[i], -127);
      at_limit = at_limit || std::abs(static_cast<int>(q.elements[i])) == 127;
      if (bound > 0) worst = std::max(worst, error / bound);
    }
    // Below 127 steps of the smallest number the scale is that number.
    EXPECT_TRUE(at_limit || q.scale < 0x1p-140f) << "the scale of a row of " << magnitude << " is too large";
  }
  EXPECT_GT(worst, 0.9);
}

TEST(StoredRow, I8OfSpecialRows) {
  for (const std::vector<float>& row : {std::vector<float>{0, -0.0f, 0}, std::vector<float>{}}) {
    const Quantised q = Quantise(row);
    EXPECT_EQ(q.scale, 0);
    for (std::size_t i = 0; i < row.size(); ++i) EXPECT_EQ(q.elements[i], 0);
  }
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    for (std::size_t at = 0; at < 9; ++at) {
      std::vector<float> row{1, -2, 3, 4, 5, 6, 7, 8, 9};
      row[at] = bad;
      const Quantised q = Quantise(row);
      for (std::size_t i = 0; i < row.size(); ++i) EXPECT_TRUE(std::isnan(q.At(i)));
    }
  }
  EXPECT_EQ(Quantise({0x1p-149f, 0}).At(0), 0x1p-149);
  EXPECT_EQ(Quantise({-std::numeric_limits<float>::max()}).elements[0], -127);
  const Quantised ties = Quantise({127, 0.5f, 1.5f, -2.5f, -127});  // to even
  EXPECT_EQ(ties.elements, (std::vector<std::int8_t>{127, 0, 2, -2, -127}));
}

// The loops that become vector code against the definitions of dtype.cc, at every exponent and around every tie.
TEST(StoredRow, HalvesAreRoundedAsDefined) {
  std::vector<float> row;
  test::Random random(5);
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t mantissa :
         {0u, 1u, 0x0FFFu, 0x1000u, 0x1001u, 0x3000u, 0x7FFFu, 0x8000u, 0x8001u, 0x18000u, 0x7FE000u, 0x7FEFFFu, 0x7FF000u,
          0x7FFFFFu, static_cast<std::uint32_t>(random.Next()) & 0x7FFFFF}) {
      for (const std::uint32_t sign : {0u, 0x80000000u}) row.push_back(std::bit_cast<float>(sign | exponent << 23 | mantissa));
    }
  }
  std::vector<BF16> bf16(row.size());
  std::vector<F16> f16(row.size());
  StoreRow(row.data(), DType::kF32, 1, static_cast<std::int64_t>(row.size()), DType::kBF16, bf16.data(), nullptr);
  StoreRow(row.data(), DType::kF32, 1, static_cast<std::int64_t>(row.size()), DType::kF16, f16.data(), nullptr);
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) {
      EXPECT_TRUE(std::isnan(ToFloat(bf16[i])) && std::isnan(ToFloat(f16[i])));
      continue;
    }
    EXPECT_EQ(bf16[i].bits, ToBF16(row[i]).bits) << row[i];
    EXPECT_EQ(f16[i].bits, ToF16(row[i]).bits) << row[i];
  }
}

TEST(StoredRow, AnyFloatTypeAndStride) {
  constexpr std::int64_t kCount = 300;  // more than one piece
  std::vector<double> wide(2 * kCount);
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = std::sin(static_cast<double>(i)) * (1 + 0x1p-30);
  std::vector<float> narrow(kCount);
  for (std::int64_t i = 0; i < kCount; ++i)
    narrow[static_cast<std::size_t>(i)] = static_cast<float>(wide[static_cast<std::size_t>(2 * i)]);
  const Quantised expected = Quantise(narrow);
  Quantised q{std::vector<std::int8_t>(kCount), 0};
  StoreRow(wide.data(), DType::kF64, 2, kCount, DType::kI8, q.elements.data(), &q.scale);
  EXPECT_EQ(q.elements, expected.elements);
  EXPECT_EQ(q.scale, expected.scale);
  std::vector<F16> f16(kCount);
  StoreRow(wide.data(), DType::kF64, 2, kCount, DType::kF16, f16.data(), nullptr);
  std::vector<float> f32(kCount);
  LoadStored({f16.data(), DType::kF16, 1}, kCount, f32.data());
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto n = static_cast<std::size_t>(i);
    EXPECT_EQ(f16[n].bits, ToF16(wide[2 * n]).bits);
    EXPECT_EQ(f32[n], ToFloat(f16[n]));
    EXPECT_EQ(LoadStored({q.elements.data(), DType::kI8, 1, q.scale}, i), q.At(n));
  }
}

}  // namespace
}  // namespace regard::internal
