// Runs cases: verifies, then times, and puts the rate beside the limit. What has a baseline is timed in turn with it.
//
//     Bench bench({.min_seconds = 1});
//     for (const BenchCase& c : SelectCases({.quick = true})) {  // a baseline comes before what is compared with it
//       const BenchRow row = bench.Run(c);
//       ... row.name, row.timing, row.rate, row.percent_of_limit
//     }
//
// Not thread-safe, and nothing else should run meanwhile.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "measure/cases.h"
#include "measure/machine.h"
#include "measure/prepared_case.h"
#include "measure/timing.h"
#include "measure/verify.h"

namespace regard::measure {

struct BenchRow {
  std::string name, options;
  DType dtype = DType::kF32;
  std::string target;  // of the kernels; "BLAS" on the staged path, "-" for loops
  int threads = 1;
  Verification verification;
  Timing timing;                // nothing when verification failed
  double median_seconds = 0;    // of the clock that counts: CPU time with one thread, else wall time
  double rate = 0;              // in `unit`
  std::string unit;             // "GFLOP/s", or "GB/s" where reading keys and values is the limit
  double percent_of_limit = 0;  // the rate against the limit of as many threads
  /// Time for each visible pair, or token appended, against the baseline's, the two timed in turn: not the quotient of two rows' medians,
  /// which are of different minutes. By the clock of both if each has one thread, else by wall time. Above 1 is slower. Nothing when the
  /// baseline was not run or one of the two failed verification.
  std::optional<double> ratio;
  std::string baseline;
  std::string fault;  // why the row cannot be believed; empty when it can

  const Quartiles& quartiles() const { return threads == 1 ? timing.cpu : timing.wall; }
  /// By how much wall time exceeds CPU time on one thread, as a part: others used the core meanwhile. 0 with several threads.
  double WallExcess() const { return threads == 1 && timing.cpu.median > 0 ? timing.wall.median / timing.cpu.median - 1 : 0; }
};

/// Arithmetic beyond the peak does not exist: above 100 % the limit or the time is wrong. Reading may go faster than memory where a cache
/// kept something from the run before. Empty when the row can be believed.
std::string RateFault(const BenchRow& row);

/// What a bench is made of; tests bring their own.
struct BenchParts {
  std::function<PreparedCase(const BenchCase&, const std::stop_token&)> prepare = PrepareCase;
  std::function<Limits(const std::string& isa, const std::stop_token&)> measure_limits = MeasureLimits;
  std::function<double(const std::string& isa, int threads, const std::stop_token&)> measure_read_bandwidth =
      MeasureReadBandwidth;
};

class Bench {
 public:
  explicit Bench(const TimingOptions& timing, std::stop_token stop = {}, BenchParts parts = {})
      : timing_(timing), stop_(std::move(stop)), parts_(std::move(parts)) {}

  /// One thread's limits on a target, measured when first asked for.
  const Limits& LimitsOf(const std::string& isa);

  /// A row that fails verification is not timed. The case is compared with its baseline if that was run before, and passed. At most the two
  /// are in memory, and stay there until the next run: a baseline is prepared once for what follows it without a gap. Throws Error:
  /// kOutOfMemory, kCancelled, kUnsupported.
  BenchRow Run(const BenchCase& bench_case);

 private:
  /// Drops all but the case of this name, and prepares that anew where needed; nothing when it cannot be a baseline.
  const PreparedCase* KeepOnly(const std::string& name);
  void Time(const PreparedCase& prepared, const PreparedCase* baseline, BenchRow* row);
  // Bytes per second that so many threads read together.
  double ReadBandwidth(const std::string& isa, int threads);
  /// Whether a case multiplies bf16 numbers as such: its limit is another.
  bool UsesBf16Dots(const BenchCase& bench_case);
  void Rate(const BenchCase& bench_case, const Work& work, BenchRow* row);

  TimingOptions timing_;
  std::stop_token stop_;
  BenchParts parts_;
  std::map<std::string, Limits> limits_;
  std::map<std::pair<std::string, int>, double> bandwidths_;
  std::map<std::string, BenchCase> passed_;       // by name
  std::map<std::string, PreparedCase> prepared_;  // by name; two at most
};

}  // namespace regard::measure
