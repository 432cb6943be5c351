// Faults of the softmax and its blocks: F60–F69, F108, F109.
#include <algorithm>
#include <cmath>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

// exp of more rounds to infinity, of less to 0.
constexpr double kExpOverflowF32 = 88.72283, kExpUnderflowF32 = -103.97208, kExpOverflowF16 = 11.0901106,
                 kExpUnderflowF16 = -17.3286795;

// Whole heads are needed: only while they are small.
bool HeadsAreSmall(const Case& c) { return c.problem().q_len * c.problem().kv_len <= (std::int64_t{1} << 21); }

// ------------------------------------------------------------------------------------------------------ the wrong axis

// ln Σ exp over queries of every key of head (b, h), computed once a variant.
const std::vector<double>& ColumnLse(RowState& s) {
  std::vector<double>& lse = (*s.variant->memo)[{s.id.b, s.id.h}];
  if (!lse.empty()) return lse;
  const std::size_t n = s.masked.size();
  std::vector<double> largest(n, -kInfinity), sum(n, 0);
  RowState row;
  for (std::int64_t i = 0; i < s.evaluator->problem().q_len; ++i) {
    s.evaluator->EvaluateMasked(*s.variant, {s.id.b, s.id.h, i}, &row);
    for (std::size_t j = 0; j < n; ++j) {
      const double x = row.masked[j];
      if (x == -kInfinity) continue;
      if (x > largest[j])
        sum[j] = sum[j] * std::exp(largest[j] - x) + 1, largest[j] = x;
      else
        sum[j] += std::exp(x - largest[j]);
    }
  }
  lse.resize(n);
  for (std::size_t j = 0; j < n; ++j) lse[j] = sum[j] > 0 ? largest[j] + std::log(sum[j]) : kNaN;  // a key nobody sees: 0/0
  return lse;
}

void SoftmaxOverQueries(const Case& c, Proposals& p) {
  if (!HeadsAreSmall(c) || c.problem().q_len == 1) return;
  for (const bool unseen_is_nan : {false, true}) {
    p.Add([unseen_is_nan](Variant& v) {
      v.softmax = [unseen_is_nan](RowState& s) {
        const std::vector<double>& lse = ColumnLse(s);
        s.weights.resize(s.masked.size());
        for (std::size_t j = 0; j < s.masked.size(); ++j) {
          s.weights[j] = std::isnan(lse[j]) ? (unseen_is_nan ? kNaN : 0) : std::exp(s.masked[j] - lse[j]);
        }
      };
    });
  }
}

void SoftmaxOverOne(const Case&, Proposals& p) {
  for (const bool hidden_too : {false, true}) {
    p.Add(
        [hidden_too](Variant& v) {
          v.softmax = [hidden_too](RowState& s) {
            s.weights.assign(s.masked.size(), 1);
            for (std::size_t j = 0; j < s.masked.size(); ++j) {
              if (s.masked[j] == -kInfinity && !hidden_too) s.weights[j] = 0;
            }
          };
        },
        hidden_too ? std::vector<ExplanationParam>{{"hidden_keys", 0, "counted too"}} : std::vector<ExplanationParam>{});
  }
}

constexpr std::int64_t kMostRowsAcross = 256;

// At each pair of query and key the weights of all sequences, all heads, or both together sum to 1.
RowEdit SoftmaxAcross(bool batch, bool heads) {
  return [batch, heads](RowState& s) {
    const Problem& x = s.evaluator->problem();
    std::vector<double> sum(s.masked.size(), 0);
    RowState other;
    for (std::int64_t b = batch ? 0 : s.id.b; b < (batch ? x.batch : s.id.b + 1); ++b) {
      for (std::int64_t h = heads ? 0 : s.id.h; h < (heads ? x.heads : s.id.h + 1); ++h) {
        s.evaluator->EvaluateMasked(*s.variant, {b, h, s.id.i}, &other);
        for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += std::exp(other.masked[j] - s.masked[j]);
      }
    }
    Evaluator::SoftmaxOverKeys(s);  // for the lse
    for (std::size_t j = 0; j < s.masked.size(); ++j) s.weights[j] = s.masked[j] == -kInfinity ? 0 : 1 / sum[j];
  };
}

