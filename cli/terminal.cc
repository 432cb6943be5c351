#include "cli/terminal.h"

#include <cstdlib>
#include <string_view>

namespace regard::cli {

report::Colors ColorsOf(const Streams& streams) {
  if (streams.colors()) return report::Colors::k24Bit;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (!streams.is_terminal() || (no_color != nullptr && *no_color != '\0') || term == nullptr) return report::Colors::kNone;
  return std::string_view(term).find("256color") != std::string_view::npos ? report::Colors::k256 : report::Colors::kNone;
}

}  // namespace regard::cli
