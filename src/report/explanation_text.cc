// The explanation as text. Results have 4 decimals; what leads to them has 6, so that whoever adds up what is printed arrives at
// what is printed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "report/explanation.h"
#include "report/text.h"

namespace regard::report {
namespace {

constexpr std::int64_t kMaxDims = 3;      // of a weighted row; rows longer by two or more are cut
constexpr std::int64_t kMaxProducts = 8;  // of q·k, written out; of longer ones the largest kTopProducts are
constexpr std::size_t kTopProducts = 3;
constexpr int kNumbersPerLine = 8;

using Cells = std::vector<std::string>;

std::string Fine(double x) {
  if (std::isnan(x)) return "nan";  // of either sign
  const std::string text = std::isfinite(x) && std::fabs(x) >= 1e7 ? fmt::format("{:.6e}", x) : fmt::format("{:.6f}", x);
  return text == "-0.000000" ? "0.000000" : text;
}
// A number of the input with as few decimals as tell it to 6.
int DecimalsOf(double x) {
  for (int decimals = 0; decimals < 6; ++decimals) {
    const double shifted = x * std::pow(10, decimals);
    if (std::fabs(shifted - std::round(shifted)) <= 5e-7 * std::pow(10, decimals)) return decimals;
  }
  return 6;
}
std::string Given(double x, int decimals) {
  if (std::isnan(x)) return "nan";
  const double magnitude = std::fabs(x);
  return std::isfinite(x) && x != 0 && (magnitude >= 1e7 || magnitude < 1e-4) ? fmt::format("{:.6g}", x)
                                                                              : fmt::format("{:.{}f}", x, decimals);
}
std::string Given(double x) { return Given(x, DecimalsOf(x)); }
// As a factor.
std::string Factor(double x) { return x < 0 ? fmt::format("({})", Given(x)) : Given(x); }

std::string Row(const std::vector<double>& values, const char* indent) {
  double magnitude = 0;
  for (const double value : values) magnitude = std::isfinite(value) ? std::max(magnitude, std::fabs(value)) : magnitude;
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += i % kNumbersPerLine == 0 ? std::string("\n") + indent : " ";
    text += values.size() > kNumbersPerLine ? PadLeft(ShowNumber(values[i], magnitude), 7) : ShowNumber(values[i], magnitude);
  }
  return text;
}

class Writer {
 public:
  Writer(const Explanation& e, const ExplanationLabels& labels, std::int64_t max_keys) : e_(e), labels_(labels) {
    for (std::size_t j = 0; j < e.keys.size(); ++j) {
      if (e.keys[j].visible) shown_.push_back(j);
    }
    if (static_cast<std::int64_t>(shown_.size()) > max_keys) {
      std::stable_sort(shown_.begin(), shown_.end(), [&](std::size_t a, std::size_t b) { return Weight(a) > Weight(b); });
      rest_.assign(shown_.begin() + std::max<std::int64_t>(1, max_keys / 2), shown_.end());
      shown_.resize(shown_.size() - rest_.size());
    }
  }

  std::string Write() {
    Result();
    if (e_.visible == 0) {
      text_ += fmt::format("\nThis query sees none of the {} keys: context 0, lse {}.\n",
                           ShowCount(static_cast<std::int64_t>(e_.keys.size())), Fine(e_.lse));
    } else {
      WeightedRows();
      if (!e_.third_stage) {
        Normalisation();
        if (HasRules()) MaskedScores();
        Products();
      }
    }
    if (e_.gradient) Gradient(*e_.gradient);
    Ending();
    return std::move(text_);
  }

 private:
  // NaN weighs most: it decides the row.
  double Weight(std::size_t j) const { return std::isnan(e_.keys[j].weight) ? 2 : std::fabs(e_.keys[j].weight); }
  bool HasRules() const { return e_.soft_cap > 0 || e_.has_bias || e_.has_alibi; }
  const std::string& Label(std::size_t j) const { return labels_.key_labels[j]; }
  std::string RestLabel() const { return fmt::format("{} others", ShowCount(static_cast<std::int64_t>(rest_.size()))); }

  void Result() {
    text_ += "context of query " + labels_.query_label;
    if (labels_.name_head) text_ += fmt::format(", batch {}, head {}", e_.row.batch, e_.row.head);
    text_ += "\n  " + Row(e_.context, "  ") + '\n';
    const std::int64_t hidden = static_cast<std::int64_t>(e_.keys.size()) - e_.visible;
    if (hidden > 0 && e_.visible > 0) {
      text_ +=
          fmt::format("  from {} of {} keys; the others {}\n", ShowCount(e_.visible),
                      ShowCount(static_cast<std::int64_t>(e_.keys.size())), e_.third_stage ? "weigh 0" : "are not visible to it");
    }
  }

