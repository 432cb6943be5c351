// Times here are made up. Nothing asserts how long anything takes.
#include "measure/timing.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace regard::measure {
namespace {

TEST(Quartiles, AreThoseOfTheSortedSamples) {
  const Quartiles q = QuartilesOf({9, 1, 5, 3, 7});
  EXPECT_EQ(q.low, 3);
  EXPECT_EQ(q.median, 5);
  EXPECT_EQ(q.high, 7);
  const Quartiles even = QuartilesOf({4, 1, 2, 3});
  EXPECT_EQ(even.low, 1.75);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.high, 3.25);
  EXPECT_EQ(QuartilesOf({2}).high, 2);
  EXPECT_EQ(QuartilesOf({}).median, 0);
}

TEST(TimeCalls, TakesTheSamplesItWasAskedFor) {
  int calls = 0;
  const Timing timing = TimeCalls([&calls] { ++calls; }, {.min_seconds = 0, .min_samples = 7});
  EXPECT_EQ(timing.samples, 7);
  EXPECT_GT(calls, 7) << "a short call is timed several at once";
  EXPECT_GT(timing.wall.median, 0);
  EXPECT_LE(timing.wall.low, timing.wall.high);
}

TEST(TimeCalls, StopsWhenTimeIsUp) {
  int calls = 0;
  EXPECT_EQ(TimeCalls([&calls] { ++calls; }, {.min_seconds = 1e9, .min_samples = 7, .max_seconds = 0}).samples, 1);
}

// Clocks that calls advance themselves.
double now;
constexpr Clocks kMadeUp{.cpu = [] { return 0.5 * now; }, .wall = [] { return now; }};

TEST(TimeCalls, GoesOnUntilBothMinimaAreMet) {
  now = 0;
  const auto call = [] { now += 0.01; };
  EXPECT_EQ(TimeCalls(call, {.min_seconds = 0.095, .min_samples = 3, .clocks = kMadeUp}).samples, 10);
  EXPECT_EQ(TimeCalls(call, {.min_seconds = 0.01, .min_samples = 7, .clocks = kMadeUp}).samples, 7);
  const Timing timing = TimeCalls(call, {.min_seconds = 1, .min_samples = 7, .max_seconds = 0.025, .clocks = kMadeUp});
  EXPECT_EQ(timing.samples, 3);
  EXPECT_NEAR(timing.wall.median, 0.01, 1e-12);
  EXPECT_NEAR(timing.cpu.median, 0.005, 1e-12);
}

TEST(TimeCalls, WarmsOnceAndTimesShortCallsSeveralAtOnce) {
  int calls = 0;
  now = 0;
  TimeCalls([&] { ++calls, now += 0.01; }, {.min_seconds = 0, .min_samples = 4, .clocks = kMadeUp});
  EXPECT_EQ(calls, 1 + 4);
  const Timing timing = TimeCalls([] { now += 1e-6; }, {.min_seconds = 1e-3, .min_samples = 1, .clocks = kMadeUp});
  EXPECT_LE(timing.samples, 10) << "of 0.1 ms at least";
  EXPECT_NEAR(timing.wall.median, 1e-6, 1e-9);
}

// Which of two calls was made when: "bccbcc…" are a baseline's and the other's.
struct InTurn {
  Comparison comparison;
  std::string calls;
};
InTurn Compare(double baseline_seconds, double call_seconds, const TimingOptions& options) {
  InTurn result;
  now = 0;
  result.comparison = TimeInTurn([&] { result.calls += 'b', now += baseline_seconds; },
                                 [&] { result.calls += 'c', now += call_seconds; }, options);
  return result;
}

TEST(TimeInTurn, CallsBothAlternately) {
  const InTurn equal = Compare(0.02, 0.03, {.min_seconds = 0, .min_samples = 3, .clocks = kMadeUp});
  EXPECT_EQ(equal.calls, "bcbcbcbc") << "once to warm, then in turn";
  EXPECT_EQ(equal.comparison.timing.samples, 3);
  EXPECT_NEAR(equal.comparison.wall_ratio, 1.5, 1e-9);
  EXPECT_NEAR(equal.comparison.cpu_ratio, 1.5, 1e-9);
  EXPECT_NEAR(equal.comparison.timing.cpu.median, 0.015, 1e-9);
  const InTurn short_calls = Compare(0.004, 0.006, {.min_seconds = 0, .min_samples = 2, .clocks = kMadeUp});
  EXPECT_EQ(short_calls.calls, "bcbbbccbbbcc") << "a turn is 10 ms";
}

TEST(TimeInTurn, GoesOnUntilBothMinimaAreMet) {
  const InTurn by_seconds = Compare(0.02, 0.1, {.min_seconds = 0.29, .min_samples = 1, .clocks = kMadeUp});
  EXPECT_EQ(by_seconds.comparison.timing.samples, 5) << "of 0.12 s each, baseline and call";
  const InTurn by_samples = Compare(0.02, 0.1, {.min_seconds = 0.01, .min_samples = 6, .clocks = kMadeUp});
  EXPECT_EQ(by_samples.comparison.timing.samples, 6);
  const InTurn out_of_time = Compare(0.02, 0.1, {.min_seconds = 9, .min_samples = 6, .max_seconds = 0.1, .clocks = kMadeUp});
  EXPECT_EQ(out_of_time.comparison.timing.samples, 2);
}

TEST(TimeInTurn, GivesAShortCallMoreThanOneSampleBesideALongOne) {
  const InTurn compared = Compare(0.125, 8, {.min_seconds = 0, .min_samples = 1, .clocks = kMadeUp});
  EXPECT_EQ(compared.calls, "bc" + std::string(8, 'b') + "c") << "an eighth of 8 s";
  EXPECT_NEAR(compared.comparison.wall_ratio, 64, 1e-9);
}

// A machine that is half as fast from the middle on, and stumbles now and then. Most samples of the baseline are from before, most of the
// other call's from after: the quotient of their medians is 2.5.
TEST(TimeInTurn, TheRatioIsThatOfNeighbours) {
  now = 0;
  int calls = 0;
  const auto take = [&calls](double seconds) {
    ++calls;
    const bool stumbles = calls % 7 == 0;
    now += seconds * (calls <= 13 ? 1 : 2) * (stumbles ? 5 : 1);
  };
  const Comparison comparison =
      TimeInTurn([&] { take(0.02); }, [&] { take(0.025); }, {.min_seconds = 0, .min_samples = 11, .clocks = kMadeUp});
  EXPECT_EQ(calls, 2 + 22);
  EXPECT_NEAR(comparison.wall_ratio, 1.25, 1e-9);
}

}  // namespace
}  // namespace regard::measure
