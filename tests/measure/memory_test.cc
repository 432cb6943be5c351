// Memory is O(tokens): what a long run needs beyond a run of one token is its inputs and outputs and little else.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace {

struct Probe {
  long long peak = 0, tensors = 0;  // bytes
};

Probe RunProbe(long long tokens) {
  Probe probe;
  const std::string command = std::string(MEMORY_PROBE) + " " + std::to_string(tokens);
  std::FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) {
    ADD_FAILURE() << "cannot run " << command;
    return probe;
  }
  EXPECT_EQ(std::fscanf(output, "%lld %lld", &probe.peak, &probe.tensors), 2) << command;
  EXPECT_EQ(pclose(output), 0) << command;
  return probe;
}

TEST(Memory, Of131072TokensIsThatOfTheTensors) {
  constexpr long long kAllowance = 32ll << 20;
  const Probe one = RunProbe(1), many = RunProbe(131072);
  ASSERT_GT(one.peak, 0);
  EXPECT_GE(many.peak - one.peak, many.tensors - one.tensors - (4ll << 20))
      << "less than the tensors themselves: nothing was measured";
  EXPECT_LE(many.peak - one.peak, many.tensors + kAllowance);
  RecordProperty("bytes_beyond_tensors", std::to_string(many.peak - one.peak - many.tensors));
}

}  // namespace
