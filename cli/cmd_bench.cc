// regard bench: this machine's limits, and what part of them attention reaches. docs/bench.md tells how to read it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cli/blas_threads.h"
#include "cli/commands.h"
#include "measure/bench.h"
#include "measure/bench_json.h"
#include "measure/cases.h"
#include "measure/stage_ladder.h"
#include "regard/error.h"
#include "report/text.h"

namespace regard::cli {
namespace {

using measure::BenchCase;
using measure::BenchRow;
using measure::LadderRung;
using report::PadLeft;
using report::PadRight;
using report::ShowSeconds;

// A row is timed for so long, and its baseline with it: short enough for the promised 3 minutes and 30 seconds, long enough for a median.
constexpr measure::TimingOptions kDefaultTiming{.min_seconds = 0.4, .min_samples = 4},
    kQuickTiming{.min_seconds = 0.25, .min_samples = 3};
// Loops over 4,096 tokens take seconds a call.
constexpr measure::TimingOptions kLadderTiming{.min_seconds = 0.1, .min_samples = 3};
constexpr std::int64_t kLadderTokens = 4096, kQuickLadderTokens = 1024;
constexpr int kMaxThreads = 1024;
// Beyond this wall and CPU time differ by more than their own spread.
constexpr double kNotedWallExcess = 0.05;

std::string ShowLimits(const measure::Machine& machine, const measure::Limits& limits) {
  return fmt::format(
      "{}, {} logical CPUs; regard {}, {}, {}\n"
      "one thread, {}: {:.2f} GHz; multiply-add peak {:.1f} GFLOP/s ({:.2f} vectors of {} a cycle){}, best of {}; reads {:.1f} "
      "GB/s (1 GiB, huge pages: {})\n\n",
      machine.cpu, machine.logical_cpus, machine.version, machine.compiler, machine.blas, limits.target, limits.clock * 1e-9,
      limits.peak_flops * 1e-9, limits.FmasPerCycle(), limits.lanes,
      limits.bf16_peak_flops > 0 ? fmt::format(", of bf16 {:.1f}", limits.bf16_peak_flops * 1e-9) : "", measure::kPeakRuns,
      limits.read_bandwidth * 1e-9, machine.huge_pages);
}

// ------------------------------------------------------------------------------------------------------------ the table

// Rows are printed as they come, so widths are known beforehand.
class Table {
 public:
  explicit Table(const std::vector<BenchCase>& cases) {
    for (const BenchCase& c : cases) {
      widths_[0] = std::max(widths_[0], report::DisplayWidth(c.name));
      widths_[2] = std::max(widths_[2], report::DisplayWidth(c.Options()));
    }
  }

  std::string Heading() const {
    return Line({"case", "dtype", "options", "target", "thr", "median", "quartiles", "rate", "limit", "ratio", ""});
  }

  std::string Row(const BenchRow& row) const {
    Cells cells = {row.name, std::string(Name(row.dtype)), row.options, row.target, std::to_string(row.threads)};
    if (row.verification.passed()) {
      cells[5] = ShowSeconds(row.median_seconds);
      cells[6] = Spread(row);
      cells[7] = fmt::format("{:.1f} {}", row.rate, row.unit);
      cells[8] = fmt::format("{:.1f} %", row.percent_of_limit);
      if (row.ratio) cells[9] = fmt::format("{:.2f}", *row.ratio);
      if (row.WallExcess() > kNotedWallExcess) cells[10] = fmt::format("wall +{:.0f} %", 100 * row.WallExcess());
      if (!row.fault.empty()) cells[10] = "NOT BELIEVABLE";
    } else {
      cells[10] = "WRONG, not timed";
    }
    return Line(cells);
  }

 private:
  static constexpr int kColumns = 11, kFirstNumber = 4, kLastNumber = 9;  // numbers stand at the right
  using Cells = std::array<std::string, kColumns>;

