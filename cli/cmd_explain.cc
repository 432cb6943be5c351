// regard explain: chosen query rows in numbers. Only these rows are computed.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/max_memory.h"
#include "report/explanation.h"
#include "report/matrix_table.h"
#include "report/run_report.h"
#include "report/stage_words.h"
#include "report/text.h"

namespace regard::cli {
namespace {

// One head and sequence unless others are asked for: an explanation is a page long.
std::vector<std::int64_t> FirstUnlessChosen(const io::Selection& selection, std::int64_t size) {
  return selection.all() ? std::vector<std::int64_t>(size > 0 ? 1 : 0, 0) : selection.Indices(size);
}

// "1 journey"
std::string Label(std::int64_t index, const io::Tokens& tokens, std::int64_t batch) {
  return tokens ? fmt::format("{} {}", index, report::ShowToken(tokens.At(batch, index))) : std::to_string(index);
}

report::ExplanationLabels LabelsOf(const io::Problem& problem, const report::RowIndex& row, int max_width) {
  report::ExplanationLabels labels;
  labels.max_width = max_width;
  labels.q = report::QueryName(problem);
  labels.k = report::KeyName(problem);
  labels.v = report::ValueName(problem);
  labels.query_label = Label(row.query, problem.q_tokens, row.batch);
  std::vector<std::string> tokens;
  if (problem.k_tokens) {
    for (std::int64_t j = 0; j < problem.shape.kv_len; ++j) tokens.push_back(problem.k_tokens.At(row.batch, j));
  }
  labels.key_labels = report::NumberedLabels(problem.shape.kv_len, tokens);
  labels.name_head = problem.shape.batch * problem.shape.heads > 1;
  if (problem.HasProjections() && problem.projections.w_query) {
    labels.q_origin = fmt::format("w_query · inputs[{}]{}", row.query, problem.projections.b_query ? " + b_query" : "");
  }
  return labels;
}

std::vector<report::RowIndex> ChosenRows(const Options& options, const io::Problem& problem) {
  if (options.row.all()) throw UsageError("--row: missing; say which query, as in --row 1");
  const PlanShape& s = problem.shape;
  if (s.q_len == 0) throw Error(ErrorCode::kInvalidArgument, "--row: the problem has no queries; give one that has");
  std::vector<report::RowIndex> rows;
  for (const std::int64_t b : FirstUnlessChosen(options.batch, s.batch)) {
    for (const std::int64_t h : FirstUnlessChosen(options.head, s.heads)) {
      for (const std::int64_t i : options.row.Indices(s.q_len)) rows.push_back({b, h, i});
    }
  }
  return rows;
}

// The gradient of the loss by the context, [batch, heads, q_len, v_dim], or not given.
class ContextGradient {
 public:
  ContextGradient(const Options& options, const io::Problem& problem) {
    if (!options.grad || std::ranges::find(problem.observed, "d_context") == problem.observed.end()) return;
    const PlanShape& s = problem.shape;
    tensor_ = problem.ReadObserved("d_context");
    if (!IsFloat(tensor_.dtype()))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("d_context: element type {}; give a float type", Name(tensor_.dtype())));
    view_ = problem.FromFileShape("d_context", {s.batch, s.heads, s.q_len, s.v_dim}, tensor_);
  }

  /// Empty when not given.
  std::vector<double> Row(const report::RowIndex& row) const {
    std::vector<double> values;
    for (std::int64_t d = 0; view_ && d < view_.dim(3); ++d) values.push_back(view_(row.batch, row.head, row.query, d));
    return values;
  }

 private:
  Tensor tensor_;
  TensorView view_;
};

// Text is printed row by row; JSON is one object, for which all rows are held.
void CheckPrice(const Options& options, const PlanShape& shape, std::size_t rows) {
  const double columns = options.grad ? 12 : 7;
  constexpr double kJsonBytes = 24 + 30;  // of a number, as measured: parsed, and as text that is copied once
  const double held = options.json ? static_cast<double>(rows) : 1, key = sizeof(report::KeyTerm) +
                                                                          (options.grad ? sizeof(report::KeyGradient) : 0) +
                                                                          (options.json ? columns * kJsonBytes : 0);
  CheckMemory(options, held * static_cast<double>(shape.kv_len) * key,
              fmt::format("{} of {} keys", rows == 1 ? "1 row" : report::ShowCount(static_cast<std::int64_t>(rows)) + " rows",
                          report::ShowCount(shape.kv_len)),
              "choose fewer rows");
}

}  // namespace

ExitStatus ExplainCommand(const Options& options, Streams& streams) {
  const io::Problem problem = io::LoadProblem(options.sources, options.problem);
  const bool third_stage = problem.kind == io::Problem::Kind::kThirdStage;
  const std::vector<report::RowIndex> rows = ChosenRows(options, problem);
  CheckPrice(options, problem.shape, rows.size());
  ExecOptions exec = options.exec;
  exec.path = options.path.value_or(Path::kFused);
  exec.on_progress = {};
  // Checks the whole problem once, so that messages speak of it and not of one row.
  if (!third_stage) Plan(problem.shape, report::CallOf(problem).params, exec);

  for (const std::string& note : problem.notes) streams.Note(note);
  if (!options.json) streams.Print(problem.reading + '\n');
  const ContextGradient d_context(options, problem);
  std::vector<report::Explanation> explanations;
  bool agrees = true;
  for (const report::RowIndex& row : rows) {
    report::Explanation explanation = third_stage ? report::ExplainThirdStage(problem.weights, problem.v, row)
                                                  : report::Explain(report::CallOf(problem), row, exec);
    if (options.grad) explanation.gradient = report::Differentiate(explanation, d_context.Row(row));
    agrees = agrees && explanation.bound_used <= 1;
    if (options.json) {
      explanations.push_back(std::move(explanation));
    } else {
      streams.Print('\n' + report::Show(explanation, LabelsOf(problem, row, streams.is_terminal() ? streams.width() : 0)));
    }
  }
  if (options.json) streams.Print(report::ExplanationsJson(problem, explanations) + '\n');
  return agrees ? ExitStatus::kDone : ExitStatus::kPathsDisagree;
}

}  // namespace regard::cli
