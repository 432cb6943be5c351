// Flags of other libraries and tools, and what to write instead. They are refused, not translated: a flag whose meaning shifts by one
// key, or whose polarity differs, must not be guessed.
#pragma once

#include <string_view>

namespace regard::cli {

struct ForeignFlag {
  std::string_view name;          // with its dashes
  std::string_view advice;        // completes "use …"
  std::string_view because = {};  // where its values are others; follows a colon
};

/// Null when the flag is not one of them.
const ForeignFlag* FindForeignFlag(std::string_view name) noexcept;

}  // namespace regard::cli
