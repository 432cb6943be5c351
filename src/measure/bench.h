// Runs cases: verifies, then times, and puts the rate beside the limit.
//
//     Bench bench({.min_seconds = 1});
//     for (const BenchCase& c : SelectCases({.quick = true})) {
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
  /// Time for each visible pair, or token appended, against the baseline's. Above 1 is slower.
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

class Bench {
 public:
  explicit Bench(const TimingOptions& timing, std::stop_token stop = {}) : timing_(timing), stop_(std::move(stop)) {}

  /// One thread's limits on a target, measured when first asked for.
  const Limits& LimitsOf(const std::string& isa);

  /// A row that fails verification is not timed. Throws Error: kOutOfMemory, kCancelled, kUnsupported.
  BenchRow Run(const BenchCase& bench_case);

 private:
  // Of one call.
  struct Work {
    double flops, bytes;
    double pairs;  // of a query and a key that it sees; tokens appended
  };
  // Nothing when verification failed.
  void Time(const std::function<void()>& run, const BenchCase& bench_case, const Work& work, BenchRow* row);
  // Bytes per second that so many threads read together.
  double ReadBandwidth(const std::string& isa, int threads);
  /// Whether a case multiplies bf16 numbers as such: its limit is another, and so is what its weights are rounded to.
  bool UsesBf16Dots(const BenchCase& bench_case);
  void Rate(const BenchCase& bench_case, const Work& work, BenchRow* row);

  TimingOptions timing_;
  std::stop_token stop_;
  std::map<std::string, Limits> limits_;
  std::map<std::pair<std::string, int>, double> bandwidths_;
  std::map<std::string, double> seconds_per_pair_;  // by name
};

}  // namespace regard::measure
