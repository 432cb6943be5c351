#include "cli/option_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace regard::cli {
namespace {

template <typename Function>
std::string FailureOf(const Function& parse) {
  try {
    parse();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no failure";
}

// Of a value that is understood and cannot be used.
template <typename Function>
std::string RangeFailureOf(const Function& parse) {
  try {
    parse();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no failure";
}

TEST(OptionValuesTest, Sizes) {
  EXPECT_EQ(ParseSize("--max-memory", "1000"), 1000u);
  EXPECT_EQ(ParseSize("--max-memory", "1000B"), 1000u);
  EXPECT_EQ(ParseSize("--max-memory", "1.5e3"), 1500u);
  EXPECT_EQ(ParseSize("--max-memory", "512MiB"), 512u << 20);
  EXPECT_EQ(ParseSize("--max-memory", "2G"), std::uint64_t{2} << 30);
  EXPECT_EQ(ParseSize("--max-memory", "2GB"), std::uint64_t{2} << 30);
  EXPECT_EQ(ParseSize("--max-memory", "0.5k"), 512u);
  EXPECT_EQ(ParseSize("--max-memory", "0"), 0u);
  EXPECT_EQ(ParseSize("--max-memory", "1TiB"), std::uint64_t{1} << 40);
  for (const char* bad : {"", "-1", "MiB", "1iB", "1Q", "1 G", "1GiBs", "nan", "0x10"}) {
    EXPECT_THROW(ParseSize("--max-memory", bad), UsageError) << bad;
  }
  for (const char* beyond : {"99999999999GiB", "1e400", "1e-400", "8388608TiB", "9e18G", "inf"}) {
    EXPECT_EQ(RangeFailureOf([&] { ParseSize("--max-memory", beyond); }),
              "--max-memory: '" + std::string(beyond) + "' is out of range; give whole bytes, less than 8388608TiB");
  }
}

TEST(OptionValuesTest, Numbers) {
  EXPECT_EQ(ParseFloat("--scale", "+0.5"), 0.5f);
  EXPECT_EQ(ParseFloat("--scale", "-1e-3"), -1e-3f);
  EXPECT_TRUE(std::isnan(ParseFloat("--scale", "nan"))) << "the plan refuses it, with its own message";
  EXPECT_EQ(ParseInteger("--q-offset", "-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  for (const char* bad : {"", " 1", "1 ", "1,5", "0x1", "++1", "1e400 "}) {
    EXPECT_EQ(FailureOf([&] { ParseFloat("--scale", bad); }),
              "--scale: '" + std::string(bad) + "' is not a number; give one such as 0.125");
  }
  for (const char* bad : {"", "1.0", "one", "9223372036854775808x"}) {
    EXPECT_EQ(FailureOf([&] { ParseInteger("--dim", bad); }),
              "--dim: '" + std::string(bad) + "' is not a whole number; give one such as 8");
  }
}

// A soft cap that rounds to 0 would be none, and a scale an error about 0, which nobody wrote.
TEST(OptionValuesTest, NumbersOutOfRange) {
  EXPECT_GT(ParseFloat("--scale", "1.5e-45"), 0.0f);
  EXPECT_EQ(ParseFloat("--scale", "3.4028235e38"), std::numeric_limits<float>::max());
  for (const char* beyond : {"1e-400", "-1e-46", "1e39", "-1e400"}) {
    EXPECT_EQ(RangeFailureOf([&] { ParseFloat("--soft-cap", beyond); }),
              "--soft-cap: '" + std::string(beyond) +
                  "' is out of f32's range: 0, or 1.4e-45 to 3.4e38 of either sign; give one such as 0.125");
  }
  EXPECT_EQ(RangeFailureOf([] { ParseInteger("--dim", "9223372036854775808"); }),
            "--dim: '9223372036854775808' is out of range, -9223372036854775808 to 9223372036854775807; give one such as 8");
  EXPECT_EQ(RangeFailureOf([] { ParseSmallInteger("--threads", "4294967296"); }),
            "--threads: '4294967296' is out of range, -2147483648 to 2147483647; give one such as 2");
}

TEST(OptionValuesTest, QOffset) {
  EXPECT_EQ(ParseQOffset("--q-offset", "-3").number, -3);
  EXPECT_EQ(ParseQOffset("--q-offset", "top-left").rule, io::QOffsetChoice::Rule::kTopLeft);
  EXPECT_EQ(ParseQOffset("--q-offset", "bottom-right").rule, io::QOffsetChoice::Rule::kBottomRight);
  EXPECT_THROW(ParseQOffset("--q-offset", "bottomright"), UsageError);
  EXPECT_EQ(RangeFailureOf([] { ParseQOffset("--q-offset", "9223372036854775808"); }),
            "--q-offset: '9223372036854775808' is out of range; give the number of keys before query 0");
}

TEST(OptionValuesTest, Names) {
  EXPECT_EQ(ParseNames("--save", "context,lse"), (std::vector<std::string>{"context", "lse"}));
  for (const char* bad : {"", ",", "a,", ",a"}) EXPECT_THROW(ParseNames("--save", bad), UsageError) << bad;
}

}  // namespace
}  // namespace regard::cli
