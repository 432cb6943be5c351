// What is computed from measurements. Nothing here asserts how long anything takes.
#include "measure/bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "measure/bench_json.h"
#include "measure/stage_ladder.h"
#include "regard/error.h"
#include "regard/info.h"

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

TEST(PeakFault, IsAPeakBelowOneVectorACycle) {
  Limits limits{.target = "AVX2", .lanes = 8, .clock = 3e9, .peak_flops = 48e9};
  EXPECT_EQ(PeakFault(limits), "") << "exactly one a cycle";
  limits.peak_flops = 0.975 * 48e9;
  EXPECT_EQ(PeakFault(limits), "");
  limits.peak_flops = 0.96 * 48e9;
  EXPECT_NE(PeakFault(limits).find("46.1 GFLOP/s is below 0.97 × 2 × 8 lanes × 3.00 GHz = 46.6"), std::string::npos)
      << PeakFault(limits);
  limits.peak_flops = 96e9;
  EXPECT_EQ(limits.FmasPerCycle(), 2);
}

TEST(RateFault, IsArithmeticBeyondThePeak) {
  BenchRow row;
  row.unit = "GFLOP/s";
  row.percent_of_limit = 99.9;
  EXPECT_EQ(RateFault(row), "");
  row.percent_of_limit = 100.5;
  EXPECT_NE(RateFault(row).find("100.5 %"), std::string::npos);
  row.unit = "GB/s";
  EXPECT_EQ(RateFault(row), "") << "a cache may give more than memory";
}

