// One line that says how far a run is, rewritten in place: "██████████████░░░░░░░░░░░░░░░░  47 %  1 min 07 s left".
//
// Only words, no output: Streams asks for them with the time, and sends them where a terminal listens.
#pragma once

#include <string>

namespace regard::cli {

class ProgressLine {
 public:
  /// What to write at `seconds` of any steady clock when `fraction` of the work is done and the terminal has so many columns. Empty before
  /// half a second of work, and more often than ten times a second. A fraction below the last one begins a new piece of work.
  std::string Update(double fraction, double seconds, int columns);

  /// What removes the line; empty when there is none.
  std::string Remove();

 private:
  double begin_ = -1, last_fraction_ = 0, last_written_ = 0;
  int shown_columns_ = 0;
};

/// The bar, the percentage and how long the rest takes if it goes on as in the first `seconds`, which is left out while nobody can tell. At
/// most `columns` − 1 columns, so that no terminal wraps it.
std::string ProgressText(double fraction, double seconds, int columns);

}  // namespace regard::cli
