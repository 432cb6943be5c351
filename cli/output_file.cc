#include "cli/output_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "regard/error.h"
#include "regard/io.h"

namespace regard::cli {
namespace {

// Whether a source names this file: `FILE`, `name=FILE`, `FILE:f32:4x3` or `name=FILE:f32:4x3`.
bool IsSource(const std::string& source, const std::string& file) {
  const std::string after_name = source.substr(source.find('=') + 1);  // all of it when there is no '='
  return IsSameFile(source, file) || IsSameFile(after_name, file) || IsSameFile(after_name.substr(0, after_name.find(':')), file);
}

}  // namespace

bool IsSameFile(const std::string& a, const std::string& b) {
  const auto place = [](const std::string& name) {
    std::error_code ignored;  // empty where a folder cannot be entered: then there is nothing to compare
    return std::filesystem::weakly_canonical(std::filesystem::absolute(name, ignored), ignored);
  };
  std::error_code ignored;  // what does not exist is nothing's equal
  if (std::filesystem::equivalent(a, b, ignored)) return true;
  const std::filesystem::path at = place(a);
  return !at.empty() && at == place(b);
}

void CheckOutputFile(const Options& options, const std::string& flag, const std::string& file) {
  if (file.empty()) return;
  const std::string& tokens = options.problem.tokens;
  if (std::ranges::any_of(options.sources, [&](const std::string& source) { return IsSource(source, file); }) ||
      (!tokens.empty() && IsSameFile(tokens, file)))
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: '{}' is an input; name another file", flag, file));
  io::AtomicFile{file};  // never committed
}

}  // namespace regard::cli
