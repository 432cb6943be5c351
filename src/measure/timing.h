// Room measure: what this machine can do, and what part of it each case reaches. The only benchmark harness of the project.
//
// This header: how long one call takes.
//
// Two clocks run. Wall time is what a user waits; but on a machine that does anything else it measures the neighbours too, by factors.
// Thread CPU time leaves out every moment in which the thread was not on a core, so on one thread it is the time to compare with
// limits, which are taken by the same clock. With several threads the caller's CPU time says nothing about the others: wall time it is.
#pragma once

#include <functional>
#include <vector>

namespace regard::measure {

/// CPU time that the calling thread has used, in seconds.
double ThreadCpuSeconds();
/// A steady wall clock, in seconds.
double WallSeconds();

/// Lower quartile, median and upper quartile of samples, by linear interpolation between neighbours. All 0 without samples.
struct Quartiles {
  double low = 0, median = 0, high = 0;
};
Quartiles QuartilesOf(std::vector<double> samples);

/// Seconds of one call.
struct Timing {
  Quartiles cpu = {}, wall = {};
  int samples = 0;
};

struct TimingOptions {
  double min_seconds = 1;  // of wall time, for all samples together; a sample begun is finished
  int min_samples = 5;
  double max_seconds = 20;  // then no further sample is begun, whatever the minima say
};

/// Calls once to warm caches and page tables, then until both minima are met. Calls shorter than kMinSampleSeconds are timed several
/// at once, so that reading the clocks, some 300 ns, does not count.
inline constexpr double kMinSampleSeconds = 1e-4;
Timing TimeCalls(const std::function<void()>& call, const TimingOptions& options);

}  // namespace regard::measure
