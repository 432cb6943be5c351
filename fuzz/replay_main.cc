// Runs a fuzz target on kept inputs, with any compiler.
//
//     npy_fuzzer fuzz/corpus/npy testdata/io --expected fuzz/regressions/npy
//
// A folder stands for all files in it. Those after --expected each have a neighbour, its name and ".expected", which begins like the outcome.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace {

using std::filesystem::path;

constexpr char kExpected[] = ".expected";

std::string Slurp(const path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<path> Inputs(const path& place) {
  if (!std::filesystem::exists(place)) return {};  // a target that has none
  if (!std::filesystem::is_directory(place)) return {place};
  std::vector<path> inputs;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place)) {
    if (entry.is_regular_file() && entry.path().extension() != kExpected) inputs.push_back(entry.path());
  }
  std::ranges::sort(inputs);
  return inputs;
}

// Whether the outcome of a kept input is the one that stands beside it.
bool IsAsExpected(const path& input, const std::string& outcome) {
  const path neighbour = input.string() + kExpected;
  std::string expected = Slurp(neighbour);
  while (!expected.empty() && expected.back() == '\n') expected.pop_back();
  if (!expected.empty() && outcome.starts_with(expected)) return true;
  std::printf("%s: %s\n  expected: %s\n", input.c_str(), outcome.c_str(),
              expected.empty() ? ("a file " + neighbour.string()).c_str() : expected.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  bool with_expectation = false;
  int inputs = 0, failures = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--expected") {
      with_expectation = true;
      continue;
    }
    for (const path& input : Inputs(argv[i])) {
      std::printf("%s\n", input.c_str());  // the last one stands there when it ends the program
      std::fflush(stdout);
      const std::string bytes = Slurp(input);
      const std::string outcome = regard::fuzz::Outcome({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
      ++inputs;
      failures += with_expectation && !IsAsExpected(input, outcome);
    }
  }
  std::printf("%d inputs, %d failures\n", inputs, failures);
  return inputs > 0 && failures == 0 ? 0 : 1;
}
