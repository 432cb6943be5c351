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

/// What time is read from; tests have their own.
struct Clocks {
  double (*cpu)() = ThreadCpuSeconds;
  double (*wall)() = WallSeconds;
};

struct TimingOptions {
  double min_seconds = 1;  // of wall time, for all samples of a call together; a sample begun is finished
  int min_samples = 5;
  double max_seconds = 20;  // then no further sample is begun, whatever the minima say
  Clocks clocks = {};
};

/// Calls once to warm caches and page tables, then until both minima are met. Calls shorter than kMinSampleSeconds are timed several
/// at once, so that reading the clocks, some 300 ns, does not count.
inline constexpr double kMinSampleSeconds = 1e-4;
Timing TimeCalls(const std::function<void()>& call, const TimingOptions& options);

/// A call, and how long it takes for each second of another one.
struct Comparison {
  Timing timing;
  double cpu_ratio = 0, wall_ratio = 0;
};

/// Calls both in turn — baseline, call, baseline, call, … — so that both meet the same clock rate, the same neighbours and the same memory:
/// minutes apart these differ by 10 % and more, which no number of samples makes good. Goes on for min_samples turns and until the samples
/// of both together last twice min_seconds; max_seconds counts twice as well.
///
/// A turn lasts kTurnSeconds, so that few of its samples pay for what the other call has put into the caches; and an eighth of the longer
/// call, so that a short one beside a long one is more than one sample. The ratio is the median over the turns of (median of the call's
/// samples) / (median of the baseline's, just before). The quotient of the medians of all samples would be off when the machine changes
/// its pace midway, with one median from before and the other from after; a pair of neighbours sees that change in one turn at most.
inline constexpr double kTurnSeconds = 1e-2;
Comparison TimeInTurn(const std::function<void()>& baseline, const std::function<void()>& call, const TimingOptions& options);

}  // namespace regard::measure
