#include "tests/support/tolerance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "attention/fused.h"
#include "core/dropout.h"
#include "tests/support/diagnosis.h"
#include "tests/support/placement.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One table: path × the roundings of its arithmetic.
//   reference  double throughout; libm's exp, log and tanh err by less than 1 ulp = 2u
//   staged     f32: alpha·Σ (1); division by the cap, ·2 log2 e, tanh (4 ulp), product (11); conversion of bias and slope, a product,
//              two sums (5); shift (1); exp (1 ulp); the logarithm (1 ulp) and a sum (3)
//   fused      f32 in log2 units: q·scale and ·log2 e (3); the same cap (11); two more products by log2 e (7); shift and the rounding
//              of log2 e (3); exp2 (3 ulp with the state's rescaling); log2, ·ln 2, sum (5); the lazy reference lags by 2^8 at most
constexpr Arithmetic kReference = {0x1p-53, 0x1p-1022, 1, 6, 4, 1, 2, 3, 0};
constexpr Arithmetic kStaged = {0x1p-24, 0x1p-126, 1, 11, 5, 1, 2, 3, 0};
constexpr Arithmetic kFused = {0x1p-24, 0x1p-126, 3, 11, 7, 3, 6, 5, 8 * std::numbers::ln2};

class BoundsMaker {
 public:
  /// weight_rounding: of weights for their products with v; such products take what is below the smallest normal number as 0.
  BoundsMaker(const TestProblem& problem, const RunResult& reference, const Arithmetic& arithmetic, double weight_rounding,
              const internal::IntegerRounding& integers)
      : p_(problem),
        r_(reference),
        a_(arithmetic),
        weight_rounding_(weight_rounding),
        integers_(integers),
        lost_(weight_rounding > 0 ? arithmetic.smallest : arithmetic.unit * arithmetic.smallest),
        q_(Tensor::CopyOf(p_.q, DType::kF64)),
        k_(Tensor::CopyOf(p_.k, DType::kF64)),
        v_(Tensor::CopyOf(p_.v, DType::kF64)),
        multipliers_(p_) {
    for (Grid* grid : {&bounds_.scores, &bounds_.capped, &bounds_.masked_scores, &bounds_.weights}) *grid = Zeros(p_.kv_len);
    bounds_.context = Zeros(p_.v_dim);
    bounds_.lse = Zeros(1);
  }

  Bounds Make() {
    for (std::int64_t row = 0; row < p_.num_rows(); ++row) {
      const std::int64_t b = row / (p_.heads * p_.q_len), h = row / p_.q_len % p_.heads, i = row % p_.q_len;
      FindLargest(row);
      for (std::int64_t j = 0; j < p_.kv_len; ++j) BoundScore(row, b, h, i, j);
      BoundSoftmax(row);
      BoundIntegers(row, b, h);
      for (std::int64_t d = 0; d < p_.v_dim; ++d) BoundContext(row, b, h, d);
    }
    return bounds_;
  }

 private:
  Grid Zeros(std::int64_t columns) const {
    return {p_.num_rows(), columns, DType::kF64, std::vector<double>(static_cast<std::size_t>(p_.num_rows() * columns))};
  }

  // Where key j lies in a dense [batch, kv_heads, kv_len, dim].
  std::int64_t KvRow(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return (b * p_.kv_heads + h / (p_.heads / p_.kv_heads)) * p_.kv_len + j;
  }

