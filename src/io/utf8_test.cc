#include "io/utf8.h"

#include <gtest/gtest.h>

#include "io/file_error.h"

namespace regard::io {
namespace {

TEST(Utf8Test, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x110000; ++c) {
    std::string text;
    const bool is_character = c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
    ASSERT_EQ(AppendUtf8(c, &text), is_character) << static_cast<std::uint32_t>(c);
    if (!is_character) continue;
    std::u32string decoded;
    ASSERT_TRUE(DecodeUtf8(text, &decoded)) << static_cast<std::uint32_t>(c);
    ASSERT_EQ(decoded, std::u32string(1, c));
    for (std::size_t length = 1; length < text.size(); ++length) ASSERT_FALSE(IsUtf8(text.substr(0, length)));
  }
}

TEST(Utf8Test, WrongBytes) {
  for (const char* text : {"\x80", "\xC3", "\xC3(", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                           "\xF8\x88\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(IsUtf8(text)) << Quoted(text);
  }
}

TEST(QuotedTest, IsPrintableAndShort) {
  EXPECT_EQ(Quoted("naïve"), "'naïve'");
  EXPECT_EQ(Quoted("a\n\x7F"), "'a\\x0a\\x7f'");
  EXPECT_EQ(Quoted("a\xFF"), "'a\\xff'");
  EXPECT_EQ(Quoted(std::string(59, 'a') + "ïb"), "'" + std::string(59, 'a') + "ï…'");
}

}  // namespace
}  // namespace regard::io
