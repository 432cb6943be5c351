#include "report/stage_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/text.h"

namespace regard::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double LargestMagnitude(const Range& range) { return std::max(std::fabs(range.smallest), std::fabs(range.largest)); }

// A pair of mirrored cells as "[0,1] 0.2006, [1,0] 0.1385"; heads are named where there are several.
std::string Show(const MirroredCells& cells, bool name_head, double magnitude) {
  const std::string head = name_head ? fmt::format("{},{},", cells.cell.batch, cells.cell.head) : "";
  return fmt::format("[{}{},{}] {} / [{}{},{}] {}", head, cells.cell.query, cells.key, ShowNumber(cells.value, magnitude), head,
                     cells.key, cells.cell.query, ShowNumber(cells.mirrored, magnitude));
}

std::string SquareLine(const StageFacts& stage, bool name_heads) {
  const SquareFacts& square = *stage.square;
  const double magnitude = LargestMagnitude(stage.range);
  std::string line = fmt::format("{}: diagonal {}; off it {}", stage.name, Show(square.diagonal), Show(square.off_diagonal));
  if (!square.largest) return line;
  if (square.first) line += fmt::format("\n  mirrored cells {}", Show(*square.first, name_heads, magnitude));
  line += square.first && !name_heads ? "; " : "\n  ";
  // The same matrix computed in another order differs by roundings only.
  if (square.largest->Difference() <= 1e-6 * magnitude) {
    return line + (square.largest->Difference() == 0 ? "symmetric"
                                                     : fmt::format("symmetric within {:.1e}", square.largest->Difference()));
  }
  return line + fmt::format("largest asymmetry {} at {}", ShowNumber(square.largest->Difference(), magnitude),
                            Show(*square.largest, name_heads, magnitude));
}

std::string SumsLine(const char* what, const Range& range, const std::vector<double>& each) {
  if (each.size() > 16 || each.empty()) return fmt::format("{} sum to {}", what, Show(range));
  std::string line = fmt::format("{} sum to", what);
  for (const double sum : each) line += ' ' + ShowNumber(sum, 1);
  return line;
}

}  // namespace

void Range::Add(double value) {
  if (std::isnan(value)) {
    ++nans;
  } else if (value == kInfinity) {
    ++plus_infinities;
  } else if (value == -kInfinity) {
    ++minus_infinities;
  } else {
    smallest = finite == 0 ? value : std::min(smallest, value);
    largest = finite == 0 ? value : std::max(largest, value);
    ++finite;
  }
}

void Range::Add(const Range& other) {
  if (other.finite > 0) {
    smallest = finite == 0 ? other.smallest : std::min(smallest, other.smallest);
    largest = finite == 0 ? other.largest : std::max(largest, other.largest);
  }
  finite += other.finite;
  minus_infinities += other.minus_infinities;
  plus_infinities += other.plus_infinities;
  nans += other.nans;
}

std::string Show(const Range& range) {
  const double magnitude = LargestMagnitude(range);
  std::string smallest = ShowNumber(range.smallest, magnitude);
  const std::string largest = ShowNumber(range.largest, magnitude);
  if (smallest == "0.0000" && range.smallest != 0) smallest = fmt::format("{:.1e}", range.smallest);
  const bool any = range.finite + range.minus_infinities + range.plus_infinities + range.nans > 0;
  if (!any) return "no value";
  std::string text = range.finite == 0 ? "no finite value" : smallest == largest ? smallest : smallest + " … " + largest;
  if (range.minus_infinities > 0) text += fmt::format(", {} × -inf", ShowCount(range.minus_infinities));
  if (range.plus_infinities > 0) text += fmt::format(", {} × +inf", ShowCount(range.plus_infinities));
  if (range.nans > 0) text += fmt::format(", {} × NaN", ShowCount(range.nans));
  return text;
}

double MirroredCells::Difference() const { return value == mirrored ? 0 : std::fabs(value - mirrored); }

Range RangeOf(const Tensor& values) {
  Range range;
  const double* data = values.As<double>();
  for (std::int64_t i = 0; i < values.num_elements(); ++i) range.Add(data[i]);
  return range;
}

SquareFacts SquareFactsOf(const Tensor& values_tensor, const Tensor& masked_scores, const RowSample& sample) {
  SquareFacts facts;
  const std::int64_t rows = values_tensor.dim(0), keys = values_tensor.dim(1);
  const double* data = values_tensor.As<double>();
  const double* masked = masked_scores ? masked_scores.As<double>() : nullptr;
  const auto values = [&](std::int64_t r, std::int64_t j) { return data[r * keys + j]; };
  const auto sees = [&](std::int64_t r, std::int64_t j) { return masked == nullptr || masked[r * keys + j] != -kInfinity; };
  const auto row_at = [&](std::int64_t r) -> const RowIndex& { return sample.rows[static_cast<std::size_t>(r)]; };
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < keys; ++j) {
      if (sees(r, j)) (j == row_at(r).query ? facts.diagonal : facts.off_diagonal).Add(values(r, j));
    }
    // The mirror image of [i, j] is in row j of the same head; rows are in ascending order.
    for (std::int64_t other = r + 1; other < rows; ++other) {
      const RowIndex &row = row_at(r), &mirror = row_at(other);
      if (mirror.batch != row.batch || mirror.head != row.head) break;
      if (!sees(r, mirror.query) || !sees(other, row.query)) continue;
      const MirroredCells cells{row, mirror.query, values(r, mirror.query), values(other, row.query)};
      if (row == RowIndex{} && mirror.query == 1) facts.first = cells;
      if (!facts.largest || cells.Difference() > facts.largest->Difference()) facts.largest = cells;
    }
  }
  return facts;
}

WeightSums SumsOf(const Tensor& weights, const RowSample& sample) {
  WeightSums sums;
  const double* data = weights.As<double>();
  const std::int64_t keys = weights.dim(1);
  std::int64_t heads = 0;
  for (std::size_t r = 0; r < sample.rows.size(); ++r) {
    const RowIndex& row = sample.rows[r];
    if (r == 0 || row.batch != sample.rows[r - 1].batch || row.head != sample.rows[r - 1].head) ++heads;
    if (sample.everything) sums.each_column.resize(static_cast<std::size_t>(heads * keys));
    double sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      const double weight = data[static_cast<std::int64_t>(r) * keys + j];
      sum += weight;
      if (sample.everything) sums.each_column[static_cast<std::size_t>((heads - 1) * keys + j)] += weight;
    }
    sums.each_row.push_back(sum);
    if (sum != 0) sums.rows.Add(sum);
  }
  if (sample.everything) {
    sums.columns.emplace();
    for (const double sum : sums.each_column) sums.columns->Add(sum);
  }
  return sums;
}

std::string StageTable(const std::vector<StageFacts>& stages, int max_width) {
  std::vector<std::vector<std::string>> rows = {{"stage", "range"}};
  for (const StageFacts& stage : stages) {
    rows.push_back({stage.name + ' ' + ToString(stage.shape) + " = " + stage.how, Show(stage.range)});
  }
  std::string text = AlignColumns(rows, {Align::kLeft, Align::kLeft}, max_width);
  text += '\n';
  for (const StageFacts& stage : stages) {
    if (stage.square) text += SquareLine(stage, stage.shape.size() > 2) + '\n';
    if (stage.sums) {
      text += "  " + SumsLine("rows", stage.sums->rows, stage.sums->each_row);
      if (stage.sums->columns) text += "\n  " + SumsLine("columns", *stage.sums->columns, stage.sums->each_column);
      text += '\n';
    }
  }
  return text;
}

}  // namespace regard::report