  void FindLargest(std::int64_t row) {
    largest_ = -kInfinity;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) largest_ = std::max(largest_, r_.masked_scores.at(row, j));
  }

  void BoundScore(std::int64_t row, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const double* const query = q_.As<double>() + row * p_.head_dim;
    const double* const key = k_.As<double>() + KvRow(b, h, j) * p_.head_dim;
    double products = 0, factors = 0, largest_q = 0, keys = 0;
    for (std::int64_t d = 0; d < p_.head_dim; ++d) {
      products += std::fabs(query[d] * key[d]);
      factors += std::fabs(query[d]) + std::fabs(key[d]);
      largest_q = std::max(largest_q, std::fabs(query[d]));
      keys += std::fabs(key[d]);
    }
    const double scale = std::fabs(p_.params.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(p_.head_dim)))));
    const double roundings = a_.score_roundings + ConversionRoundings(p_.q.dtype(), a_) + ConversionRoundings(p_.k.dtype(), a_);
    const double head_dim = static_cast<double>(p_.head_dim);
    // Each product and partial sum may also lose up to half the smallest subnormal, or all below the smallest normal number, and so may a
    // factor.
    const double start = a_.reference_lag > 0 && std::isfinite(largest_) ? std::fabs(largest_) + a_.reference_lag : 0;
    const double score = Growth(head_dim + roundings) * a_.unit * (scale * products + start) +
                         scale * integers_.q * largest_q * keys + (head_dim + 2) * lost_ * (1 + scale) +
                         (weight_rounding_ > 0 ? scale * factors * a_.smallest : 0);
    bounds_.scores.at(row, j) = score;

    const double capped = std::fabs(r_.capped.at(row, j)), cap = p_.params.soft_cap;
    double capped_bound = score;
    if (cap > 0) {
      // The cap is flattest at the largest magnitude: its slope where the error may have moved the score to counts.
      const double nearest = std::max(0.0, std::fabs(r_.scores.at(row, j)) - score);
      const double tanh = std::tanh(nearest / cap);
      capped_bound = score * (1 - tanh * tanh) + a_.tanh_roundings * a_.unit * capped + a_.unit * a_.smallest;
    }
    bounds_.capped.at(row, j) = capped_bound;

    const double masked = r_.masked_scores.at(row, j);
    if (!std::isfinite(masked)) return;
    double added = 0;
    if (p_.params.bias || p_.params.alibi_slopes) {
      const double bias = p_.params.bias ? BroadcastAt(p_.params.bias, b, h, i, j) : 0;
      const double alibi = masked - r_.capped.at(row, j) - bias;
      added = a_.mask_roundings * a_.unit * (capped + std::fabs(bias) + std::fabs(alibi));
    }
    bounds_.masked_scores.at(row, j) = capped_bound + added;
  }

  void BoundSoftmax(std::int64_t row) {
    const double lse = r_.lse.at(row, 0);
    if (!std::isfinite(lse)) return;
    double terms = 1;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) terms += std::isfinite(r_.masked_scores.at(row, j)) ? 1 : 0;
    const double top = p_.params.sinks ? std::max(largest_, lse) : largest_;
    if (largest_ == -kInfinity) {  // the sink alone
      bounds_.lse.at(row, 0) = a_.lse_roundings * a_.unit * std::fabs(lse);
      return;
    }
    const auto exp_error = [&](std::int64_t j) {
      const double score = r_.masked_scores.at(row, j);
      if (!std::isfinite(score)) return 0.0;
      return std::expm1(bounds_.masked_scores.at(row, j) + a_.shift_roundings * a_.unit * (top - score)) +
             a_.exp_roundings * a_.unit;
    };
    double sum_error = Growth(terms) * a_.unit, sink_share = 1;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      const double weight = r_.weights.at(row, j);
      if (weight > 0) sum_error += weight * exp_error(j);
      sink_share -= weight;
    }
    // The sink itself is shifted, converted and exponentiated like a score.
    if (p_.params.sinks) {
      sum_error += std::max(0.0, sink_share) * a_.unit *
                   (a_.exp_roundings + a_.shift_roundings * (2 * std::fabs(top) + std::fabs(lse) + 100));
    }
    const bool bounded = sum_error < 0.5;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      const double relative = bounded ? (1 + exp_error(j)) * (1 + 2 * a_.unit) / (1 - sum_error) - 1 : kInfinity;
      weight_error_.resize(static_cast<std::size_t>(p_.kv_len));
      weight_error_[static_cast<std::size_t>(j)] = relative;
      const double weight = r_.weights.at(row, j);
      if (std::isfinite(r_.masked_scores.at(row, j))) bounds_.weights.at(row, j) = std::min(1.0, weight * relative + a_.smallest);
    }
    bounds_.lse.at(row, 0) = (bounded ? -std::log1p(-sum_error) : kInfinity) +
                             a_.lse_roundings * a_.unit * (std::fabs(top) + a_.reference_lag + std::fabs(lse - top));
  }

  void BoundIntegers(std::int64_t row, std::int64_t b, std::int64_t h) {
    scaled_weights_ = internal::ScaledWeights(integers_, p_.v_dim);
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      const double* const v = v_.As<double>() + KvRow(b, h, j) * p_.v_dim;
      const double weight = multipliers_.at(row, j) * r_.weights.at(row, j);  // one that is dropped is 0, and so exact
      if (weight > 0) scaled_weights_.Add(j, weight, [v](std::int64_t d) { return v[d]; });
    }
  }

  void BoundContext(std::int64_t row, std::int64_t b, std::int64_t h, std::int64_t d) {
    if (!std::isfinite(r_.lse.at(row, 0)) || p_.kv_len == 0) return;
    const double roundings =
        Growth(static_cast<double>(p_.kv_len)) + 2 + multipliers_.roundings() + ConversionRoundings(p_.v.dtype(), a_);
    // Products, and values that were converted, may be too small to keep their digits.
    double bound = multipliers_.of_kept() * static_cast<double>(p_.kv_len) * lost_ * (1 + ConversionRoundings(p_.v.dtype(), a_)) +
                   (weight_rounding_ > 0 ? a_.smallest : 0) + scaled_weights_.Error(d);
    // Weights reach 2^16.5 before a reference moves, and one that moves by more than 2^126 leaves nothing of them. It shows where dropout
    // takes what is larger.
    const double lost_weight = a_.reference_lag > 0 ? std::ldexp(a_.smallest, 17) : a_.smallest;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      if (!std::isfinite(r_.masked_scores.at(row, j))) continue;
      const double v = std::fabs(v_.As<double>()[KvRow(b, h, j) * p_.v_dim + d]);
      const double weight = r_.weights.at(row, j);
      // A weight is at most 1, and so is its error.
      const double weight_error = weight > 0 ? std::min(1.0, weight * weight_error_[static_cast<std::size_t>(j)]) : 0;
      // What is rounded is the weight that came out, not the true one.
      const double rounded = weight + weight_error;
      bound += multipliers_.at(row, j) * (weight_error + rounded * (roundings * a_.unit + weight_rounding_) + lost_weight) * v;
    }
    bounds_.context.at(row, d) = bound;
  }

  const TestProblem& p_;
  const RunResult& r_;
  const Arithmetic& a_;
  const double weight_rounding_;
  const internal::IntegerRounding integers_;
  const double lost_;
  const Tensor q_, k_, v_;  // dense
  const Multipliers multipliers_;
  double largest_ = -kInfinity;                    // of the row at hand: its largest masked score
  std::vector<double> weight_error_;               // likewise: relative errors
  internal::ScaledWeights scaled_weights_{{}, 0};  // likewise
  Bounds bounds_;
};

