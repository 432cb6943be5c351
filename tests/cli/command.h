// Runs the command as a user does, and catches what it says.
//
//     const Outcome outcome = RunRegard({"run", "testdata/six_tokens.txt", "--json"});
//     outcome.status   // 0
//
// Standard output is never a terminal.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

namespace regard::tests {

struct Outcome {
  int status = -1;  // as a shell sees it: 128 + the signal's number when one ended it
  std::string out, err;
  int ms_after_interrupt = 0;  // from the signal to the end
};

struct RunOptions {
  std::string input = {};           // on standard input
  bool input_stays_open = false;    // nothing more comes, and no end, until the command ends
  std::string output_file = {};     // standard output goes here and is not caught; empty: a pipe
  bool close_output = false;        // nobody reads the pipe
  bool closed[3] = {};              // the command starts without standard input, output, error
  int interrupt_after_ms = 0;       // sends a signal then; 0: never
  std::string interrupt_when = {};  // sends a signal once standard error has shown this; empty: never
  int interrupt_by = SIGINT;
  std::uint64_t address_space = 0;  // bytes that the command may have; 0: no limit
  std::uint64_t file_size = 0;      // bytes that a file may have which it writes; 0: no limit
  std::uint64_t stack = 0;          // bytes of a thread's stack; 0: as here
  std::uint64_t open_files = 0;     // that the command may have at a time; 0: as here
  int terminal_columns = 0;         // standard error is a terminal of so many columns; 0: a pipe
};

/// A command that runs for more than five minutes, a multiple of what the longest takes under a sanitizer, is ended, and the test fails.
Outcome RunRegard(const std::vector<std::string>& arguments, const RunOptions& options = {});

}  // namespace regard::tests
