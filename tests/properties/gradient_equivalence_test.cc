// The gradients of every optimized path against the definition, every option combined.
#include <gtest/gtest.h>

#include "tests/support/gradient_tolerance.h"
#include "tests/support/gradients.h"
#include "tests/support/paths.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

class GradientEquivalence : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Optimized, GradientEquivalence, testing::ValuesIn(OptimizedPaths()), TestName);

TEST_P(GradientEquivalence, FollowsTheDefinition) {
  ErrorLedger ledger;
  const std::vector<std::uint64_t> seeds = Seeds(1000);
  for (std::uint64_t seed : seeds) {
    const TestProblem p = MakeProblem(seed, {.dropout = true});
    SCOPED_TRACE(p.description);
    const GradientCase c(seed, p);
    const GradientResult reference = RunBackward(ReferencePath(), p, c);
    const GradientResult bounds = GradientBounds(p, c, RunPath(ReferencePath(), p), GetParam().path);
    Random layout(seed);
    const GradientResult result = RunBackward(GetParam(), p, c, {.layout = &layout, .any_output_type = layout.Chance(0.3)});
    const auto results = result.All(), references = reference.All(), bound = bounds.All();
    for (std::size_t n = 0; n < results.size(); ++n) {
      ledger.CompareGrid(GetParam().Name() + " " + results[n].first, *results[n].second, *references[n].second, *bound[n].second,
                         0x1p-24);
    }
    if (HasFailure()) return;
  }
  if (seeds.size() > 1) ledger.ExpectAlive();
  RecordProperty("largest_error_over_bound", ledger.Summary());
}

}  // namespace
}  // namespace regard::test
