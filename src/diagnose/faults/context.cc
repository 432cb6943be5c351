// Faults of the value product, of merging and of what is returned besides: F19, F77, F80–F83, F95.
#include <algorithm>
#include <cmath>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

// The weights times other rows than those of v: row(s, j) is what key j contributes, [v_dim].
template <typename Row>
void MultiplyByRows(RowState& s, const Row& row) {
  s.context.assign(static_cast<std::size_t>(s.variant->operands->v_dim), 0);
  s.magnitude = s.context;
  for (std::size_t j = 0; j < s.weights.size(); ++j) {
    if (s.weights[j] == 0) continue;
    const double* const x = row(s, static_cast<std::int64_t>(j));
    for (std::size_t d = 0; d < s.context.size(); ++d)
      s.context[d] += s.weights[j] * x[d], s.magnitude[d] += std::fabs(s.weights[j] * x[d]);
  }
}

const double* KeyRow(const RowState& s, std::int64_t j) {
  const Operands& o = *s.variant->operands;
  return o.K(s.id.b, o.k_head[static_cast<std::size_t>(s.id.h)], j);
}

// A variant may have more keys than there are queries: the last one stands for them.
const double* QueryRow(const RowState& s, std::int64_t j) {
  const Operands& o = *s.variant->operands;
  return o.Q(s.id.b, s.id.h, std::min(j, o.q_len - 1));
}

void KeysForValues(const Case& c, Proposals& p) {
  if (c.problem().head_dim != c.problem().v_dim) return;
  p.AddWithSlots(slot::kValues, [](Variant& v) { v.product = [](RowState& s) { MultiplyByRows(s, KeyRow); }; },
                 {{"values", 0, "k"}});
  p.AddWithSlots(
      slot::kOperands,
      [&c](Variant& v) { v.operands = ReplaceOperands(c, {}, c.evaluator().operands().v, c.evaluator().operands().k); },
      {{"values", 0, "k"}, {"keys", 0, "v"}});
  p.AddWithSlots(slot::kOperands, [&c](Variant& v) { v.operands = ReplaceOperands(c, {}, c.evaluator().operands().v, {}); },
                 {{"keys", 0, "v"}});
  if (c.problem().q_len != c.problem().kv_len) return;
  p.AddWithSlots(slot::kValues, [](Variant& v) { v.product = [](RowState& s) { MultiplyByRows(s, QueryRow); }; },
                 {{"values", 0, "q"}});
}

// 0·NaN where a hidden slot holds a NaN or an infinity.
void NaNThroughHiddenSlots(const Case& c, Proposals& p) {
  const Operands& o = c.evaluator().operands();
  const auto is_finite = [](double x) { return std::isfinite(x); };
  if (!std::all_of(o.v->begin(), o.v->end(), is_finite)) {
    p.AddWithSlots(
        slot::kValues,
        [](Variant& v) {
          v.product = [](RowState& s) {
            const std::vector<char> visible = s.visible;
            std::fill(s.visible.begin(), s.visible.end(), 1);  // every value is multiplied, by 0 too
            Evaluator::MultiplyByValues(s);
            s.visible = visible;
          };
        },
        {{"tensor", 0, "v"}}, -1);
  }
  if (!std::all_of(o.k->begin(), o.k->end(), is_finite)) {
    p.AddWithSlots(
        slot::kMasking,
        [](Variant& v) {
          v.masking = [](RowState& s) {
            for (std::size_t j = 0; j < s.masked.size(); ++j) {
              if (!s.visible[j]) s.masked[j] = std::isnan(s.masked[j]) || s.masked[j] == kInfinity ? kNaN : -kInfinity;
            }
          };
        },
        {{"tensor", 0, "k"}}, -1);
  }
}

void NaNSwallowed(const Case& c, Proposals& p) {
  const Operands& o = c.evaluator().operands();
  const auto is_nan = [](double x) { return std::isnan(x); };
  if (std::none_of(o.v->begin(), o.v->end(), is_nan) && std::none_of(o.k->begin(), o.k->end(), is_nan) &&
      std::none_of(o.q->begin(), o.q->end(), is_nan))
    return;
  p.AddWithSlots(slot::kValues, [](Variant& v) {
    v.product = [](RowState& s) {
      Evaluator::MultiplyByValues(s);
      for (double& x : s.context) x = std::isnan(x) ? 0 : x;
    };
  });
}

