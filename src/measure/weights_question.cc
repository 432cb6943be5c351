#include "measure/weights_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "measure/row_check.h"

namespace regard::measure {
namespace {

constexpr int kTopK = 8;
constexpr std::int64_t kBins = 64;

SummaryOptions OptionsOf(Asked asked) {
  switch (asked) {
    case Asked::kFirstPass:
      return {.row_max = true, .entropy = true, .top_k = kTopK};
    case Asked::kSummaries:
      return {.entropy = true, .top_k = kTopK, .key_mass = true, .pooled_rows = kBins, .pooled_cols = kBins};
    case Asked::kKeyTopK:
      return {.key_top_k = kTopK};
    case Asked::kNothing:
    case Asked::kVisitor:
      break;
  }
  return {};
}

struct EmptyVisitor : TileVisitor {
  std::unique_ptr<TileVisitor> Fork() const override { return std::make_unique<EmptyVisitor>(); }
  void Visit(const WeightTile&) override {}
  void Merge(TileVisitor&) override {}
};

// The attention that every key receives, from the tiles.
class MassVisitor : public TileVisitor {
 public:
  MassVisitor(std::int64_t heads, std::int64_t kv_len)
      : heads_(heads), kv_len_(kv_len), mass_(static_cast<std::size_t>(heads * kv_len)) {}
  std::unique_ptr<TileVisitor> Fork() const override { return std::make_unique<MassVisitor>(heads_, kv_len_); }
  void Visit(const WeightTile& t) override {
    for (std::int64_t c = 0; c < t.cols; ++c) {
      double& sum = mass_[static_cast<std::size_t>(t.head * kv_len_ + t.first_key + c)];
      for (std::int64_t r = 0; r < t.rows; ++r) sum += t.data[r * t.query_stride + c * t.key_stride];
    }
  }
  void Merge(TileVisitor& part) override {
    const std::vector<double>& other = static_cast<MassVisitor&>(part).mass_;
    for (std::size_t n = 0; n < mass_.size(); ++n) mass_[n] += other[n];
  }
  Tensor Mass() const {
    Tensor mass(DType::kF32, {1, heads_, kv_len_});
    std::ranges::transform(mass_, mass.MutableAs<float>(), [](double sum) { return static_cast<float>(sum); });
    return mass;
  }

 private:
  std::int64_t heads_, kv_len_;
  std::vector<double> mass_;  // [heads, kv_len]
};

// ------------------------------------------------------------------------------------------------------ rows and columns

// A weight of the definition, and how far f32 may be from it.
struct Bounded {
  double value = 0, bound = 0;
};

// The top list of `all`: the n-th entry is the n-th largest weight, and the weight of the place that it names.
void CheckTopList(const std::vector<Bounded>& all, const std::function<double(int)>& listed_weight,
                  const std::function<std::int64_t(int)>& listed_place, const std::string& place, Verification* result) {
  std::vector<std::size_t> order(all.size());
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = n;
  std::ranges::stable_sort(order, [&all](std::size_t a, std::size_t b) { return all[a].value > all[b].value; });
  for (int n = 0; n < kTopK; ++n) {
    const auto name = [&] { return fmt::format("weight {} in the list of {}", n, place); };
    if (static_cast<std::size_t>(n) >= order.size() || all[order[static_cast<std::size_t>(n)]].value == 0) {
      result->Expect(listed_weight(n), 0, 0, name);
      continue;
    }
    const Bounded& largest = all[order[static_cast<std::size_t>(n)]];
    result->Expect(listed_weight(n), largest.value, largest.bound, name);
    const std::int64_t at = listed_place(n);
    const bool exists = at >= 0 && at < static_cast<std::int64_t>(all.size());
    const Bounded& named = exists ? all[static_cast<std::size_t>(at)] : Bounded();
    result->Expect(listed_weight(n), named.value, named.bound, name);
  }
}

class AnswerCheck {
 public:
  AnswerCheck(const Workload& workload, const Summary& answers)
      : work_(workload),
        case_(workload.bench_case()),
        s_(answers),
        q_(Tensor::CopyOf(workload.inputs().q, DType::kF64)),
        k_(Tensor::CopyOf(workload.inputs().k, DType::kF64)) {}

