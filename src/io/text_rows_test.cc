#include "io/text_rows.h"

#include <cmath>
#include <limits>

#include "io/test_support.h"

namespace regard::io {
namespace {

std::vector<float> Numbers(std::string_view text, const Dims& shape) {
  const File file = FromString(text, "rows.txt");
  EXPECT_EQ(file.format(), Format::kText);
  const Tensor tensor = file.Read("inputs");
  EXPECT_EQ(tensor.shape(), shape) << text;
  return {tensor.As<float>(), tensor.As<float>() + tensor.num_elements()};
}

TEST(TextRowsTest, SeparatorsLineEndsAndComments) {
  const std::vector<float> expected = {1, -2.5f, 300, 4, 5, 6};
  for (const char* text : {
           "1 -2.5 3e2\n4 5 6\n",
           "1,-2.5,3e2\r\n4,5,6\r\n",
           "1;-2.5;+3E2\n4;5;6",
           "  1\t-2.50 , 300.0  \n\n# heading x y\n4 ;5;6 # the end, at last\n#\n   \n",
           "\xEF\xBB\xBF"
           "1 -2.5 300\n4 5 6\n",
       }) {
    SCOPED_TRACE(text);
    EXPECT_EQ(Numbers(text, {2, 3}), expected);
    EXPECT_EQ(FromString(text, "rows.txt").Find("tokens"), nullptr);
  }
}

TEST(TextRowsTest, WordsBecomeTokens) {
  const File file =
      FromString("Your 0.5 1\n##ing, 2, 3\n\"7\" 4 5\n\"a \"\"b\"\", c\";6;7\n# 8 9\n#x 1 2\n\"\" 0 0\n東京 1 -1\n", "rows.txt");
  EXPECT_EQ(file.ReadStrings("tokens").values, (std::vector<std::string>{"Your", "##ing", "7", "a \"b\", c", "#x", "", "東京"}));
  EXPECT_EQ(file.Read("inputs").shape(), Dims({7, 2}));
  EXPECT_EQ(file.Read("inputs")(6, 1), -1);
}

TEST(TextRowsTest, NumbersRoundOnceToTheNearestFloat) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Numbers("0.1 16777217 3.4028235e38 1e-45 1e-60 -1e-400 inf -INF .5 5.\n", {1, 10}),
            (std::vector<float>{0.1f, 16777216.0f, 3.4028235e38f, 0x1p-149f, 0, -0.0f, inf, -inf, 0.5f, 5}));
  EXPECT_TRUE(std::isnan(Numbers("1 NaN\n", {1, 2})[1]));
  // Rounding to double first would give the even neighbour 1.0; the value lies just above the tie.
  EXPECT_EQ(Numbers("1.00000005960464477540\n", {1, 1})[0], 1.00000012f);
}

TEST(TextRowsTest, FaultsAreNamedWithTheirLine) {
  struct Case {
    std::string_view text;
    const char* message;
  };
  const Case cases[] = {
      {"1 2 3\n\n4 5\n", "rows.txt: line 3: 2 numbers, line 1 has 3; make all rows equally long"},
      {"1 2\n3\n", "rows.txt: line 2: 1 number, line 1 has 2; make all rows equally long"},
      {"1 2\n3 x\n", "line 2: 'x' is not a number"},
      {"x y\n1 2\n", "line 1: 'y' is not a number; write `[word] number…`, or put '# ' before a heading"},
      {"a 1\n2 3\n", "line 2: begins with a number, line 1 with a word"},
      {"1 2\n\"2\" 3\n", "line 2: begins with a word, line 1 with a number"},
      {"1,,2\n", "line 1: field 2 is empty"},
      {",1\n", "line 1: field 1 is empty"},
      {"1,2,\n", "line 1: field 3 is empty"},
      {"1 2\n1,5;2,5\n",
       "rows.txt: line 2: both , and ; between numbers; use one of them, and a point in decimals (1.5, not 1,5)"},
      {"a;1,5\n", "line 1: both , and ; between numbers"},
      {"Prose, of all kinds; no numbers\n", "line 1: 'of' is not a number"},
      {"1 1e39\n", "line 1: '1e39' is beyond the range of f32"},
      {"1 -1e400\n", "line 1: '-1e400' is beyond the range of f32"},
      {"1 0x10\n", "line 1: '0x10' is not a number"},
      {"1 +-2\n", "line 1: '+-2' is not a number"},
      {"hello\n", "line 1: word 'hello' without numbers"},
      {"\"hello 1\n", "line 1: quoted word 'hello 1' does not end"},
      {"\"a\"b 1\n", "line 1: quoted word 'a' does not end"},
      {"1 \"2\"\n", "line 1: '2' is not a number"},
      {"# nothing\n", "holds no rows of numbers"},
      {std::string_view("1 2\n3\0 4\n", 9), "line 2: neither text nor a known format"},
      {"1 2\n3 \xFF\n", "line 2: neither text nor a known format"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    ExpectError(ErrorCode::kCorruptFile, c.message, [&] { FromString(c.text, "rows.txt"); });
  }
}

}  // namespace
}  // namespace regard::io