// Keys before and from `split` on as two partial results, merged by factors of their lse.
RowEdit MergedSoftmax(std::int64_t split, const std::function<double(double lse)>& exponent) {
  return [split, exponent](RowState& s) {
    const std::int64_t n = static_cast<std::int64_t>(s.masked.size());
    s.weights.assign(s.masked.size(), 0);
    double lse[2] = {-kInfinity, -kInfinity};
    for (int part = 0; part < 2; ++part) {
      const std::int64_t first = part == 0 ? 0 : split, end = part == 0 ? split : n;
      double largest = -kInfinity, sum = 0;
      for (std::int64_t j = first; j < end; ++j) largest = std::max(largest, s.masked[static_cast<std::size_t>(j)]);
      if (largest == -kInfinity) continue;
      for (std::int64_t j = first; j < end; ++j) {
        s.weights[static_cast<std::size_t>(j)] = std::exp(s.masked[static_cast<std::size_t>(j)] - largest);
        sum += s.weights[static_cast<std::size_t>(j)];
      }
      for (std::int64_t j = first; j < end; ++j) s.weights[static_cast<std::size_t>(j)] /= sum;
      lse[part] = largest + std::log(sum);
    }
    const double a = exponent(lse[0]), b = exponent(lse[1]), largest = std::max(a, b);
    if (largest == -kInfinity) return;
    const double total = std::exp(a - largest) + std::exp(b - largest);
    for (std::int64_t j = 0; j < n; ++j)
      s.weights[static_cast<std::size_t>(j)] *= std::exp((j < split ? a : b) - largest) / total;
  };
}

// Where keys may have been split: everywhere while there are few, else at multiples of 64.
std::vector<std::int64_t> Splits(const Case& c) {
  std::vector<std::int64_t> splits;
  const std::int64_t len = c.problem().kv_len, step = len > 1024 ? 64 : 1;
  for (std::int64_t split = step; split < len; split += step) splits.push_back(split);
  return splits;
}

void LseBase(const Case& c, Proposals& p) {
  for (const std::int64_t split : Splits(c)) {
    p.AddWithSlots(
        slot::kSoftmax,
        [split](Variant& v) { v.softmax = MergedSoftmax(split, [](double lse) { return lse * 1.4426950408889634; }); },
        {{"split", Number(split)}, {"lse", 0, "base 2 taken as base e"}}, 1);
    p.AddWithSlots(
        slot::kSoftmax,
        [split](Variant& v) { v.softmax = MergedSoftmax(split, [](double lse) { return lse * 0.6931471805599453; }); },
        {{"split", Number(split)}, {"lse", 0, "base e taken as base 2"}}, 1);
  }
  const double log2e = 1.4426950408889634;
  if (c.Find(Stage::kLse) == nullptr) return;
  p.AddWithSlots(slot::kReweigh, [log2e](Variant& v) { v.reweigh = [log2e](RowState& s) { s.lse *= log2e; }; },
                 {{"returned_lse", 0, "base 2"}});
}

RowEdit RepeatKeys(std::int64_t first, std::int64_t end) {
  return [first, end](RowState& s) {
    for (std::int64_t j = first; j < end; ++j) s.masked[static_cast<std::size_t>(j)] += 0.6931471805599453;  // twice: + ln 2
    Evaluator::SoftmaxOverKeys(s);
  };
}

void ChunkTwice(const Case& c, Proposals& p) {
  const std::int64_t len = c.problem().kv_len;
  const auto add = [&](std::int64_t first, std::int64_t end) {
    p.AddWithSlots(
        slot::kSoftmax, [first, end](Variant& v) { v.softmax = RepeatKeys(first, end); },
        {{"first_key", Number(first)}, {"last_key", Number(end - 1)}}, 1);
  };
  for (const std::int64_t split : Splits(c)) add(0, split), add(split, len);
  for (std::int64_t size = len > 1024 ? 128 : 1; size < len; size *= 2) {
    for (std::int64_t first = size; first + size < len; first += size) add(first, first + size);
  }
}

// Column i of the weights of head (b, h), computed once a variant.
std::vector<double> ColumnOfWeights(RowState& s) {
  const std::int64_t n = static_cast<std::int64_t>(s.weights.size());
  const std::int64_t rows = std::min(n, s.variant->operands->q_len);  // a variant may have more keys than there are queries
  std::vector<double>& weights = (*s.variant->memo)[{-1 - s.id.b, s.id.h}];  // [q_len, kv_len]; negative: not a key of ColumnLse
  if (weights.empty()) {
    Variant without = *s.variant;
    without.product = [](RowState& row) { row.context.assign(1, 0), row.magnitude.assign(1, 0); };
    without.output_row = nullptr;
    RowState row;
    for (std::int64_t i = 0; i < rows; ++i) {
      s.evaluator->Evaluate(without, {s.id.b, s.id.h, i}, &row);
      weights.insert(weights.end(), row.weights.begin(), row.weights.end());
    }
  }
  std::vector<double> column(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < rows; ++j) column[static_cast<std::size_t>(j)] = weights[static_cast<std::size_t>(j * n + s.id.i)];
  return column;
}

