// Values of flags, out of text. All throw UsageError when the text is no value of its kind, and Error kInvalidArgument for a number out of range,
// naming the flag, its value, what was expected and a next step.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.h"

namespace regard::cli {

float ParseFloat(const std::string& flag, const std::string& text);
std::int64_t ParseInteger(const std::string& flag, const std::string& text);
int ParseSmallInteger(const std::string& flag, const std::string& text);
bool ParseBool(const std::string& flag, const std::string& text);
io::QOffsetChoice ParseQOffset(const std::string& flag, const std::string& text);
io::Layout ParseLayout(const std::string& flag, const std::string& text);
Path ParsePath(const std::string& flag, const std::string& text);
io::Selection ParseSelection(const std::string& flag, const std::string& text);
/// "64x48": two positive numbers.
std::pair<std::int64_t, std::int64_t> ParseBins(const std::string& flag, const std::string& text);
/// Names between commas.
std::vector<std::string> ParseNames(const std::string& flag, const std::string& text);

}  // namespace regard::cli
