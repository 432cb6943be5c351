#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/copy.h"
#include "core/problem.h"
#include "regard/tensor.h"

namespace regard {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(DType, NamesAndSizes) {
  const std::pair<DType, std::pair<const char*, std::size_t>> all[] = {
      {DType::kF64, {"f64", 8}},  {DType::kF32, {"f32", 4}}, {DType::kF16, {"f16", 2}}, {DType::kBF16, {"bf16", 2}},
      {DType::kI64, {"i64", 8}},  {DType::kI32, {"i32", 4}}, {DType::kI16, {"i16", 2}}, {DType::kI8, {"i8", 1}},
      {DType::kU64, {"u64", 8}},  {DType::kU32, {"u32", 4}}, {DType::kU16, {"u16", 2}}, {DType::kU8, {"u8", 1}},
      {DType::kBool, {"bool", 1}}};
  for (const auto& [dtype, facts] : all) {
    EXPECT_EQ(Name(dtype), facts.first);
    EXPECT_EQ(ItemSize(dtype), facts.second);
    DType parsed = DType::kF64;
    EXPECT_TRUE(ParseDType(facts.first, &parsed));
    EXPECT_EQ(parsed, dtype);
    const std::string name = facts.first;
    EXPECT_EQ(IsFloat(dtype), name.find('f') != std::string::npos);
    EXPECT_EQ(IsInteger(dtype), name[0] == 'i' || name[0] == 'u');
  }
  DType parsed = DType::kF64;
  EXPECT_FALSE(ParseDType("float32", &parsed));
  EXPECT_FALSE(ParseDType("", &parsed));
}

TEST(DType, OfCppTypes) {
  static_assert(DTypeOf<const double>() == DType::kF64 && DTypeOf<float>() == DType::kF32 && DTypeOf<F16>() == DType::kF16);
  static_assert(DTypeOf<std::int64_t>() == DType::kI64 && DTypeOf<long long>() == DType::kI64 &&
                DTypeOf<std::uint64_t>() == DType::kU64);
  static_assert(DTypeOf<std::int32_t>() == DType::kI32 && DTypeOf<std::int16_t>() == DType::kI16 &&
                DTypeOf<std::int8_t>() == DType::kI8);
  static_assert(DTypeOf<std::uint32_t>() == DType::kU32 && DTypeOf<std::uint16_t>() == DType::kU16 &&
                DTypeOf<std::uint8_t>() == DType::kU8);
  static_assert(DTypeOf<bool>() == DType::kBool && DTypeOf<BF16>() == DType::kBF16);
}

TEST(DType, EveryF16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 x{static_cast<std::uint16_t>(bits)};
    const float value = ToFloat(x);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToF16(value))));
    } else {
      EXPECT_EQ(ToF16(value).bits, x.bits);
    }
  }
}

TEST(DType, EveryBF16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BF16 x{static_cast<std::uint16_t>(bits)};
    const float value = ToFloat(x);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBF16(value))));
    } else {
      EXPECT_EQ(ToBF16(value).bits, x.bits);
    }
  }
}

// Between every two neighbours: the middle goes to the even one, anything beside the middle to the nearer one; in double, so that a
// detour over float would round twice.
template <typename Narrow>
void CheckRounding(Narrow (*narrow)(double), std::uint16_t last_finite) {
  for (std::uint16_t bits = 0; bits < last_finite; ++bits) {
    const double low = ToFloat(Narrow{bits}), high = ToFloat(Narrow{static_cast<std::uint16_t>(bits + 1)});
    const double middle = (low + high) / 2;
    const std::uint16_t even = bits % 2 == 0 ? bits : static_cast<std::uint16_t>(bits + 1);
    ASSERT_EQ(narrow(middle).bits, even) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, 0)).bits, bits) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, kInfinity)).bits, bits + 1) << low;
    ASSERT_EQ(narrow(-middle).bits, even | 0x8000) << low;
  }
}

TEST(DType, F16RoundsOnceToNearestEven) { CheckRounding<F16>(ToF16, 0x7BFF); }
TEST(DType, BF16RoundsOnceToNearestEven) { CheckRounding<BF16>(ToBF16, 0x7F7F); }

