#include "tests/cli/command.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace regard::test {
namespace {

// Removed at the end of the program.
struct ScratchFolder {
  std::filesystem::path path;
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "regard_test_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

std::string Scratch(const std::string& name) {
  static const ScratchFolder folder;
  return (folder.path / name).string();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

Outcome Regard(const std::string& arguments) {
  const std::string out = Scratch("stdout"), err = Scratch("stderr");
  std::string line = "'" REGARD_COMMAND "' ";
  line.append(arguments).append(" >'").append(out).append("' 2>'").append(err).append("' </dev/null");
  const int result = std::system(line.c_str());
  return {WIFEXITED(result) ? WEXITSTATUS(result) : -1, ReadFile(out), ReadFile(err)};
}

}  // namespace regard::test
