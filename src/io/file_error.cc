#include "io/file_error.h"

#include <cerrno>
#include <system_error>

#include "io/utf8.h"

namespace regard::io {
namespace {

std::string_view NextStep(int error) {
  switch (error) {
    case ENOENT:
      return "check the path";
    case EACCES:
    case EPERM:
    case EROFS:
      return "check the permissions or choose another path";
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "free some space or choose another path";
    default:
      return "check the path and the device";
  }
}

std::string Escaped(std::string_view text, std::size_t max_bytes) {
  const bool utf8 = IsUtf8(text);
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_character = (byte & 0xC0) != 0x80;
    if (i >= max_bytes && (starts_character || !utf8)) return escaped + "…";
    if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !utf8)) {
      escaped += fmt::format("\\x{:02x}", byte);
    } else {
      escaped += text[i];
    }
  }
  return escaped;
}

}  // namespace

void FailIo(std::string_view where, std::string_view what, int error) {
  Fail(ErrorCode::kIo, where, "{}: {}; {}", what, std::generic_category().message(error), NextStep(error));
}

void FailAbsentLayer(std::string_view name, std::int64_t index, std::span<const std::int64_t> present) {
  if (present.empty()) Fail(ErrorCode::kInvalidArgument, name, "{}, but no key begins with 'layers.'; leave it out", index);
  constexpr std::size_t kMostListed = 16;
  std::string list = fmt::format("{}", fmt::join(present.first(std::min(present.size(), kMostListed)), ", "));
  if (present.size() > kMostListed) list += fmt::format(", … {}", present.back());
  Fail(ErrorCode::kInvalidArgument, name, "{} is not in the files; choose from {}", index, list);
}

std::string Printable(std::string_view text) { return Escaped(text, 2000); }

std::string Quoted(std::string_view text) { return "'" + Escaped(text, 60) + "'"; }

}  // namespace regard::io
