// What `regard check` would say of a result that a test found wrong, to stand beside the numbers.
#pragma once

#include <string>

#include "tests/support/paths.h"
#include "tests/support/random_problem.h"

namespace regard::test {

/// Summary, advice and evidence, a line each. In builds without regard::tools: a line that says so.
std::string DiagnosisOf(const TestProblem& problem, const RunResult& result);

}  // namespace regard::test