// NaN wherever the reference has it, the same infinity, or a finite number.
bool SameClass(double a, double b) { return std::isfinite(a) ? std::isfinite(b) : (std::isnan(a) ? std::isnan(b) : a == b); }

}  // namespace

const Arithmetic& ArithmeticOf(Path path) {
  switch (path) {
    case Path::kReference:
      return kReference;
    case Path::kStaged:
      return kStaged;
    case Path::kFused:
      return kFused;
  }
  return kReference;
}

Multipliers::Multipliers(const TestProblem& p) : kv_len_(p.kv_len) {
  if (p.params.dropout == 0) return;
  values_ = DropoutMask({p.batch, p.heads, p.q_len, p.kv_len}, p.params.dropout, p.params.dropout_seed, p.dropout_origin);
  of_kept_ = internal::Dropout(p.params.dropout, 0, {}).multiplier;
}

double Growth(double terms) { return terms > 64 ? 8 * std::sqrt(terms) : terms; }

double ConversionRoundings(DType dtype, const Arithmetic& a) { return dtype == DType::kF64 && a.unit > 0x1p-53 ? 1 : 0; }

double StoredHalfUnit(DType dtype, double value) {
  if (!std::isfinite(value)) return 0;
  struct Format {
    int digits, min_exponent;
  };
  Format format;
  switch (dtype) {
    case DType::kF32:
      format = {24, -126};
      break;
    case DType::kF16:
      format = {11, -14};
      break;
    case DType::kBF16:
      format = {8, -126};
      break;
    default:
      return 0;
  }
  const int exponent = value == 0 ? format.min_exponent : std::max(format.min_exponent, std::ilogb(value));
  return std::ldexp(1.0, exponent - format.digits);
}

