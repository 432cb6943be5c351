#include "io/utf8.h"

#include <cstddef>

namespace regard::io {
namespace {

bool IsScalarValue(char32_t c) { return c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF); }

// Reads one code point at *at and moves *at behind it. False when the bytes there are not UTF-8.
bool Next(std::string_view text, std::size_t* at, char32_t* code_point) {
  const auto lead = static_cast<unsigned char>(text[*at]);
  // Lead bytes 0xxxxxxx, 110xxxxx, 1110xxxx, 11110xxx; the smallest value each length may stand for.
  const int length = lead < 0x80 ? 1 : (lead & 0xE0) == 0xC0 ? 2 : (lead & 0xF0) == 0xE0 ? 3 : (lead & 0xF8) == 0xF0 ? 4 : 0;
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (length == 0 || text.size() - *at < static_cast<std::size_t>(length)) return false;
  char32_t value = length == 1 ? lead : lead & (0x7Fu >> length);
  for (int i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[*at + static_cast<std::size_t>(i)]);
    if ((byte & 0xC0) != 0x80) return false;
    value = value << 6 | (byte & 0x3F);
  }
  if (value < kSmallest[length] || !IsScalarValue(value)) return false;
  *at += static_cast<std::size_t>(length);
  *code_point = value;
  return true;
}

}  // namespace

bool DecodeUtf8(std::string_view text, std::u32string* code_points) {
  char32_t code_point = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!Next(text, &at, &code_point)) return false;
    code_points->push_back(code_point);
  }
  return true;
}

bool AppendUtf8(char32_t c, std::string* text) {
  if (!IsScalarValue(c)) return false;
  if (c < 0x80) {
    *text += static_cast<char>(c);
  } else if (c < 0x800) {
    *text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    *text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  } else {
    *text += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
              static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  }
  return true;
}

bool IsUtf8(std::string_view text) {
  char32_t code_point = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!Next(text, &at, &code_point)) return false;
  }
  return true;
}

}  // namespace regard::io
