#include "io/problem_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "io/file_error.h"
#include "regard/error.h"

namespace regard::io {
namespace {

using enum ErrorCode;

// A scalar before its meaning is known.
struct Scalar {
  std::string text;              // for messages
  std::optional<double> number;  // not set for words
};

std::string_view WithoutBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

std::optional<Scalar> ReadScalar(const ProblemSources& sources, std::string_view name) {
  const Entry* entry = sources.Find(name);
  if (entry == nullptr) return std::nullopt;
  Scalar scalar;
  if (entry->info != nullptr) {
    if (!entry->info->unreadable && (entry->info->is_strings || NumElements(entry->info->shape) != 1)) {
      Fail(kInvalidArgument, name, "shape {}{}; give one number", ToString(entry->info->shape),
           entry->info->is_strings ? " of strings" : "");
    }
    const Tensor tensor = sources.Read(*entry);
    scalar.number = tensor.view().Reshape({1})(0);
    scalar.text = fmt::format("{}", *scalar.number);
    return scalar;
  }
  const std::string_view text = WithoutBlanks(entry->text);
  scalar.text = Quoted(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size()) scalar.number = number;
  return scalar;
}

}  // namespace

std::optional<bool> ReadBool(const ProblemSources& sources, std::string_view name) {
  const std::optional<Scalar> scalar = ReadScalar(sources, name);
  if (!scalar) return std::nullopt;
  if (scalar->number == 0.0 || scalar->number == 1.0) return *scalar->number == 1.0;
  const Entry& entry = *sources.Find(name);
  std::string word(WithoutBlanks(entry.text));
  std::ranges::transform(word, word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (const std::string_view yes : {"true", "yes", "on"}) {
    if (word == yes) return true;
  }
  for (const std::string_view no : {"false", "no", "off"}) {
    if (word == no) return false;
  }
  Fail(kInvalidArgument, name, "{} in the file; give true or false", scalar->text);
}

std::optional<std::int64_t> ReadInteger(const ProblemSources& sources, std::string_view name) {
  const std::optional<Scalar> scalar = ReadScalar(sources, name);
  if (!scalar) return std::nullopt;
  constexpr double kLargest = 4e18;  // converts to int64 without overflow
  if (!scalar->number || std::floor(*scalar->number) != *scalar->number) {
    Fail(kInvalidArgument, name, "{} in the file; give a whole number", scalar->text);
  }
  if (std::abs(*scalar->number) > kLargest) {
    Fail(kInvalidArgument, name, "{} in the file is beyond ±4e18; give a smaller number", scalar->text);
  }
  return static_cast<std::int64_t>(*scalar->number);
}

std::optional<float> ReadFloat(const ProblemSources& sources, std::string_view name) {
  const std::optional<Scalar> scalar = ReadScalar(sources, name);
  if (!scalar) return std::nullopt;
  if (!scalar->number) Fail(kInvalidArgument, name, "{} in the file; give a number", scalar->text);
  const float number = static_cast<float>(*scalar->number);
  // A soft cap that rounds to 0 would be none.
  if (std::isfinite(*scalar->number) && (std::isinf(number) || (number == 0 && *scalar->number != 0))) {
    Fail(kInvalidArgument, name, "{} in the file is out of f32's range; give 1.4e-45 to 3.4e38 in size", scalar->text);
  }
  return number;
}

std::string ValueText(bool value) { return value ? "true" : "false"; }
std::string ValueText(std::int64_t value) { return fmt::format("{}", value); }
std::string ValueText(float value) { return fmt::format("{}", value); }

std::string FlagOf(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

}  // namespace regard::io
