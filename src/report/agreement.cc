#include "report/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/text.h"

namespace regard::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kUnit = 0x1p-24;                            // of f32, rounding to nearest
constexpr double kTiny = std::numeric_limits<float>::min();  // weights below it may be lost

// The fused path sums scores from the running reference on, which may lag behind the largest score by this much.
constexpr double kReferenceLag = 16;

// What rounding a value of this size to `type` may change.
double StorageError(DType type, double magnitude) {
  switch (type) {
    case DType::kF16:
      return 0x1p-11 * magnitude + 0x1p-25;
    case DType::kBF16:
      return 0x1p-8 * magnitude;
    default:
      return kUnit * magnitude;
  }
}

// Keys and values of one kv head as doubles.
struct HeadOperands {
  std::int64_t batch = -1, kv_head = -1;
  Tensor k, v;  // [kv_len, head_dim], [kv_len, v_dim]
};

void LoadHead(const TensorView& k, const TensorView& v, std::int64_t batch, std::int64_t kv_head, HeadOperands* operands) {
  if (operands->batch == batch && operands->kv_head == kv_head) return;
  if (k) operands->k = Tensor::CopyOf(k.Select(0, batch).Select(0, kv_head), DType::kF64);
  operands->v = Tensor::CopyOf(v.Select(0, batch).Select(0, kv_head), DType::kF64);
  operands->batch = batch;
  operands->kv_head = kv_head;
}

// An element of a tensor that broadcasts to [batch, heads, q_len, kv_len].
double BroadcastAt(const TensorView& view, const RowIndex& row, std::int64_t key) {
  TensorView rest = view;
  const std::int64_t index[4] = {row.batch, row.head, row.query, key};
  for (int axis = 4 - view.rank(); axis < 4; ++axis) rest = rest.Select(0, rest.dim(0) == 1 ? 0 : index[axis]);
  return rest();
}

// What a weight may be off by when its masked score is off by `score_error`, and those it is normalised with alike.
double WeightError(double weight, double log_weight, double score_error) {
  if (score_error < 0.1) return weight * score_error;  // first order; the caller's |v| + |expected| covers the normalisation
  return std::exp(std::min(0.0, log_weight + 2 * score_error));
}

// The error of every visible key's weight.
void WeightErrors(const Call& call, const RowIndex& row, const HeadOperands& head, const RowStages& reference, std::int64_t r,
                  std::vector<double>* errors) {
  const std::int64_t keys = call.k.dim(2), dim = call.q.dim(3);
  const Tensor q = Tensor::CopyOf(call.q.Select(0, row.batch).Select(0, row.head).Select(0, row.query), DType::kF64);
  const double* k = head.k.As<double>();
  const double scale = call.params.scale ? std::fabs(*call.params.scale) : 1 / std::sqrt(static_cast<double>(dim));
  const double lse = reference.lse.As<double>()[r];
  errors->assign(static_cast<std::size_t>(keys), 0);
  for (std::int64_t j = 0; j < keys; ++j) {
    const double masked = reference.masked_scores.As<double>()[r * keys + j];
    if (masked == -kInfinity) continue;
    double products = 0;
    for (std::int64_t d = 0; d < dim; ++d) products += std::fabs(q.As<double>()[d] * k[j * dim + d]);
    const double capped = reference.capped.As<double>()[r * keys + j];
    const double bias = call.params.bias ? BroadcastAt(call.params.bias, row, j) : 0;
    const double alibi = capped + bias - masked;
    const double score_error = kUnit * (static_cast<double>(dim + 16) * (scale * products + std::fabs(lse) + kReferenceLag) +
                                        8 * (std::fabs(bias) + std::fabs(alibi) + std::fabs(masked) + std::fabs(lse)));
    (*errors)[static_cast<std::size_t>(j)] = WeightError(reference.weights.As<double>()[r * keys + j], masked - lse, score_error);
  }
}

