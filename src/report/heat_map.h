// Numbers as colours on a terminal, and tables whose cells carry them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace regard::report {

enum class Colors : std::uint8_t {
  kNone,  // no escape sequence at all: shades " ░▒▓█"
  k256,   // the 6×6×6 cube of xterm
  k24Bit,
};

/// A cell's text on the colour for `value` in [0, 1], in black or white, whichever can be read. With kNone the text alone.
std::string PaintCell(const std::string& text, double value, Colors colors);

/// A matrix [rows, columns] in C order, all values ≥ 0, NaN allowed.
struct HeatMap {
  std::int64_t rows = 0, columns = 0;
  std::span<const double> values = {};
  std::vector<std::string> row_labels = {};  // empty, or one a row
  double largest = 0;                        // what full colour stands for; 0: the largest value
};

/// Mean of the cells that fall into each of at most `max_rows` × `max_columns` bins; bin r begins at row ⌊r·rows/R⌋, columns
/// alike. Labels become those of each bin's first row. `storage` holds the values of the result.
HeatMap Pool(const HeatMap& map, std::int64_t max_rows, std::int64_t max_columns, std::vector<double>* storage);

/// Two columns of the terminal a cell, one line a row. Colour grows with the square root of the value, so that small weights can
/// be told apart beside a dominating one. Ends with a legend.
std::string ShowHeatMap(const HeatMap& map, Colors colors);

}  // namespace regard::report