  // "−0.4 +1.1 %", around the median.
  static std::string Spread(const BenchRow& row) {
    const measure::Quartiles q = row.quartiles();
    return fmt::format("−{:.1f} +{:.1f} %", 100 * (1 - q.low / q.median), 100 * (q.high / q.median - 1));
  }

  std::string Line(const Cells& cells) const {
    std::string line;
    for (int i = 0; i < kColumns; ++i) {
      const bool number = kFirstNumber <= i && i <= kLastNumber;
      line += number ? PadLeft(cells[i], widths_[i]) : PadRight(cells[i], widths_[i]);
      if (i + 1 < kColumns) line += "  ";
    }
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }

  std::array<int, kColumns> widths_ = {4, 5, 7, 6, 3, 7, 13, 14, 6, 5, 0};
};

// What is wrong with a row.
void NoteFaults(const BenchRow& row, Streams& streams) {
  if (!row.verification.passed()) {
    streams.Note(fmt::format("{}: failed verification: {}", row.name, row.verification.fault));
  } else if (!row.fault.empty()) {
    streams.Note(fmt::format("{}: {}", row.name, row.fault));
  }
}

constexpr std::string_view kLegend =
    "\n"
    "median  CPU time of the one thread, wall time of several; \"wall +9 %\" says by how much others on the core drew out the "
    "run\n"
    "rate    4·dim FLOP for each head and each query with a key it sees; decode: bytes of keys, values, queries and context;\n"
    "        append: bytes of keys and values, read and written\n"
    "limit   part of the multiply-add peak of as many threads, of bf16 where the target has one; decode, append: of their "
    "read bandwidth\n"
    "ratio   time for each visible pair against the case without the last word of the name (T131072: against T8192), the two\n"
    "        timed in turn, and so not the quotient of two rows' medians, which are of different minutes\n"
    "Before a case was timed, sampled rows of its result were checked against the reference path.\n";

ExitStatus StatusOf(const std::vector<BenchRow>& rows, Streams& streams) {
  const auto wrong = std::ranges::count_if(rows, [](const BenchRow& row) { return !row.verification.passed(); });
  if (wrong > 0) {
    streams.Fail(fmt::format("{} of {} cases failed verification and were not timed; please report it with this table", wrong,
                             rows.size()));
    return ExitStatus::kPathsDisagree;
  }
  const auto unbelievable = std::ranges::count_if(rows, [](const BenchRow& row) { return !row.fault.empty(); });
  if (unbelievable == 0) return ExitStatus::kDone;
  streams.Fail(fmt::format("{} of {} rows cannot be believed; run again when the machine is idle", unbelievable, rows.size()));
  return ExitStatus::kFailed;
}

std::vector<BenchCase> CasesOf(const Options& options) {
  std::vector<BenchCase> cases = measure::SelectCases(
      {.quick = options.quick, .name_part = options.bench_case, .isa = options.exec.isa, .threads = options.exec.threads});
  if (cases.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--case: no case has \"{}\" in its name; try prefill, decode, append, causal or summaries",
                            options.bench_case));
  }
  return cases;
}

std::vector<BenchRow> RunTable(const Options& options, const std::vector<BenchCase>& cases, measure::Bench& bench,
                               Streams& streams) {
  const Table table(cases);
  if (!options.json) streams.Print(table.Heading());
  std::vector<BenchRow> rows;
  for (const BenchCase& c : cases) {
    streams.Progress(static_cast<double>(rows.size()) / static_cast<double>(cases.size()));
    const BlasThreads blas(c.exec.threads);
    rows.push_back(bench.Run(c));
    if (!options.json) {
      streams.Print(table.Row(rows.back()));
      streams.Flush();  // rows appear as they are measured
    }
    NoteFaults(rows.back(), streams);
  }
  if (!options.json) streams.Print(kLegend);
  return rows;
}

// ----------------------------------------------------------------------------------------------------------- the ladder

