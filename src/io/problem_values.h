// Scalars of a problem, out of arrays with one element or metadata strings, and the option that may override each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "io/problem_sources.h"
#include "regard/problem.h"

namespace regard::io {

/// What the file says, if it says anything. Errors kInvalidArgument name the key, its value and what was expected.
std::optional<bool> ReadBool(const ProblemSources& sources, std::string_view name);
std::optional<std::int64_t> ReadInteger(const ProblemSources& sources, std::string_view name);
std::optional<float> ReadFloat(const ProblemSources& sources, std::string_view name);

/// How a value is written in notes and in the reading line.
std::string ValueText(bool value);
std::string ValueText(std::int64_t value);
std::string ValueText(float value);

/// "causal" -> "--causal", "window_left" -> "--window-left"
std::string FlagOf(std::string_view name);

/// The option if set, else the file's; a note when both are there and differ.
template <typename T>
std::optional<T> Override(std::string_view name, const std::optional<T>& option, const std::optional<T>& file,
                          std::vector<std::string>* notes) {
  if (!option) return file;
  if (file && *file != *option) {
    // As it is written: a word behind a flag without a value would be taken for a file.
    const char* const joint = std::is_same_v<T, bool> ? "=" : " ";
    notes->push_back(FlagOf(name) + joint + ValueText(*option) + " overrides the file's " + std::string(name) + " " +
                     ValueText(*file));
  }
  return option;
}

}  // namespace regard::io
