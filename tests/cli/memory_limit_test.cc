// Under a limit of memory every command either does its work or ends with status 5 and one clear line: no crash, and no waiting for ever, which is
// what a BLAS does that cannot get its buffers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/command.h"
#include "tests/cli/scratch.h"

namespace regard::tests {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kTokens = 4096, kHeads = 4, kDim = 64;  // 4 MiB a tensor

// A raw file of f16 numbers that stands for q, k and v alike.
std::string Numbers() {
  const std::string path = Scratch("numbers.bin");
  std::string bytes;
  for (int n = 0; n < kTokens * kHeads * kDim; ++n) {
    bytes += static_cast<char>(n * 37 % 251);
    bytes += static_cast<char>(0x30 + n % 9 + 0x80 * (n % 2));  // sign and exponent: ±0.125 … ±2
  }
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path + ":f16:1x" + std::to_string(kHeads) + "x" + std::to_string(kTokens) + "x" + std::to_string(kDim);
}

// What is right for them, for `check`: a wrong result would be searched for a minute.
std::string Right(const std::string& input) {
  const std::string path = Scratch("right.npy");
  if (!std::filesystem::exists(path)) Regard("run" + input + "--save context -o " + path);
  return path;
}

Outcome RunWithin(const std::string& command, std::uint64_t address_space) {
  const std::string numbers = Numbers(), input = " q=" + numbers + " k=" + numbers + " v=" + numbers + " --causal ";
  std::vector<std::string> words;
  std::istringstream line(command + (command == "info" || command.starts_with("bench") ? "" : input) +
                          (command == "check" ? "--observed " + Right(input) : "") + (command == "explain" ? "--row 5" : ""));
  for (std::string word; line >> word;) words.push_back(word);
  return RunRegard(words, {.address_space = address_space});
}

class MemoryLimit : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Commands, MemoryLimit,
                         testing::Values("run", "explain", "check", "map", "bench --quick --case T512/d64", "info"),
                         [](const auto& param) {
                           return std::string(param.param).substr(0, std::string(param.param).find(' '));
                         });

TEST_P(MemoryLimit, EndsWithStatusFiveOrWithResults) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes terabytes of address space";
#endif
  for (const std::uint64_t mib : {100, 130, 160, 200, 250, 300, 350}) {
    const Outcome outcome = RunWithin(GetParam(), mib * kMiB);
    SCOPED_TRACE(std::string(GetParam()) + " in " + std::to_string(mib) + " MiB: status " + std::to_string(outcome.status) +
                 "\n" + outcome.err);
    if (outcome.status == 0) continue;
    EXPECT_EQ(outcome.status, 5);
    const std::size_t last_line = outcome.err.rfind("regard: ");
    ASSERT_NE(last_line, std::string::npos);
    EXPECT_NE(outcome.err.find("memory", last_line), std::string::npos);
    EXPECT_EQ(outcome.err.find('\n', last_line), outcome.err.size() - 1);
  }
}

TEST(MemoryLimitTest, SaysWhatCannotBeHad) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes terabytes of address space";
#endif
  const Outcome outcome = RunWithin("bench --quick --case T512/d64", 300 * kMiB);
  EXPECT_EQ(outcome.status, 5);
  EXPECT_NE(outcome.err.find("cannot be had"), std::string::npos) << outcome.err;
}

// A stack larger than the address space lets no thread begin.
TEST(MemoryLimitTest, SaysThatAThreadCannotBeHad) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes terabytes of address space";
#endif
  const char* const old_threads = std::getenv("OPENBLAS_NUM_THREADS");
  const std::string saved = old_threads != nullptr ? old_threads : "";
  setenv("OPENBLAS_NUM_THREADS", "1", 1);  // it would begin its threads first
  const Outcome outcome = RunRegard({"info"}, {.address_space = 700 * kMiB, .stack = 1024 * kMiB});
  old_threads != nullptr ? setenv("OPENBLAS_NUM_THREADS", saved.c_str(), 1) : unsetenv("OPENBLAS_NUM_THREADS");
  EXPECT_EQ(outcome.status, 5);
  EXPECT_EQ(outcome.err.find("regard: the system refuses a thread: "), 0u) << outcome.err;
  EXPECT_NE(outcome.err.find("; give the command more memory or processes\n"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace regard::tests
