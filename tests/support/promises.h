// Everything that is promised of one valid problem, on all paths, targets and numbers of threads at once: what the fuzzer and the long run
// of random problems (tests/scale) hold every problem to.
//
//     ErrorLedger ledger;
//     CheckPromises(MakeProblem(seed), random, ledger);     // GoogleTest failures, which name the problem
//
// Compared are
//   - context, lse and all stages of every path and target with the definition, by the bounds of tolerance.h; inputs and outputs in any layout
//     and type;
//   - the gradients of every path and target with theirs, now and then;
//   - the bits of the fused path on each target with 1, 2 and 3 threads, and beside summaries of everything;
//   - the diagnosis of a correct output, which must accuse nobody, and, now and then, that of a spoilt one, which must say something.
#pragma once

#include "tests/support/paths.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"

namespace regard::test {

/// `random` decides layouts and types of outputs, and which of the dearer comparisons are made.
void CheckPromises(const TestProblem& problem, Random& random, ErrorLedger& ledger);

}  // namespace regard::test