// Adds one row to the difference. `errors` are the weights'.
void CompareRow(const RowIndex& row, std::int64_t v_dim, std::int64_t keys, const double* weights, const double* v,
                const std::vector<double>& errors, const double* expected, const double* got, DType type, double weight_rounding,
                PathDifference* difference) {
  double row_abs = 0, row_magnitude = 0, row_used = 0;
  for (std::int64_t d = 0; d < v_dim; ++d) {
    const bool same = got[d] == expected[d] || (std::isnan(got[d]) && std::isnan(expected[d]));
    double gap = same ? 0 : std::fabs(got[d] - expected[d]);
    if (std::isnan(gap)) gap = kInfinity;
    double bound = StorageError(type, std::fabs(expected[d])) + kTiny;
    if (weight_rounding > 0) bound += static_cast<double>(keys) * kTiny;  // such products lose what is below it
    for (std::int64_t j = 0; j < keys; ++j) {
      const double value = std::fabs(v[j * v_dim + d]), error = errors[static_cast<std::size_t>(j)],
                   weight = std::fabs(weights[j]);
      if (weight == 0 && error == 0) continue;
      bound += error * (value + std::fabs(expected[d])) + kTiny * value +
               weight * (static_cast<double>(keys + 16) * kUnit + weight_rounding) * value;
    }
    row_abs = std::max(row_abs, gap);
    if (std::isfinite(expected[d])) row_magnitude = std::max(row_magnitude, std::fabs(expected[d]));
    if (gap > 0) row_used = std::max(row_used, std::isfinite(bound) && std::isfinite(gap) ? gap / bound : kInfinity);
  }
  difference->max_abs = std::max(difference->max_abs, row_abs);
  if (row_abs > 0) difference->max_rel = std::max(difference->max_rel, row_magnitude > 0 ? row_abs / row_magnitude : kInfinity);
  if (row_used > difference->bound_used) {
    difference->bound_used = row_used;
    difference->worst_row = row;
  }
}

}  // namespace

bool Agreement::agrees() const {
  return std::all_of(paths.begin(), paths.end(), [](const PathDifference& path) { return path.agrees(); });
}

PathDifference CompareRows(const std::string& path, const Call& call, const RowSample& sample, const RowStages& reference,
                           const Tensor& context, DType context_type, double weight_rounding) {
  PathDifference difference;
  difference.path = path;
  HeadOperands head;
  std::vector<double> errors;
  const std::int64_t group_size = call.q.dim(1) / std::max<std::int64_t>(1, call.k.dim(1)), keys = call.k.dim(2),
                     v_dim = call.v.dim(3);
  for (std::size_t n = 0; n < sample.rows.size(); ++n) {
    const std::int64_t r = static_cast<std::int64_t>(n);
    const RowIndex& row = sample.rows[n];
    LoadHead(call.k, call.v, row.batch, row.head / group_size, &head);
    WeightErrors(call, row, head, reference, r, &errors);
    CompareRow(row, v_dim, keys, reference.weights.As<double>() + r * keys, head.v.As<double>(), errors,
               reference.context.As<double>() + r * v_dim, context.As<double>() + r * v_dim, context_type, weight_rounding,
               &difference);
  }
  return difference;
}

PathDifference CompareThirdStage(const std::string& path, const Tensor& weights, const TensorView& v, std::int64_t group_size,
                                 const RowSample& sample, const Tensor& context, DType context_type, double weight_error) {
  PathDifference difference;
  difference.path = path;
  HeadOperands head;
  const std::int64_t keys = weights.dim(1), v_dim = v.dim(3);
  std::vector<double> expected(static_cast<std::size_t>(v_dim));
  std::vector<double> errors(static_cast<std::size_t>(keys));
  for (std::size_t n = 0; n < sample.rows.size(); ++n) {
    const RowIndex& row = sample.rows[n];
    LoadHead({}, v, row.batch, row.head / group_size, &head);
    const double* w = weights.As<double>() + static_cast<std::int64_t>(n) * keys;
    std::fill(expected.begin(), expected.end(), 0.0);
    for (std::int64_t j = 0; j < keys; ++j) {
      errors[static_cast<std::size_t>(j)] = weight_error * std::fabs(w[j]);
      for (std::int64_t d = 0; d < v_dim; ++d) expected[static_cast<std::size_t>(d)] += w[j] * head.v.As<double>()[j * v_dim + d];
    }
    CompareRow(row, v_dim, keys, w, head.v.As<double>(), errors, expected.data(),
               context.As<double>() + static_cast<std::int64_t>(n) * v_dim, context_type, 0, &difference);
  }
  return difference;
}

std::string Show(const Agreement& agreement, bool name_heads) {
  std::string text = fmt::format("paths against the reference, one token at a time in double: {}\n", Describe(agreement.sample));
  std::vector<std::vector<std::string>> rows;
  for (const PathDifference& path : agreement.paths) {
    const RowIndex& row = path.worst_row;
    const std::string where =
        name_heads ? fmt::format("[{},{},{}]", row.batch, row.head, row.query) : fmt::format("{}", row.query);
    rows.push_back({"  " + path.path, fmt::format("max abs {:.1e}", path.max_abs), fmt::format("max rel {:.1e}", path.max_rel),
                    path.max_abs == 0 ? "equal" : "worst row " + where,
                    path.agrees() ? "agrees" : fmt::format("DISAGREES: {:.3g} times the rounding-error bound", path.bound_used)});
  }
  return text + AlignColumns(rows, std::vector<Align>(5, Align::kLeft));
}

}  // namespace regard::report
