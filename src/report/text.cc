#include "report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace regard::report {
namespace {

constexpr int kFewestColumns = 8;  // of a column that is cut

// One code point at text[at]; `length` bytes. What is not UTF-8 gives length 1 and valid = false.
struct CodePoint {
  char32_t value = 0;
  std::size_t length = 1;
  bool valid = false;
};

CodePoint Decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (length == 0 || lead > 0xF4 || at + length > text.size()) return {lead, 1, false};
  char32_t value = lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {lead, 1, false};
    value = (value << 6) | (byte(at + i) & 0x3Fu);
  }
  constexpr char32_t kSmallest[5] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid = value >= kSmallest[length] && value <= 0x10FFFF && !(value >= 0xD800 && value <= 0xDFFF);
  return valid ? CodePoint{value, length, true} : CodePoint{lead, 1, false};
}

struct Range {
  char32_t first, last;
};

template <std::size_t n>
bool In(const Range (&ranges)[n], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges), [c](const Range& r) { return c >= r.first && c <= r.last; });
}

// Unicode 15, the scripts that tokenizers meet most: marks that are drawn onto the character before them …
constexpr Range kCombining[] = {{0x0300, 0x036F},  {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A}, {0x064B, 0x065F},
                                {0x0670, 0x0670},  {0x06D6, 0x06DC}, {0x0900, 0x0902}, {0x093C, 0x093C}, {0x0941, 0x0948},
                                {0x094D, 0x094D},  {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E}, {0x1AB0, 0x1AFF},
                                {0x1DC0, 0x1DFF},  {0x200B, 0x200D}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F},
                                {0xE0100, 0xE01EF}};
// … characters of two columns (East Asian Width W and F) …
constexpr Range kWide[] = {{0x1100, 0x115F}, {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},
                           {0xA000, 0xA4CF}, {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                           {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
// … and what must not reach a terminal raw: controls, direction marks, line and paragraph separators, the byte order mark.
constexpr Range kUnshowable[] = {{0x0000, 0x001F}, {0x007F, 0x009F}, {0x061C, 0x061C}, {0x200E, 0x200F},
                                 {0x2028, 0x202E}, {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}};

int WidthOf(char32_t c) { return In(kCombining, c) ? 0 : In(kWide, c) ? 2 : 1; }

std::string ShowCodePoint(std::string_view bytes, const CodePoint& c) {
  if (!c.valid) return fmt::format("\\x{:02x}", static_cast<unsigned>(c.value));
  if (c.value == U'\n') return "\\n";
  if (c.value == U'\t') return "\\t";
  if (c.value == U'\r') return "\\r";
  if (!In(kUnshowable, c.value)) return std::string(bytes);
  return c.value < 0x100 ? fmt::format("\\x{:02x}", static_cast<unsigned>(c.value))
                         : fmt::format("\\u{:04x}", static_cast<unsigned>(c.value));
}

}  // namespace

int DisplayWidth(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = Decode(text, at);
    width += c.valid ? WidthOf(c.value) : 1;
    at += c.length;
  }
  return width;
}

std::string ShowToken(std::string_view token, int max_width) {
  const std::size_t first = std::min(token.find_first_not_of(' '), token.size());
  const std::size_t last = token.find_last_not_of(' ') + 1;  // 0 when there are only spaces
  std::string shown;
  int width = 0;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint c = Decode(token, at);
    const bool outer_space = at < first || at >= last;
    const std::string piece = outer_space ? "·" : ShowCodePoint(token.substr(at, c.length), c);
    at += c.length;
    const int piece_width = DisplayWidth(piece);
    // The cut must leave a column for its own mark, unless this piece is the last.
    if (width + piece_width > (at < token.size() ? max_width - 1 : max_width)) return shown + "…";
    shown += piece;
    width += piece_width;
  }
  return shown;
}

std::string PadRight(std::string text, int width) {
  const int missing = width - DisplayWidth(text);
  if (missing > 0) text.append(static_cast<std::size_t>(missing), ' ');
  return text;
}

std::string PadLeft(std::string text, int width) {
  const int missing = width - DisplayWidth(text);
  if (missing > 0) text.insert(0, static_cast<std::size_t>(missing), ' ');
  return text;
}

std::string ShowNumber(double value, double largest) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double magnitude = std::fabs(largest);
  const bool fits = magnitude == 0 || !std::isfinite(magnitude) || (magnitude >= 0.00995 && magnitude < 99999.5);
  std::string text = fits ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
  return text == "-0.0000" ? "0.0000" : text;
}

std::string ShowCount(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  const std::size_t sign = count < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string ShowSeconds(double seconds) {
  struct Unit {
    double size;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}, {1e-9, "ns"}};
  for (const Unit& unit : kUnits) {
    const double value = seconds / unit.size;
    // Three digits; 999.6 would round up to four.
    if (value < 0.9995 && &unit != std::end(kUnits) - 1) continue;
    return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit.name);
  }
  return {};
}

std::string ShowBytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} bytes", bytes);
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = -1;
  while (bytes >= 1024 && unit + 1 < static_cast<int>(std::size(kUnits))) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string ShowList(std::span<const std::int64_t> numbers, std::size_t max_shown) {
  std::string text;
  for (std::size_t i = 0; i < std::min(numbers.size(), max_shown); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", numbers[i]);
  return numbers.size() > max_shown ? text + ", …" : text;
}

std::string CutRight(const std::string& text, int width) {
  if (DisplayWidth(text) <= width) return text;
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = Decode(text, at).length;
    const std::string piece = text.substr(at, length);
    if (DisplayWidth(kept + piece) > width - 1) break;
    kept += piece;
    at += length;
  }
  return kept + "…";
}

std::string AlignColumns(const std::vector<std::vector<std::string>>& rows, const std::vector<Align>& columns, int max_width) {
  std::vector<int> widths(columns.size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], DisplayWidth(row[c]));
  }
  const auto widest = std::ranges::max_element(widths);
  const int excess = std::accumulate(widths.begin(), widths.end(), 2 * static_cast<int>(widths.size()) - 2) - max_width;
  if (max_width > 0 && excess > 0) *widest = std::max(std::min(*widest, kFewestColumns), *widest - excess);
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      const std::string cell = CutRight(row[c], widths[c]);
      line += columns[c] == Align::kRight ? PadLeft(cell, widths[c]) : PadRight(cell, widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace regard::report
