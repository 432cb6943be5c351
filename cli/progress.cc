#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/text.h"

namespace regard::cli {
namespace {

constexpr double kFirst = 0.5, kInterval = 0.1;       // seconds
constexpr double kTellsAfter = 2, kTellsFrom = 0.02;  // seconds and fraction that have to be done before a rate means something
constexpr int kMostCells = 40, kFewestCells = 8;
constexpr int kWordColumns = 26;  // "  47 %  1 h 07 min left" and a little

std::string ShowRest(double seconds) {
  const auto rest = static_cast<long long>(std::ceil(seconds));
  if (rest < 60) return fmt::format("{} s left", rest);
  if (rest < 3600) return fmt::format("{} min {:02} s left", rest / 60, rest % 60);
  return fmt::format("{} h {:02} min left", rest / 3600, rest % 3600 / 60);
}

}  // namespace

std::string ProgressText(double fraction, double seconds, int columns) {
  const double done = std::clamp(fraction, 0.0, 1.0);
  std::string words = fmt::format("{:3.0f} %", std::floor(100 * done));  // 100 % means done
  if (seconds >= kTellsAfter && done >= kTellsFrom) words += "  " + ShowRest(seconds * (1 - done) / done);
  const int cells = std::min(columns - kWordColumns, kMostCells);
  if (cells < kFewestCells) return columns > report::DisplayWidth(words) ? words : "";
  std::string bar;
  for (int cell = 0; cell < cells; ++cell) bar += cell < std::lround(done * cells) ? "█" : "░";
  return bar + " " + words;
}

std::string ProgressLine::Update(double fraction, double seconds, int columns) {
  if (begin_ < 0 || fraction < last_fraction_) begin_ = seconds;
  last_fraction_ = fraction;
  if (seconds - begin_ < kFirst || seconds - last_written_ < kInterval) return "";
  last_written_ = seconds;
  const std::string text = ProgressText(fraction, seconds - begin_, columns);
  const int before = shown_columns_;
  shown_columns_ = report::DisplayWidth(text);
  // What the line before left standing at the end is written over.
  return "\r" + text + std::string(static_cast<std::size_t>(std::max(0, before - shown_columns_)), ' ');
}

std::string ProgressLine::Remove() {
  if (shown_columns_ == 0) return "";
  const std::string blank = "\r" + std::string(static_cast<std::size_t>(shown_columns_), ' ') + "\r";
  shown_columns_ = 0;
  return blank;
}

}  // namespace regard::cli