void SoftmaxOverHeads(const Case& c, Proposals& p) {
  if (c.problem().heads == 1) return;
  p.Add([](Variant& v) {
    v.softmax = [](RowState& s) {
      double largest = -kInfinity, sum = 0;
      RowState other;
      std::vector<double> all;
      for (std::int64_t h = 0; h < s.evaluator->problem().heads; ++h) {
        s.evaluator->EvaluateMasked(*s.variant, {s.id.b, h, s.id.i}, &other);
        all.insert(all.end(), other.masked.begin(), other.masked.end());
      }
      for (const double x : all) largest = std::max(largest, x);
      for (const double x : all) sum += x == -kInfinity ? 0 : std::exp(x - largest);
      s.weights.assign(s.masked.size(), 0);
      for (std::size_t j = 0; j < s.masked.size(); ++j) {
        if (s.masked[j] != -kInfinity) s.weights[j] = std::exp(s.masked[j] - largest) / sum;
      }
      s.lse = largest + std::log(sum);
    };
  });
  p.Add([](Variant& v) { v.softmax = SoftmaxAcross(false, true); }, {{"axis", 0, "heads alone"}});
}

void SoftmaxOverBatch(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.batch == 1 || x.batch * x.heads > kMostRowsAcross) return;
  p.Add([](Variant& v) { v.softmax = SoftmaxAcross(true, false); }, {{"axis", 0, "batch"}});
  if (x.heads > 1) p.Add([](Variant& v) { v.softmax = SoftmaxAcross(true, true); }, {{"axis", 0, "batch·heads"}});
}

// -------------------------------------------------------------------------------------------------- the wrong function

void SoftmaxTwice(const Case&, Proposals& p) {
  for (const bool hidden_too : {true, false}) {
    p.Add(
        [hidden_too](Variant& v) {
          v.softmax = [hidden_too](RowState& s) {
            Evaluator::SoftmaxOverKeys(s);
            const double lse = s.lse;
            s.masked = s.weights;
            for (std::size_t j = 0; j < s.masked.size(); ++j) {
              if (!hidden_too && !s.visible[j]) s.masked[j] = -kInfinity;
            }
            Evaluator::SoftmaxOverKeys(s);
            s.lse = lse;
          };
        },
        {{"second_over", 0, hidden_too ? "all keys" : "visible keys"}});
  }
}

void NotNormalised(const Case&, Proposals& p) {
  p.Add(
      [](Variant& v) {
        v.softmax = [](RowState& s) {
          s.weights.resize(s.masked.size());
          for (std::size_t j = 0; j < s.masked.size(); ++j) s.weights[j] = std::exp(s.masked[j]);
        };
      },
      {{"weights", 0, "exp(scores)"}});
  p.Add(
      [](Variant& v) {
        v.softmax = [](RowState& s) {
          double largest = -kInfinity;
          for (const double x : s.masked) largest = std::max(largest, x);
          s.weights.resize(s.masked.size());
          for (std::size_t j = 0; j < s.masked.size(); ++j)
            s.weights[j] = s.masked[j] == -kInfinity ? 0 : std::exp(s.masked[j] - largest);
        };
      },
      {{"weights", 0, "exp(scores − max)"}});
  p.Add(
      [](Variant& v) {
        v.softmax = [](RowState& s) {
          s.weights = s.masked;
          for (double& w : s.weights) w = w == -kInfinity ? 0 : w;
        };
      },
      {{"weights", 0, "the scores themselves"}});
  p.Add(
      [](Variant& v) {
        v.softmax = [](RowState& s) {
          Evaluator::SoftmaxOverKeys(s);
          for (std::size_t j = 0; j < s.weights.size(); ++j) s.weights[j] = s.masked[j] - s.lse;
        };
      },
      {{"weights", 0, "log_softmax(scores)"}});
  p.Add(
      [](Variant& v) {
        v.softmax = [](RowState& s) {
          s.weights = s.masked;
          double sum = 0;
          for (double& w : s.weights) w = w == -kInfinity ? 0 : w, sum += w;
          for (double& w : s.weights) w /= sum;
        };
      },
      {{"weights", 0, "scores / Σ scores"}}, 1);
}

