#include "tests/summary/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Where tokens stand within their own segments; without segments, in the sequence.
struct Places {
  std::vector<std::int64_t> query, key,
      first_key;  // [batch, q_len], [batch, kv_len]; first key of the query's segment, −1 if none
  explicit Places(const TestProblem& p) {
    const auto number = [](const TensorView& segments, std::int64_t b, std::int64_t t) {
      return static_cast<std::int64_t>(segments.rank() == 1 ? segments(t) : segments(segments.dim(0) == 1 ? 0 : b, t));
    };
    const auto place = [&](const TensorView& segments, std::int64_t length, std::vector<std::int64_t>* to) {
      for (std::int64_t b = 0; b < p.batch; ++b) {
        std::int64_t begin = 0;
        for (std::int64_t t = 0; t < length; ++t) {
          if (segments && t > 0 && number(segments, b, t) != number(segments, b, t - 1)) begin = t;
          to->push_back(t - begin);
        }
      }
    };
    place(p.params.q_segments, p.q_len, &query);
    place(p.params.kv_segments, p.kv_len, &key);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t i = 0; i < p.q_len; ++i) {
        std::int64_t first = p.params.q_segments ? -1 : 0;
        for (std::int64_t j = p.kv_len - 1; p.params.q_segments && j >= 0; --j) {
          if (number(p.params.kv_segments, b, j) == number(p.params.q_segments, b, i)) first = j;
        }
        first_key.push_back(first);
      }
    }
  }
};

std::int64_t OffsetOf(const TestProblem& p, std::int64_t b) {
  const QOffset& offset = p.params.q_offset;
  if (offset.per_sequence()) return static_cast<std::int64_t>(offset.per_sequence()(b));
  if (offset.is_stated()) return *offset.value();
  return p.params.kv_lens ? static_cast<std::int64_t>(p.params.kv_lens(b)) - p.q_len : 0;
}

bool PositionsKnown(const TestProblem& p) { return p.params.q_offset.is_stated() || p.params.kv_lens || p.q_len == p.kv_len; }

// One problem with the definition's weights, their bounds, and what was summarized; [rows, …] as Grid.
class Comparison {
 public:
  Comparison(const TestProblem& problem, const PathCase& path, const SummaryOptions& options)
      : p_(problem),
        o_(options),
        places_(problem),
        r_(RunPath(ReferencePath(), problem)),
        bounds_(ErrorBounds(problem, r_, path)),
        s_(Summarize(p_.q, p_.k, p_.v, p_.params, o_, {.isa = path.isa, .threads = p_.threads})) {}

