// The run report for people: calm, aligned, nothing that is not about this run.
#include <fmt/format.h>

#include <algorithm>

#include "report/matrix_table.h"
#include "report/run_report.h"
#include "report/text.h"

namespace regard::report {
namespace {

constexpr std::int64_t kMaxHeadsShown = 2;    // of small problems, unless asked for by number
constexpr std::int64_t kMaxContextDims = 64;  // of a context table
constexpr std::int64_t kMapRows = 32;

std::vector<std::string> TokensOf(const io::Tokens& tokens, std::int64_t batch) {
  std::vector<std::string> values;
  if (!tokens) return values;
  for (std::int64_t i = 0; i < tokens.length; ++i) values.push_back(tokens.At(batch, i));
  return values;
}

// Columns of a table have the token alone: the rows of the same table say its number.
std::vector<std::string> ColumnLabels(std::int64_t count, const std::vector<std::string>& tokens) {
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    labels.push_back(tokens.empty() ? std::to_string(i) : ShowToken(tokens[static_cast<std::size_t>(i)], 10));
  }
  return labels;
}

bool IsShown(const RowIndex& row, const RunView& view) {
  const auto holds = [](const std::vector<std::int64_t>& list, std::int64_t x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  return (view.batches.empty() || holds(view.batches, row.batch)) && (view.heads.empty() || holds(view.heads, row.head));
}

// The rows of `values` [rows, n] that belong to the head of rows[first]: as many as there are queries.
std::span<const double> HeadValues(const Tensor& values, std::size_t first, std::int64_t queries) {
  const std::int64_t columns = values.dim(1);
  return {values.As<double>() + static_cast<std::int64_t>(first) * columns, static_cast<std::size_t>(queries * columns)};
}

class TextReport {
 public:
  TextReport(const io::Problem& problem, const RunReport& report, const RunView& view) : p_(problem), r_(report), view_(view) {}

  std::string Write() {
    if (!r_.sample.everything) text_ += fmt::format("stages of {}\n", Describe(r_.sample));
    text_ += StageTable(r_.stages, view_.is_terminal ? view_.width : 0);
    for (const std::string& remark : r_.remarks) text_ += remark + '\n';
    if (r_.empty_rows > 0)
      text_ += fmt::format("{} empty rows: queries that see no key; their context is 0\n", ShowCount(r_.empty_rows));
    if (IsSmall(p_) && r_.sample.everything) {
      Tensors();
    } else if (view_.is_terminal && !r_.sample.rows.empty()) {
      Map();
    }
    text_ += '\n' + fmt::format("ran {}\n", r_.description);
    if (!r_.sample.rows.empty()) text_ += Show(r_.agreement, p_.shape.batch * p_.shape.heads > 1);
    if (r_.timing) text_ += Show(*r_.timing);
    return std::move(text_);
  }

 private:
  std::string HeadName(const RowIndex& row) const {
    std::string name;
    if (p_.shape.batch > 1) name += fmt::format(", batch {}", row.batch);
    if (p_.shape.heads > 1) name += fmt::format(", head {}", row.head);
    return name;
  }

  void Tensors() {
    std::int64_t heads_shown = 0, heads_hidden = 0;
    const bool chosen = !view_.batches.empty() || !view_.heads.empty();
    for (std::size_t first = 0; first < r_.sample.rows.size(); first += static_cast<std::size_t>(p_.shape.q_len)) {
      const RowIndex& row = r_.sample.rows[first];
      if (!IsShown(row, view_)) continue;
      if (!chosen && heads_shown == kMaxHeadsShown) {
        ++heads_hidden;
        continue;
      }
      ++heads_shown;
      HeadTensors(first);
    }
    if (heads_hidden > 0) text_ += fmt::format("\n{} more heads: choose with --batch and --head\n", ShowCount(heads_hidden));
  }

  void HeadTensors(std::size_t first) {
    const RowIndex& row = r_.sample.rows[first];
    const std::vector<std::string> queries = TokensOf(p_.q_tokens, row.batch), keys = TokensOf(p_.k_tokens, row.batch);
    for (const StageFacts& stage : r_.stages) {
      const Tensor* values = ValuesOf(stage.name);
      if (values == nullptr || values->dim(1) == 0) continue;  // without keys there is nothing to show
      const bool is_context = stage.name == "context";
      if (is_context && p_.shape.v_dim > kMaxContextDims) continue;
      MatrixTable table;
      table.title = stage.name + HeadName(row);
      table.rows = p_.shape.q_len;
      table.columns = values->dim(1);
      table.values = HeadValues(*values, first, p_.shape.q_len);
      table.row_labels = NumberedLabels(table.rows, queries);
      table.column_labels = ColumnLabels(table.columns, is_context ? std::vector<std::string>() : keys);
      if (stage.name == "weights" && view_.is_terminal) table.colors = view_.colors;
      text_ += '\n' + Show(table, view_.width);
    }
  }

  const Tensor* ValuesOf(const std::string& name) const {
    if (name == "scores") return &r_.values.scores;
    if (name == "capped") return &r_.values.capped;
    if (name == "masked_scores") return &r_.values.masked_scores;
    if (name == "weights") return &r_.values.weights;
    if (name == "context") return &r_.values.context;
    return nullptr;
  }

  // The weights of one sequence, mean of its chosen heads; of a sample, its rows one by one.
  void Map() {
    const std::int64_t batch = view_.batches.empty() ? r_.sample.rows.front().batch : view_.batches.front();
    const std::int64_t keys = p_.shape.kv_len;
    std::vector<std::int64_t> queries, heads;
    std::vector<double> sums, counts;
    for (std::size_t n = 0; n < r_.sample.rows.size(); ++n) {
      const RowIndex& row = r_.sample.rows[n];
      if (row.batch != batch || !IsShown(row, view_)) continue;
      if (std::find(heads.begin(), heads.end(), row.head) == heads.end()) heads.push_back(row.head);
      const auto place = std::lower_bound(queries.begin(), queries.end(), row.query);
      const std::size_t line = static_cast<std::size_t>(place - queries.begin());
      if (place == queries.end() || *place != row.query) {
        queries.insert(place, row.query);
        sums.insert(sums.begin() + static_cast<std::ptrdiff_t>(line) * keys, static_cast<std::size_t>(keys), 0.0);
        counts.insert(counts.begin() + static_cast<std::ptrdiff_t>(line), 0.0);
      }
      const double* weights = r_.values.weights.As<double>() + static_cast<std::int64_t>(n) * keys;
      for (std::int64_t j = 0; j < keys; ++j)
        sums[line * static_cast<std::size_t>(keys) + static_cast<std::size_t>(j)] += weights[j];
      ++counts[line];
    }
    if (queries.empty() || keys == 0) return;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] /= counts[i / static_cast<std::size_t>(keys)];
    const std::vector<std::string> tokens = TokensOf(p_.q_tokens, batch);
    HeatMap map{static_cast<std::int64_t>(queries.size()), keys, sums};
    for (const std::int64_t query : queries) {
      map.row_labels.push_back(PadLeft(std::to_string(query), static_cast<int>(std::to_string(p_.shape.q_len - 1).size())) +
                               (tokens.empty() ? "" : ' ' + PadRight(ShowToken(tokens[static_cast<std::size_t>(query)]), 12)));
    }
    int label_width = 0;
    for (const std::string& label : map.row_labels) label_width = std::max(label_width, DisplayWidth(label));
    std::vector<double> storage;
    const HeatMap pooled = Pool(map, kMapRows, std::max(1, (view_.width - 4 - label_width) / 2), &storage);
    text_ +=
        fmt::format("\nweights{}{}: a line a query{}, keys 0 to {} from left to right\n",
                    p_.shape.batch > 1 ? fmt::format(", batch {}", batch) : "",
                    p_.shape.heads == 1 ? ""
                    : heads.size() == 1 ? fmt::format(", head {}", heads[0])
                                        : fmt::format(", mean of {} heads", heads.size()),
                    pooled.rows < map.rows ? fmt::format(" group, {} queries in {} lines", map.rows, pooled.rows) : "", keys - 1);
    text_ += ShowHeatMap(pooled, view_.colors);
  }

  const io::Problem& p_;
  const RunReport& r_;
  const RunView& view_;
  std::string text_;
};

}  // namespace

std::string ShowRunReport(const io::Problem& problem, const RunReport& report, const RunView& view) {
  return TextReport(problem, report, view).Write();
}

}  // namespace regard::report
