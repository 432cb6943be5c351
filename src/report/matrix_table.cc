#include "report/matrix_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/text.h"

namespace regard::report {

std::vector<std::string> NumberedLabels(std::int64_t count, const std::vector<std::string>& tokens) {
  const int digits = static_cast<int>(std::to_string(std::max<std::int64_t>(0, count - 1)).size());
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    std::string label = PadLeft(std::to_string(i), digits);
    if (!tokens.empty()) label += ' ' + ShowToken(tokens[static_cast<std::size_t>(i)]);
    labels.push_back(std::move(label));
  }
  return labels;
}

std::string Show(const MatrixTable& table, int max_width) {
  double magnitude = 0, largest = 0;
  for (const double value : table.values) {
    if (!std::isfinite(value)) continue;
    magnitude = std::max(magnitude, std::fabs(value));
    largest = std::max(largest, value);
  }
  int cell_width = 0, label_width = 0;
  for (const double value : table.values) cell_width = std::max(cell_width, DisplayWidth(ShowNumber(value, magnitude)));
  for (const std::string& label : table.column_labels) cell_width = std::max(cell_width, DisplayWidth(label));
  for (const std::string& label : table.row_labels) label_width = std::max(label_width, DisplayWidth(label));

  std::string text = table.title + '\n';
  const std::int64_t fitting = std::max(1, (max_width - 2 - label_width) / (cell_width + 2));
  for (std::int64_t first = 0; first < table.columns; first += fitting) {
    const std::int64_t last = std::min(table.columns, first + fitting);
    std::string heading = PadRight("", 3 + label_width);
    for (std::int64_t c = first; c < last; ++c) {
      heading += PadLeft(table.column_labels[static_cast<std::size_t>(c)], cell_width) + (c + 1 < last ? "  " : "");
    }
    text += heading + '\n';
    for (std::int64_t r = 0; r < table.rows; ++r) {
      text += "  " + PadRight(table.row_labels[static_cast<std::size_t>(r)], label_width);
      for (std::int64_t c = first; c < last; ++c) {
        const double value = table.values[static_cast<std::size_t>(r * table.columns + c)];
        const bool pad = table.colors != Colors::kNone || c + 1 < last;
        const std::string cell = ' ' + PadLeft(ShowNumber(value, magnitude), cell_width) + (pad ? " " : "");
        text += PaintCell(cell, largest > 0 ? value / largest : 0, table.colors);
      }
      text += '\n';
    }
  }
  return text;
}

}  // namespace regard::report
