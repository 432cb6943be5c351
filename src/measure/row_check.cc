#include "measure/row_check.h"

#include <cmath>

namespace regard::measure {
namespace {

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

double Square(double x) { return x * x; }

}  // namespace

double SumError(std::int64_t count) { return 2 * (std::sqrt(static_cast<double>(count)) + 8) * kUnit; }

double ScoreError(const ScoreTerms& terms) {
  const double root = std::sqrt(static_cast<double>(terms.dim));
  double products = 0;
  for (std::int64_t d = 0; d < terms.dim; ++d) products += std::fabs(terms.q[d] * terms.k[d]) / root;
  return kUnit * ((root + 8) * (products + std::fabs(terms.start)) + 8 * (std::fabs(terms.masked_score) + std::fabs(terms.lse)));
}

RowCheck::RowCheck(const Workload::Row& row)
    : row_(row),
      keys_(row.k.dim(2)),
      reference_(ComputeStages(row.q, row.k, row.v, row.params, {.path = Path::kReference, .threads = 1})) {
  const Tensor q = Tensor::CopyOf(row.q, DType::kF64), k = Tensor::CopyOf(row.k, DType::kF64);
  const std::int64_t dim = row.q.dim(3);
  score_error_.resize(static_cast<std::size_t>(keys_));
  for (std::int64_t j = 0; j < keys_; ++j) {
    if (Weight(j) == 0) continue;
    ++visible_;
    score_error_[static_cast<std::size_t>(j)] =
        ScoreError({q.As<double>(), k.As<double>() + j * dim, dim, MaskedScore(j), Lse()});
  }
}

double RowCheck::LseBound() const {
  double squares = 0;
  for (std::int64_t j = 0; j < keys_; ++j) squares += Square(Weight(j) * score_error_[static_cast<std::size_t>(j)]);
  return 4 * std::sqrt(squares) + SumError(visible_) + 4 * kUnit * std::fabs(Lse());
}

double RowCheck::ContextBound(std::int64_t d, DType stored, double weight_unit) const {
  double squares = 0, magnitude = 0;
  const double context = std::fabs(Context(d));
  for (std::int64_t j = 0; j < keys_; ++j) {
    const double v = std::fabs(row_.v(0, 0, j, d));
    squares += Square(Weight(j) * score_error_[static_cast<std::size_t>(j)] * (v + context));
    squares += Square(Weight(j) * weight_unit * v);
    magnitude += Weight(j) * v;
  }
  return 4 * std::sqrt(squares) + SumError(visible_) * magnitude + StorageUnit(stored) * context;
}

double RowCheck::Entropy() const {
  double sum = 0;
  for (std::int64_t j = 0; j < keys_; ++j) sum -= Weight(j) > 0 ? Weight(j) * std::log(Weight(j)) : 0;
  return sum;
}

double RowCheck::EntropyBound() const {
  double squares = 0, entropy = 0;
  for (std::int64_t j = 0; j < keys_; ++j) {
    if (Weight(j) == 0) continue;
    const double log_weight = std::fabs(std::log(Weight(j)));
    squares += Square(Weight(j) * score_error_[static_cast<std::size_t>(j)] * (1 + log_weight));
    entropy += Weight(j) * log_weight;
  }
  return 4 * std::sqrt(squares) + (LseBound() + SumError(visible_)) * (1 + entropy);
}

}  // namespace regard::measure
