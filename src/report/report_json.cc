// The same facts for programs. Schemas: docs/cli.md. Numbers that are not finite become null, since JSON has no word for them.
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/explanation.h"
#include "report/run_report.h"

namespace regard::report {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json Numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(Number(value));
  return list;
}

Json Shape(const Dims& shape) {
  Json list = Json::array();
  for (const std::int64_t length : shape) list.push_back(length);
  return list;
}

Json Of(const Range& range) {
  Json json = {{"min", range.finite > 0 ? Number(range.smallest) : Json(nullptr)},
               {"max", range.finite > 0 ? Number(range.largest) : Json(nullptr)},
               {"finite", range.finite}};
  if (range.minus_infinities > 0) json["minus_infinities"] = range.minus_infinities;
  if (range.plus_infinities > 0) json["plus_infinities"] = range.plus_infinities;
  if (range.nans > 0) json["nans"] = range.nans;
  return json;
}

Json Of(const RowIndex& row) { return {{"batch", row.batch}, {"head", row.head}, {"query", row.query}}; }

Json Of(const MirroredCells& cells) {
  return {{"batch", cells.cell.batch},
          {"head", cells.cell.head},
          {"query", cells.cell.query},
          {"key", cells.key},
          {"value", Number(cells.value)},
          {"mirrored", Number(cells.mirrored)},
          {"difference", Number(cells.Difference())}};
}

Json Of(const RowSample& sample) {
  Json json = {{"everything", sample.everything}, {"rows", sample.rows.size()}, {"of", sample.total}};
  if (!sample.everything) {
    Json list = Json::array();
    for (const RowIndex& row : sample.rows) list.push_back({row.batch, row.head, row.query});
    json["batch_head_query"] = list;
  }
  return json;
}

Json Of(const StageFacts& stage) {
  constexpr std::size_t kMaxSums = 4096;  // longer lists of sums are left to --save weights
  Json json = {{"name", stage.name}, {"shape", Shape(stage.shape)}, {"how", stage.how}, {"range", Of(stage.range)}};
  if (stage.square) {
    json["diagonal"] = Of(stage.square->diagonal);
    json["off_diagonal"] = Of(stage.square->off_diagonal);
    if (stage.square->largest) json["largest_asymmetry"] = Of(*stage.square->largest);
    if (stage.square->first) json["first_mirrored_cells"] = Of(*stage.square->first);
  }
  if (stage.sums) {
    json["row_sums"] = Of(stage.sums->rows);
    if (stage.sums->each_row.size() <= kMaxSums) json["row_sums"]["each"] = Numbers(stage.sums->each_row);
    if (stage.sums->columns) {
      json["column_sums"] = Of(*stage.sums->columns);
      if (stage.sums->each_column.size() <= kMaxSums) json["column_sums"]["each"] = Numbers(stage.sums->each_column);
    }
  }
  return json;
}

Json Of(const Agreement& agreement) {
  Json paths = Json::array();
  for (const PathDifference& path : agreement.paths) {
    paths.push_back({{"path", path.path},
                     {"agrees", path.agrees()},
                     {"max_abs_err", Number(path.max_abs)},
                     {"max_rel_err", Number(path.max_rel)},
                     {"worst_row", Of(path.worst_row)},
                     {"bound_used", Number(path.bound_used)}});
  }
  return {{"agrees", agreement.agrees()}, {"sample", Of(agreement.sample)}, {"paths", paths}};
}

Json Of(const ScoreTiming& timing) {
  return {{"queries", timing.queries},
          {"keys", timing.keys},
          {"dim", timing.dim},
          {"of_queries", timing.all_queries},
          {"of_keys", timing.all_keys},
          {"loops_seconds", Number(timing.loops_seconds)},
          {"product_seconds", Number(timing.product_seconds)},
          {"ratio", Number(timing.ratio())}};
}

// Nested lists, as many as the shape has axes.
Json Nested(const TensorView& tensor) {
  if (tensor.rank() == 0) return Number(tensor());
  Json list = Json::array();
  for (std::int64_t i = 0; i < tensor.dim(0); ++i) list.push_back(Nested(tensor.Select(0, i)));
  return list;
}

Json Tensors(const io::Problem& problem, const RowStages& values) {
  Json json = Json::object();
  const PlanShape& s = problem.shape;
  const auto add = [&](const char* name, const Tensor& rows) {
    if (!rows) return;
    const TensorView full = rows.view().Reshape({s.batch, s.heads, s.q_len, rows.dim(1)});
    json[name] = Nested(problem.ToFileShape(name, full));
  };
  add("scores", values.scores);
  if (problem.params.soft_cap > 0) add("capped", values.capped);
  add("masked_scores", values.masked_scores);
  add("weights", values.weights);
  add("context", values.context);
  return json;
}

