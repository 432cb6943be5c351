// The files that -o and --html name.
#pragma once

#include <string>

#include "cli/options.h"

namespace regard::cli {

/// Refuses a file that is one of the inputs, or that cannot be written, so that no run of minutes ends with nothing. Writes nothing.
/// `flag` is what messages call it. An empty name is fine: nothing is to be written. Throws Error.
void CheckOutputFile(const Options& options, const std::string& flag, const std::string& file);

/// Whether two names lead to one file, links included; or to one place, where there is none yet.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace regard::cli
