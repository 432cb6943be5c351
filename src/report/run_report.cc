#include "report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attention/fused.h"
#include "regard/stages.h"
#include "report/stage_words.h"
#include "report/text.h"

namespace regard::report {
namespace {

// Multiplications spent on facts and agreement: a few tenths of a second, since the reference takes some nanoseconds for each.
constexpr std::int64_t kMaxWork = std::int64_t{1} << 25;

// Starting threads for a small problem takes longer than the problem.
constexpr std::int64_t kWorkForThreads = std::int64_t{1} << 20;

ExecOptions WithPath(const ExecOptions& exec, Path path) {
  ExecOptions other = exec;
  other.path = path;
  other.on_progress = {};
  return other;
}

Dims StageShape(const PlanShape& s) { return {s.batch, s.heads, s.q_len, s.kv_len}; }

StageFacts Facts(const io::Problem& problem, const char* name, const std::string& how, const Tensor& values) {
  const PlanShape& s = problem.shape;
  const Dims full = std::string(name) == "context" ? Dims{s.batch, s.heads, s.q_len, s.v_dim} : StageShape(s);
  StageFacts facts;
  facts.name = name;
  facts.shape = problem.FileShape(name, full);
  facts.how = how;
  facts.range = RangeOf(values);
  return facts;
}

// Facts of q, k or v that were projected. Range of everything, head by head.
StageFacts ProjectedFacts(const io::Problem& problem, char name, const TensorView& tensor) {
  StageFacts facts;
  facts.name = std::string(1, name);
  facts.shape = problem.FileShape(facts.name, tensor.shape());
  facts.how = HowProjected(problem, name);
  for (std::int64_t b = 0; b < tensor.dim(0); ++b) {
    for (std::int64_t h = 0; h < tensor.dim(1); ++h) {
      facts.range.Add(RangeOf(Tensor::CopyOf(tensor.Select(0, b).Select(0, h), DType::kF64)));
    }
  }
  return facts;
}

void AddSquare(const io::Problem& problem, const Tensor& values, const Tensor& masked_scores, const RowSample& sample,
               StageFacts* facts) {
  if (problem.shape.q_len == problem.shape.kv_len && problem.shape.q_len > 1)
    facts->square = SquareFactsOf(values, masked_scores, sample);
}

std::vector<StageFacts> FactsOfStages(const io::Problem& problem, const RowSample& sample, const RowStages& values,
                                      const std::string& how_weights) {
  std::vector<StageFacts> stages;
  if (problem.HasProjections()) {
    stages.push_back(ProjectedFacts(problem, 'q', problem.q));
    stages.push_back(ProjectedFacts(problem, 'k', problem.k));
    stages.push_back(ProjectedFacts(problem, 'v', problem.v));
  }
  const bool masks = values.masked_scores && HasMaskingRules(problem);
  const Tensor& masked = masks ? values.masked_scores : Tensor();
  if (values.scores) {
    stages.push_back(Facts(problem, "scores", HowScores(problem), values.scores));
    AddSquare(problem, values.scores, {}, sample, &stages.back());
  }
  if (values.capped && problem.params.soft_cap > 0) stages.push_back(Facts(problem, "capped", HowCapped(problem), values.capped));
  if (masks) stages.push_back(Facts(problem, "masked_scores", HowMasked(problem), values.masked_scores));
  stages.push_back(Facts(problem, "weights", how_weights, values.weights));
  AddSquare(problem, values.weights, masked, sample, &stages.back());
  stages.back().sums = SumsOf(values.weights, sample);
  stages.push_back(Facts(problem, "context", HowContext(problem), values.context));
  return stages;
}

ScoreTiming TimeFirstHead(const io::Problem& problem) {
  return TimeScores(problem.q.Select(0, 0).Select(0, 0), problem.k.Select(0, 0).Select(0, 0), problem.scale);
}

bool CanBeTimed(const PlanShape& s) { return s.batch > 0 && s.q_len > 0 && s.kv_len > 0 && s.head_dim > 0; }

// One head of each, f64 or f32.
Tensor HeadAs(const TensorView& tensor, std::int64_t b, std::int64_t h, DType type) {
  return Tensor::CopyOf(tensor.Select(0, b).Select(0, h), type);
}

// Writes a head's matrix into its place of a whole [batch, heads, …].
void PutHead(const Tensor& head, std::int64_t index, Tensor* whole) {
  const std::size_t bytes = static_cast<std::size_t>(head.num_elements()) * ItemSize(head.dtype());
  auto* to = static_cast<std::byte*>(whole->mutable_view().mutable_data()) + static_cast<std::size_t>(index) * bytes;
  std::copy_n(static_cast<const std::byte*>(head.view().data()), bytes, to);
}

RowSample AllRows(const PlanShape& shape) { return SampleRows(shape, std::numeric_limits<std::int64_t>::max()); }

Tensor FlatRows(const Tensor& whole) {
  return Tensor::CopyOf(whole.view().Reshape({whole.dim(0) * whole.dim(1) * whole.dim(2), whole.dim(3)}), DType::kF64);
}

double LargestMagnitude(const TensorView& tensor) {
  const Range range = RangeOf(Tensor::CopyOf(tensor, DType::kF64));
  return std::max(std::fabs(range.smallest), std::fabs(range.largest));
}

// What f32 may change a weight by, relatively, whichever axis is summed: twice the largest error of a score (its own and its
// sum's), see agreement.h.
double WeightErrorBound(const io::Problem& problem, const Tensor& scores) {
  const double dim = static_cast<double>(problem.shape.head_dim);
  const double products = dim * LargestMagnitude(problem.q) * LargestMagnitude(problem.k) * std::fabs(problem.scale);
  return 2 * 0x1p-24 *
         ((dim + 16) * products + 16 * LargestMagnitude(scores) + static_cast<double>(scores.dim(2) + scores.dim(3)));
}

// The largest |x| among finite ones of an f64 tensor; 0 when there is none.
double LargestFinite(const Tensor& tensor) {
  const double* values = tensor.As<double>();
  double largest = 0;
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (std::isfinite(values[i])) largest = std::max(largest, std::fabs(values[i]));
  }
  return largest;
}

}  // namespace

