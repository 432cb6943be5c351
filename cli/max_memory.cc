#include "cli/max_memory.h"

#include <fmt/format.h>

#include "regard/error.h"
#include "report/text.h"

namespace regard::cli {

void CheckMemory(const Options& options, double bytes, const std::string& what, const std::string& advice) {
  if (bytes <= static_cast<double>(options.max_memory)) return;
  throw Error(ErrorCode::kOutOfMemory,
              fmt::format("--max-memory: {} take {:.0f} bytes ({}), more than {}; {}, or state a larger one", what, bytes,
                          report::ShowBytes(bytes), report::ShowBytes(static_cast<double>(options.max_memory)), advice));
}

}  // namespace regard::cli