  Verification Run() {
    result_ = VerifyRows(work_, s_.context, s_.lse);
    if (s_.entropy || s_.row_max || s_.topk_weight) {
      for (const RowIndex& index : SampleRows(case_.heads, case_.q_len)) CheckRow(index);
    }
    const std::int64_t heads = std::min(kSampledHeads, case_.heads);
    for (std::int64_t n = 0; n < heads; ++n) {
      const std::int64_t head = heads == 1 ? 0 : n * (case_.heads - 1) / (heads - 1);
      if (s_.key_mass) CheckTotal(head);
      for (std::int64_t m = 0; (s_.key_mass || s_.key_topk_weight) && m < kSampledKeys; ++m) {
        CheckKey(head, m * (case_.kv_len - 1) / (kSampledKeys - 1));
      }
      for (std::int64_t m = 0; s_.pooled && m < kSampledBins; ++m) {
        // From the first row and column of bins to the last, not along the diagonal alone.
        CheckBin(head, m * (s_.pooled.dim(2) - 1) / (kSampledBins - 1),
                 m * m * (s_.pooled.dim(3) - 1) / ((kSampledBins - 1) * (kSampledBins - 1)));
      }
    }
    return std::move(result_);
  }

 private:
  void CheckRow(const RowIndex& index) {
    const Workload::Row row = work_.RowCall(index.head, index.query);
    const RowCheck expected(row);
    const std::string place = fmt::format("head {}, query {}", index.head, index.query);
    if (s_.entropy) {
      result_.Expect(s_.entropy(0, index.head, index.query), expected.Entropy(), expected.EntropyBound(),
                     [&] { return "entropy at " + place; });
    }
    if (s_.row_max) {
      std::int64_t largest = 0;
      for (std::int64_t j = 1; j < expected.keys(); ++j) {
        if (expected.MaskedScore(j) > expected.MaskedScore(largest)) largest = j;
      }
      result_.Expect(s_.row_max(0, index.head, index.query), expected.MaskedScore(largest), expected.MaskedScoreBound(largest),
                     [&] { return "row_max at " + place; });
    }
    if (!s_.topk_weight) return;
    std::vector<Bounded> weights;
    const double lse_bound = expected.LseBound();
    for (std::int64_t j = 0; j < expected.keys(); ++j) {
      weights.push_back({expected.Weight(j), expected.Weight(j) * (expected.MaskedScoreBound(j) + lse_bound)});
    }
    CheckTopList(
        weights, [&](int n) { return s_.topk_weight(0, index.head, index.query, n); },
        [&](int n) { return static_cast<std::int64_t>(s_.topk_index(0, index.head, index.query, n)); }, place, &result_);
  }

  // The weight of one pair under the answers' lse, which is itself compared in CheckRow.
  Bounded Weight(std::int64_t head, std::int64_t query, std::int64_t key) const {
    const KeyRange visible = work_.VisibleKeys(query);
    if (key < visible.begin || key >= visible.end) return {};
    const std::int64_t dim = case_.dim, kv_head = head / (case_.heads / case_.kv_heads);
    const double* const q = q_.As<double>() + (head * case_.q_len + query) * dim;
    const double* const k = k_.As<double>() + (kv_head * case_.kv_len + key) * dim;
    double score = 0;
    for (std::int64_t d = 0; d < dim; ++d) score += q[d] * k[d];
    score /= std::sqrt(static_cast<double>(dim));
    const double lse = s_.lse(0, head, query), weight = std::exp(score - lse);
    return {weight, weight * 4 * ScoreError({q, k, dim, score, lse, -lse})};
  }

