#include "report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/text.h"

namespace regard::report {
namespace {

struct Rgb {
  double r, g, b;
};

// From near black over blue and green to yellow: lightness grows evenly, so that the order can be seen without hue, in print and
// by the colour-blind.
constexpr std::array<Rgb, 6> kPalette = {
    {{28, 16, 52}, {52, 60, 128}, {36, 108, 142}, {38, 152, 130}, {112, 198, 84}, {250, 228, 60}}};

Rgb ColorOf(double value) {
  const double at = std::clamp(std::isnan(value) ? 0.0 : value, 0.0, 1.0) * (kPalette.size() - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(at), kPalette.size() - 2);
  const double part = at - static_cast<double>(below);
  const Rgb &a = kPalette[below], &b = kPalette[below + 1];
  return {a.r + part * (b.r - a.r), a.g + part * (b.g - a.g), a.b + part * (b.b - a.b)};
}

int Rounded(double x) { return static_cast<int>(std::lround(x)); }

// The cube's levels are 0, 95, 135, 175, 215, 255.
int CubeLevel(double channel) { return channel < 48 ? 0 : channel < 115 ? 1 : std::min(5, Rounded((channel - 55) / 40)); }

constexpr const char* kShades[] = {"  ", "░░", "▒▒", "▓▓", "██"};

std::string Cell(double value, Colors colors) {
  if (std::isnan(value)) return "??";
  if (colors != Colors::kNone) return PaintCell("  ", value, colors);
  return kShades[std::min(4, static_cast<int>(std::clamp(value, 0.0, 1.0) * 5))];
}

}  // namespace

std::string PaintCell(const std::string& text, double value, Colors colors) {
  if (colors == Colors::kNone) return text;
  const Rgb c = ColorOf(value);
  const bool dark = 0.299 * c.r + 0.587 * c.g + 0.114 * c.b < 128;
  if (colors == Colors::k24Bit) {
    const int ink = dark ? 255 : 0;
    return fmt::format("\x1b[38;2;{};{};{};48;2;{};{};{}m{}\x1b[0m", ink, ink, ink, Rounded(c.r), Rounded(c.g), Rounded(c.b),
                       text);
  }
  return fmt::format("\x1b[38;5;{};48;5;{}m{}\x1b[0m", dark ? 231 : 16,
                     16 + 36 * CubeLevel(c.r) + 6 * CubeLevel(c.g) + CubeLevel(c.b), text);
}

HeatMap Pool(const HeatMap& map, std::int64_t max_rows, std::int64_t max_columns, std::vector<double>* storage) {
  HeatMap pooled{std::min(map.rows, max_rows), std::min(map.columns, max_columns)};
  storage->assign(static_cast<std::size_t>(pooled.rows * pooled.columns), 0);
  for (std::int64_t r = 0; r < pooled.rows; ++r) {
    const std::int64_t row_begin = r * map.rows / pooled.rows, row_end = (r + 1) * map.rows / pooled.rows;
    if (!map.row_labels.empty()) pooled.row_labels.push_back(map.row_labels[static_cast<std::size_t>(row_begin)]);
    for (std::int64_t c = 0; c < pooled.columns; ++c) {
      const std::int64_t column_begin = c * map.columns / pooled.columns, column_end = (c + 1) * map.columns / pooled.columns;
      double sum = 0;
      for (std::int64_t i = row_begin; i < row_end; ++i) {
        for (std::int64_t j = column_begin; j < column_end; ++j) sum += map.values[static_cast<std::size_t>(i * map.columns + j)];
      }
      const double count = static_cast<double>((row_end - row_begin) * (column_end - column_begin));
      (*storage)[static_cast<std::size_t>(r * pooled.columns + c)] = sum / count;
    }
  }
  pooled.values = *storage;
  return pooled;
}

std::string ShowHeatMap(const HeatMap& map, Colors colors) {
  double largest = map.largest;
  if (largest == 0) {
    for (const double value : map.values) largest = value > largest ? value : largest;
  }
  const auto level = [largest](double value) { return largest > 0 ? std::sqrt(value / largest) : 0; };
  int label_width = 0;
  for (const std::string& label : map.row_labels) label_width = std::max(label_width, DisplayWidth(label));
  std::string text;
  for (std::int64_t r = 0; r < map.rows; ++r) {
    text += "  ";
    if (!map.row_labels.empty()) text += PadRight(map.row_labels[static_cast<std::size_t>(r)], label_width) + ' ';
    for (std::int64_t c = 0; c < map.columns; ++c)
      text += Cell(level(map.values[static_cast<std::size_t>(r * map.columns + c)]), colors);
    text += '\n';
  }
  text += "  0 ";
  for (int step = 0; step < 10; ++step) text += Cell(step / 9.0, colors);
  return text + ' ' + ShowNumber(largest) + ", by square root\n";
}

}  // namespace regard::report