  // weight · v, dim by dim, and their sums.
  void WeightedRows() {
    const std::int64_t v_dim = e_.v.dim(1), dims = v_dim > kMaxDims + 1 ? kMaxDims : v_dim;
    text_ += fmt::format("\nIt is the sum of weight × {}{}:\n", labels_.v,
                         dims < v_dim ? fmt::format(", dims 0 to {} of {} shown", dims - 1, v_dim) : "");
    Cells heading = {"  key", "weight"};
    std::vector<Align> align = {Align::kLeft, Align::kRight};
    for (std::int64_t d = 0; d < dims; ++d) {
      heading.push_back(d == 0 ? labels_.v : "");
      align.push_back(Align::kRight);
    }
    for (std::int64_t d = 0; d < dims; ++d) {
      heading.push_back(d == 0 ? "weight × " + labels_.v : "");
      align.push_back(Align::kRight);
    }
    std::vector<double> sums(static_cast<std::size_t>(dims)), rest(static_cast<std::size_t>(dims));
    double weight_sum = 0, rest_weight = 0;
    std::vector<int> decimals(static_cast<std::size_t>(dims), 0);
    for (const std::size_t j : shown_) {
      for (std::size_t d = 0; d < decimals.size(); ++d) {
        decimals[d] = std::max(decimals[d], DecimalsOf(e_.v(static_cast<std::int64_t>(j), static_cast<std::int64_t>(d))));
      }
    }
    std::vector<Cells> rows = {heading};
    for (const std::size_t j : shown_) {
      const double weight = e_.keys[j].weight;
      weight_sum += weight;
      Cells row = {"  " + Label(j), Fine(weight)};
      for (std::int64_t d = 0; d < dims; ++d)
        row.push_back(Given(e_.v(static_cast<std::int64_t>(j), d), decimals[static_cast<std::size_t>(d)]));
      for (std::int64_t d = 0; d < dims; ++d) {
        const double part = weight * e_.v(static_cast<std::int64_t>(j), d);
        sums[static_cast<std::size_t>(d)] += part;
        row.push_back(Fine(part));
      }
      rows.push_back(row);
    }
    for (const std::size_t j : rest_) {
      rest_weight += e_.keys[j].weight;
      for (std::int64_t d = 0; d < dims; ++d)
        rest[static_cast<std::size_t>(d)] += e_.keys[j].weight * e_.v(static_cast<std::int64_t>(j), d);
    }
    const auto sum_row = [&](const std::string& name, double weight, const std::vector<double>& values) {
      Cells row = {"  " + name, Fine(weight)};
      row.insert(row.end(), static_cast<std::size_t>(dims), "");
      for (const double value : values) row.push_back(Fine(value));
      return row;
    };
    if (!rest_.empty()) rows.push_back(sum_row(RestLabel(), rest_weight, rest));
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += rest[d];
    rows.push_back(sum_row("sum", weight_sum + rest_weight, sums));
    text_ += AlignColumns(rows, align, labels_.max_width);
  }

  const char* LastScore() const { return HasRules() ? "masked score" : "score"; }

  // weight = exp(masked score − largest) / total.
  void Normalisation() {
    text_ += fmt::format("\nweight = exp({} − max) / total: max {}, total {}", LastScore(), Fine(e_.largest), Fine(e_.total));
    if (e_.has_sink)
      text_ += fmt::format(", of which the sink {} gives exp({} − max) = {}", Fine(e_.sink), Fine(e_.sink), Fine(e_.sink_exp));
    text_ += fmt::format("; lse = max + ln(total) = {}\n", Fine(e_.lse));
    std::vector<Cells> rows = {{"  key", LastScore(), "− max", "exp", "/ total"}};
    double exps = 0, rest_exp = 0;
    for (const std::size_t j : shown_) {
      const KeyTerm& key = e_.keys[j];
      exps += key.exp;
      rows.push_back(
          {"  " + Label(j), Fine(key.masked_score), Fine(key.masked_score - e_.largest), Fine(key.exp), Fine(key.weight)});
    }
    for (const std::size_t j : rest_) rest_exp += e_.keys[j].exp;
    if (!rest_.empty()) rows.push_back({"  " + RestLabel(), "", "", Fine(rest_exp), Fine(rest_exp / e_.total)});
    if (e_.has_sink)
      rows.push_back({"  the sink", Fine(e_.sink), Fine(e_.sink - e_.largest), Fine(e_.sink_exp), Fine(e_.sink_exp / e_.total)});
    rows.push_back({"  total", "", "", Fine(exps + rest_exp + e_.sink_exp), Fine((exps + rest_exp + e_.sink_exp) / e_.total)});
    text_ += AlignColumns(rows, {Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight}, labels_.max_width);
  }

