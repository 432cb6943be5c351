// Random problems without end, each held to everything that is promised (tests/support/promises.h).
//
//     random_problems --seconds 3600                 problems per second now and then; stops at the first that breaks a promise
//     random_problems --count 1000000 --first 1      seeds 1 … 1,000,000
//     random_problems --seed 4711                    the problem of that seed alone, as a report gives it
//
// Exit status 0 when all were clean, 1 after a failure, whose seed stands in the report, 2 when the arguments cannot be read.
#include <gtest/gtest.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>

#include "tests/support/promises.h"

namespace regard::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::uint64_t first = 1, count = std::numeric_limits<std::uint64_t>::max();
  double seconds = std::numeric_limits<double>::infinity();
};

bool ParseArguments(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i], text = i + 1 < argc ? argv[i + 1] : "";
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return false;
    if (flag == "--seconds") {
      arguments->seconds = static_cast<double>(number);
    } else if (flag == "--count") {
      arguments->count = number;
    } else if (flag == "--first") {
      arguments->first = number;
    } else if (flag == "--seed") {
      arguments->first = number;
      arguments->count = 1;
    } else {
      return false;
    }
  }
  return true;
}

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void Report(std::uint64_t done, double seconds) {
  std::printf("%llu problems in %.0f s, %.0f a second\n", static_cast<unsigned long long>(done), seconds,
              static_cast<double>(done) / seconds);
  std::fflush(stdout);
}

// Whether every problem was clean.
bool Run(const Arguments& arguments) {
  constexpr double kSecondsBetweenReports = 10;
  const Clock::time_point start = Clock::now();
  double next_report = kSecondsBetweenReports;
  ErrorLedger ledger;
  std::uint64_t done = 0;
  while (done < arguments.count && SecondsSince(start) < arguments.seconds) {
    const std::uint64_t seed = arguments.first + done;
    Random random(~seed);
    try {
      CheckPromises(MakeProblem(seed, {.dropout = true}), random, ledger);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    ++done;
    if (testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) {
      std::printf("failed: run it alone with --seed %llu\n", static_cast<unsigned long long>(seed));
      return false;
    }
    if (SecondsSince(start) > next_report) {
      Report(done, SecondsSince(start));
      next_report += kSecondsBetweenReports;
    }
  }
  Report(done, SecondsSince(start));
  std::printf("all clean: seeds %llu … %llu; largest error as a part of its bound:\n%s",
              static_cast<unsigned long long>(arguments.first), static_cast<unsigned long long>(arguments.first + done - 1),
              ledger.Summary().c_str());
  return true;
}

}  // namespace
}  // namespace regard::test

int main(int argc, char** argv) {
  regard::test::Arguments arguments;
  if (!regard::test::ParseArguments(argc, argv, &arguments)) {
    std::fprintf(stderr, "usage: random_problems [--seconds S] [--count N] [--first SEED | --seed SEED]\n");
    return 2;
  }
  int no_arguments = 1;
  testing::InitGoogleTest(&no_arguments, argv);
  return regard::test::Run(arguments) ? 0 : 1;
}
