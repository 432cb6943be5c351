// Without edits a variant is the contract: held to the reference path, stage by stage.
#include "diagnose/variant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case.h"
#include "regard/attention.h"
#include "tests/support/random_problem.h"

namespace regard::internal {
namespace {

// `size` is the largest score of the row: sums in another order move scores by its rounding, and weights by as much, relatively.
bool Same(double a, double b, double size) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-14 * (100 + size) * (1 + std::fabs(b));
}

TEST(Variant, WithoutEditsIsTheReferencePath) {
  int rows = 0;
  for (const std::uint64_t seed : test::Seeds(300)) {
    const test::TestProblem problem = test::MakeProblem(seed);
    SCOPED_TRACE(problem.description);
    const DiagnosisProblem given{.q = problem.q, .k = problem.k, .v = problem.v, .params = problem.params};
    const Evaluator evaluator(BindProblem(given));
    const Stages stages = ComputeStages(problem.q, problem.k, problem.v, problem.params, {.path = Path::kReference});
    const Variant unedited = evaluator.Unedited();
    RowState s;
    for (std::int64_t n = 0; n < problem.num_rows(); ++n) {
      const RowId row{n / (problem.heads * problem.q_len), n / problem.q_len % problem.heads, n % problem.q_len};
      evaluator.Evaluate(unedited, row, &s);
      double size = 0;
      for (const double x : s.masked) size = std::isfinite(x) ? std::max(size, std::fabs(x)) : size;
      const auto expect = [&](const char* name, const Tensor& stage, const std::vector<double>& values) {
        const double* expected = stage.As<double>() + n * static_cast<std::int64_t>(values.size());
        for (std::size_t j = 0; j < values.size(); ++j)
          ASSERT_TRUE(Same(values[j], expected[j], size))
              << name << " of row " << n << ", column " << j << ": " << values[j] << ", expected " << expected[j];
      };
      expect("scores", stages.scores, s.scores);
      expect("capped", stages.capped, s.capped);
      expect("masked_scores", stages.masked_scores, s.masked);
      expect("weights", stages.weights, s.weights);
      ASSERT_TRUE(Same(s.lse, stages.lse.As<double>()[n], size));
      if (stages.context.dtype() == DType::kF64) expect("context", stages.context, s.context);
      ++rows;
    }
  }
  EXPECT_GT(rows, 1000);
}

}  // namespace
}  // namespace regard::internal