  void Check() {
    EXPECT_EQ(s_.empty_rows, r_.empty_rows);
    for (row_ = 0; row_ < p_.num_rows(); ++row_) {
      i_ = row_ % p_.q_len;
      b_ = row_ / (p_.heads * p_.q_len);
      CheckTopKeys();
      CheckRow();
      if (testing::Test::HasFailure()) return;
    }
    for (std::int64_t head = 0; head < p_.batch * p_.heads; ++head) {
      CheckKeys(head);
      CheckPooled(head);
      if (o_.head_kind) CheckKind(head);
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  double Weight(std::int64_t row, std::int64_t j) const { return r_.weights.at(row, j); }
  bool Visible(std::int64_t row, std::int64_t j) const { return r_.masked_scores.at(row, j) != -kInfinity; }
  // The weights of a row share the error of its lse and its rounding to log2 units. Weights do not exceed 1.
  double WeightBound(std::int64_t row, std::int64_t j) const {
    if (!Visible(row, j)) return 0;
    const double lse = r_.lse.at(row, 0), shared = bounds_.lse.at(row, 0) + 3 * kUnit * std::fabs(lse);
    const double bound = bounds_.weights.at(row, j) + (Weight(row, j) > 0 ? Weight(row, j) * std::expm1(shared) : 0) + 0x1p-126;
    return std::min(1.0, bound);
  }
  // Of a masked score as the second pass has it, whose sum starts at −lse.
  double ScoreBound(std::int64_t row, std::int64_t j) const {
    return bounds_.masked_scores.at(row, j) + static_cast<double>(p_.head_dim + 8) * kUnit * (std::fabs(r_.lse.at(row, 0)) + 8);
  }
  double Value(const Tensor& tensor, std::int64_t index) const { return static_cast<double>(tensor.As<float>()[index]); }
  std::int64_t Distance(std::int64_t row, std::int64_t j) const {
    const std::int64_t b = row / (p_.heads * p_.q_len);
    return places_.query[static_cast<std::size_t>(b * p_.q_len + row % p_.q_len)] + OffsetOf(p_, b) -
           places_.key[static_cast<std::size_t>(b * p_.kv_len + j)];
  }

  void Near(const char* name, double value, double expected, double bound) {
    EXPECT_LE(std::fabs(value - expected), bound)
        << name << " is " << value << ", the definition's " << expected << ", row " << row_;
  }

  void CheckTopKeys() {
    std::int64_t num_visible = 0, best = -1;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      if (!Visible(row_, j)) continue;
      ++num_visible;
      if (best < 0 || r_.masked_scores.at(row_, j) > r_.masked_scores.at(row_, best)) best = j;
    }
    const std::int64_t argmax = s_.row_argmax.As<std::int64_t>()[row_];
    if (best < 0) {
      EXPECT_EQ(argmax, -1);
      EXPECT_EQ(Value(s_.row_max, row_), -kInfinity);
    } else {
      const double largest = r_.masked_scores.at(row_, best);
      Near("row_max", Value(s_.row_max, row_), largest, ScoreBound(row_, best) + 2 * kUnit * std::fabs(largest));
      ASSERT_TRUE(argmax >= 0 && argmax < p_.kv_len && Visible(row_, argmax));
      EXPECT_GE(r_.masked_scores.at(row_, argmax) + ScoreBound(row_, argmax) + ScoreBound(row_, best), largest);
      EXPECT_EQ(argmax, s_.topk_index.As<std::int64_t>()[row_ * o_.top_k]);
    }
    const std::int64_t count = std::min<std::int64_t>(o_.top_k, num_visible);
    const std::int64_t* const keys = s_.topk_index.As<std::int64_t>() + row_ * o_.top_k;
    std::vector<bool> listed(static_cast<std::size_t>(p_.kv_len));
    double tail = 0, tail_bound = 8 * kUnit;
    for (std::int64_t n = 0; n < o_.top_k; ++n) {
      if (n >= count) {
        ASSERT_EQ(keys[n], -1);
        ASSERT_EQ(Value(s_.topk_weight, row_ * o_.top_k + n), 0);
        continue;
      }
      ASSERT_TRUE(keys[n] >= 0 && keys[n] < p_.kv_len && Visible(row_, keys[n])) << "key " << keys[n] << ", row " << row_;
      ASSERT_FALSE(listed[static_cast<std::size_t>(keys[n])]) << "listed twice";
      listed[static_cast<std::size_t>(keys[n])] = true;
      Near("topk_weight", Value(s_.topk_weight, row_ * o_.top_k + n), Weight(row_, keys[n]),
           WeightBound(row_, keys[n]) + 2 * kUnit);
      if (n > 0) ExpectBefore(keys[n - 1], keys[n]);
    }
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      tail_bound += WeightBound(row_, j) + 4 * kUnit * Weight(row_, j);
      if (!Visible(row_, j) || listed[static_cast<std::size_t>(j)]) continue;
      tail += Weight(row_, j);
      if (count > 0) ExpectBefore(keys[count - 1], j);
    }
    Near("topk_tail", Value(s_.topk_tail, row_), tail, num_visible < o_.top_k ? 0 : tail_bound);
  }

  // Key a may stand before key b: its score is larger as far as rounding tells, and where both come from the same numbers it is lower.
  void ExpectBefore(std::int64_t a, std::int64_t b) {
    const double score_a = r_.masked_scores.at(row_, a), score_b = r_.masked_scores.at(row_, b);
    EXPECT_GE(score_a + ScoreBound(row_, a) + ScoreBound(row_, b), score_b) << "keys " << a << " and " << b << ", row " << row_;
    if (p_.family == Family::kEqual && !p_.params.bias && !p_.params.alibi_slopes) {
      EXPECT_LT(a, b) << "equal scores, row " << row_;
    }
  }

