#include "cli/terminal.h"

#include <cstdlib>
#include <string_view>

namespace regard::cli {

report::Colors ColorsOf(const Streams& streams) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string_view(value == nullptr ? "" : value);
  };
  if (!streams.is_terminal() || !variable("NO_COLOR").empty()) return report::Colors::kNone;
  if (variable("COLORTERM") == "truecolor" || variable("COLORTERM") == "24bit") return report::Colors::k24Bit;
  return variable("TERM").find("256color") != std::string_view::npos ? report::Colors::k256 : report::Colors::kNone;
}

}  // namespace regard::cli