  // Sums over pairs whose errors are independent.
  struct Sum {
    double value = 0, squares = 0;
    std::int64_t count = 0;
    void Add(const Bounded& weight) {
      value += weight.value;
      squares += weight.bound * weight.bound;
      ++count;
    }
    double Bound() const { return std::sqrt(squares) + SumError(count) * value; }
  };

  void CheckTotal(std::int64_t head) {
    double total = 0;
    for (std::int64_t j = 0; j < case_.kv_len; ++j) total += s_.key_mass(0, head, j);
    const auto queries = static_cast<double>(case_.q_len);
    // A row adds up to 1 but for the errors of its lse, which are about as large as that of the last.
    const Workload::Row last = work_.RowCall(head, case_.q_len - 1);
    result_.Expect(total, queries, queries * (2 * RowCheck(last).LseBound() + SumError(case_.q_len)),
                   [&] { return fmt::format("key_mass in all of head {}", head); });
  }

  void CheckKey(std::int64_t head, std::int64_t key) {
    std::vector<Bounded> weights;
    Sum mass;
    for (std::int64_t i = 0; i < case_.q_len; ++i) {
      weights.push_back(Weight(head, i, key));
      mass.Add(weights.back());
    }
    const std::string place = fmt::format("head {}, key {}", head, key);
    if (s_.key_mass) result_.Expect(s_.key_mass(0, head, key), mass.value, mass.Bound(), [&] { return "key_mass at " + place; });
    if (!s_.key_topk_weight) return;
    CheckTopList(
        weights, [&](int n) { return s_.key_topk_weight(0, head, key, n); },
        [&](int n) { return static_cast<std::int64_t>(s_.key_topk_index(0, head, key, n)); }, place, &result_);
  }

  void CheckBin(std::int64_t head, std::int64_t r, std::int64_t c) {
    const std::int64_t rows = s_.pooled.dim(2), cols = s_.pooled.dim(3);
    const std::int64_t first = r * case_.q_len / rows, end = (r + 1) * case_.q_len / rows;
    Sum sum;
    for (std::int64_t i = first; i < end; ++i) {
      for (std::int64_t j = c * case_.kv_len / cols; j < (c + 1) * case_.kv_len / cols; ++j) sum.Add(Weight(head, i, j));
    }
    const auto queries = static_cast<double>(end - first);
    result_.Expect(s_.pooled(0, head, r, c), sum.value / queries, sum.Bound() / queries,
                   [&] { return fmt::format("pooled at head {}, bin {}, {}", head, r, c); });
  }

  const Workload& work_;
  const BenchCase& case_;
  const Summary& s_;
  const Tensor q_, k_;  // [1, heads, tokens, dim], in double
  Verification result_;
};

}  // namespace

void AskOnce(const Workload& workload, const ExecOptions& exec) {
  const Inputs in = workload.inputs();
  if (workload.bench_case().asked != Asked::kVisitor) {
    Summarize(in.q, in.k, in.v, workload.params(), OptionsOf(workload.bench_case().asked), exec);
    return;
  }
  const AttentionResult result = Attention(in.q, in.k, in.v, workload.params(), exec);
  EmptyVisitor visitor;
  VisitWeights(in.q, in.k, result.lse, workload.params(), visitor, exec);
}

Summary Answers(const Workload& workload, const ExecOptions& exec) {
  const Inputs in = workload.inputs();
  const BenchCase& c = workload.bench_case();
  Summary answers = Summarize(in.q, in.k, in.v, workload.params(), OptionsOf(c.asked), exec);
  if (c.asked != Asked::kVisitor) return answers;
  MassVisitor visitor(c.heads, c.kv_len);
  VisitWeights(in.q, in.k, answers.lse, workload.params(), visitor, exec);
  answers.key_mass = visitor.Mass();
  return answers;
}

Verification VerifyAnswers(const Workload& workload, const Summary& answers) { return AnswerCheck(workload, answers).Run(); }

}  // namespace regard::measure
