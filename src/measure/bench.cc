#include "measure/bench.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <optional>

#include "attention/fused.h"
#include "core/copy.h"
#include "core/stop.h"
#include "measure/append_run.h"
#include "measure/backward_question.h"
#include "measure/weights_question.h"
#include "regard/error.h"

namespace regard::measure {
namespace {

// What a run leaves out must not be found right by chance, or left over from another run.
void FillWithNan(const TensorView& view) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Dims none = [&view] {
    Dims strides;
    for (int axis = 0; axis < view.rank(); ++axis) strides.push_back(0);
    return strides;
  }();
  internal::CopyElements(View(&nan, view.shape(), none),
                         MutableTensorView(const_cast<void*>(view.data()), view.dtype(), view.shape(), view.strides()));
}

}  // namespace

std::string RateFault(const BenchRow& row) {
  if (row.unit != "GFLOP/s" || row.percent_of_limit <= 100) return "";
  return fmt::format("{:.1f} % of the peak, more than the machine can do; run again when it is idle", row.percent_of_limit);
}

const Limits& Bench::LimitsOf(const std::string& isa) {
  const auto found = limits_.find(isa);
  return found != limits_.end() ? found->second : limits_.emplace(isa, MeasureLimits(isa, stop_)).first->second;
}

double Bench::ReadBandwidth(const std::string& isa, int threads) {
  if (threads == 1) return LimitsOf(isa).read_bandwidth;
  double& bandwidth = bandwidths_[{isa, threads}];
  if (bandwidth == 0) bandwidth = MeasureReadBandwidth(isa, threads, stop_);
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

  if (bench_case.appends) {
    AppendRun append(bench_case);
    row.verification = append.Verify();
    Time([&] { append.Run(); }, bench_case, {0, append.bytes(), static_cast<double>(bench_case.q_len * bench_case.sequences)},
         &row);
    return row;
  }
  Workload work(bench_case);
  internal::ThrowIfStopped(stop_);
  ExecOptions exec = bench_case.exec;
  exec.stop_token = stop_;
  std::optional<Plan> plan;
  Workspace workspace;
  std::function<void()> run;
  std::optional<BackwardRun> backward;
  if (bench_case.backward) {
    backward.emplace(work, exec);
    run = [&] { backward->Run(); };
    run();
    row.verification = backward->Verify();
  } else if (bench_case.asked == Asked::kNothing) {
    plan.emplace(work.shape(), work.params(), exec);
    workspace = plan->MakeWorkspace();
    run = [&] { plan->Run(work.inputs(), work.outputs(), workspace).ThrowIfFailed(); };
    FillWithNan(work.context());
    FillWithNan(work.lse());
    run();
    row.verification = VerifyRows(work, work.context(), work.lse(), internal::WeightRounding(work.shape(), exec.isa),
                                  internal::IntegerRoundingOf(work.shape(), exec.isa));
    if (row.verification.passed() && work.empty_rows() != 0)
      row.verification.fault = fmt::format("{} empty rows, 0 expected", work.empty_rows());
  } else {
    run = [&] { AskOnce(work, exec); };
    row.verification = VerifyAnswers(work, Answers(work, exec));
  }
  Time(run, bench_case,
       {work.flops(), work.bytes(), static_cast<double>(bench_case.heads) * static_cast<double>(work.visible_pairs())}, &row);
  return row;
}

void Bench::Time(const std::function<void()>& run, const BenchCase& bench_case, const Work& work, BenchRow* row) {
  if (!row->verification.passed()) return;
  row->timing = TimeCalls(run, timing_);
  row->median_seconds = row->quartiles().median;
  Rate(bench_case, work, row);
  seconds_per_pair_[row->name] = row->median_seconds / work.pairs;
  if (const auto baseline = seconds_per_pair_.find(row->baseline); baseline != seconds_per_pair_.end()) {
    row->ratio = seconds_per_pair_[row->name] / baseline->second;
  }
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
