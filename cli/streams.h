// Where the command's words go: results to standard output, notes and progress to standard error.
//
// Standard output is collected and checked: a full disk or a closed pipe is noticed and becomes an Error, so that the command
// cannot claim success for results nobody received.
#pragma once

#include <string>
#include <string_view>

#include "cli/progress.h"
#include "regard/error.h"

namespace regard::cli {

/// Standard output is a pipe that nobody reads any more. Not worth a message: the reader has seen enough.
class ReaderGone : public Error {
 public:
  ReaderGone() : Error(ErrorCode::kIo, "standard output: closed by its reader") {}
};

class Streams {
 public:
  Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// Results. Throws Error kIo when standard output refuses them.
  void Print(std::string_view text);
  /// Sends what Print collected; throws likewise. main calls it at the end.
  void Flush();
  /// Whether anything has been printed.
  bool printed() const { return printed_; }

  /// One line on standard error: `regard: note: …`.
  void Note(std::string_view line);
  /// One line on standard error: `regard: …`. What main says about an error.
  void Fail(std::string_view message);
  /// A fraction done, as progress.h shows it, on one line of standard error that is rewritten; only if that is a terminal.
  void Progress(double fraction);
  /// Removes the progress line.
  void EndProgress();

  /// Of standard output, when it is a terminal.
  bool is_terminal() const { return is_terminal_; }
  int width() const { return width_; }  // columns: COLUMNS when set, 80 when not a terminal

 private:
  std::string buffer_;
  bool printed_ = false;
  bool is_terminal_ = false, errors_to_terminal_ = false;
  int width_ = 80;
  ProgressLine progress_;
};

}  // namespace regard::cli
