// Room report: views of a result for people and for programs. It computes the facts (structs) and renders them (strings); the
// command prints. Nothing here decides what attention is: facts come from the paths, through the public API.
//
// This header: numbers, tokens and columns as a terminal shows them. Text is UTF-8.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/tensor.h"

namespace regard::report {

/// Columns a terminal uses for valid UTF-8: combining marks take none, East Asian wide characters and emoji two.
int DisplayWidth(std::string_view text);

/// A token as it can be shown on one line and in one place: control characters, invisible direction marks and bytes that are not
/// UTF-8 become escapes (\n, \x1b, \u202e); spaces at either end, which tell tokens apart, become "·". At most `max_width`
/// columns, the last one "…" when something was cut.
std::string ShowToken(std::string_view token, int max_width = 12);

/// Filled with spaces up to `width` columns; longer text is left as it is.
std::string PadRight(std::string text, int width);
std::string PadLeft(std::string text, int width);

/// 4 decimals when the largest magnitude to be shown beside it allows it, else 4 decimals and an exponent. "inf", "-inf", "nan".
std::string ShowNumber(double value, double largest);
inline std::string ShowNumber(double value) { return ShowNumber(value, value); }
/// 1234567 as "1,234,567".
std::string ShowCount(std::int64_t count);
/// A time with three significant digits: "840 ns", "12.3 µs", "4.56 ms", "1.20 s".
std::string ShowSeconds(double seconds);
/// "512 bytes", "1.5 GiB".
std::string ShowBytes(double bytes);
/// "1, 4, 9" of at most `max_shown` numbers; more are cut with "…".
std::string ShowList(std::span<const std::int64_t> numbers, std::size_t max_shown = 12);

/// At most `width` columns, the last one "…" when something was cut.
std::string CutRight(const std::string& text, int width);

/// Rows of cells, aligned; the first row is the heading. Columns are two spaces apart, the last one is not padded. Where lines would be longer
/// than `max_width`, the widest column is cut, to no less than 8; 0 is no limit.
enum class Align : std::uint8_t { kLeft, kRight };
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows, const std::vector<Align>& columns, int max_width = 0);

}  // namespace regard::report
