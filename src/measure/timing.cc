#include "measure/timing.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace regard::measure {
namespace {

// Once is enough to warm, and to see that one call is a sample: those after it take less, but not ten times less.
constexpr double kLongCallSeconds = 10 * kMinSampleSeconds;

double Seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One call's samples.
class Sampler {
 public:
  Sampler(const std::function<void()>& call, const Clocks& clocks) : call_(call), clocks_(clocks) { Warm(); }

  /// Samples for so long, one at least; the medians of these.
  struct Medians {
    double cpu, wall;
  };
  Medians Take(double seconds) {
    const std::size_t first = wall_.size();
    const double start = total_;
    do {
      TakeOne();
    } while (total_ - start < seconds);
    const auto median_from = [first](const std::vector<double>& samples) {
      return QuartilesOf({samples.begin() + static_cast<std::ptrdiff_t>(first), samples.end()}).median;
    };
    return {median_from(cpu_), median_from(wall_)};
  }

  double total() const { return total_; }                // seconds of all samples
  double call_seconds() const { return call_seconds_; }  // roughly, and too much when others disturbed it
  int size() const { return static_cast<int>(wall_.size()); }
  Timing timing() const { return {.cpu = QuartilesOf(cpu_), .wall = QuartilesOf(wall_), .samples = size()}; }

 private:
  // Finds how many calls make one sample.
  void Warm() {
    const double warm_start = clocks_.wall();
    call_();
    call_seconds_ = clocks_.wall() - warm_start;
    if (call_seconds_ >= kLongCallSeconds) return;
    while (true) {
      const double start = clocks_.wall();
      for (int c = 0; c < calls_; ++c) call_();
      const double seconds = clocks_.wall() - start;
      call_seconds_ = seconds / calls_;
      if (seconds >= kMinSampleSeconds) return;
      calls_ *= std::clamp(static_cast<int>(1.2 * kMinSampleSeconds / std::max(seconds, 1e-7)) + 1, 2, 100);
    }
  }

  void TakeOne() {
    const double cpu_start = clocks_.cpu(), wall_start = clocks_.wall();
    for (int c = 0; c < calls_; ++c) call_();
    const double cpu_end = clocks_.cpu(), wall_end = clocks_.wall();
    cpu_.push_back((cpu_end - cpu_start) / calls_);
    wall_.push_back((wall_end - wall_start) / calls_);
    total_ += wall_end - wall_start;
  }

  const std::function<void()>& call_;
  Clocks clocks_;
  int calls_ = 1;  // a sample
  double call_seconds_ = 0, total_ = 0;
  std::vector<double> cpu_, wall_;
};

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
  Sampler sampler(call, options.clocks);
  do {
    sampler.Take(0);
  } while (sampler.total() < options.max_seconds &&
           (sampler.total() < options.min_seconds || sampler.size() < options.min_samples));
  return sampler.timing();
}

Comparison TimeInTurn(const std::function<void()>& baseline, const std::function<void()>& call, const TimingOptions& options) {
  Sampler first(baseline, options.clocks), second(call, options.clocks);
  const double turn_seconds = std::max({kTurnSeconds, first.call_seconds() / 8, second.call_seconds() / 8});
  std::vector<double> cpu_ratios, wall_ratios;
  do {
    const Sampler::Medians before = first.Take(turn_seconds), after = second.Take(turn_seconds);
    cpu_ratios.push_back(after.cpu / before.cpu);
    wall_ratios.push_back(after.wall / before.wall);
  } while (
      first.total() + second.total() < 2 * options.max_seconds &&
      (first.total() + second.total() < 2 * options.min_seconds || static_cast<int>(wall_ratios.size()) < options.min_samples));
  return {second.timing(), QuartilesOf(std::move(cpu_ratios)).median, QuartilesOf(std::move(wall_ratios)).median};
}

}  // namespace regard::measure