  void MaskedScores() {
    text_ += "\nmasked score = score";
    if (e_.soft_cap > 0) text_ += fmt::format(", capped to {0} · tanh(score / {0})", Given(e_.soft_cap));
    if (e_.has_bias) text_ += ", + bias";
    if (e_.has_alibi) text_ += ", − ALiBi's slope × distance";
    text_ += ":\n";
    Cells heading = {"  key", "score"};
    if (e_.soft_cap > 0) heading.push_back("capped");
    if (e_.has_bias) heading.push_back("+ bias");
    if (e_.has_alibi) heading.push_back("− ALiBi");
    heading.push_back("masked score");
    std::vector<Align> align(heading.size(), Align::kRight);
    align[0] = Align::kLeft;
    std::vector<Cells> rows = {heading};
    for (const std::size_t j : shown_) {
      const KeyTerm& key = e_.keys[j];
      Cells row = {"  " + Label(j), Fine(key.score)};
      if (e_.soft_cap > 0) row.push_back(Fine(key.capped));
      if (e_.has_bias) row.push_back(Fine(key.bias));
      if (e_.has_alibi) row.push_back(Fine(key.alibi));
      row.push_back(Fine(key.masked_score));
      rows.push_back(row);
    }
    text_ += AlignColumns(rows, align, labels_.max_width);
  }

