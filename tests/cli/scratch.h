// Files of tests, and command lines as one writes them.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace regard::tests {

/// The words of `line` are what spaces separate.
Outcome Regard(const std::string& line);

/// A path in a folder of this test program's own, which is empty when the program starts and removed at its end.
std::string Scratch(const std::string& name);

std::string ReadFile(const std::string& path);

}  // namespace regard::tests
