// UTF-8 to code points and back. Strict: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <string>
#include <string_view>

namespace regard::io {

/// Appends the code points of `text`. False, with `code_points` partly extended, when `text` is not UTF-8.
bool DecodeUtf8(std::string_view text, std::u32string* code_points);

/// Appends one code point. False, without change, for surrogates and values above U+10FFFF.
bool AppendUtf8(char32_t code_point, std::string* text);

bool IsUtf8(std::string_view text);

}  // namespace regard::io
