#include "measure/row_check.h"

#include <algorithm>
#include <cmath>

namespace regard::measure {
namespace {

double Square(double x) { return x * x; }

}  // namespace

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

double SumError(std::int64_t count) { return 2 * (std::sqrt(static_cast<double>(count)) + 8) * kUnit; }

double ScoreError(const ScoreTerms& terms) {
  const double root = std::sqrt(static_cast<double>(terms.dim));
  double products = 0;
  for (std::int64_t d = 0; d < terms.dim; ++d) products += std::fabs(terms.q[d] * terms.k[d]);
  return kUnit *
         ((root + 8) * (products / root + std::fabs(terms.start)) + 8 * (std::fabs(terms.masked_score) + std::fabs(terms.lse)));
}

RowCheck::RowCheck(const Workload::Row& row, double weight_unit, const internal::IntegerRounding& integers)
    : keys_(row.k.dim(2)), reference_(ComputeStages(row.q, row.k, row.v, row.params, {.path = Path::kReference, .threads = 1})) {
  const Tensor q = Tensor::CopyOf(row.q, DType::kF64), k = Tensor::CopyOf(row.k, DType::kF64);
  if (row.params.dropout > 0)
    multipliers_ = DropoutMask({1, 1, 1, keys_}, row.params.dropout, row.params.dropout_seed, row.place);
  const std::int64_t dim = row.q.dim(3);
  double largest_q = 0;
  for (std::int64_t d = 0; d < dim; ++d) largest_q = std::max(largest_q, std::fabs(q.As<double>()[d]));
  score_error_.resize(static_cast<std::size_t>(keys_));
  for (std::int64_t j = 0; j < keys_; ++j) {
    if (Weight(j) == 0) continue;
    ++visible_;
    const double* const key = k.As<double>() + j * dim;
    double squares = 0;
    for (std::int64_t d = 0; d < dim; ++d) squares += Square(key[d]);
    score_error_[static_cast<std::size_t>(j)] = ScoreError({q.As<double>(), key, dim, MaskedScore(j), Lse()}) +
                                                integers.q * largest_q * std::sqrt(squares / static_cast<double>(dim));
  }
  SumValues(row, weight_unit, integers);
}

void RowCheck::SumValues(const Workload::Row& row, double weight_unit, const internal::IntegerRounding& integers) {
  const Tensor v = Tensor::CopyOf(row.v, DType::kF64);
  const std::int64_t dim = row.v.dim(3);
  squares_.resize(static_cast<std::size_t>(dim));
  magnitudes_.resize(static_cast<std::size_t>(dim));
  for (std::int64_t d = 0; d < dim; ++d) {
    double sum = 0;
    for (std::int64_t j = 0; multipliers_ && j < keys_; ++j) sum += Multiplier(j) * Weight(j) * v.As<double>()[j * dim + d];
    contexts_.push_back(multipliers_ ? sum : reference_.context(0, 0, 0, d));
  }
  std::vector<double> scales;
  for (std::int64_t first = 0; first < keys_; first += integers.keys) {
    const std::int64_t end = std::min(first + integers.keys, keys_);
    scales.clear();
    double largest = 0;  // weight · scale of the sub-block
    for (std::int64_t j = first; j < end; ++j) {
      const double* const value = v.As<double>() + j * dim;
      double largest_value = 0;
      for (std::int64_t d = 0; d < dim; ++d) largest_value = std::max(largest_value, std::fabs(value[d]));
      scales.push_back(largest_value / 127);
      largest = std::max(largest, Weight(j) * scales.back());
    }
    for (std::int64_t j = first; j < end; ++j) {
      const double* const value_row = v.As<double>() + j * dim;
      const double scale = scales[static_cast<std::size_t>(j - first)], weight = Weight(j), multiplier = Multiplier(j);
      const double error = weight * score_error_[static_cast<std::size_t>(j)];
      const double of_level = scale > 0 ? integers.weight * largest / scale : 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        const double value = multiplier * std::fabs(value_row[d]);
        const auto n = static_cast<std::size_t>(d);
        squares_[n] +=
            Square(error * (value + std::fabs(contexts_[n]))) + Square(weight * weight_unit * value) + Square(of_level * value);
        magnitudes_[n] += weight * value;
      }
    }
  }
}

double RowCheck::LseBound() const {
  double squares = 0;
  for (std::int64_t j = 0; j < keys_; ++j) squares += Square(Weight(j) * score_error_[static_cast<std::size_t>(j)]);
  return 4 * std::sqrt(squares) + SumError(visible_) + 4 * kUnit * std::fabs(Lse());
}

double RowCheck::ContextBound(std::int64_t d, DType stored) const {
  const auto n = static_cast<std::size_t>(d);
  return 4 * std::sqrt(squares_[n]) + SumError(visible_) * magnitudes_[n] + StorageUnit(stored) * std::fabs(Context(d));
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
