#include "measure/prepared_case.h"

#include <fmt/format.h>

#include <limits>
#include <memory>

#include "attention/fused.h"
#include "core/copy.h"
#include "core/stop.h"
#include "measure/append_run.h"
#include "measure/backward_question.h"
#include "measure/weights_question.h"
#include "measure/workload.h"

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

Work WorkOf(const Workload& data) {
  return {data.flops(), data.bytes(), static_cast<double>(data.bench_case().heads) * static_cast<double>(data.visible_pairs())};
}

PreparedCase PrepareAppend(const BenchCase& c) {
  const auto append = std::make_shared<AppendRun>(c);
  return {.bench_case = c,
          .work = {0, append->bytes(), static_cast<double>(c.q_len * c.sequences)},
          .call = [append] { append->Run(); },
          .verify = [append] { return append->Verify(); }};
}

PreparedCase PrepareBackward(const BenchCase& c, const ExecOptions& exec) {
  const auto data = std::make_shared<Workload>(c);
  const auto backward = std::make_shared<BackwardRun>(*data, exec);
  return {.bench_case = c,
          .work = WorkOf(*data),
          .call = [data, backward] { backward->Run(); },
          .verify =
              [data, backward] {
                backward->Run();
                return backward->Verify();
              }};
}

PreparedCase PrepareQuestion(const BenchCase& c, const ExecOptions& exec) {
  const auto data = std::make_shared<Workload>(c);
  return {.bench_case = c,
          .work = WorkOf(*data),
          .call = [data, exec] { AskOnce(*data, exec); },
          .verify = [data, exec] { return VerifyAnswers(*data, Answers(*data, exec)); }};
}

struct PlannedRun {
  PlannedRun(const BenchCase& c, const ExecOptions& exec)
      : data(c), plan(data.shape(), data.params(), exec), workspace(plan.MakeWorkspace()) {}

  void Run() { plan.Run(data.inputs(), data.outputs(), workspace).ThrowIfFailed(); }

  Verification Verify() {
    FillWithNan(data.context());
    FillWithNan(data.lse());
    Run();
    const std::string& isa = data.bench_case().exec.isa;
    Verification result = VerifyRows(data, data.context(), data.lse(), internal::WeightRounding(data.shape(), isa),
                                     internal::IntegerRoundingOf(data.shape(), isa));
    if (result.passed() && data.empty_rows() != 0) result.fault = fmt::format("{} empty rows, 0 expected", data.empty_rows());
    return result;
  }

  Workload data;
  Plan plan;
  Workspace workspace;
};

PreparedCase PreparePlanned(const BenchCase& c, const ExecOptions& exec) {
  const auto run = std::make_shared<PlannedRun>(c, exec);
  return {.bench_case = c, .work = WorkOf(run->data), .call = [run] { run->Run(); }, .verify = [run] { return run->Verify(); }};
}

}  // namespace

PreparedCase PrepareCase(const BenchCase& bench_case, const std::stop_token& stop) {
  internal::ThrowIfStopped(stop);
  ExecOptions exec = bench_case.exec;
  exec.stop_token = stop;
  if (bench_case.appends) return PrepareAppend(bench_case);
  if (bench_case.backward) return PrepareBackward(bench_case, exec);
  if (bench_case.asked != Asked::kNothing) return PrepareQuestion(bench_case, exec);
  return PreparePlanned(bench_case, exec);
}

}  // namespace regard::measure