Bounds ErrorBounds(const TestProblem& problem, const RunResult& reference, const PathCase& path,
                   const internal::IntegerRounding& integers) {
  const bool fused = path.path == Path::kFused;
  const double weight_rounding = fused ? internal::WeightRounding(PlanShape::Of(problem.q, problem.k, problem.v), path.isa) : 0;
  return BoundsMaker(problem, reference, ArithmeticOf(path.path), weight_rounding, fused ? integers : internal::IntegerRounding())
      .Make();
}

void ErrorLedger::Compare(const PathCase& path, const TestProblem& problem, const RunResult& result, const RunResult& reference,
                          const Bounds& bounds) {
  SCOPED_TRACE(path.Name() + ", " + problem.description);
  bool right = result.empty_rows == reference.empty_rows;
  EXPECT_EQ(result.empty_rows, reference.empty_rows);
  const double unit = ArithmeticOf(path.path).unit;
  const std::string name = path.Name();
  right &= CompareGrid(name + " context", result.context, reference.context, bounds.context, unit);
  right &= CompareGrid(name + " lse", result.lse, reference.lse, bounds.lse, unit);
  if (!result.weights.values.empty()) {
    right &= CompareGrid(name + " scores", result.scores, reference.scores, bounds.scores, unit);
    right &= CompareGrid(name + " capped", result.capped, reference.capped, bounds.capped, unit);
    right &= CompareGrid(name + " masked_scores", result.masked_scores, reference.masked_scores, bounds.masked_scores, unit);
    right &= CompareGrid(name + " weights", result.weights, reference.weights, bounds.weights, unit);
  }
  if (!right) ADD_FAILURE() << DiagnosisOf(problem, result);
}

bool ErrorLedger::CompareGrid(const std::string& name, const Grid& result, const Grid& reference, const Grid& bound,
                              double unit) {
  EXPECT_EQ(result.values.size(), reference.values.size()) << name;
  if (result.values.size() != reference.values.size()) return false;
  double& worst = worst_[name];
  for (std::size_t n = 0; n < result.values.size(); ++n) {
    const double x = result.values[n], r = reference.values[n];
    // A narrow stored type may round what is finite to infinity.
    if (std::isinf(x) && std::isfinite(r) && result.dtype == DType::kF16 && std::fabs(r) + bound.values[n] >= 65520) continue;
    if (!SameClass(x, r)) {
      ADD_FAILURE() << name << " is " << x << ", reference " << r << ", at row " << static_cast<std::int64_t>(n) / result.columns
                    << ", column " << static_cast<std::int64_t>(n) % result.columns;
      return false;
    }
    if (!std::isfinite(r)) continue;
    const double error = std::fabs(x - r),
                 allowed = bound.values[n] + StoredHalfUnit(result.dtype, std::fabs(r) + bound.values[n]);
    if (error > allowed) {
      ADD_FAILURE() << name << " is " << x << ", reference " << r << ": error " << error << " exceeds " << allowed << " at row "
                    << static_cast<std::int64_t>(n) / result.columns << ", column "
                    << static_cast<std::int64_t>(n) % result.columns;
      return false;
    }
    // What the arithmetic did, not the storage: only results stored in full count.
    const bool stored_in_full = result.dtype == DType::kF64 || (result.dtype == DType::kF32 && unit == 0x1p-24);
    if (stored_in_full && error > 0) worst = std::max(worst, error / allowed);
  }
  return true;
}

void ErrorLedger::ExpectAlive() const {
  EXPECT_FALSE(worst_.empty()) << "nothing was compared";
  for (const auto& [name, worst] : worst_) {
    EXPECT_GE(worst, kIdle) << name << ": the largest error is " << worst
                            << " of what is allowed; the inputs exercise no rounding, or the "
                            << "tolerance is loose";
  }
}

std::string ErrorLedger::Summary() const {
  std::string text;
  for (const auto& [name, worst] : worst_) text += name + " " + std::to_string(worst) + "\n";
  return text;
}

}  // namespace regard::test