// exp2(scores) is exp(scores · ln 2); exp(scores · log2(e)) forgot that exp2 was meant.
RowEdit SoftmaxInBase(double factor) {
  return [factor](RowState& s) {
    const std::vector<double> masked = s.masked;
    const double sink = s.sink;
    for (double& x : s.masked) x *= factor;
    s.sink *= factor;
    s.largest_dot *= factor, s.largest_score *= factor;
    Evaluator::SoftmaxOverKeys(s);
    s.masked = masked, s.sink = sink;
  };
}

void OtherBase(const Case&, Proposals& p) {
  p.Add([](Variant& v) { v.softmax = SoftmaxInBase(0.6931471805599453); }, {{"weights", 0, "2^scores"}});
  p.Add([](Variant& v) { v.softmax = SoftmaxInBase(1.4426950408889634); }, {{"weights", 0, "e^(scores·log2(e))"}});
}

// exp(score − subtracted) in a type that ends at exp(overflow), its sum in one that ends at exp(sum_overflow).
RowEdit SoftmaxWithout(double subtracted, double overflow, double underflow, double sum_overflow) {
  return [=](RowState& s) {
    const double largest_sum = std::exp(sum_overflow);
    double sum = 0;
    s.weights.assign(s.masked.size(), 0);
    for (std::size_t j = 0; j < s.masked.size(); ++j) {
      const double x = s.masked[j] - subtracted;
      s.weights[j] = x > overflow ? kInfinity : x < underflow ? 0 : std::exp(x);
      sum += s.weights[j];
    }
    if (sum > largest_sum) sum = kInfinity;
    for (double& w : s.weights) w = w / sum;  // inf/inf and 0/0 are NaN, finite/inf is 0
    s.lse = sum > 0 ? std::log(sum) + subtracted : -kInfinity;
    if (s.num_visible == 0) std::fill(s.weights.begin(), s.weights.end(), 0.0);
  };
}

struct ExpType {
  const char* name;
  double overflow, underflow, sum_overflow;
};
constexpr ExpType kExpTypes[] = {{"f32", kExpOverflowF32, kExpUnderflowF32, kExpOverflowF32},
                                 {"f16", kExpOverflowF16, kExpUnderflowF16, kExpOverflowF16},
                                 {"f16, summed in f32", kExpOverflowF16, kExpUnderflowF16, kExpOverflowF32}};

void NoMaximum(const Case&, Proposals& p) {
  for (const ExpType& type : kExpTypes) {
    p.Add([type](Variant& v) { v.softmax = SoftmaxWithout(0, type.overflow, type.underflow, type.sum_overflow); },
          {{"type", 0, type.name}});
  }
}

void ConstantForMaximum(const Case&, Proposals& p) {
  for (const double constant : {10.0, 5.0, 20.0, 50.0, 100.0, -10.0}) {
    for (const ExpType& type : kExpTypes) {
      p.Add([constant,
             type](Variant& v) { v.softmax = SoftmaxWithout(constant, type.overflow, type.underflow, type.sum_overflow); },
            {{"subtracted", constant}, {"type", 0, type.name}}, constant == 10 ? 0 : 1);
    }
  }
}

void MaximumStart(const Case&, Proposals& p) {
  for (const double start : {0.0, -10.0, -100.0, -1000.0, -10000.0}) {
    for (const bool nan : {false, true}) {
      p.Add(
          [start, nan](Variant& v) {
            v.softmax = [start, nan](RowState& s) {
              Evaluator::SoftmaxOverKeys(s);
              double largest = -kInfinity;
              for (const double x : s.masked) largest = std::max(largest, x);
              if (s.num_visible == 0 || !(largest < start)) return;
              double sum = 0;
              for (std::size_t j = 0; j < s.masked.size(); ++j) {
                const double x = s.masked[j] - start;
                // f32 keeps fewer bits below 2⁻¹²⁶; that shows as rounding.
                s.weights[j] = x < kExpUnderflowF32 ? 0 : static_cast<double>(static_cast<float>(std::exp(x)));
                sum += s.weights[j];
              }
              for (double& w : s.weights) w = sum > 0 ? w / sum : nan ? kNaN : 0;
              s.lse = sum > 0 ? s.lse : nan ? kNaN : -kInfinity;
            };
          },
          {{"start", start}, {"lost_rows", 0, nan ? "NaN" : "0"}}, start == 0 ? 0 : 1);
    }
  }
}

