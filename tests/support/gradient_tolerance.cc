#include "tests/support/gradient_tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/placement.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What one pair contributes, and by how much each of it may be off.
struct PairBound {
  double weight = 0, weight_error = 0;
  double d_masked = 0, d_masked_error = 0;
  double d_score = 0, d_score_error = 0;
  double distance = 0;
};

// Of a sum: what the terms add up to in magnitude, how many there are, and by how much they are off.
struct SumBound {
  double magnitude = 0, error = 0, terms = 0;
  void Add(double term, double term_error) {
    magnitude += std::fabs(term);
    error += term_error;
    ++terms;
  }
};

class GradientBoundsMaker {
 public:
  GradientBoundsMaker(const TestProblem& p, const GradientCase& c, const RunResult& stages, Path path)
      : p_(p),
        c_(c),
        r_(stages),
        a_(ArithmeticOf(path)),
        forward_(ErrorBounds(p, stages, {path})),
        q_(Tensor::CopyOf(AsRank4(p.q), DType::kF64)),
        k_(Tensor::CopyOf(AsRank4(p.k), DType::kF64)),
        v_(Tensor::CopyOf(AsRank4(p.v), DType::kF64)),
        d_context_(Tensor::CopyOf(AsRank4(c.d_context), DType::kF64)),
        context_(Tensor::CopyOf(AsRank4(c.context), DType::kF64)),
        lse_(Tensor::CopyOf(c.lse, DType::kF64)),
        multipliers_(p),
        scale_(p.params.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(p.head_dim))))) {}

  GradientResult Make() {
    const std::int64_t kv_rows = p_.batch * p_.kv_heads * p_.kv_len;
    std::vector<SumBound> q(Size(p_.num_rows() * p_.head_dim)), k(Size(kv_rows * p_.head_dim)), v(Size(kv_rows * p_.v_dim));
    std::vector<SumBound> bias(Size(p_.params.bias ? p_.params.bias.num_elements() : 0));
    std::vector<SumBound> slopes(Size(p_.params.alibi_slopes ? p_.heads : 0)), sinks(Size(p_.params.sinks ? p_.heads : 0));
    for (std::int64_t row = 0; row < p_.num_rows(); ++row) {
      const std::int64_t b = row / (p_.heads * p_.q_len), h = row / p_.q_len % p_.heads, i = row % p_.q_len;
      SetDelta(row);
      if (!sinks.empty()) AddSink(row, h, sinks[Size(h)]);
      for (std::int64_t j = 0; j < p_.kv_len; ++j) {
        if (r_.masked_scores.at(row, j) == -kInfinity) continue;
        const PairBound pair = Bound(row, b, h, i, j);
        const std::int64_t key = (b * p_.kv_heads + h / (p_.heads / p_.kv_heads)) * p_.kv_len + j;
        for (std::int64_t d = 0; d < p_.head_dim; ++d) {
          const double query_d = q_.As<double>()[row * p_.head_dim + d], key_d = k_.As<double>()[key * p_.head_dim + d];
          q[Size(row * p_.head_dim + d)].Add(pair.d_score * key_d, pair.d_score_error * std::fabs(key_d));
          k[Size(key * p_.head_dim + d)].Add(pair.d_score * query_d, pair.d_score_error * std::fabs(query_d));
        }
        for (std::int64_t d = 0; d < p_.v_dim; ++d) {
          const double x = d_context_.As<double>()[row * p_.v_dim + d];
          const double kept = multipliers_.at(row, j),
                       error = pair.weight_error + multipliers_.roundings() * a_.unit * pair.weight;
          v[Size(key * p_.v_dim + d)].Add(kept * pair.weight * x, kept * error * std::fabs(x));
        }
        if (!bias.empty()) bias[BiasElement(b, h, i, j)].Add(pair.d_masked, pair.d_masked_error);
        if (!slopes.empty()) slopes[Size(h)].Add(pair.d_masked * pair.distance, pair.d_masked_error * pair.distance);
      }
    }
    const double scale = std::fabs(scale_);
    return {Grid_(q, p_.num_rows(), p_.head_dim, scale, p_.k.dtype()),
            Grid_(k, kv_rows, p_.head_dim, scale, p_.q.dtype()),
            Grid_(v, kv_rows, p_.v_dim, 1, c_.d_context.dtype()),
            Grid_(bias, p_.params.bias ? 1 : 0, static_cast<std::int64_t>(bias.size()), 1, DType::kF32),
            Grid_(slopes, p_.params.alibi_slopes ? 1 : 0, static_cast<std::int64_t>(slopes.size()), 1, DType::kF32),
            SinkGrid(sinks)};
  }

 private:
  static std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

  Grid Grid_(const std::vector<SumBound>& sums, std::int64_t rows, std::int64_t columns, double factor, DType factor_type) const {
    Grid grid{rows, columns, DType::kF64, {}};
    for (const SumBound& sum : sums) {
      // Two roundings of the scale, one of the converted factor, and one of the result.
      const double growth = Growth(sum.terms + 4 + ConversionRoundings(factor_type, a_)) * a_.unit;
      const double bound = factor * (sum.error + growth * (sum.magnitude + sum.error));
      grid.values.push_back(sum.terms == 0 ? 0 : bound + (sum.terms + 1) * a_.smallest * (1 + factor));
    }
    return grid;
  }

  Grid SinkGrid(const std::vector<SumBound>& sums) const {
    Grid grid{p_.params.sinks ? 1 : 0, static_cast<std::int64_t>(sums.size()), DType::kF64, {}};
    for (const SumBound& sum : sums) grid.values.push_back(sum.error + sum.terms * 0x1p-52 * sum.magnitude + a_.smallest);
    return grid;
  }

  void SetDelta(std::int64_t row) {
    delta_ = 0;
    double magnitude = 0;
    for (std::int64_t d = 0; d < p_.v_dim; ++d) {
      const double product = d_context_.As<double>()[row * p_.v_dim + d] * context_.As<double>()[row * p_.v_dim + d];
      delta_ += product;
      magnitude += std::fabs(product);
    }
    const double roundings = 1 + ConversionRoundings(c_.d_context.dtype(), a_);  // the context is rounded to f32
    delta_error_ =
        Growth(static_cast<double>(p_.v_dim) + roundings) * a_.unit * magnitude + static_cast<double>(p_.v_dim) * a_.smallest;
  }

  void AddSink(std::int64_t row, std::int64_t h, SumBound& sum) const {
    const double share = std::exp(Get(p_.params.sinks, {h}) - Lse(row));
    // All in f64 but the sink, which is rounded to f32 like every option.
    const double relative =
        std::expm1(ConversionRoundings(p_.params.sinks.dtype(), a_) * a_.unit * std::fabs(Get(p_.params.sinks, {h})));
    if (share > 0) sum.Add(share * delta_, share * std::fabs(delta_) * relative);
  }

  double Lse(std::int64_t row) const { return lse_.As<double>()[row]; }

  std::size_t BiasElement(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t at[4] = {b, h, i, j};
    std::int64_t element = 0;
    for (int axis = 0; axis < p_.params.bias.rank(); ++axis) {
      const std::int64_t dim = p_.params.bias.dim(axis);
      element = element * dim + (dim == 1 ? 0 : at[4 - p_.params.bias.rank() + axis]);
    }
    return Size(element);
  }

  PairBound Bound(std::int64_t row, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t key = (b * p_.kv_heads + h / (p_.heads / p_.kv_heads)) * p_.kv_len + j;
    const double lse = Lse(row), masked = r_.masked_scores.at(row, j);
    PairBound pair;
    pair.weight = std::exp(masked - lse);
    const double start = (3 + Growth(static_cast<double>(p_.head_dim))) * a_.unit * std::fabs(lse);
    // Scores below the reference are exact but for their own rounding; what they lose beside it, the shift loses.
    const double off = forward_.masked_scores.at(row, j) + start + a_.shift_roundings * a_.unit * std::fabs(masked - lse);
    const double relative = off < 0.5 ? std::expm1(off) + a_.exp_roundings * a_.unit : kInfinity;
    pair.weight_error = pair.weight > 0 || !std::isfinite(relative) ? pair.weight * relative + a_.smallest : a_.smallest;
    if (!std::isfinite(relative)) pair.weight_error = 1;

    double product = 0, magnitude = 0;
    for (std::int64_t d = 0; d < p_.v_dim; ++d) {
      const double term = d_context_.As<double>()[row * p_.v_dim + d] * v_.As<double>()[key * p_.v_dim + d];
      product += term;
      magnitude += std::fabs(term);
    }
    product *= multipliers_.at(row, j);
    magnitude *= multipliers_.at(row, j);
    const double roundings =
        1 + multipliers_.roundings() + ConversionRoundings(c_.d_context.dtype(), a_) + ConversionRoundings(p_.v.dtype(), a_);
    const double above = product - delta_;
    const double above_error = Growth(static_cast<double>(p_.v_dim) + roundings) * a_.unit * (magnitude + std::fabs(delta_)) +
                               delta_error_ + static_cast<double>(p_.v_dim) * a_.smallest;
    pair.d_masked = pair.weight * above;
    pair.d_masked_error = pair.weight * above_error + pair.weight_error * (std::fabs(above) + above_error) +
                          2 * a_.unit * std::fabs(pair.d_masked) + a_.smallest;

    double slope = 1, slope_error = 0;
    if (p_.params.soft_cap > 0) {
      const double cap = p_.params.soft_cap, tanh = r_.capped.at(row, j) / cap;
      slope = 1 - tanh * tanh;
      const double score_error = forward_.scores.at(row, j) / cap;
      // The derivative of 1 − tanh² is at most 0.77, and tanh is known to tanh_roundings.
      slope_error = std::min(1.0, 0.77 * score_error) + (2 * a_.tanh_roundings + 2) * a_.unit * tanh * tanh + a_.unit;
    }
    pair.d_score = pair.d_masked * slope;
    pair.d_score_error =
        pair.d_masked_error * (slope + slope_error) + std::fabs(pair.d_masked) * slope_error + a_.unit * std::fabs(pair.d_score);
    if (p_.params.alibi_slopes) {
      const double bias = p_.params.bias ? BroadcastAt(p_.params.bias, b, h, i, j) : 0;
      const double slope_h = Get(p_.params.alibi_slopes, {h});
      pair.distance = slope_h != 0 ? std::fabs((r_.capped.at(row, j) + bias - masked) / slope_h) : 0;
    }
    return pair;
  }

  const TestProblem& p_;
  const GradientCase& c_;
  const RunResult& r_;
  const Arithmetic& a_;
  const Bounds forward_;
  const Tensor q_, k_, v_, d_context_, context_, lse_;  // dense
  const Multipliers multipliers_;
  const double scale_;
  double delta_ = 0, delta_error_ = 0;  // of the row at hand
};

}  // namespace

GradientResult GradientBounds(const TestProblem& p, const GradientCase& c, const RunResult& stages, Path path) {
  return GradientBoundsMaker(p, c, stages, path).Make();
}

}  // namespace regard::test
