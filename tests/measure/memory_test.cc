// Memory is O(tokens): what a long run needs beyond a run of one token is its inputs and outputs, what the headers state, and little else.
// One causal head of dim 64, one thread: attention alone, and with every summary; 4,096 and 16,384 tokens against what the headers state,
// 32,768 against bounds far below the weights' size.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
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

// How long a run is looked at. Weights of 32,768 tokens would take 4 GiB, of 131,072 (three minutes) 64 GiB:
//     REGARD_MEMORY_TOKENS=131072 memory_test
long long LongTokens() {
  const char* const stated = std::getenv("REGARD_MEMORY_TOKENS");
  return stated != nullptr ? std::atoll(stated) : 32768;
}

TEST(Memory, OfALongAttentionIsThatOfTheTensors) {
  const long long tokens = LongTokens(), beyond = BeyondTensors("attention", RunProbe("attention", tokens));
  EXPECT_LE(beyond, 8 * kMiB + 192 * tokens);  // 32 MiB of 131,072 tokens, whose tensors take 128 MiB
  RecordProperty("bytes_beyond_tensors", std::to_string(beyond));
}

TEST(Memory, OfAllSummariesOfALongTextIsThatOfTheTensors) {
  const long long tokens = LongTokens(), beyond = BeyondTensors("summaries", RunProbe("summaries", tokens));
  EXPECT_LE(beyond, 16 * kMiB + 384 * tokens);
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