  // "0.55×0.43 + 0.87×0.15 + 0.66×0.89", or the largest products and the rest.
  std::string ProductsOf(std::size_t j) const {
    const std::size_t dim = e_.q.size();
    std::vector<std::size_t> order(dim);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto product = [&](std::size_t d) {
      return e_.q[d] * e_.k(static_cast<std::int64_t>(j), static_cast<std::int64_t>(d));
    };
    if (static_cast<std::int64_t>(dim) > kMaxProducts) {
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return std::fabs(product(a)) > std::fabs(product(b)); });
      order.resize(kTopProducts);
    }
    std::string text;
    double sum = 0;
    for (const std::size_t d : order) {
      text += fmt::format("{}{}×{}", text.empty() ? "" : " + ", Factor(e_.q[d]),
                          Factor(e_.k(static_cast<std::int64_t>(j), static_cast<std::int64_t>(d))));
      sum += product(d);
    }
    if (order.size() < dim) text += fmt::format(" + ({} of {} other dims)", Fine(e_.keys[j].product - sum), dim - order.size());
    return text;
  }

  void Products() {
    const bool scaled = e_.scale != 1;
    text_ += fmt::format("\nscore = {}{}·{}", scaled ? fmt::format("{:.9g} × ", e_.scale) : "", labels_.q, labels_.k);
    if (labels_.q == labels_.k) text_ += fmt::format(" of token {}", e_.row.query);
    if (!labels_.q_origin.empty()) text_ += fmt::format(", where {} = {}", labels_.q, labels_.q_origin);
    text_ += ":\n";
    std::vector<Cells> rows = {scaled ? Cells{"  key", "score", "dot product", "its products"}
                                      : Cells{"  key", "score", "its products"}};
    for (const std::size_t j : shown_) {
      Cells row = {"  " + Label(j), Fine(e_.keys[j].score)};
      if (scaled) row.push_back(Fine(e_.keys[j].product));
      row.push_back(ProductsOf(j));
      rows.push_back(row);
    }
    std::vector<Align> align(rows[0].size(), Align::kRight);
    align.front() = align.back() = Align::kLeft;
    text_ += AlignColumns(rows, align, labels_.max_width);
    if (rest_.empty()) return;
    const auto [low, high] = std::minmax_element(
        rest_.begin(), rest_.end(), [&](std::size_t a, std::size_t b) { return e_.keys[a].score < e_.keys[b].score; });
    text_ += fmt::format("  {}: scores {} … {}\n", RestLabel(), Fine(e_.keys[*low].score), Fine(e_.keys[*high].score));
  }

  // What d_weight is, and what the softmax makes of it.
  void GradientWords(const RowGradient& g) {
    text_ += "\ngradients of a loss L by this row";
    text_ += g.of_sum ? ": L is the sum of the context, so that d_context is 1 in every dim\n"
                      : fmt::format(": d_context of the files {}\n", Row(g.d_context, "  "));
    text_ += fmt::format("  d_weight = d_context·{}", labels_.v);
    if (e_.third_stage) {
      text_ += ": what L gains as this weight grows\n";
      return;
    }
    text_ += fmt::format(": what L gains as this weight alone grows; their mean under the weights is {}\n", Fine(g.delta));
    text_ += "  d_score = weight × (d_weight − mean)";
    if (e_.soft_cap > 0) text_ += fmt::format(" × (1 − (capped/{})²)", Given(e_.soft_cap));
    text_ += ": what L gains as the score grows, since one key's weight is taken from the others\n";
  }

  // How many numbers of the files' d_context are not finite: all that follows from it is not, either.
  void UnusableGradient(const RowGradient& g) {
    const auto first = std::ranges::find_if(g.d_context, [](double x) { return !std::isfinite(x); });
    if (first == g.d_context.end()) return;
    const auto count = std::count_if(first, g.d_context.end(), [](double x) { return !std::isfinite(x); });
    text_ += fmt::format(
        "  {} of the {} numbers of d_context {} not finite, first that of dim {}: what follows from it says nothing\n", count,
        g.d_context.size(), count == 1 ? "is" : "are", first - g.d_context.begin());
  }

  void Gradient(const RowGradient& g) {
    if (e_.visible == 0) {
      text_ += "\ngradients of a loss L by this row: all 0, since its context does not depend on any q, k or v\n";
      return;
    }
    GradientWords(g);
    UnusableGradient(g);
    std::vector<Cells> rows = {e_.third_stage ? Cells{"  key", "weight", "d_weight", "‖d_v‖"}
                                              : Cells{"  key", "weight", "d_weight", "− mean", "d_score", "‖d_k‖", "‖d_v‖"}};
    for (const std::size_t j : shown_) {
      const KeyGradient& key = g.keys[j];
      Cells row = {"  " + Label(j), Fine(e_.keys[j].weight), Fine(key.d_weight)};
      if (!e_.third_stage) {
        row.push_back(Fine(key.d_weight - g.delta));
        row.push_back(Fine(key.d_score));
        row.push_back(Fine(key.d_k_norm));
      }
      row.push_back(Fine(key.d_v_norm));
      rows.push_back(row);
    }
    double rest_weight = 0, rest_score = 0;
    for (const std::size_t j : rest_) {
      rest_weight += e_.keys[j].weight;
      rest_score += g.keys[j].d_score;
    }
    if (!rest_.empty()) {
      rows.push_back(e_.third_stage ? Cells{"  " + RestLabel(), Fine(rest_weight), "", ""}
                                    : Cells{"  " + RestLabel(), Fine(rest_weight), "", "", Fine(rest_score), "", ""});
    }
    std::vector<Align> align(rows[0].size(), Align::kRight);
    align[0] = Align::kLeft;
    text_ += AlignColumns(rows, align, labels_.max_width);
    if (e_.third_stage) return;
    if (e_.has_sink) text_ += fmt::format("  d_sink {}\n", Fine(g.d_sink));
    double squares = 0;
    for (const double x : g.d_q) squares += x * x;
    text_ +=
        fmt::format("  d_q = {}the sum of d_score × {}: {}; ‖d_q‖ {}\n", e_.scale != 1 ? fmt::format("{:.9g} × ", e_.scale) : "",
                    labels_.k, Row(g.d_q, "  "), Fine(std::sqrt(squares)));
  }

  // The last line: the two routes to this row.
  void Ending() {
    const std::size_t count = e_.context.size();
    const bool cut = count > static_cast<std::size_t>(kMaxDims) + 2;
    const auto row = [&](const std::vector<double>& values) {
      const std::vector<double> head(
          values.begin(), values.begin() + static_cast<std::int64_t>(cut ? kMaxDims : static_cast<std::int64_t>(count)));
      return Row(head, "") + (cut ? " …" : "");
    };
    text_ +=
        fmt::format("\nbatched row ({}) {}; per-token row (reference) {}; difference {}{}\n", Name(e_.path), row(e_.context),
                    row(e_.per_token), e_.difference == 0 ? "0" : fmt::format("{:.1e}", e_.difference),
                    e_.bound_used <= 1 ? "" : fmt::format(": DISAGREE, {:.3g} times the rounding-error bound", e_.bound_used));
  }

  const Explanation& e_;
  const ExplanationLabels& labels_;
  std::vector<std::size_t> shown_, rest_;  // visible keys
  std::string text_;
};

}  // namespace

std::string Show(const Explanation& explanation, const ExplanationLabels& labels, std::int64_t max_keys) {
  return Writer(explanation, labels, max_keys).Write();
}

}  // namespace regard::report
