// Every optimized path against the definition, all stages, every option combined.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

class Equivalence : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Optimized, Equivalence, testing::ValuesIn(OptimizedPaths()), TestName);

TEST_P(Equivalence, FollowsTheDefinition) {
  ErrorLedger ledger;
  const std::vector<std::uint64_t> seeds = Seeds(2000);
  for (std::uint64_t seed : seeds) {
    const TestProblem p = MakeProblem(seed, {.dropout = true});
    const RunResult reference = RunPath(ReferencePath(), p);
    Random layout(seed);
    const RunResult result = RunPath(GetParam(), p, {.layout = &layout, .any_output_type = layout.Chance(0.3)});
    ledger.Compare(GetParam(), p, result, reference, ErrorBounds(p, reference, GetParam()));
    if (HasFailure()) return;
  }
  if (seeds.size() > 1) ledger.ExpectAlive();
  RecordProperty("largest_error_over_bound", ledger.Summary());
}

// The reference stores each number once, rounded once, in whatever type and layout is asked for.
TEST(Reference, RoundsOnceAtTheEnd) {
  for (std::uint64_t seed : Seeds(500)) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    const RunResult full = RunPath(ReferencePath(), p);
    Random layout(seed);
    const RunResult rounded = RunPath(ReferencePath(), p, {.layout = &layout, .any_output_type = true});
    const auto expect_rounded = [](const Grid& narrow, const Grid& wide) {
      for (std::size_t n = 0; n < wide.values.size(); ++n) {
        const double x = wide.values[n];
        const double once = narrow.dtype == DType::kF16    ? ToFloat(ToF16(x))
                            : narrow.dtype == DType::kBF16 ? ToFloat(ToBF16(x))
                            : narrow.dtype == DType::kF32  ? static_cast<double>(static_cast<float>(x))
                                                           : x;
        ASSERT_EQ(narrow.values[n], once) << Name(narrow.dtype) << " of " << x;
      }
    };
    expect_rounded(rounded.context, full.context);
    expect_rounded(rounded.lse, full.lse);
    expect_rounded(rounded.scores, full.scores);
    expect_rounded(rounded.masked_scores, full.masked_scores);
    expect_rounded(rounded.weights, full.weights);
    EXPECT_EQ(rounded.empty_rows, full.empty_rows);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace regard::test