// -------------------------------------------------------------------------------------------------------------- blocks

enum class Rescale { kAccumulatorStale, kNothing, kSumStale, kPerBlock };

// The online softmax over blocks of keys with one of its two rescalings left out. In the end weights are p / sum.
RowEdit BlockwiseSoftmax(std::int64_t block, Rescale fault) {
  return [block, fault](RowState& s) {
    const std::int64_t n = static_cast<std::int64_t>(s.masked.size());
    s.weights.assign(s.masked.size(), 0);
    double running = -kInfinity, sum = 0;
    for (std::int64_t first = 0; first < n; first += block) {
      const std::int64_t end = std::min(n, first + block);
      double largest = -kInfinity;
      for (std::int64_t j = first; j < end; ++j) largest = std::max(largest, s.masked[static_cast<std::size_t>(j)]);
      const double reference = fault == Rescale::kPerBlock ? largest : std::max(running, largest);
      if (reference == -kInfinity) continue;
      const double factor = running == -kInfinity ? 0 : std::exp(running - reference);
      if (fault != Rescale::kNothing && fault != Rescale::kSumStale && fault != Rescale::kPerBlock) sum *= factor;
      if (fault == Rescale::kSumStale) {
        for (std::int64_t j = 0; j < first; ++j) s.weights[static_cast<std::size_t>(j)] *= factor;
      }
      for (std::int64_t j = first; j < end; ++j) {
        const double x = s.masked[static_cast<std::size_t>(j)];
        const double weight = x == -kInfinity ? 0 : std::exp(x - reference);
        s.weights[static_cast<std::size_t>(j)] = weight;
        sum += weight;
      }
      running = reference;
    }
    for (double& w : s.weights) w = sum > 0 ? w / sum : 0;
  };
}

void StaleAccumulator(const Case& c, Proposals& p) {
  for (const std::int64_t block : BlockSizes(c.problem().kv_len)) {
    const std::pair<const char*, Rescale> faults[] = {{"accumulator", Rescale::kAccumulatorStale},
                                                      {"accumulator and sum", Rescale::kNothing},
                                                      {"sum", Rescale::kSumStale},
                                                      {"maximum, taken per block", Rescale::kPerBlock}};
    for (const auto& [name, fault] : faults) {
      p.Add([block, fault](Variant& v) { v.softmax = BlockwiseSoftmax(block, fault); },
            {{"block", Number(block)}, {"not_carried", 0, name}}, 1);
    }
  }
}

std::string BlocksWithTail(std::int64_t len, std::int64_t missing) {
  for (const std::int64_t block : {16, 32, 64, 128, 256, 8, 4, 2}) {
    if (block > missing && (block - len % block) % block == missing) return std::to_string(block);
  }
  return {};
}

void TailOfLastBlock(const Case& c, Proposals& p) {
  const std::int64_t len = c.problem().kv_len;
  for (std::int64_t padded = 1; padded <= 255; ++padded) {
    std::vector<ExplanationParam> params = {{"padded_keys", Number(padded)}};
    if (const std::string block = BlocksWithTail(len, padded); !block.empty()) params.push_back({"block", std::stod(block)});
    p.AddWithSlots(
        slot::kSink,
        [padded](Variant& v) {
          v.sink = [padded](const RowState& s) {
            const double more = std::log(Number(padded));  // that many keys with score 0 and value 0
            if (s.sink == -kInfinity) return more;
            const double largest = std::max(s.sink, more);
            return largest + std::log(std::exp(s.sink - largest) + std::exp(more - largest));
          };
        },
        params, 1);
  }
  for (const std::int64_t block : {2, 4, 8, 16, 32, 64, 128, 256}) {
    const std::int64_t tail = len % block;
    if (tail == 0 || tail == len) continue;
    p.AddWithSlots(
        slot::kMasking,
        [tail](Variant& v) {
          v.masking = [tail](RowState& s) {
            for (std::size_t j = s.masked.size() - static_cast<std::size_t>(tail); j < s.masked.size(); ++j) {
              s.num_visible -= s.visible[j];
              s.visible[j] = 0;
            }
            Evaluator::MaskByRules(s);
          };
        },
        {{"dropped_keys", Number(tail)}, {"block", Number(block)}}, 1);
  }
}

