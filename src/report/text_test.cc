#include "report/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace regard::report {
namespace {

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("journey"), 7);
  EXPECT_EQ(DisplayWidth("Ġthe"), 4);
  EXPECT_EQ(DisplayWidth("注意"), 4);
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1);  // e and a combining accent
  EXPECT_EQ(DisplayWidth("🙂"), 2);
}

TEST(ShowToken, EscapesWhatMustNotReachATerminal) {
  EXPECT_EQ(ShowToken("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(ShowToken("a\nb"), "a\\nb");
  EXPECT_EQ(ShowToken("a\tb"), "a\\tb");
  EXPECT_EQ(ShowToken("\xc2\x9b"), "\\x9b");                // a C1 control
  EXPECT_EQ(ShowToken("\xe2\x80\xae"), "\\u202e");          // right-to-left override
  EXPECT_EQ(ShowToken("\xff\x41"), "\\xffA");               // not UTF-8
  EXPECT_EQ(ShowToken("\xc0\x80"), "\\xc0\\x80");           // overlong
  EXPECT_EQ(ShowToken("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(ShowToken("\xf0\x9f"), "\\xf0\\x9f");           // cut short
}

TEST(ShowToken, KeepsSpacesVisibleWhereTheyTellTokensApart) {
  EXPECT_EQ(ShowToken(" the"), "·the");
  EXPECT_EQ(ShowToken("New York"), "New York");
  EXPECT_EQ(ShowToken("  "), "··");
  EXPECT_EQ(ShowToken(""), "");
}

TEST(ShowToken, CutsAtTheWidth) {
  EXPECT_EQ(ShowToken("uncomfortable", 13), "uncomfortable");
  EXPECT_EQ(ShowToken("uncomfortable", 12), "uncomfortab…");
  EXPECT_EQ(ShowToken("注意注意", 7), "注意注…");
  EXPECT_EQ(ShowToken("注意注意", 6), "注意…");  // the third would leave no column for the mark
}

TEST(ShowNumber, FourDecimalsUnlessTheTableNeedsAnExponent) {
  EXPECT_EQ(ShowNumber(1.495), "1.4950");
  EXPECT_EQ(ShowNumber(-0.00001, 1), "0.0000");
  EXPECT_EQ(ShowNumber(0.00012, 1), "0.0001");
  EXPECT_EQ(ShowNumber(0.00012), "1.2000e-04");
  EXPECT_EQ(ShowNumber(123456.0), "1.2346e+05");
  EXPECT_EQ(ShowNumber(std::numeric_limits<double>::quiet_NaN(), 1), "nan");
  EXPECT_EQ(ShowNumber(-std::numeric_limits<double>::infinity(), 1), "-inf");
}

TEST(ShowCount, GroupsDigits) {
  EXPECT_EQ(ShowCount(0), "0");
  EXPECT_EQ(ShowCount(999), "999");
  EXPECT_EQ(ShowCount(1000), "1,000");
  EXPECT_EQ(ShowCount(-1234567), "-1,234,567");
}

TEST(ShowSeconds, ThreeDigits) {
  EXPECT_EQ(ShowSeconds(2.594e-7), "259 ns");
  EXPECT_EQ(ShowSeconds(1.3234e-5), "13.2 µs");
  EXPECT_EQ(ShowSeconds(9.9999e-4), "1.00 ms");
  EXPECT_EQ(ShowSeconds(2), "2.00 s");
}

TEST(AlignColumns, CountsColumnsOfTheTerminal) {
  EXPECT_EQ(AlignColumns({{"a", "x"}, {"注意", "12"}}, {Align::kLeft, Align::kRight}), "a      x\n注意  12\n");
}

TEST(AlignColumns, CutsTheWidestColumnToTheLine) {
  const std::vector<std::vector<std::string>> rows = {{"stage", "range"}, {"scores = 注意 · keys", "0.1 … 0.9"}};
  const std::vector<Align> columns = {Align::kLeft, Align::kLeft};
  EXPECT_EQ(AlignColumns(rows, columns, 31), AlignColumns(rows, columns));
  EXPECT_EQ(AlignColumns(rows, columns, 24), "stage          range\nscores = 注…   0.1 … 0.9\n");
  EXPECT_EQ(AlignColumns(rows, columns, 3), "stage     range\nscores …  0.1 … 0.9\n");
}

}  // namespace
}  // namespace regard::report
