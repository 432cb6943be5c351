// What is computed from measurements. Nothing here asserts how long anything takes.
#include "measure/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "measure/bench_json.h"
#include "measure/stage_ladder.h"
#include "regard/error.h"
#include "regard/info.h"

namespace regard::measure {
namespace {

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

TEST(Bench, VerifiesACaseTimesItAndComparesItWithItsBaseline) {
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
  EXPECT_NEAR(row.rate * 1e9 * row.median_seconds, 4.0 * 2 * (80 * 81 / 2) * 8, 1);
  EXPECT_EQ(row.baseline, "full");
  ASSERT_TRUE(row.ratio.has_value());
  EXPECT_GT(*row.ratio, 0);
}

// What cases are made of when the time they take is made up: they take so long for each visible pair, on a machine whose pace drifts.
class BenchInTurn : public testing::Test {
 protected:
  static constexpr double kPairs = 1000;

  BenchInTurn() {
    cpu_ = wall_ = 0;
    pace_ = 1;
    in_memory_ = most_in_memory_ = 0;
  }

  BenchCase Case(const std::string& name, const std::string& baseline = "", int threads = 1) {
    BenchCase c = Tiny(name.c_str(), false);
    c.baseline = baseline;
    c.exec.threads = threads;
    return c;
  }

  Bench MakeBench() {
    return Bench({.min_seconds = 0.1, .min_samples = 3, .clocks = {.cpu = [] { return cpu_; }, .wall = [] { return wall_; }}}, {},
                 {.prepare = [this](const BenchCase& c, const std::stop_token&) { return Prepare(c); },
                  .measure_limits =
                      [](const std::string& isa, const std::stop_token&) {
                        return Limits{.target = isa, .lanes = 1, .clock = 1e9, .peak_flops = 2e9, .read_bandwidth = 1e9};
                      }});
  }

  PreparedCase Prepare(const BenchCase& c) {
    prepared_.push_back(c.name);
    most_in_memory_ = std::max(most_in_memory_, ++in_memory_);
    const std::shared_ptr<void> data(nullptr, [](void*) { --in_memory_; });
    const double cpu = cpu_seconds_.at(c.name), wall = wall_seconds_.at(c.name);
    return {.bench_case = c,
            .work = {.flops = 1, .bytes = 1, .pairs = pairs_.contains(c.name) ? pairs_[c.name] : kPairs},
            .call =
                [this, data, cpu, wall] {
                  cpu_ += pace_ * cpu;
                  wall_ += pace_ * wall;
                  pace_ *= 1.001;
                },
            .verify =
                [this, data, c] {
                  Verification result;
                  if (wrong_.contains(c.name)) result.fault = "wrong";
                  return result;
                }};
  }

  static inline double cpu_, wall_, pace_;
  static inline int in_memory_, most_in_memory_;
  std::map<std::string, double> cpu_seconds_, wall_seconds_, pairs_;
  std::set<std::string> wrong_;
  std::vector<std::string> prepared_;
};

TEST_F(BenchInTurn, TheRatioIsOfNeighboursWhateverThePaceOfTheirMinute) {
  cpu_seconds_ = {{"plain", 0.010}, {"mask", 0.012}};
  wall_seconds_ = {{"plain", 0.010}, {"mask", 0.050}};  // others used the core during mask only
  pairs_["mask"] = 0.8 * kPairs;
  Bench bench = MakeBench();
  EXPECT_EQ(bench.Run(Case("plain")).ratio, std::nullopt);
  pace_ = 3;
  const BenchRow mask = bench.Run(Case("mask", "plain"));
  ASSERT_TRUE(mask.ratio.has_value());
  EXPECT_NEAR(*mask.ratio, 1.2 / 0.8, 0.002);
  EXPECT_GT(mask.median_seconds, 0.036) << "the row has its own time";
}

TEST_F(BenchInTurn, SeveralThreadsAreComparedByWallTime) {
  cpu_seconds_ = {{"one", 0.010}, {"two", 0.001}};
  wall_seconds_ = {{"one", 0.011}, {"two", 0.006}};
  Bench bench = MakeBench();
  bench.Run(Case("one"));
  const BenchRow two = bench.Run(Case("two", "one", 2));
  ASSERT_TRUE(two.ratio.has_value());
  EXPECT_NEAR(*two.ratio, 6.0 / 11, 0.001);
}

TEST_F(BenchInTurn, WhatIsWrongHasNoRatioAndGivesNone) {
  cpu_seconds_ = wall_seconds_ = {{"plain", 0.01}, {"mask", 0.01}, {"mask/causal", 0.01}, {"bias", 0.01}, {"sinks", 0.01}};
  wrong_ = {"mask"};
  Bench bench = MakeBench();
  bench.Run(Case("plain"));
  const BenchRow mask = bench.Run(Case("mask", "plain")), causal = bench.Run(Case("mask/causal", "mask"));
  EXPECT_FALSE(mask.verification.passed());
  EXPECT_EQ(mask.ratio, std::nullopt);
  EXPECT_EQ(mask.timing.samples, 0);
  EXPECT_TRUE(causal.verification.passed());
  EXPECT_EQ(causal.ratio, std::nullopt) << "its baseline is wrong";
  EXPECT_GE(causal.timing.samples, 3) << "which is no reason not to time it";
  EXPECT_EQ(bench.Run(Case("sinks", "never run")).ratio, std::nullopt);
  EXPECT_TRUE(bench.Run(Case("bias", "plain")).ratio.has_value());
}

TEST_F(BenchInTurn, ABaselineIsPreparedOnceForThoseThatFollowItAndTwoCasesAreTheMost) {
  for (const char* name : {"f32", "f16", "bf16", "bf16/paged", "bf16/bshd", "other", "f32/mask"}) cpu_seconds_[name] = 0.01;
  wall_seconds_ = cpu_seconds_;
  Bench bench = MakeBench();
  bench.Run(Case("f32"));
  bench.Run(Case("f16", "f32"));
  bench.Run(Case("bf16", "f32"));
  bench.Run(Case("bf16/paged", "bf16"));
  bench.Run(Case("bf16/bshd", "bf16"));
  EXPECT_EQ(prepared_, (std::vector<std::string>{"f32", "f16", "bf16", "bf16/paged", "bf16/bshd"}));
  EXPECT_EQ(most_in_memory_, 2);
  bench.Run(Case("other"));
  EXPECT_EQ(in_memory_, 1);
  prepared_.clear();
  EXPECT_TRUE(bench.Run(Case("f32/mask", "f32")).ratio.has_value());
  EXPECT_EQ(prepared_, (std::vector<std::string>{"f32", "f32/mask"})) << "anew";
  EXPECT_EQ(most_in_memory_, 2);
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
