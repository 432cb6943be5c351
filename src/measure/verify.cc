#include "measure/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace regard::measure {
namespace {

constexpr double kUnit = 0x1p-24;

// Multiples of these are where one kernel tile, task or split ends and the next begins.
constexpr std::int64_t kBlockEdges[] = {16, 48, 64, 128, 256, 2048};

double StorageUnit(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return dtype == DType::kF64 ? 0x1p-53 : kUnit;
  }
}

// What the reference says about one row, and what bounds follow from it.
class RowCheck {
 public:
  explicit RowCheck(const Workload::Row& row)
      : row_(row), keys_(row.k.dim(2)), head_dim_(row.q.dim(3)), v_dim_(row.v.dim(3)), reference_(ComputeReference(row)) {
    const double lse = Lse();
    score_error_.resize(static_cast<std::size_t>(keys_));
    for (std::int64_t j = 0; j < keys_; ++j) {
      if (Weight(j) == 0) continue;
      ++visible_;
      score_error_[static_cast<std::size_t>(j)] =
          kUnit * ((std::sqrt(static_cast<double>(head_dim_)) + 8) * AbsoluteScore(j) +
                   8 * (std::fabs(reference_.masked_scores(0, 0, 0, j)) + std::fabs(lse)));
    }
  }

  double Lse() const { return reference_.lse(0, 0, 0); }
  double Context(std::int64_t d) const { return reference_.context(0, 0, 0, d); }

  double LseBound() const {
    double squares = 0;
    for (std::int64_t j = 0; j < keys_; ++j) squares += Square(Weight(j) * score_error_[static_cast<std::size_t>(j)]);
    return 4 * std::sqrt(squares) + SumError() + 4 * kUnit * std::fabs(Lse());
  }

  double ContextBound(std::int64_t d, DType stored) const {
    double squares = 0, magnitude = 0;
    const double context = std::fabs(Context(d));
    for (std::int64_t j = 0; j < keys_; ++j) {
      const double v = std::fabs(row_.v(0, 0, j, d));
      squares += Square(Weight(j) * score_error_[static_cast<std::size_t>(j)] * (v + context));
      magnitude += Weight(j) * v;
    }
    return 4 * std::sqrt(squares) + SumError() * magnitude + StorageUnit(stored) * context;
  }

 private:
  static Stages ComputeReference(const Workload::Row& row) {
    return ComputeStages(row.q, row.k, row.v, row.params, {.path = Path::kReference, .threads = 1});
  }
  static double Square(double x) { return x * x; }
  double Weight(std::int64_t j) const { return reference_.weights(0, 0, 0, j); }
  double SumError() const { return 2 * (std::sqrt(static_cast<double>(visible_)) + 8) * kUnit; }

  // |scale| · Σ_d |q_d · k_jd|, at the default scale.
  double AbsoluteScore(std::int64_t j) const {
    double sum = 0;
    for (std::int64_t d = 0; d < head_dim_; ++d) sum += std::fabs(row_.q(0, 0, 0, d) * row_.k(0, 0, j, d));
    return sum / std::sqrt(static_cast<double>(head_dim_));
  }

  const Workload::Row& row_;
  std::int64_t keys_, head_dim_, v_dim_;
  Stages reference_;
  std::vector<double> score_error_;  // ε_j
  std::int64_t visible_ = 0;         // n
};

// The part of the bound that the difference uses.
double PartOfBound(double value, double reference, double bound) {
  if (std::isnan(value) || std::isnan(reference))
    return std::isnan(value) && std::isnan(reference) ? 0 : std::numeric_limits<double>::infinity();
  if (value == reference) return 0;
  return std::fabs(value - reference) / bound;
}

}  // namespace

std::vector<RowIndex> SampleRows(std::int64_t heads, std::int64_t q_len) {
  std::set<std::int64_t> queries{0, q_len - 1};
  for (const std::int64_t edge : kBlockEdges) {
    if (edge < q_len) queries.insert({edge - 1, edge});
  }
  for (std::int64_t i = 1; static_cast<std::int64_t>(queries.size()) < std::min(q_len, kSampledRows); ++i) {
    queries.insert(i * (q_len - 1) / kSampledRows);
    if (i > kSampledRows) break;  // rounding may hit the same query twice
  }
  std::vector<RowIndex> rows;
  std::int64_t head = 0;
  for (const std::int64_t query : queries) rows.push_back({head++ % heads, query});
  // A single query is looked at in every head.
  for (; q_len == 1 && head < std::min(heads, kSampledRows); ++head)
    rows.push_back({head * heads / std::min(heads, kSampledRows), 0});
  return rows;
}

Verification VerifyRows(const Workload& workload, const TensorView& context, const TensorView& lse) {
  Verification result;
  const auto check = [&result](double value, double reference, double bound, const std::string& place) {
    const double part = PartOfBound(value, reference, bound);
    if (part <= result.worst) return;
    result.worst = part;
    if (part > 1)
      result.fault = fmt::format("{} is {:.8g}, reference {:.8g}: error {:.1f} times its bound", place, value, reference, part);
  };
  for (const RowIndex& index : SampleRows(workload.bench_case().heads, workload.bench_case().q_len)) {
    const Workload::Row row = workload.RowCall(index.head, index.query);
    const RowCheck expected(row);
    const std::string place = fmt::format("head {}, query {}", index.head, index.query);
    for (std::int64_t d = 0; d < workload.bench_case().dim; ++d) {
      check(context(0, index.head, index.query, d), expected.Context(d), expected.ContextBound(d, context.dtype()),
            fmt::format("context at {}, dim {}", place, d));
    }
    if (lse) check(lse(0, index.head, index.query), expected.Lse(), expected.LseBound(), "lse at " + place);
    ++result.rows;
  }
  return result;
}

}  // namespace regard::measure