Call CallOf(const io::Problem& problem) {
  Call call{problem.q, problem.k, problem.v, problem.params};
  call.params.scale = problem.scale;
  return call;
}

int ThreadsFor(const PlanShape& s, int stated) {
  const double work = static_cast<double>(s.batch * s.heads) * static_cast<double>(s.q_len) * static_cast<double>(s.kv_len) *
                      static_cast<double>(s.head_dim + s.v_dim);
  return stated == 0 && work < static_cast<double>(kWorkForThreads) ? 1 : stated;
}

bool IsSmall(const io::Problem& problem) { return problem.shape.q_len <= kSmall && problem.shape.kv_len <= kSmall; }

RunReport MakeRunReport(const io::Problem& problem, const RunResult& result, const ExecOptions& exec) {
  RunReport report;
  report.description = result.description;
  report.path = result.path;
  report.empty_rows = result.empty_rows;
  report.sample = SampleRows(problem.shape, kMaxWork);
  const Call call = CallOf(problem);
  RowStages reference = ComputeRows(call, report.sample, WithPath(exec, Path::kReference));
  RowStages staged = ComputeRows(call, report.sample, WithPath(exec, Path::kStaged));
  Tensor shown = GatherRows(result.context, report.sample);

  if (const double largest = LargestFinite(reference.scores); largest > std::numeric_limits<float>::max()) {
    report.remarks.push_back(
        fmt::format("scores reach {:.1e} in double and overflow f32, where 3.4e38 is the largest number: make q and k smaller, "
                    "or use --path reference",
                    largest));
  }
  report.agreement.sample = report.sample;
  const auto compare = [&](Path path) {
    const bool is_result = path == result.path;
    const Tensor computed =
        is_result || path == Path::kStaged ? Tensor() : ComputeRows(call, report.sample, WithPath(exec, path)).context;
    const Tensor& context = is_result ? shown : path == Path::kStaged ? staged.context : computed;
    const DType type = is_result ? result.context.dtype() : DType::kF32;
    const std::string rounded = type == DType::kF32 ? "" : fmt::format(", rounded to {}", Name(type));
    const double weight_rounding =
        path == Path::kFused ? internal::WeightRounding(PlanShape::Of(call.q, call.k, call.v), exec.isa) : 0;
    report.agreement.paths.push_back(
        CompareRows(Name(path) + rounded, call, report.sample, reference, context, type, weight_rounding));
  };
  compare(Path::kFused);
  compare(Path::kStaged);

  report.values = std::move(result.path == Path::kReference ? reference : staged);
  report.values.context = std::move(shown);
  report.stages = FactsOfStages(problem, report.sample, report.values, HowWeights(problem));
  if (CanBeTimed(problem.shape)) report.timing = TimeFirstHead(problem);
  return report;
}

