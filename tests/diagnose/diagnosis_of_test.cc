// A test that finds a wrong result says what is wrong with it.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "tests/support/diagnosis.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

TestProblem Plain() {
  ProblemOptions options;
  options.any_type = options.any_layout = options.empty_shapes = false;
  for (std::uint64_t seed = 1;; ++seed) {
    TestProblem p = MakeProblem(seed, options);
    if (p.family == Family::kNormal && p.kv_len > 8 && p.q_len > 3 && p.head_dim > 1 && !(p.params.soft_cap > 0)) return p;
  }
}

TEST(DiagnosisOf, NamesTheFaultOfAPath) {
  const TestProblem p = Plain();
  TestProblem unscaled = Plain();
  unscaled.params.scale = 1.0f;
  const RunResult wrong = RunPath(ReferencePath(), unscaled);
  EXPECT_NE(DiagnosisOf(p, wrong).find("scale missing (F01)"), std::string::npos) << DiagnosisOf(p, wrong);
  EXPECT_NE(DiagnosisOf(p, RunPath(ReferencePath(), p)).find("match"), std::string::npos);
}

TEST(DiagnosisOf, StandsBesideTheNumbers) {
  const TestProblem p = Plain();
  TestProblem unscaled = Plain();
  unscaled.params.scale = 1.0f;
  const RunResult right = RunPath(ReferencePath(), p), wrong = RunPath(ReferencePath(), unscaled);
  testing::TestPartResultArray failures;
  {
    testing::ScopedFakeTestPartResultReporter reporter(testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD,
                                                       &failures);
    ErrorLedger().Compare(OptimizedPaths().front(), p, wrong, right, ErrorBounds(p, right, OptimizedPaths().front()));
  }
  ASSERT_GT(failures.size(), 1);
  EXPECT_NE(std::string(failures.GetTestPartResult(failures.size() - 1).message()).find("scale missing (F01)"),
            std::string::npos);
}

}  // namespace
}  // namespace regard::test
