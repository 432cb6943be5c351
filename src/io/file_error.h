// How this room reports what is wrong with a file: "data.npz: array q: …".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "regard/error.h"

namespace regard::io {

/// Throws Error with "<where>: <message>". `where` is the file, or "<file>: array <name>".
template <typename... T>
[[noreturn]] void Fail(ErrorCode code, std::string_view where, fmt::format_string<T...> format, const T&... arguments) {
  throw Error(code, fmt::format("{}: {}", where, fmt::vformat(format, fmt::make_format_args(arguments...))));
}

/// Throws Error kIo with "<where>: <what>: <the system's text for `error`>; <next step>".
[[noreturn]] void FailIo(std::string_view where, std::string_view what, int error);

/// Throws Error kInvalidArgument: layer `index` is not among those `present`.
[[noreturn]] void FailAbsentLayer(std::string_view name, std::int64_t index, std::span<const std::int64_t> present);

/// Text that holds what a file or a command line said, as it may be shown: control characters and bytes that are no UTF-8 as \xNN, so that nothing
/// speaks to the terminal; cut at about 2,000 bytes.
std::string Printable(std::string_view text);

/// Text from a file as it may stand in a message: in quotes, printable, at most about 60 bytes.
std::string Quoted(std::string_view text);

}  // namespace regard::io