std::string ShowRung(const LadderRung& rung) {
  const auto cell = [](const BenchRow& row) {
    if (!row.verification.passed()) return PadLeft("WRONG", 20);
    return PadLeft(fmt::format("{} {:>6.2f}", ShowSeconds(row.median_seconds), row.rate), 20);
  };
  const auto times = [](const BenchRow& slow, const BenchRow& fast) {
    return fast.median_seconds > 0 && slow.median_seconds > 0 ? fmt::format("{:.1f}×", slow.median_seconds / fast.median_seconds)
                                                              : "";
  };
  return PadLeft(report::ShowCount(rung.tokens), 8) + cell(rung.loops) + cell(rung.product) + cell(rung.fused) +
         PadLeft(times(rung.loops, rung.product), 12) + PadLeft(times(rung.product, rung.fused), 12) + "\n";
}

std::string ShowCrossover(std::string_view faster, std::string_view slower, std::optional<std::int64_t> tokens) {
  return tokens ? fmt::format("{} is faster than {} from {} tokens on\n", faster, slower, report::ShowCount(*tokens))
                : fmt::format("{} is not faster than {} at any length measured\n", faster, slower);
}

std::vector<BenchRow> RunLadder(const Options& options, measure::Bench& bench, Streams& streams) {
  const BlasThreads blas(1);
  if (!options.json) {
    streams.Print(fmt::format("attention of one head, dim {}, f32, one thread: time and GFLOP/s\n{}{}{}{}{}{}\n",
                              measure::kLadderDim, PadLeft("tokens", 8), PadLeft("loops", 20), PadLeft("one product", 20),
                              PadLeft("fused", 20), PadLeft("loops/prod.", 12), PadLeft("prod./fused", 12)));
    streams.Flush();
  }
  std::vector<BenchRow> rows;
  const std::vector<LadderRung> rungs = measure::MeasureLadder(
      bench, options.exec.isa, kLadderTiming, options.quick ? kQuickLadderTokens : kLadderTokens, [&](const LadderRung& rung) {
        if (!options.json) {
          streams.Print(ShowRung(rung));
          streams.Flush();
        }
        for (const BenchRow* row : {&rung.loops, &rung.product, &rung.fused}) {
          rows.push_back(*row);
          NoteFaults(*row, streams);
        }
      });
  if (!options.json) {
    streams.Print(fmt::format(
        "\n{}{}{}", ShowCrossover("one product", "loops", measure::Crossover(rungs, &LadderRung::loops, &LadderRung::product)),
        ShowCrossover("fused", "loops", measure::Crossover(rungs, &LadderRung::loops, &LadderRung::fused)),
        ShowCrossover("fused", "one product", measure::Crossover(rungs, &LadderRung::product, &LadderRung::fused))));
  }
  return rows;
}

}  // namespace

ExitStatus BenchCommand(const Options& options, Streams& streams) {
  if (options.exec.threads < 0 || options.exec.threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("--threads: {}; use 0…{}", options.exec.threads, kMaxThreads));
  }
  if (options.stages && (options.exec.threads > 1 || !options.bench_case.empty())) {
    throw UsageError("--stages: has one thread and its own cases; leave out --threads and --case");
  }
  const std::vector<BenchCase> cases = options.stages ? std::vector<BenchCase>() : CasesOf(options);
  measure::Bench bench(options.quick ? kQuickTiming : kDefaultTiming, options.exec.stop_token);
  const measure::Machine machine = measure::DescribeMachine();
  const measure::Limits& limits = bench.LimitsOf(options.exec.isa);
  if (!limits.fault.empty()) throw Error(ErrorCode::kInternal, limits.fault);
  if (!options.json) {
    streams.Print(ShowLimits(machine, limits));
    streams.Flush();
  }
  const std::vector<BenchRow> rows =
      options.stages ? RunLadder(options, bench, streams) : RunTable(options, cases, bench, streams);
  if (options.json) streams.Print(measure::ToJson(machine, limits, rows));
  return StatusOf(rows, streams);
}

}  // namespace regard::cli
