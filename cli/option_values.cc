#include "cli/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace regard::cli {
namespace {

[[noreturn]] void FailValue(const std::string& flag, const std::string& text, std::string_view expectation) {
  throw UsageError(fmt::format("{}: '{}' {}", flag, text, expectation));
}

// Of a value that is understood and cannot be used.
[[noreturn]] void FailRange(const std::string& flag, const std::string& text, std::string_view range) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: '{}' is out of {}", flag, text, range));
}

enum class Parsed : std::uint8_t { kNumber, kNoNumber, kOutOfRange };

// The whole text as a number.
template <typename T>
Parsed ParseNumber(std::string_view text, T* number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return Parsed::kNoNumber;
  return error == std::errc{} ? Parsed::kNumber : Parsed::kOutOfRange;
}

template <typename T>
T ParseWhole(const std::string& flag, const std::string& text, int example) {
  T value = 0;
  const Parsed parsed = ParseNumber(text, &value);
  if (parsed == Parsed::kNoNumber) FailValue(flag, text, fmt::format("is not a whole number; give one such as {}", example));
  if (parsed == Parsed::kOutOfRange) {
    using Limits = std::numeric_limits<T>;
    FailRange(flag, text, fmt::format("range, {} to {}; give one such as {}", Limits::min(), Limits::max(), example));
  }
  return value;
}

}  // namespace

float ParseFloat(const std::string& flag, const std::string& text) {
  float value = 0;
  const Parsed parsed = ParseNumber(text, &value);
  if (parsed == Parsed::kNoNumber) FailValue(flag, text, "is not a number; give one such as 0.125");
  if (parsed == Parsed::kOutOfRange) {
    FailRange(flag, text, "f32's range: 0, or 1.4e-45 to 3.4e38 of either sign; give one such as 0.125");
  }
  return value;
}

std::int64_t ParseInteger(const std::string& flag, const std::string& text) { return ParseWhole<std::int64_t>(flag, text, 8); }

int ParseSmallInteger(const std::string& flag, const std::string& text) { return ParseWhole<int>(flag, text, 2); }

bool ParseBool(const std::string& flag, const std::string& text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  FailValue(flag, text, "is neither true nor false; give one of them, or nothing for true");
}

io::QOffsetChoice ParseQOffset(const std::string& flag, const std::string& text) {
  io::QOffsetChoice choice;
  if (text == "top-left") {
    choice.rule = io::QOffsetChoice::Rule::kTopLeft;
  } else if (text == "bottom-right") {
    choice.rule = io::QOffsetChoice::Rule::kBottomRight;
  } else if (const Parsed parsed = ParseNumber(text, &choice.number); parsed == Parsed::kOutOfRange) {
    FailRange(flag, text, "range; give the number of keys before query 0");
  } else if (parsed == Parsed::kNoNumber) {
    FailValue(flag, text, "is no offset; give a whole number, top-left (0) or bottom-right (kv_len − q_len)");
  }
  return choice;
}

io::Layout ParseLayout(const std::string& flag, const std::string& text) {
  io::Layout layout;
  if (!io::ParseLayout(text, &layout)) {
    FailValue(flag, text, "is no layout; give bhsd, bshd, hsd, shd or bsd (batch, heads, sequence, dim in the file's order)");
  }
  return layout;
}

Path ParsePath(const std::string& flag, const std::string& text) {
  for (const Path path : {Path::kReference, Path::kStaged, Path::kFused}) {
    if (text == Name(path)) return path;
  }
  FailValue(flag, text, "is no path; give reference, staged or fused");
}

io::Selection ParseSelection(const std::string& flag, const std::string& text) {
  try {
    return io::Selection::Parse(flag, text);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

std::pair<std::int64_t, std::int64_t> ParseBins(const std::string& flag, const std::string& text) {
  std::int64_t rows = 0, columns = 0;
  const char* const end = text.data() + text.size();
  const auto [after_rows, rows_error] = std::from_chars(text.data(), end, rows);
  const bool has_two = rows_error == std::errc{} && after_rows != end && *after_rows == 'x';
  const auto [after_columns, columns_error] = std::from_chars(has_two ? after_rows + 1 : end, end, columns);
  if (!has_two || columns_error != std::errc{} || after_columns != end || rows < 1 || columns < 1) {
    FailValue(flag, text, "is not a number of rows and columns; write it as 64x64");
  }
  return {rows, columns};
}

std::vector<std::string> ParseNames(const std::string& flag, const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) FailValue(flag, text, "has an empty name; write it as context,lse");
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::uint64_t ParseSize(const std::string& flag, const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  double factor = 1;
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t power = unit.empty() ? kUnits.npos : kUnits.find(unit[0] == 'k' ? 'K' : unit[0]);
  if (power != kUnits.npos) {
    factor = std::ldexp(1.0, 10 * static_cast<int>(power + 1));
    unit.remove_prefix(1);
  }
  const bool known_unit = unit.empty() || unit == "B" || (unit == "iB" && power != kUnits.npos);
  const double bytes = number * factor;
  const bool is_number = error == std::errc{} || error == std::errc::result_out_of_range;
  if (!is_number || !known_unit || !(bytes >= 0)) {
    FailValue(flag, text, "is not a size; give bytes, or a number with KiB, MiB, GiB or TiB, such as 512MiB");
  }
  if (error != std::errc{} || !(bytes < std::ldexp(1.0, 63))) {
    FailRange(flag, text, "range; give whole bytes, less than 8388608TiB");
  }
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace regard::cli
