// Any bytes as a valid problem, held to everything that is promised of one: all paths, targets and numbers of threads agree, and the diagnosis
// accuses nobody of a correct output (tests/support/promises.h).
#include <gtest/gtest.h>

#include "fuzz/target.h"
#include "tests/support/promises.h"

namespace regard::fuzz {

std::string Outcome(std::span<const std::uint8_t> bytes) {
  test::ErrorLedger ledger;
  // The last bytes decide what is compared besides, the first ones are the problem.
  const std::size_t choices = std::min<std::size_t>(bytes.size(), 8);
  test::Random random(bytes.last(choices));
  const test::TestProblem problem = test::MakeProblem(bytes.first(bytes.size() - choices), {.dropout = true});
  test::CheckPromises(problem, random, ledger);
  Check(!testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed(), "everything that is promised of a valid problem",
        problem.description);
  return "ok";
}

}  // namespace regard::fuzz
