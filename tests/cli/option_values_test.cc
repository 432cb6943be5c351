#include "cli/option_values.h"

#include <gtest/gtest.h>

#include <cmath>

namespace regard::cli {
namespace {

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
  for (const char* bad : {"", "-1", "MiB", "1iB", "1Q", "1 G", "1GiBs", "nan", "inf", "9e18G", "0x10"}) {
    EXPECT_THROW(ParseSize("--max-memory", bad), UsageError) << bad;
  }
  for (const char* large : {"99999999999GiB", "1e400", "8388608TiB"}) {
    try {
      ParseSize("--max-memory", large);
      ADD_FAILURE() << large;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(), "--max-memory: '" + std::string(large) + "' is out of range; give less than 8388608TiB");
    }
  }
}

TEST(OptionValuesTest, Numbers) {
  EXPECT_EQ(ParseFloat("--scale", "+0.5"), 0.5f);
  EXPECT_EQ(ParseFloat("--scale", "-1e-3"), -1e-3f);
  EXPECT_TRUE(std::isnan(ParseFloat("--scale", "nan"))) << "the plan refuses it, with its own message";
  EXPECT_EQ(ParseInteger("--q-offset", "-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  for (const char* bad : {"", " 1", "1 ", "1,5", "0x1", "1e400", "++1"})
    EXPECT_THROW(ParseFloat("--scale", bad), UsageError) << bad;
  for (const char* bad : {"", "1.0", "9223372036854775808", "one"}) EXPECT_THROW(ParseInteger("--layer", bad), UsageError) << bad;
  EXPECT_THROW(ParseSmallInteger("--threads", "4294967296"), UsageError);
}

TEST(OptionValuesTest, QOffset) {
  EXPECT_EQ(ParseQOffset("--q-offset", "-3").number, -3);
  EXPECT_EQ(ParseQOffset("--q-offset", "top-left").rule, io::QOffsetChoice::Rule::kTopLeft);
  EXPECT_EQ(ParseQOffset("--q-offset", "bottom-right").rule, io::QOffsetChoice::Rule::kBottomRight);
  EXPECT_THROW(ParseQOffset("--q-offset", "bottomright"), UsageError);
}

TEST(OptionValuesTest, Names) {
  EXPECT_EQ(ParseNames("--save", "context,lse"), (std::vector<std::string>{"context", "lse"}));
  for (const char* bad : {"", ",", "a,", ",a"}) EXPECT_THROW(ParseNames("--save", bad), UsageError) << bad;
}

}  // namespace
}  // namespace regard::cli