constexpr Fault kFaults[] = {
    {"F60", "softmax over queries", Stage::kWeights, slot::kSoftmax, "columns normalised",
     "columns of the weights sum to 1, rows do not", "softmax over keys: the last axis of [.., queries, keys]",
     SoftmaxOverQueries, false, true},
    {"F61", "softmax over an axis of length 1", Stage::kWeights, slot::kSoftmax, "exp/exp = 1",
     "all weights are 1; the context is the sum of v", "softmax over keys: check the axis after the last reshape",
     SoftmaxOverOne},
    {"F62", "softmax joint over heads", Stage::kWeights, slot::kSoftmax, "heads and keys normalised together",
     "row sums below 1; all heads together sum to 1", "softmax over keys only: do not flatten heads into the axis",
     SoftmaxOverHeads},
    {"F108", "softmax over the batch", Stage::kWeights, slot::kSoftmax, "sequences, or all heads of all, normalised together",
     "row sums below 1; all sequences together sum to 1; a batch of one gives weights of 1 or what F62 gives",
     "name the axis: softmax over keys, the last one (without dim, torch takes axis 0 of three axes)", SoftmaxOverBatch},
    {"F109", "another base of the exponential", Stage::kWeights, slot::kSoftmax, "2^scores, or e^(scores·log2(e))",
     "logarithms of weights in the ratio 0.6931 or 1.4427", "exp2 takes scores · log2(e); exp takes the scores as they are",
     OtherBase},
    {"F63", "softmax twice", Stage::kWeights, slot::kSoftmax, "softmax(softmax(scores))",
     "weights squeezed into a ratio of at most e", "pass scores, not weights, to the function that applies softmax",
     SoftmaxTwice},
    {"F64", "not normalised", Stage::kWeights, slot::kSoftmax, "exp(scores), or the scores themselves",
     "row sums are arbitrary, or weights negative", "divide by the row's sum of exponentials", NotNormalised},
    {"F65", "no maximum subtracted", Stage::kWeights, slot::kSoftmax, "exp(scores) / Σ exp(scores)",
     "NaN where a score exceeds 88 (f32) or 11 (f16)", "subtract the row's maximum before exp", NoMaximum},
    {"F66", "a constant instead of the maximum", Stage::kWeights, slot::kSoftmax, "exp(scores − constant)",
     "NaN only in rows with large scores", "subtract the row's own maximum", ConstantForMaximum},
    {"F67", "running maximum starts too high", Stage::kWeights, slot::kSoftmax, "maximum starts at 0 or a finite number",
     "rows whose scores all lie far below it become 0 or NaN", "start the running maximum at −inf", MaximumStart},
    {"F68", "blocks not rescaled", Stage::kWeights, slot::kSoftmax, "old blocks keep their old maximum",
     "exact for one block, or when maxima fall", "when the maximum rises, multiply sum and accumulator by exp(old − new)",
     StaleAccumulator},
    {"F69", "tail of the last block", Stage::kWeights, slot::kSoftmax,
     "padded keys of the last block scored 0, or the tail dropped",
     "exact when kv_len is a multiple of the block; with v = 1 the context is below 1", "mask the tail: keys ≥ kv_len get −inf",
     TailOfLastBlock},
};

}  // namespace

std::span<const Fault> SoftmaxFaults() { return kFaults; }

}  // namespace regard::internal
