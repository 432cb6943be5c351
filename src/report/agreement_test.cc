#include "report/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/fused.h"
#include "report/six_tokens.h"
#include "tests/support/random_problem.h"

namespace regard::report {
namespace {

Call CallOf(const test::TestProblem& p) {
  const auto rank4 = [](const TensorView& view) { return view.rank() == 4 ? view : view.Unsqueeze(0).Unsqueeze(0); };
  return {rank4(p.q), rank4(p.k), rank4(p.v), p.params};
}

TEST(CompareRows, PathsAgreeOnRandomProblemsAndTheBoundIsNotIdle) {
  double used[2] = {};
  for (const std::uint64_t seed : test::Seeds(400)) {
    const test::TestProblem p = test::MakeProblem(seed);
    SCOPED_TRACE(p.description);
    const Call call = CallOf(p);
    const RowSample sample = AllRowsOf(call);
    if (sample.rows.empty()) continue;
    const RowStages reference = ComputeRows(call, sample, {.path = Path::kReference, .threads = 1});
    for (const Path path : {Path::kFused, Path::kStaged}) {
      const RowStages stages = ComputeRows(call, sample, {.path = path, .threads = 1});
      const double weight_rounding =
          path == Path::kFused ? internal::WeightRounding(PlanShape::Of(call.q, call.k, call.v), "") : 0;
      const PathDifference difference =
          CompareRows(Name(path), call, sample, reference, stages.context, DType::kF32, weight_rounding);
      ASSERT_TRUE(difference.agrees()) << Name(path) << " uses " << difference.bound_used << " of its bound";
      used[path == Path::kStaged] = std::max(used[path == Path::kStaged], difference.bound_used);
    }
  }
  EXPECT_GT(used[0], 0.01);
  EXPECT_GT(used[1], 0.01);
}

TEST(CompareRows, NamesTheRowThatIsWrong) {
  const Call call = SixTokensCall();
  const RowSample sample = AllRowsOf(call);
  const RowStages reference = ComputeRows(call, sample, {.path = Path::kReference});
  RowStages broken = ComputeRows(call, sample, {.path = Path::kFused});
  broken.context.MutableAs<double>()[3 * 3 + 1] += 1e-4;
  const PathDifference difference = CompareRows("fused", call, sample, reference, broken.context, DType::kF32);
  EXPECT_FALSE(difference.agrees());
  EXPECT_EQ(difference.worst_row, (RowIndex{0, 0, 3}));
  EXPECT_NEAR(difference.max_abs, 1e-4, 1e-6);
  EXPECT_NEAR(difference.max_rel, 1e-4 / 0.6298, 1e-6);
  EXPECT_NE(Show({sample, {difference}}, false).find("DISAGREES"), std::string::npos);
}

TEST(CompareRows, ANumberWhereTheReferenceHasNoneDisagrees) {
  const Call call = SixTokensCall();
  const RowSample sample = AllRowsOf(call);
  const RowStages reference = ComputeRows(call, sample, {.path = Path::kReference});
  RowStages broken = ComputeRows(call, sample, {.path = Path::kFused});
  broken.context.MutableAs<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  const PathDifference difference = CompareRows("fused", call, sample, reference, broken.context, DType::kF32);
  EXPECT_FALSE(difference.agrees());
  EXPECT_TRUE(std::isinf(difference.max_abs));
}

TEST(CompareRows, AllowsTheRoundingOfTheResultsTypeOnly) {
  const Call call = SixTokensCall();
  const RowSample sample = AllRowsOf(call);
  const RowStages reference = ComputeRows(call, sample, {.path = Path::kReference});
  Tensor rounded = Tensor::CopyOf(Tensor::CopyOf(reference.context, DType::kF16), DType::kF64);
  EXPECT_TRUE(CompareRows("fused", call, sample, reference, rounded, DType::kF16).agrees());
  EXPECT_FALSE(CompareRows("fused", call, sample, reference, rounded, DType::kF32).agrees());
}

TEST(CompareThirdStage, FindsAWrongElement) {
  const Call call = SixTokensCall();
  const RowSample sample = AllRowsOf(call);
  const RowStages reference = ComputeRows(call, sample, {.path = Path::kReference});
  Tensor context = reference.context;
  EXPECT_TRUE(CompareThirdStage("staged", reference.weights, call.v, 1, sample, context, DType::kF32).agrees());
  context.MutableAs<double>()[17] += 1e-5;
  const PathDifference difference = CompareThirdStage("staged", reference.weights, call.v, 1, sample, context, DType::kF32);
  EXPECT_FALSE(difference.agrees());
  EXPECT_EQ(difference.worst_row.query, 5);
  EXPECT_TRUE(CompareThirdStage("staged", reference.weights, call.v, 1, sample, context, DType::kF32, 1e-4).agrees());
}

}  // namespace
}  // namespace regard::report
