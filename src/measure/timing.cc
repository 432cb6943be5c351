#include "measure/timing.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace regard::measure {
namespace {

// Once is enough to warm, and to see that one call is a sample.
constexpr double kLongCallSeconds = 1;

double Seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// How many calls make one sample. The warming call happens here.
int CallsPerSample(const std::function<void()>& call) {
  int calls = 1;
  const double warm_start = WallSeconds();
  call();
  if (WallSeconds() - warm_start >= kLongCallSeconds) return calls;
  while (true) {
    const double start = WallSeconds();
    for (int c = 0; c < calls; ++c) call();
    const double seconds = WallSeconds() - start;
    if (seconds >= kMinSampleSeconds) return calls;
    calls *= std::clamp(static_cast<int>(1.2 * kMinSampleSeconds / std::max(seconds, 1e-7)) + 1, 2, 100);
  }
}

}  // namespace

double ThreadCpuSeconds() { return Seconds(CLOCK_THREAD_CPUTIME_ID); }
double WallSeconds() { return Seconds(CLOCK_MONOTONIC); }

Quartiles QuartilesOf(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&samples](double fraction) {
    const double position = fraction * static_cast<double>(samples.size() - 1);
    const std::size_t below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return std::lerp(samples[below], samples[above], position - static_cast<double>(below));
  };
  return {at(0.25), at(0.5), at(0.75)};
}

Timing TimeCalls(const std::function<void()>& call, const TimingOptions& options) {
  const int calls = CallsPerSample(call);
  std::vector<double> cpu, wall;
  double total = 0;
  while (wall.empty() ||
         (total < options.max_seconds && (total < options.min_seconds || static_cast<int>(wall.size()) < options.min_samples))) {
    const double cpu_start = ThreadCpuSeconds(), wall_start = WallSeconds();
    for (int c = 0; c < calls; ++c) call();
    const double cpu_end = ThreadCpuSeconds(), wall_end = WallSeconds();
    cpu.push_back((cpu_end - cpu_start) / calls);
    wall.push_back((wall_end - wall_start) / calls);
    total += wall_end - wall_start;
  }
  Timing timing;
  timing.samples = static_cast<int>(wall.size());
  timing.cpu = QuartilesOf(std::move(cpu));
  timing.wall = QuartilesOf(std::move(wall));
  return timing;
}

}  // namespace regard::measure