TEST(DType, TooLargeBecomesInfinity) {
  EXPECT_EQ(ToF16(65519.999).bits, 0x7BFF);
  EXPECT_EQ(ToF16(65520).bits, 0x7C00);
  EXPECT_EQ(ToF16(-1e300).bits, 0xFC00);
  EXPECT_EQ(ToF16(kInfinity).bits, 0x7C00);
  EXPECT_EQ(ToBF16(1e300).bits, 0x7F80);
  EXPECT_EQ(ToBF16(-kInfinity).bits, 0xFF80);
  EXPECT_EQ(ToBF16(std::numeric_limits<float>::max()).bits, 0x7F80);
}

TEST(DType, TooSmallBecomesZeroWithItsSign) {
  EXPECT_EQ(ToF16(0x1p-25).bits, 0);  // half the smallest subnormal: tie to even
  EXPECT_EQ(ToF16(std::nextafter(0x1p-25, 1)).bits, 1);
  EXPECT_EQ(ToF16(-1e-300).bits, 0x8000);
  EXPECT_EQ(ToBF16(1e-300).bits, 0);
  EXPECT_EQ(ToBF16(-0.0).bits, 0x8000);
}

TEST(DType, NaNStaysNaN) {
  EXPECT_TRUE(std::isnan(ToFloat(ToF16(kNaN))));
  EXPECT_TRUE(std::isnan(ToFloat(ToBF16(kNaN))));
  // A NaN whose payload lies in the bits that are cut.
  EXPECT_TRUE(std::isnan(ToFloat(ToBF16(static_cast<double>(std::bit_cast<float>(0x7F800001u))))));
  EXPECT_TRUE(std::isnan(ToFloat(ToBF16(static_cast<double>(std::bit_cast<float>(0xFFFFFFFFu))))));
}

// Rows have loops of their own.
TEST(DType, RowsConvertAsNumbersDo) {
  std::vector<float> floats;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x0FFFu, 0x1000u, 0x1001u, 0x3000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      floats.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const auto check = [&]<typename Stored>(DType dtype, Stored (*convert)(double)) {
    for (const std::size_t stride : {1u, 3u}) {
      std::vector<Stored> stored(floats.size() * stride);
      internal::StoreRow(floats.data(), static_cast<std::int64_t>(floats.size()), stored.data(), dtype,
                         static_cast<std::int64_t>(stride));
      std::vector<float> loaded(floats.size());
      internal::LoadRow(stored.data(), dtype, static_cast<std::int64_t>(stride), static_cast<std::int64_t>(floats.size()),
                        loaded.data());
      for (std::size_t i = 0; i < floats.size(); ++i) {
        ASSERT_EQ(stored[i * stride].bits, convert(floats[i]).bits) << std::hex << std::bit_cast<std::uint32_t>(floats[i]);
        if (std::isnan(floats[i])) {
          ASSERT_TRUE(std::isnan(loaded[i]));
        } else {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(loaded[i]), std::bit_cast<std::uint32_t>(ToFloat(stored[i * stride])));
        }
      }
    }
  };
  check.operator()<F16>(DType::kF16, ToF16);
  check.operator()<BF16>(DType::kBF16, ToBF16);
}

TEST(DType, LoadAndStore) {
  double f64 = 0;
  float f32 = 0;
  internal::StoreDouble(&f64, DType::kF64, 0, 0.1);
  internal::StoreDouble(&f32, DType::kF32, 0, 0.1);
  EXPECT_EQ(internal::LoadDouble(&f64, DType::kF64, 0), 0.1);
  EXPECT_EQ(internal::LoadDouble(&f32, DType::kF32, 0), static_cast<double>(0.1f));
  const std::int8_t i8[] = {-128, 127};
  const std::uint16_t u16[] = {65535};
  const std::uint8_t truth[] = {0, 2};
  EXPECT_EQ(internal::LoadDouble(i8, DType::kI8, 0), -128);
  EXPECT_EQ(internal::LoadDouble(i8, DType::kI8, 1), 127);
  EXPECT_EQ(internal::LoadDouble(u16, DType::kU16, 0), 65535);
  EXPECT_EQ(internal::LoadDouble(truth, DType::kBool, 0), 0);
  EXPECT_EQ(internal::LoadDouble(truth, DType::kBool, 1), 1);
}

}  // namespace
}  // namespace regard
