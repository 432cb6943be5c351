#include "measure/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>

#include "core/parallel_for.h"
#include "core/stop.h"
#include "kernels/kernels.h"
#include "measure/timing.h"
#include "regard/error.h"
#include "regard/info.h"
#include "regard/tensor.h"

namespace regard::measure {
namespace {

using internal::KernelTable;
using internal::ThrowIfStopped;

// 20 to 30 ms of multiply-adds with any vector length: long against the clock's resolution, short against a neighbour's time slice.
constexpr std::int64_t kPeakSteps = 4'000'000;

// 2^16 rounds of 64 one-cycle operations: about 1 ms.
constexpr int kClockRounds = 1 << 16;
constexpr int kOperationsPerRound = 64;

constexpr double kLeastPartOfPeak = 0.97;

const KernelTable& Kernels(const std::string& isa) {
  const KernelTable* kernels = internal::FindKernels(isa);
  if (kernels == nullptr) {
    throw Error(ErrorCode::kUnsupported, fmt::format("isa: \"{}\" does not run here; see `regard info`", isa));
  }
  return *kernels;
}

int LanesOf(std::string_view target) {
  if (target.starts_with("AVX3")) return 16;
  if (target == "AVX2") return 8;
  if (target == "SCALAR") return 1;
  return 4;  // SSE4, NEON, VSX
}

// Keeps a value out of the optimiser's hands: it must be in a register here, and may be anything afterwards.
template <typename T>
inline void Opaque(T& value) {
  asm volatile("" : "+r"(value));
}

std::string FirstLineValue(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

// "always [madvise] never" -> "madvise"
std::string HugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const std::size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? "unknown" : line.substr(open + 1, close - open - 1);
}

}  // namespace

// Each operation needs the one before, and adding or xoring two registers takes one cycle on every x86-64 and AArch64 core: they are no
// moves, zeroings or additions of constants, which some cores finish for free while renaming registers. What the loop itself costs
// runs beside the chain. So operations per second are cycles per second.
double MeasureClock() {
  double best = 0;
  for (int run = 0; run < kPeakRuns; ++run) {
    std::uint64_t x = 1, y = 0x9E3779B97F4A7C15u;
    Opaque(x);
    Opaque(y);
    const double start = ThreadCpuSeconds();
    for (int round = 0; round < kClockRounds; ++round) {
#pragma GCC unroll 64
      for (int i = 0; i < kOperationsPerRound / 2; ++i) {
        x += y;
        Opaque(x);
        x ^= y;
        Opaque(x);
      }
    }
    const double seconds = ThreadCpuSeconds() - start;
    best = std::max(best, static_cast<double>(kClockRounds) * kOperationsPerRound / seconds);
  }
  return best;
}

double MeasureReadBandwidth(const std::string& isa, int threads, const std::stop_token& stop) {
  const KernelTable& kernels = Kernels(isa);
  Tensor memory = Tensor::Uninitialized(DType::kU8, {static_cast<std::int64_t>(kReadBytes)});  // in huge pages, being large
  std::uint8_t* const data = memory.MutableAs<std::uint8_t>();
  for (std::size_t at = 0; at < kReadBytes; at += kReadBytes / 8) {  // untouched pages would all be one page of zeros
    ThrowIfStopped(stop);
    std::memset(data + at, 1, kReadBytes / 8);
  }
  const std::size_t part = kReadBytes / static_cast<std::size_t>(threads) / 64 * 64;
  double best = 0;
  for (int run = 0; run < kPeakRuns; ++run) {
    ThrowIfStopped(stop);
    const double cpu_start = ThreadCpuSeconds(), wall_start = WallSeconds();
    internal::ParallelFor(threads, threads, [&](std::int64_t task, int) {
      float sum = kernels.read_bytes(data + static_cast<std::size_t>(task) * part, part);
      asm volatile("" : : "m"(sum));
    });
    const double seconds = threads == 1 ? ThreadCpuSeconds() - cpu_start : WallSeconds() - wall_start;
    best = std::max(best, static_cast<double>(part) * threads / seconds);
  }
  return best;
}

Limits MeasureLimits(const std::string& isa, const std::stop_token& stop) {
  const KernelTable& kernels = Kernels(isa);
  Limits limits;
  limits.target = kernels.target;
  limits.lanes = LanesOf(limits.target);
  for (int run = 0; run < kPeakRuns; ++run) {
    ThrowIfStopped(stop);
    const double start = ThreadCpuSeconds();
    float sum = kernels.peak_flops(kPeakSteps);
    asm volatile("" : : "m"(sum));
    const double seconds = ThreadCpuSeconds() - start;
    limits.peak_flops = std::max(limits.peak_flops, static_cast<double>(kPeakSteps * kernels.peak_flops_per_step) / seconds);
    if (kernels.peak_bf16_flops != nullptr) {
      const double bf16_start = ThreadCpuSeconds();
      float bf16_sum = kernels.peak_bf16_flops(kPeakSteps);
      asm volatile("" : : "m"(bf16_sum));
      const double flops = static_cast<double>(kPeakSteps * kernels.peak_bf16_flops_per_step);
      limits.bf16_peak_flops = std::max(limits.bf16_peak_flops, flops / (ThreadCpuSeconds() - bf16_start));
    }
    // Beside each run and not once: cores that lower their clock for wide vectors take a while to raise it again.
    limits.clock = std::max(limits.clock, MeasureClock());
  }
  limits.read_bandwidth = MeasureReadBandwidth(isa, 1, stop);
  limits.fault = PeakFault(limits);
  return limits;
}

std::string PeakFault(const Limits& limits) {
  const double least = kLeastPartOfPeak * 2 * limits.lanes * limits.clock;
  if (limits.peak_flops >= least) return "";
  return fmt::format(
      "peak: {:.1f} GFLOP/s is below {:.2f} × 2 × {} lanes × {:.2f} GHz = {:.1f}; something else uses this core, run again when "
      "it is idle",
      limits.peak_flops * 1e-9, kLeastPartOfPeak, limits.lanes, limits.clock * 1e-9, least * 1e-9);
}

Machine DescribeMachine() {
  Machine machine;
  machine.cpu = FirstLineValue("/proc/cpuinfo", "model name");
  if (machine.cpu.empty()) machine.cpu = "unknown";
  machine.logical_cpus = static_cast<int>(std::thread::hardware_concurrency());
  machine.huge_pages = HugePages();
  machine.blas = BlasDescription();
  machine.version = Version();
  machine.compiler =
#if defined(__clang__)
      "clang " __clang_version__;
#else
      "GCC " __VERSION__;
#endif
  return machine;
}

}  // namespace regard::measure
