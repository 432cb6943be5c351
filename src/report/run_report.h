// What `regard run` shows of a run: facts of every stage, agreement of the paths, the time a product saves, and small tensors
// whole.
//
//     const RunReport report = MakeRunReport(problem, result, options);
//     out += ShowRunReport(problem, report, view);     // for people
//     out += RunReportJson(problem, report);           // for programs: docs/cli.md has the schema
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/problem.h"
#include "report/agreement.h"
#include "report/heat_map.h"
#include "report/rows.h"
#include "report/score_timing.h"
#include "report/stage_facts.h"

namespace regard::report {

/// A finished run, in full shape.
struct RunResult {
  std::string description;  // what ran: Plan::Description()
  Path path = Path::kFused;
  TensorView context;  // [batch, heads, q_len, v_dim]
  std::int64_t empty_rows = 0;
};

struct RunReport {
  std::string description;
  Path path = Path::kFused;
  std::optional<int> dim;  // softmax along another axis than keys
  RowSample sample;        // the rows that facts and agreement are about
  std::vector<StageFacts> stages;
  RowStages values;  // of those rows: stages by `path`, or by staged when that holds none
  std::int64_t empty_rows = 0;
  std::vector<std::string> remarks;
  Agreement agreement;
  std::optional<ScoreTiming> timing;
};

/// The threads worth starting when none were stated (0): one for small problems, else 0, which means all.
int ThreadsFor(const PlanShape& shape, int stated);

/// The call that a problem stands for; not for the third stage.
Call CallOf(const io::Problem& problem);

/// Facts about a result of problem kinds kAttention and kSelfAttention, softmax over keys. Memory O(tokens) beside 64 MiB at
/// most; time bounded likewise. Throws Error.
RunReport MakeRunReport(const io::Problem& problem, const RunResult& result, const ExecOptions& exec);
/// Of the third stage alone; `result.context` = weights · v.
RunReport MakeThirdStageReport(const io::Problem& problem, const RunResult& result);
/// What softmax along axis `dim` of the scores gives, for `run --dim`. Holds every pair. `axis` counts in the rank of the scores
/// as in files.
struct OtherAxisRun {
  Tensor scores, weights, context;  // [batch, heads, …] f32, or f64 by the reference path
};
OtherAxisRun RunAlongAxis(const io::Problem& problem, int axis, Path path);
RunReport MakeOtherAxisReport(const io::Problem& problem, const OtherAxisRun& run, int axis, Path path);

/// How the text is to look.
struct RunView {
  int width = 80;
  bool is_terminal = false;  // heat maps are for eyes only
  Colors colors = Colors::kNone;
  std::vector<std::int64_t> batches, heads;  // whose tensors are shown; empty: the first few
};
std::string ShowRunReport(const io::Problem& problem, const RunReport& report, const RunView& view);

/// Whether queries and keys are few enough for the tensors to be shown.
inline constexpr std::int64_t kSmall = 16;
bool IsSmall(const io::Problem& problem);

/// One JSON object, without the newline. `saved` are the names written to `output`.
std::string RunReportJson(const io::Problem& problem, const RunReport& report, const std::string& output,
                          const std::vector<std::string>& saved);

}  // namespace regard::report
