// Memory is O(tokens): what a long run needs beyond a run of one token is its inputs and outputs, what the headers state, and little else.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace {

constexpr long long kMiB = 1 << 20;

struct Probe {
  long long peak = 0, tensors = 0, scratch = 0;  // bytes
};

Probe RunProbe(const std::string& what, long long tokens) {
  Probe probe;
  const std::string command = std::string(MEMORY_PROBE) + " " + what + " " + std::to_string(tokens);
  std::FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) {
    ADD_FAILURE() << "cannot run " << command;
    return probe;
  }
  EXPECT_EQ(std::fscanf(output, "%lld %lld %lld", &probe.peak, &probe.tensors, &probe.scratch), 3) << command;
  EXPECT_EQ(pclose(output), 0) << command;
  return probe;
}

// Bytes of a run beyond those of its tensors; a run of one token tells what a process takes anyway.
long long BeyondTensors(const std::string& what, const Probe& many) {
  const Probe one = RunProbe(what, 1);
  EXPECT_GT(one.peak, 0);
  EXPECT_GE(many.peak - one.peak, many.tensors - one.tensors - 4 * kMiB)
      << "less than the tensors themselves: nothing was measured";
  return many.peak - one.peak - many.tensors;
}

TEST(Memory, OfAttentionOf131072TokensIsThatOfTheTensors) {
  const long long beyond = BeyondTensors("attention", RunProbe("attention", 131072));
  EXPECT_LE(beyond, 32 * kMiB);
  RecordProperty("bytes_beyond_tensors", std::to_string(beyond));
}

TEST(Memory, OfAllSummariesOf131072TokensIsThatOfTheTensors) {
  const long long beyond = BeyondTensors("summaries", RunProbe("summaries", 131072));
  EXPECT_LE(beyond, 64 * kMiB);
  RecordProperty("bytes_beyond_tensors", std::to_string(beyond));
}

// Pages that allocators keep and code that a run of one token does not touch.
constexpr long long kSlack = 4 * kMiB;

TEST(Memory, IsWhatTheHeadersState) {
  for (const char* what : {"attention", "summaries"}) {
    for (const long long tokens : {4096, 16384}) {
      const Probe many = RunProbe(what, tokens);
      const long long beyond = BeyondTensors(what, many);
      EXPECT_LE(beyond, many.scratch + kSlack) << what << " of " << tokens << " tokens";
      EXPECT_LE(many.scratch, 400 * tokens + 4 * kMiB) << what << ": not even stated to be O(tokens)";
    }
  }
}

}  // namespace
