#include "report/explanation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/fused.h"
#include "regard/stages.h"
#include "report/agreement.h"

namespace regard::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Doubles(const TensorView& line) {
  std::vector<double> values(static_cast<std::size_t>(line.dim(0)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = line(static_cast<std::int64_t>(i));
  return values;
}

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    const double gap = same ? 0 : std::fabs(a[i] - b[i]);
    largest = std::isnan(gap) ? kInfinity : std::max(largest, gap);
  }
  return largest;
}

RowSample Just(const RowIndex& row) { return {{row}, false, 1}; }

void FillKeys(const RowCall& row, const RowStages& stages, Explanation* e) {
  const Tensor bias = row.call.params.bias ? Tensor::CopyOf(row.call.params.bias, DType::kF64) : Tensor();
  // A bias row broadcasts over heads or keys.
  const auto bias_at = [&](std::int64_t j) {
    if (!bias) return 0.0;
    TensorView rest = bias.view();
    while (rest.rank() < 4) rest = rest.Unsqueeze(0);
    return rest(0, rest.dim(1) == 1 ? 0 : row.head_in_group, 0, rest.dim(3) == 1 ? 0 : j);
  };
  const std::vector<double> q = e->q;
  const std::int64_t dim = static_cast<std::int64_t>(q.size());
  e->largest = e->has_sink ? e->sink : -kInfinity;
  for (std::int64_t j = 0; j < e->k.dim(0); ++j) {
    KeyTerm key{.key = j};
    for (std::int64_t d = 0; d < dim; ++d) key.product += q[static_cast<std::size_t>(d)] * e->k(j, d);
    key.score = stages.scores(0, j);
    key.capped = stages.capped(0, j);
    key.masked_score = stages.masked_scores(0, j);
    key.weight = stages.weights(0, j);
    key.visible = key.masked_score != -kInfinity;
    key.bias = bias_at(j);
    key.alibi = e->has_alibi && key.visible ? key.capped + key.bias - key.masked_score : 0;
    if (key.visible) {
      ++e->visible;
      if (!(key.masked_score <= e->largest)) e->largest = key.masked_score;
    }
    e->keys.push_back(key);
  }
  e->sink_exp = e->has_sink ? std::exp(e->sink - e->largest) : 0;
  e->total = e->sink_exp;
  for (KeyTerm& key : e->keys) {
    if (key.visible) key.exp = std::exp(key.masked_score - e->largest);
    e->total += key.exp;
  }
}

}  // namespace

Explanation Explain(const Call& call, const RowIndex& row, const ExecOptions& exec) {
  const std::int64_t kv_head = row.head / (call.q.dim(1) / call.k.dim(1));
  const AttentionParams& params = call.params;
  Explanation e;
  e.row = row;
  e.path = exec.path;
  e.q = Doubles(call.q.Select(0, row.batch).Select(0, row.head).Select(0, row.query));
  e.k = call.k.Select(0, row.batch).Select(0, kv_head);
  e.v = call.v.Select(0, row.batch).Select(0, kv_head);
  e.scale = params.scale ? *params.scale : 1 / std::sqrt(static_cast<double>(call.q.dim(3)));
  e.soft_cap = params.soft_cap;
  e.has_bias = static_cast<bool>(params.bias);
  e.has_alibi = static_cast<bool>(params.alibi_slopes);
  e.sink = params.sinks ? params.sinks(row.head) : -kInfinity;
  e.has_sink = e.sink != -kInfinity;

  ExecOptions reference = exec;
  reference.path = Path::kReference;
  const RowSample sample = Just(row);
  const RowStages stages = ComputeRows(call, sample, reference);
  const RowStages batched = exec.path == Path::kReference ? stages : ComputeRows(call, sample, exec);
  e.lse = stages.lse(0);
  FillKeys(RowCall(call, row, 1), stages, &e);
  e.context = Doubles(batched.context.view().Select(0, 0));
  e.per_token = Doubles(stages.context.view().Select(0, 0));
  e.difference = LargestDifference(e.context, e.per_token);
  const double weight_rounding =
      exec.path == Path::kFused ? internal::WeightRounding(PlanShape::Of(call.q, call.k, call.v), exec.isa) : 0;
  e.bound_used = CompareRows(Name(exec.path), call, sample, stages, batched.context, DType::kF32, weight_rounding).bound_used;
  return e;
}

Explanation ExplainThirdStage(const TensorView& weights, const TensorView& v, const RowIndex& row) {
  const std::int64_t group_size = weights.dim(1) / v.dim(1);
  Explanation e;
  e.row = row;
  e.third_stage = true;
  e.path = Path::kStaged;
  e.v = v.Select(0, row.batch).Select(0, row.head / group_size);
  const TensorView head = weights.Select(0, row.batch).Select(0, row.head);
  const TensorView line = head.Select(0, row.query);
  for (std::int64_t j = 0; j < line.dim(0); ++j) {
    e.keys.push_back({.key = j, .visible = line(j) != 0, .weight = line(j)});
    e.total += line(j);
    if (line(j) != 0) ++e.visible;
  }
  const Tensor one_row = Tensor::CopyOf(head.Slice(0, row.query, row.query + 1), DType::kF32);
  const Tensor batched = Context(one_row, Tensor::CopyOf(e.v, DType::kF32));
  const Tensor in_double = Tensor::CopyOf(head.Slice(0, row.query, row.query + 1), DType::kF64);
  const Tensor per_token = ContextForToken(in_double, Tensor::CopyOf(e.v, DType::kF64), 0);
  e.context = Doubles(batched.view().Select(0, 0));
  e.per_token = Doubles(per_token);
  e.difference = LargestDifference(e.context, e.per_token);
  e.bound_used =
      CompareThirdStage("staged", in_double, v, group_size, Just(row), Tensor::CopyOf(batched, DType::kF64), DType::kF32)
          .bound_used;
  return e;
}

}  // namespace regard::report
