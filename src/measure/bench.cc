#include "measure/bench.h"

#include <fmt/format.h>

#include <algorithm>

namespace regard::measure {

std::string RateFault(const BenchRow& row) {
  if (row.unit != "GFLOP/s" || row.percent_of_limit <= 100) return "";
  return fmt::format("{:.1f} % of the peak, more than the machine can do; run again when it is idle", row.percent_of_limit);
}

const Limits& Bench::LimitsOf(const std::string& isa) {
  const auto found = limits_.find(isa);
  return found != limits_.end() ? found->second : limits_.emplace(isa, parts_.measure_limits(isa, stop_)).first->second;
}

double Bench::ReadBandwidth(const std::string& isa, int threads) {
  if (threads == 1) return LimitsOf(isa).read_bandwidth;
  double& bandwidth = bandwidths_[{isa, threads}];
  // What one thread can read several can: less is somebody else's doing.
  if (bandwidth == 0) bandwidth = std::max(parts_.measure_read_bandwidth(isa, threads, stop_), LimitsOf(isa).read_bandwidth);
  return bandwidth;
}

BenchRow Bench::Run(const BenchCase& bench_case) {
  BenchRow row;
  row.name = bench_case.name;
  row.options = bench_case.Options();
  row.dtype = bench_case.dtype;
  row.threads = bench_case.exec.threads;
  row.baseline = bench_case.baseline;
  row.target = bench_case.exec.path == Path::kFused    ? LimitsOf(bench_case.exec.isa).target
               : bench_case.exec.path == Path::kStaged ? "BLAS"
                                                       : "-";

  const PreparedCase* const baseline = KeepOnly(bench_case.baseline);
  const PreparedCase& prepared = prepared_.emplace(bench_case.name, parts_.prepare(bench_case, stop_)).first->second;
  row.verification = prepared.verify();
  if (!row.verification.passed()) return row;
  passed_.insert_or_assign(bench_case.name, bench_case);
  Time(prepared, baseline, &row);
  Rate(bench_case, prepared.work, &row);
  return row;
}

const PreparedCase* Bench::KeepOnly(const std::string& name) {
  std::erase_if(prepared_, [&name](const auto& entry) { return entry.first != name; });
  const auto passed = passed_.find(name);
  if (passed == passed_.end()) return nullptr;
  if (prepared_.empty()) prepared_.emplace(name, parts_.prepare(passed->second, stop_));
  return &prepared_.begin()->second;
}

void Bench::Time(const PreparedCase& prepared, const PreparedCase* baseline, BenchRow* row) {
  if (baseline == nullptr) {
    row->timing = TimeCalls(prepared.call, timing_);
  } else {
    const Comparison comparison = TimeInTurn(baseline->call, prepared.call, timing_);
    row->timing = comparison.timing;
    const bool one_thread = row->threads == 1 && baseline->bench_case.exec.threads == 1;
    row->ratio = (one_thread ? comparison.cpu_ratio : comparison.wall_ratio) * baseline->work.pairs / prepared.work.pairs;
  }
  row->median_seconds = row->quartiles().median;
}

bool Bench::UsesBf16Dots(const BenchCase& bench_case) {
  return bench_case.dtype == DType::kBF16 && bench_case.exec.path == Path::kFused && !bench_case.IsDecode() &&
         !bench_case.backward && LimitsOf(bench_case.exec.isa).bf16_peak_flops > 0;
}

void Bench::Rate(const BenchCase& bench_case, const Work& work, BenchRow* row) {
  const Limits& limits = LimitsOf(bench_case.exec.isa);
  if (bench_case.IsBoundByMemory()) {
    row->unit = "GB/s";
    row->rate = work.bytes / row->median_seconds * 1e-9;
    row->percent_of_limit = 100 * work.bytes / row->median_seconds / ReadBandwidth(bench_case.exec.isa, row->threads);
    return;
  }
  row->unit = "GFLOP/s";
  row->rate = work.flops / row->median_seconds * 1e-9;
  const double peak = UsesBf16Dots(bench_case) ? limits.bf16_peak_flops : limits.peak_flops;
  row->percent_of_limit = 100 * work.flops / row->median_seconds / (peak * row->threads);
  row->fault = RateFault(*row);
}

}  // namespace regard::measure
