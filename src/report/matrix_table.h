// A small matrix as a table, its rows and columns labelled with tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "report/heat_map.h"

namespace regard::report {

struct MatrixTable {
  std::string title;
  std::int64_t rows = 0, columns = 0;
  std::span<const double> values = {};          // C order
  std::vector<std::string> row_labels = {};     // one a row
  std::vector<std::string> column_labels = {};  // one a column
  Colors colors = Colors::kNone;                // of cells, from 0 to the largest value; the numbers stay
};

/// Labels "0 Your", "1 journey", …, numbered as `explain --row` wants them; plain numbers where tokens are missing.
std::vector<std::string> NumberedLabels(std::int64_t count, const std::vector<std::string>& tokens);

/// 4 decimals, aligned. Tables wider than `max_width` columns continue below.
std::string Show(const MatrixTable& table, int max_width);

}  // namespace regard::report
