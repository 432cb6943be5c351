#include "tests/support/paths.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "regard/info.h"
#include "tests/support/placement.h"

namespace regard::test {
namespace {

bool SameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// An output of a run: its memory, and the doubles read back from it.
class Output {
 public:
  Output(const TestProblem& p, bool has_last, std::int64_t last, DType default_type, const RunOptions& options) : problem_(p) {
    Dims shape;
    if (p.q.rank() == 4) {
      shape.push_back(p.batch);
      shape.push_back(p.heads);
    }
    shape.push_back(p.q_len);
    if (has_last) shape.push_back(last);
    columns_ = has_last ? last : 1;
    const DType type = options.any_output_type && options.layout->Chance(0.5)
                           ? options.layout->OneOf({DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
                           : default_type;
    placed_ = options.layout != nullptr ? PlaceRandomly(*options.layout, shape, type, options.layout->Chance(0.5))
                                        : PlaceDense(shape, type);
  }

  const MutableTensorView& view() const { return placed_.view; }

  Grid Read() const {
    EXPECT_TRUE(GuardIntact(placed_)) << "memory beside an output was written";
    Grid grid{problem_.num_rows(), columns_, placed_.view.dtype(), {}};
    ForEachIndex(placed_.view.shape(), [&](const Dims& index) { grid.values.push_back(Get(placed_.view, index)); });
    return grid;
  }

 private:
  const TestProblem& problem_;
  std::int64_t columns_ = 0;
  Placed placed_;
};

}  // namespace

std::string TestName(const testing::TestParamInfo<PathCase>& path) {
  std::string name = path.param.Name();
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

PathCase ReferencePath() { return {Path::kReference}; }

std::vector<PathCase> OptimizedPaths() {
  std::vector<PathCase> paths = {{Path::kStaged}};
  for (const Target& target : Targets()) {
    if (target.supported) paths.push_back({Path::kFused, target.name});
  }
  return paths;
}

std::vector<PathCase> AllPaths() {
  std::vector<PathCase> paths = OptimizedPaths();
  paths.insert(paths.begin(), ReferencePath());
  return paths;
}

std::vector<PathCase> DeterministicPaths() {
  std::vector<PathCase> paths = AllPaths();
  std::erase_if(paths, [](const PathCase& path) { return path.path == Path::kStaged; });
  return paths;
}

bool Grid::SameRow(const Grid& other, std::int64_t row) const {
  for (std::int64_t c = 0; c < columns; ++c) {
    if (!SameNumber(at(row, c), other.at(row, c))) return false;
  }
  return true;
}

bool Grid::SameAs(const Grid& other) const {
  if (rows != other.rows || columns != other.columns || values.size() != other.values.size()) return false;
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (!SameNumber(values[n], other.values[n])) return false;
  }
  return true;
}

bool RunResult::SameRow(const RunResult& other, std::int64_t row) const {
  if (!weights.values.empty() && !(weights.SameRow(other.weights, row) && masked_scores.SameRow(other.masked_scores, row)))
    return false;
  return context.SameRow(other.context, row) && lse.SameRow(other.lse, row);
}

bool RunResult::SameAs(const RunResult& other) const {
  return weights.SameAs(other.weights) && masked_scores.SameAs(other.masked_scores) && context.SameAs(other.context) &&
         lse.SameAs(other.lse) && empty_rows == other.empty_rows;
}

RunResult RunPath(const PathCase& path, const TestProblem& p, const RunOptions& options) {
  const DType type = path.path == Path::kReference ? DType::kF64 : DType::kF32;
  const Output context(p, true, p.v_dim, type, options), lse(p, false, 0, type, options);
  const Output scores(p, true, p.kv_len, type, options), capped(p, true, p.kv_len, type, options),
      masked(p, true, p.kv_len, type, options), weights(p, true, p.kv_len, type, options);
  RunResult result;
  result.empty_rows = -1;
  Outputs outputs{.context = context.view(), .lse = lse.view(), .empty_rows = &result.empty_rows};
  const bool stages = options.stages && path.has_stages();
  if (stages) {
    outputs.scores = scores.view();
    outputs.capped = capped.view();
    outputs.masked_scores = masked.view();
    outputs.weights = weights.view();
  }
  const Plan plan(PlanShape::Of(p.q, p.k, p.v), p.params,
                  {.path = path.path, .isa = path.isa, .threads = options.threads > 0 ? options.threads : p.threads});
  Workspace workspace = plan.MakeWorkspace();
  Inputs inputs{p.q, p.k, p.v};
  inputs.dropout_origin = p.dropout_origin;
  const Status status = plan.Run(inputs, outputs, workspace);
  EXPECT_TRUE(status.ok()) << path.Name() << ": " << status.message();
  result.context = context.Read();
  result.lse = lse.Read();
  if (stages) {
    result.scores = scores.Read();
    result.capped = capped.Read();
    result.masked_scores = masked.Read();
    result.weights = weights.Read();
  }
  return result;
}

}  // namespace regard::test
