// Runs the command as a user does, and catches what it says.
//
//     const Outcome outcome = Regard("run testdata/six_tokens.txt --json");
//     outcome.status   // 0
#pragma once

#include <string>

namespace regard::test {

struct Outcome {
  int status = -1;  // as the shell sees it
  std::string out, err;
};

/// `arguments` are read by a shell, in the top folder of the sources; both streams are pipes or files, never a terminal.
Outcome Regard(const std::string& arguments);

/// A path in a folder of this test program's own, which is empty when the program starts.
std::string Scratch(const std::string& name);

std::string ReadFile(const std::string& path);

}  // namespace regard::test