// Whole heads, so only while they are small.
void WeightsTransposed(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.q_len != x.kv_len || x.q_len * x.kv_len > (std::int64_t{1} << 21)) return;
  const auto transposed = [](bool used, bool returned) {
    return [used, returned](Variant& v) {
      v.product = [used, returned](RowState& s) {
        const std::vector<double> own = s.weights, column = ColumnOfWeights(s);
        const std::vector<char> visible = s.visible;
        if (used) {
          s.weights = column;
          std::fill(s.visible.begin(), s.visible.end(), 0);
        }
        Evaluator::MultiplyByValues(s);
        s.weights = returned ? column : own, s.visible = visible;
      };
    };
  };
  if (c.Find(Stage::kContext) != nullptr) p.AddWithSlots(slot::kValues, transposed(true, false));
  if (c.Find(Stage::kWeights) == nullptr) return;
  p.AddWithSlots(slot::kValues, transposed(false, true), {{"transposed", 0, "the returned weights"}});
  p.AddWithSlots(slot::kValues, transposed(true, true), {{"transposed", 0, "the product and the returned weights"}});
}

// ln(exp(a) + exp(b))
double LogAdd(double a, double b) {
  const double largest = std::max(a, b);
  return largest == -kInfinity ? largest : largest + std::log(std::exp(a - largest) + std::exp(b - largest));
}

// The context is right, and the lse that is returned with it was summed over something else.
void SummaryOfAnotherStage(const Case& c, Proposals& p) {
  if (c.Find(Stage::kLse) == nullptr) return;
  const auto add = [&p](const char* over, void (*edit)(RowState&)) {
    p.Add([edit](Variant& v) { v.reweigh = edit; }, {{"lse_over", 0, over}});
  };
  add("scores of all keys, before the mask", [](RowState& s) {
    s.lse = s.sink;
    for (std::size_t j = 0; j < s.capped.size(); ++j) s.lse = LogAdd(s.lse, s.capped[j] + (s.bias.empty() ? 0 : s.bias[j]));
  });
  add("scores without the sink", [](RowState& s) {
    s.lse = -kInfinity;
    for (const double x : s.masked) s.lse = LogAdd(s.lse, x);
  });
  for (std::int64_t unused = 1; unused <= 255; ++unused) {
    p.Add([unused](Variant& v) { v.reweigh = [unused](RowState& s) { s.lse = LogAdd(s.lse, std::log(Number(unused))); }; },
          {{"unused_slots", Number(unused)}}, 1);
  }
}

// A buffer that was allocated and not filled. It goes with no other mistake: nothing of that would show.
void NeverWritten(const Case& c, Proposals& p) {
  if (c.Find(Stage::kContext) == nullptr) return;
  p.Add([](Variant& v) {
    v.product = [](RowState& s) {
      Evaluator::MultiplyByValues(s);
      std::fill(s.context.begin(), s.context.end(), 0);
    };
  });
}

constexpr Fault kFaults[] = {
    {"F19", "k used as v", Stage::kContext, slot::kValues, "weights·k; or k and v exchanged",
     "the context lies in the span of k; weights are right, unless both are exchanged", "multiply the weights by v",
     KeysForValues},
    {"F77", "summary of another stage", Stage::kLse, slot::kReweigh, "lse over scores before the mask, or over unused slots",
     "weights and context are right, lse is too large; it changes with the length of the buffer",
     "sum over masked_scores, the sink included, and over the keys in use", SummaryOfAnotherStage},
    {"F80", "NaN through hidden slots", Stage::kContext, slot::kValues, "NaN + (−inf), 0·NaN",
     "NaN although the weight is 0; clean after zeroing unused slots",
     "zero the unused part of the cache, or skip hidden slots instead of multiplying them by 0", NaNThroughHiddenSlots},
    {"F81", "NaN swallowed", Stage::kContext, slot::kValues, "NaN in, zeros out", "an input holds NaN, the output is finite",
     "let NaN propagate: compare with max so that NaN wins", NaNSwallowed},
    {"F82", "lse in another base", Stage::kContext, slot::kSoftmax, "merging base-2 lse as base e",
     "lse in the ratio 1.4427; the error grows with the length of the prefix",
     "convert lse to natural log before merging (× ln 2)", LseBase},
    {"F83", "chunk counted twice", Stage::kWeights, slot::kSoftmax, "replicated keys merged as distinct ones",
     "the weight of that chunk is doubled before normalising",
     "merge every key once: do not merge the replicated prefix on every rank", ChunkTwice},
    {"F95", "weights transposed", Stage::kContext, slot::kValues, "weightsᵀ·v",
     "weights are right; the context is that of columns", "context = weights·v: sum over keys, the last axis of the weights",
     WeightsTransposed, false, true},
    {"F102", "rows never written", Stage::kContext, ~Slots{0}, "context = 0", "rows of zeros that see keys",
     "write every row: check the grid of blocks, the bounds of the loops over heads and rows, and which buffer is returned",
     NeverWritten},
};

}  // namespace

std::span<const Fault> ContextFaults() { return kFaults; }

}  // namespace regard::internal