RunReport MakeThirdStageReport(const io::Problem& problem, const RunResult& result) {
  RunReport report;
  report.description = result.description;
  report.path = result.path;
  report.sample = SampleRows(problem.shape, kMaxWork);
  report.values.weights = GatherRows(problem.weights, report.sample);
  report.values.context = GatherRows(result.context, report.sample);
  report.stages = FactsOfStages(problem, report.sample, report.values, "given");
  report.agreement.sample = report.sample;
  const std::int64_t group_size = problem.shape.heads / std::max<std::int64_t>(1, problem.v.dim(1));
  report.agreement.paths.push_back(CompareThirdStage(Name(result.path), report.values.weights, problem.v, group_size,
                                                     report.sample, report.values.context, result.context.dtype()));
  return report;
}

OtherAxisRun RunAlongAxis(const io::Problem& problem, int axis, Path path) {
  const PlanShape& s = problem.shape;
  const DType type = path == Path::kReference ? DType::kF64 : DType::kF32;
  OtherAxisRun run{Tensor(type, StageShape(s)), {}, Tensor(type, {s.batch, s.heads, s.q_len, s.v_dim})};
  const auto head_of = [&](std::int64_t n) { return std::pair{n / s.heads, n % s.heads}; };
  const std::int64_t group_size = s.heads / s.kv_heads;
  for (std::int64_t n = 0; n < s.batch * s.heads; ++n) {
    const auto [b, h] = head_of(n);
    const Tensor q = HeadAs(problem.q, b, h, type), k = HeadAs(problem.k, b, h / group_size, type);
    PutHead(path == Path::kReference ? ScoresByLoops(q, k, {.scale = problem.scale}) : Scores(q, k, {.scale = problem.scale}), n,
            &run.scores);
  }
  const Dims file_shape = problem.FileShape("scores", StageShape(s));
  run.weights = Softmax(run.scores.view().Reshape(file_shape), axis);
  run.weights = Tensor::CopyOf(run.weights.view().Reshape(StageShape(s)));
  for (std::int64_t n = 0; n < s.batch * s.heads; ++n) {
    const auto [b, h] = head_of(n);
    PutHead(Context(run.weights.view().Select(0, b).Select(0, h), HeadAs(problem.v, b, h / group_size, type)), n, &run.context);
  }
  return run;
}

RunReport MakeOtherAxisReport(const io::Problem& problem, const OtherAxisRun& run, int axis, Path path) {
  RunReport report;
  report.path = path;
  report.dim = axis;
  report.description = fmt::format("{}, softmax along axis {} of the scores", Name(path), axis);
  report.sample = AllRows(problem.shape);
  report.values.scores = FlatRows(run.scores);
  report.values.weights = FlatRows(run.weights);
  report.values.context = FlatRows(run.context);
  const int rank = problem.FileShape("scores", StageShape(problem.shape)).size();
  const bool over_queries = axis == rank - 2;
  report.stages = FactsOfStages(problem, report.sample, report.values,
                                fmt::format("softmax of scores along axis {}{}", axis, over_queries ? ", over queries" : ""));
  for (StageFacts& stage : report.stages) {
    if (!stage.sums) continue;
    report.remarks.push_back(fmt::format("{}rows sum to {}: these are not attention weights, whose rows sum to 1",
                                         over_queries ? fmt::format("columns sum to {}, ", Show(*stage.sums->columns)) : "",
                                         Show(stage.sums->rows)));
  }
  report.agreement.sample = report.sample;
  const OtherAxisRun reference = RunAlongAxis(problem, axis, Path::kReference);
  const OtherAxisRun staged =
      path == Path::kStaged ? OtherAxisRun{{}, {}, run.context} : RunAlongAxis(problem, axis, Path::kStaged);
  const std::int64_t group_size = problem.shape.heads / problem.shape.kv_heads;
  report.agreement.paths.push_back(CompareThirdStage("staged", FlatRows(reference.weights), problem.v, group_size, report.sample,
                                                     FlatRows(staged.context), DType::kF32,
                                                     WeightErrorBound(problem, reference.scores)));
  if (CanBeTimed(problem.shape)) report.timing = TimeFirstHead(problem);
  return report;
}

}  // namespace regard::report