TEST(Limits, OfATargetThatDoesNotRunAreAnError) {
  try {
    MeasureLimits("AVX99");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

TEST(Limits, StopWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  const auto code_of = [](const auto& measure) {
    try {
      measure();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code_of([&] { MeasureLimits("", stop.get_token()); }), ErrorCode::kCancelled);
  EXPECT_EQ(code_of([&] { MeasureReadBandwidth("", 1, stop.get_token()); }), ErrorCode::kCancelled);
}

BenchCase Tiny(const char* name, bool causal) {
  BenchCase c;
  c.name = name;
  c.heads = c.kv_heads = 2;
  c.q_len = c.kv_len = 80;
  c.dim = 8;
  c.causal = causal;
  c.exec = {.isa = Targets().back().name, .threads = 1};
  return c;
}

TEST(Bench, RunsACaseAndComparesItWithItsBaseline) {
  Bench bench({.min_seconds = 0, .min_samples = 3});
  const BenchRow full = bench.Run(Tiny("full", false));
  EXPECT_TRUE(full.verification.passed()) << full.verification.fault;
  EXPECT_EQ(full.verification.rows, 24);
  EXPECT_EQ(full.unit, "GFLOP/s");
  EXPECT_EQ(full.target, bench.LimitsOf(Targets().back().name).target);
  EXPECT_NEAR(full.rate * 1e9 * full.median_seconds, 4.0 * 2 * 80 * 80 * 8, 1);
  EXPECT_FALSE(full.ratio.has_value());
  BenchCase causal = Tiny("causal", true);
  causal.baseline = "full";
  const BenchRow row = bench.Run(causal);
  ASSERT_TRUE(row.ratio.has_value());
  EXPECT_NEAR(*row.ratio, row.median_seconds / (80 * 81 / 2) / (full.median_seconds / (80 * 80)), 1e-9 * *row.ratio);
}

TEST(Bench, StopsWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  Bench bench({.min_seconds = 0, .min_samples = 1}, stop.get_token());
  try {
    bench.Run(Tiny("full", false));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
}

TEST(Json, HasTheKeysThatTheDocumentationPromises) {
  BenchRow good;
  good.name = "prefill/T2048/d64/full";
  good.options = "8 heads";
  good.target = "AVX3";
  good.verification.rows = 24;
  good.timing = {.cpu = {0.079, 0.080, 0.081}, .wall = {0.081, 0.082, 0.083}, .samples = 12};
  good.median_seconds = 0.080;
  good.unit = "GFLOP/s";
  good.rate = 107;
  good.percent_of_limit = 91;
  BenchRow wrong = good;
  wrong.verification.fault = "lse is off";
  const nlohmann::json object =
      nlohmann::json::parse(ToJson({.cpu = "some CPU"}, {.target = "AVX3", .lanes = 16}, {good, wrong}));
  EXPECT_EQ(object.size(), 2u);
  EXPECT_EQ(object["machine"]["cpu"], "some CPU");
  for (const char* key : {"target", "lanes", "clock_ghz", "peak_gflops", "fmas_per_cycle", "read_gbs", "logical_cpus",
                          "huge_pages", "regard", "compiler", "blas"}) {
    EXPECT_TRUE(object["machine"].contains(key)) << key;
  }
  const nlohmann::json& row = object["rows"][0];
  EXPECT_EQ(row["case"], "prefill/T2048/d64/full");
  EXPECT_EQ(row["dtype"], "f32");
  EXPECT_EQ(row["options"], "8 heads");
  EXPECT_EQ(row["target"], "AVX3");
  EXPECT_EQ(row["threads"], 1);
  EXPECT_EQ(row["median_s"], 0.080);
  EXPECT_EQ(row["rate"], 107);
  EXPECT_EQ(row["unit"], "GFLOP/s");
  EXPECT_EQ(row["percent_of_limit"], 91);
  EXPECT_EQ(row["clock"], "cpu");
  EXPECT_EQ(row["quartiles_s"], nlohmann::json::array({0.079, 0.081}));
  EXPECT_EQ(row["wall_median_s"], 0.082);
  EXPECT_EQ(row["samples"], 12);
  EXPECT_EQ(row["verified"], true);
  EXPECT_EQ(row["verified_rows"], 24);
  EXPECT_TRUE(row["baseline"].is_null());
  EXPECT_TRUE(row["ratio_to_baseline"].is_null());
  EXPECT_TRUE(row["fault"].is_null());
  EXPECT_EQ(row.size(), 18u);
  const nlohmann::json& failed = object["rows"][1];
  EXPECT_EQ(failed["verified"], false);
  EXPECT_EQ(failed["fault"], "lse is off");
  for (const char* key : {"median_s", "rate", "percent_of_limit"}) EXPECT_TRUE(failed[key].is_null()) << key;
}

LadderRung Rung(std::int64_t tokens, double loops, double product) {
  LadderRung rung;
  rung.tokens = tokens;
  rung.loops.median_seconds = loops;
  rung.product.median_seconds = product;
  return rung;
}

TEST(Crossover, IsWhereTheFasterStaysFaster) {
  const auto crossover = [](const std::vector<LadderRung>& rungs) {
    return Crossover(rungs, &LadderRung::loops, &LadderRung::product);
  };
  EXPECT_EQ(crossover({Rung(6, 1, 2), Rung(16, 3, 2), Rung(32, 9, 4)}), 16);
  EXPECT_EQ(crossover({Rung(6, 3, 2), Rung(16, 3, 4), Rung(32, 9, 4)}), 32) << "an early lead that is lost does not count";
  EXPECT_EQ(crossover({Rung(6, 3, 2), Rung(16, 3, 4)}), std::nullopt);
  EXPECT_EQ(crossover({Rung(6, 3, 2)}), 6);
}

TEST(Ladder, VerifiesAndTimesAllThreeWays) {
  Bench bench({.min_seconds = 0, .min_samples = 1});
  int seen = 0;
  const std::vector<LadderRung> rungs =
      MeasureLadder(bench, "", {.min_seconds = 0, .min_samples = 1}, 16, [&seen](const LadderRung&) { ++seen; });
  ASSERT_EQ(rungs.size(), 2u);
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(rungs[1].tokens, 16);
  for (const BenchRow* row : {&rungs[1].loops, &rungs[1].product, &rungs[1].fused}) {
    EXPECT_TRUE(row->verification.passed()) << row->name << ": " << row->verification.fault;
    EXPECT_EQ(row->verification.rows, 16);
    EXPECT_GT(row->median_seconds, 0);
  }
  EXPECT_EQ(rungs[0].loops.name, "stages/T6/loops");
}

}  // namespace
}  // namespace regard::measure