const char* KindName(io::Problem::Kind kind) {
  switch (kind) {
    case io::Problem::Kind::kAttention:
      return "attention";
    case io::Problem::Kind::kSelfAttention:
      return "self_attention";
    case io::Problem::Kind::kThirdStage:
      return "third_stage";
  }
  return "unknown";
}

Json ProblemJson(const io::Problem& problem) {
  const PlanShape& s = problem.shape;
  Json json = {{"kind", KindName(problem.kind)},
               {"batch", s.batch},
               {"heads", s.heads},
               {"kv_heads", s.kv_heads},
               {"q_len", s.q_len},
               {"kv_len", s.kv_len},
               {"v_dim", s.v_dim}};
  if (problem.kind != io::Problem::Kind::kThirdStage) {
    json["head_dim"] = s.head_dim;
    json["scale"] = Number(problem.scale);
    json["causal"] = problem.params.causal;
  }
  if (problem.layer) json["layer"] = *problem.layer;
  return json;
}

Json Header(const io::Problem& problem, const char* command) {
  return {{"command", command}, {"reading", problem.reading}, {"notes", problem.notes}, {"problem", ProblemJson(problem)}};
}

// Strings may hold any bytes a file had; what is not UTF-8 is replaced.
std::string Dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string RunReportJson(const io::Problem& problem, const RunReport& report, const std::string& output,
                          const std::vector<std::string>& saved) {
  Json json = Header(problem, "run");
  json["ran"] = report.description;
  json["path"] = Name(report.path);
  if (report.dim) json["dim"] = *report.dim;
  json["sample"] = Of(report.sample);
  json["empty_rows"] = report.empty_rows;
  json["stages"] = Json::array();
  for (const StageFacts& stage : report.stages) json["stages"].push_back(Of(stage));
  json["remarks"] = report.remarks;
  if (IsSmall(problem) && report.sample.everything) json["tensors"] = Tensors(problem, report.values);
  json["agreement"] = Of(report.agreement);
  if (report.timing) json["score_timing"] = Of(*report.timing);
  if (!output.empty()) json["output"] = {{"file", output}, {"saved", saved}};
  return Dump(json);
}

namespace {

Json Of(const RowGradient& g, const Explanation& e) {
  Json json;
  json["of_sum"] = g.of_sum;
  json["d_context"] = Numbers(g.d_context);
  const auto column = [&](const char* name, double KeyGradient::*member) {
    Json list = Json::array();
    for (const KeyGradient& key : g.keys) list.push_back(Number(key.*member));
    json[name] = list;
  };
  column("d_weights", &KeyGradient::d_weight);
  column("d_v_norms", &KeyGradient::d_v_norm);
  if (e.third_stage) return json;
  json["mean"] = Number(g.delta);
  column("d_masked_scores", &KeyGradient::d_masked);
  column("d_scores", &KeyGradient::d_score);
  column("d_k_norms", &KeyGradient::d_k_norm);
  if (e.has_sink) json["d_sink"] = Number(g.d_sink);
  json["d_q"] = Numbers(g.d_q);
  return json;
}

}  // namespace

std::string ExplanationsJson(const io::Problem& problem, const std::vector<Explanation>& explanations) {
  Json json = Header(problem, "explain");
  json["rows"] = Json::array();
  for (const Explanation& e : explanations) {
    Json row = Of(e.row);
    if (problem.q_tokens) row["token"] = problem.q_tokens.At(e.row.batch, e.row.query);
    row["path"] = Name(e.path);
    row["context"] = Numbers(e.context);
    row["per_token_context"] = Numbers(e.per_token);
    row["difference"] = Number(e.difference);
    row["agrees"] = e.bound_used <= 1;
    row["visible_keys"] = e.visible;
    if (!e.third_stage) {
      row["q"] = Numbers(e.q);
      row["scale"] = Number(e.scale);
      row["max"] = Number(e.largest);
      if (e.has_sink) row["sink"] = Number(e.sink);
      row["total"] = Number(e.total);
      row["lse"] = Number(e.lse);
    }
    const auto column = [&](const char* name, double KeyTerm::*member) {
      Json list = Json::array();
      for (const KeyTerm& key : e.keys) list.push_back(Number(key.*member));
      row[name] = list;
    };
    if (!e.third_stage) {
      column("dot_products", &KeyTerm::product);
      column("scores", &KeyTerm::score);
      if (e.soft_cap > 0) column("capped", &KeyTerm::capped);
      column("masked_scores", &KeyTerm::masked_score);
      column("exps", &KeyTerm::exp);
    }
    column("weights", &KeyTerm::weight);
    if (e.gradient) row["gradient"] = Of(*e.gradient, e);
    json["rows"].push_back(row);
  }
  return Dump(json);
}

}  // namespace regard::report
