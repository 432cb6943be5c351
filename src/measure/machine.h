// What the machine can do, measured in the process that is compared with it: the clock, the multiply-add peak, the read bandwidth.
//
//     const Limits limits = MeasureLimits("");
//     if (!limits.fault.empty()) ...   // the measurement cannot be believed
//     limits.peak_flops                // FLOP/s of one thread
//
// A percentage is honest only against a limit of the same minute: clocks, neighbours and page sizes change both sides alike.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string>

namespace regard::measure {

/// One thread's limits on one instruction set. All rates are per second.
struct Limits {
  std::string target = {};     // "AVX3"
  int lanes = 0;               // f32 numbers a vector
  double clock = 0;            // Hz, right after the peak loop
  double peak_flops = 0;       // f32 multiply-adds in registers, an add and a multiplication counted as two
  double bf16_peak_flops = 0;  // bf16 dot products in registers, of the target that computes with them; 0 elsewhere
  double read_bandwidth = 0;   // bytes, ascending, out of kReadBytes in huge pages
  std::string fault = {};      // why the numbers cannot be believed; empty when they can

  double FmasPerCycle() const { return clock > 0 && lanes > 0 ? peak_flops / (2 * lanes * clock) : 0; }
};

/// More than any cache, and enough that the first-touched pages of one run do not decide.
inline constexpr std::size_t kReadBytes = std::size_t{1} << 30;
/// The best of so many runs counts: whatever disturbs a loop makes it slower, never faster.
inline constexpr int kPeakRuns = 5;

/// `isa` as ExecOptions has it. Throws Error kUnsupported when it does not run here; kOutOfMemory; kCancelled.
Limits MeasureLimits(const std::string& isa, const std::stop_token& stop = {});

/// Bytes per second that `threads` threads read together, each its own part of kReadBytes; the best of kPeakRuns, wall time for more than
/// one thread.
double MeasureReadBandwidth(const std::string& isa, int threads, const std::stop_token& stop = {});

/// Hz, by a chain of dependent one-cycle operations.
double MeasureClock();

/// Why a peak cannot be what the machine can do; empty when it can. Every core with vectors finishes at least one multiply-add a cycle, so
/// a peak below 0.97 · 2 · lanes · clock was disturbed, or its loop miscompiled.
std::string PeakFault(const Limits& limits);

/// What a result must carry to be compared: the machine and the build.
struct Machine {
  std::string cpu = {};  // the processor's own name
  int logical_cpus = 0;
  std::string huge_pages = {};  // transparent huge pages: "always", "madvise", "never", "unknown"
  std::string blas = {};
  std::string version = {};  // regard's
  std::string compiler = {};
};
Machine DescribeMachine();

}  // namespace regard::measure