  void CheckRow() {
    double sum = 0, entropy = 0, entropy_bound = 0, bound = 0, mean = 0, window = 0, window_bound = 0, num_visible = 0;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      const double w = Weight(row_, j), e = WeightBound(row_, j);
      num_visible += Visible(row_, j) ? 1 : 0;
      sum += w;
      bound += e;
      if (w > 0) entropy -= w * std::log(w);
      // |w ln w| changes by no more than this when w does by e, and its logarithm has the score's error.
      if (Visible(row_, j))
        entropy_bound += e * (2 + std::fabs(std::log(std::max(w, e)))) + 4 * kUnit * w * std::fabs(std::log(std::max(w, 1e-300)));
      if (o_.distance && std::llabs(Distance(row_, j)) <= *o_.window_share) {
        window += w;
        window_bound += e + 8 * kUnit * w;
      }
      if (o_.distance) mean += w * static_cast<double>(Distance(row_, j));
    }
    Near("entropy", Value(s_.entropy, row_), entropy, entropy_bound + 4 * kUnit * entropy + 1e-37);
    EXPECT_GE(Value(s_.entropy, row_), 0);
    const double most = std::log(std::max(1.0, num_visible + (p_.params.sinks ? 1 : 0)));
    EXPECT_LE(Value(s_.entropy, row_), most * (1 + 2 * kUnit));
    const std::int64_t first = places_.first_key[static_cast<std::size_t>(b_ * p_.q_len + i_)];
    const bool has_first = first >= 0 && first < p_.kv_len;
    Near("first_key_share", Value(s_.first_key_share, row_), has_first ? Weight(row_, first) : 0,
         has_first ? WeightBound(row_, first) : 0);
    if (!o_.distance) return;
    Near("window_share", Value(s_.window_share, row_), window, window_bound);
    CheckDistance(sum, mean, bound);
  }

  void CheckDistance(double sum, double first_moment, double bound) {
    const double mean = Value(s_.distance_mean, row_), deviation = Value(s_.distance_std, row_);
    // Weights that underflow in f32 but not in double leave nothing to divide by.
    if (sum < 0x1p-100) return;
    const double expected = first_moment / sum;
    double variance = 0, mean_bound = 0, variance_bound = 0;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      const double from_mean = static_cast<double>(Distance(row_, j)) - expected,
                   e = WeightBound(row_, j) + 8 * kUnit * Weight(row_, j);
      variance += Weight(row_, j) * from_mean * from_mean / sum;
      mean_bound += e * std::fabs(from_mean);
      variance_bound += e * from_mean * from_mean;
    }
    const double left = sum - bound;
    if (left <= 0) return;  // the errors of the weights leave nothing certain
    mean_bound = mean_bound / left + 8 * kUnit * (std::fabs(expected) + 128);
    variance_bound = variance_bound / left + variance * (bound / left + 16 * kUnit) + mean_bound * mean_bound;
    Near("distance_mean", mean, expected, mean_bound);
    const double std_bound =
        variance > variance_bound ? variance_bound / std::sqrt(variance) : 2 * std::sqrt(variance + variance_bound);
    Near("distance_std", deviation, std::sqrt(variance), std_bound + 2 * kUnit * std::sqrt(variance));
  }

  void CheckKeys(std::int64_t head) {
    double total = 0, total_expected = 0, total_bound = 0;
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      double mass = 0, bound = 0;
      std::int64_t queries = 0;
      for (row_ = head * p_.q_len; row_ < (head + 1) * p_.q_len; ++row_) {
        mass += Weight(row_, j);
        bound += WeightBound(row_, j) + 8 * kUnit * Weight(row_, j);
        queries += Visible(row_, j) ? 1 : 0;
      }
      Near("key_mass", Value(s_.key_mass, head * p_.kv_len + j), mass, bound);
      const double mass_mean = Value(s_.key_mass_mean, head * p_.kv_len + j);
      if (queries == 0) {
        EXPECT_TRUE(std::isnan(mass_mean));
      } else {
        Near("key_mass_mean", mass_mean, mass / static_cast<double>(queries),
             (bound + kUnit * (mass + bound)) / static_cast<double>(queries));
      }
      total += Value(s_.key_mass, head * p_.kv_len + j);
      total_expected += mass;
      total_bound += bound;
      CheckTopRows(head, j);
    }
    Near("total of key_mass", total, total_expected, total_bound);
  }

  void CheckTopRows(std::int64_t head, std::int64_t j) {
    const std::int64_t top = o_.key_top_k, at = (head * p_.kv_len + j) * top;
    const std::int64_t* const rows = s_.key_topk_index.As<std::int64_t>() + at;
    const float* const weights = s_.key_topk_weight.As<float>() + at;
    std::vector<bool> listed(static_cast<std::size_t>(p_.q_len));
    for (std::int64_t n = 0; n < top; ++n) {
      if (rows[n] < 0) {
        ASSERT_EQ(weights[n], 0);
        continue;
      }
      ASSERT_LT(rows[n], p_.q_len);
      ASSERT_FALSE(listed[static_cast<std::size_t>(rows[n])]);
      listed[static_cast<std::size_t>(rows[n])] = true;
      row_ = head * p_.q_len + rows[n];
      Near("key_topk_weight", weights[n], Weight(row_, j), WeightBound(row_, j));
      if (n == 0) continue;
      ASSERT_GE(weights[n - 1], weights[n]);
      if (weights[n - 1] == weights[n]) {
        ASSERT_LT(rows[n - 1], rows[n]) << "equal weights, key " << j;
      }
    }
    for (std::int64_t i = 0; i < p_.q_len; ++i) {
      row_ = head * p_.q_len + i;
      if (!listed[static_cast<std::size_t>(i)]) {
        EXPECT_LE(Weight(row_, j), weights[top - 1] + WeightBound(row_, j)) << "left out of key " << j << ", row " << row_;
      }
    }
  }

  void CheckPooled(std::int64_t head) {
    const std::int64_t rows = std::min(o_.pooled_rows, p_.q_len), cols = std::min(o_.pooled_cols, p_.kv_len);
    ASSERT_EQ(s_.pooled.dim(-2), rows);
    ASSERT_EQ(s_.pooled.dim(-1), cols);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        double sum = 0, bound = 0, max = 0, max_bound = 0, queries = 0;
        for (std::int64_t i = r * p_.q_len / rows; i < (r + 1) * p_.q_len / rows; ++i) {
          row_ = head * p_.q_len + i;
          bool sees = false;
          for (std::int64_t j = 0; j < p_.kv_len; ++j) sees = sees || Visible(row_, j);
          queries += sees ? 1 : 0;
          for (std::int64_t j = c * p_.kv_len / cols; j < (c + 1) * p_.kv_len / cols; ++j) {
            sum += Weight(row_, j);
            bound += WeightBound(row_, j) + 8 * kUnit * Weight(row_, j);
            max = std::max(max, Weight(row_, j));
            max_bound = std::max(max_bound, WeightBound(row_, j));
          }
        }
        const double pooled = Value(s_.pooled, (head * rows + r) * cols + c),
                     largest = Value(s_.pooled_max, (head * rows + r) * cols + c);
        if (queries == 0) {
          EXPECT_TRUE(std::isnan(pooled) && std::isnan(largest));
          continue;
        }
        Near("pooled", pooled, sum / queries, (bound + kUnit * (sum + bound)) / queries);
        Near("pooled_max", largest, max, max_bound);
      }
    }
  }

  void CheckKind(std::int64_t head) {
    double queries = 0, previous = 0, self = 0, first = 0, local = 0, uniform = 0, doubt = 1e-5;
    bool sees_far = false;  // further than 8
    for (row_ = head * p_.q_len; row_ < (head + 1) * p_.q_len; ++row_) {
      double num_visible = 0, entropy = 0, bound = 0;
      b_ = row_ / (p_.heads * p_.q_len);
      for (std::int64_t j = 0; j < p_.kv_len; ++j) {
        if (!Visible(row_, j)) continue;
        const double w = Weight(row_, j);
        const std::int64_t d = Distance(row_, j);
        ++num_visible;
        sees_far = sees_far || std::llabs(d) > 8;
        bound += WeightBound(row_, j);
        if (w > 0) entropy -= w * std::log(w);
        if (d == 1) previous += w;
        if (d == 0) self += w;
        if (std::llabs(d) <= 8) local += w;
        if (j == places_.first_key[static_cast<std::size_t>(b_ * p_.q_len + row_ % p_.q_len)]) first += w;
      }
      if (num_visible == 0) continue;
      queries += 1;
      doubt += 20 * bound;
      uniform += num_visible == 1 ? 1 : entropy / std::log(num_visible);
    }
    const HeadKind kind = s_.head_kind[static_cast<std::size_t>(head)];
    const double score = Value(s_.head_score, head);
    if (queries == 0) {
      EXPECT_EQ(kind, HeadKind::kMixed);
      EXPECT_TRUE(std::isnan(score));
      return;
    }
    doubt = doubt / queries + 1e-5;
    // A sink lets the entropy of what is left exceed ln n.
    const double uniformity = std::min(1.0, uniform / queries);
    const std::pair<HeadKind, double> shares[] = {
        {HeadKind::kPreviousToken, previous}, {HeadKind::kSelf, self}, {HeadKind::kFirstToken, first}, {HeadKind::kLocal, local}};
    for (const auto& [expected, share] : shares) {
      if (expected == HeadKind::kLocal && !sees_far) {
        if (p_.params.mask || p_.params.bias) return;  // which may hide what the rules of position show
        break;
      }
      if (std::fabs(share / queries - 0.5) <= doubt) return;  // rounding decides
      if (share / queries < 0.5) continue;
      if (uniformity >= 0.9 - doubt && std::fabs(uniformity - share / queries - 1e-3) <= doubt) return;
      if (uniformity > share / queries + 1e-3) {
        if (std::fabs(uniformity - 0.9) <= doubt) return;
        if (uniformity >= 0.9) continue;
      }
      EXPECT_EQ(kind, expected) << Name(kind) << " instead of " << Name(expected);
      EXPECT_NEAR(score, share / queries, doubt);
      return;
    }
    EXPECT_TRUE(sees_far || (kind != HeadKind::kLocal && kind != HeadKind::kDiagonalBand)) << Name(kind);
    if (kind == HeadKind::kDiagonalBand) {
      EXPECT_GE(score, 0.5);
      return;
    }
    if (std::fabs(uniformity - 0.9) <= doubt) return;
    EXPECT_EQ(kind, uniformity >= 0.9 ? HeadKind::kUniform : HeadKind::kMixed) << uniformity;
    if (kind == HeadKind::kUniform) {
      EXPECT_NEAR(score, uniformity, doubt);
    }
  }

  const TestProblem& p_;
  const SummaryOptions o_;
  const Places places_;
  const RunResult r_;
  const Bounds bounds_;
  const Summary s_;
  std::int64_t row_ = 0, i_ = 0, b_ = 0;
};

}  // namespace

std::vector<PathCase> FusedPaths() {
  std::vector<PathCase> paths = OptimizedPaths();
  std::erase_if(paths, [](const PathCase& path) { return path.path != Path::kFused; });
  return paths;
}

SummaryOptions Everything(const TestProblem& p, Random& random) {
  SummaryOptions o{
      .row_max = true, .row_argmax = true, .entropy = true, .top_k = static_cast<int>(random.Int(1, 9)), .first_key_share = true};
  o.key_mass = o.key_mass_mean = true;
  o.key_top_k = static_cast<int>(random.Int(1, 5));
  o.pooled_rows = random.Int(1, 12);
  o.pooled_cols = random.Int(1, 50);
  o.pooled_max = true;
  if (PositionsKnown(p)) {
    o.distance = o.head_kind = true;
    o.window_share = random.Int(0, 12);
  }
  return o;
}

void CompareWithDefinition(const TestProblem& problem, const PathCase& path, const SummaryOptions& options) {
  Comparison(problem, path, options).Check();
}

}  // namespace regard::test
