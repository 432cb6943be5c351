#include "measure/backward_question.h"

#include <gtest/gtest.h>

#include <string>

#include "measure/small_case.h"

namespace regard::measure {
namespace {

BenchCase Small(bool causal) {
  BenchCase c = SmallCase(333, 16, causal, Feature::kNone);
  c.backward = true;
  return c;
}

TEST(BackwardQuestion, RightGradientsPassAndUseTheirBound) {
  for (const bool causal : {false, true}) {
    for (const Path path : {Path::kFused, Path::kStaged}) {
      Workload work(Small(causal));
      BackwardRun run(work, {.path = path, .threads = 1});
      run.Run();
      const Verification verification = run.Verify();
      EXPECT_TRUE(verification.passed()) << verification.fault;
      EXPECT_EQ(verification.rows, 2 * kSampledRows);
      EXPECT_GT(verification.worst, 0.01) << "so wide a bound would let faults pass";
    }
  }
}

TEST(BackwardQuestion, SoDoThoseOfDropoutAndSixteenBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    BenchCase c = Small(true);
    c.dtype = dtype;
    c.feature = dtype == DType::kF32 ? Feature::kDropout : Feature::kNone;
    Workload work(c);
    BackwardRun run(work, {.threads = 1});
    run.Run();
    const Verification verification = run.Verify();
    EXPECT_TRUE(verification.passed()) << verification.fault;
    EXPECT_GT(verification.worst, 0.01) << "so wide a bound would let faults pass";
  }
}

TEST(BackwardQuestion, WrongGradientsDoNotPass) {
  const auto fault_of = [](const auto& spoil) {
    Workload work(Small(true));
    BackwardRun run(work, {.threads = 1});
    run.Run();
    spoil(run);
    return run.Verify().fault;
  };
  const auto scale = [](Tensor& tensor, float factor) {
    for (std::int64_t n = 0; n < tensor.num_elements(); ++n) tensor.MutableAs<float>()[n] *= factor;
  };
  EXPECT_NE(fault_of([&](BackwardRun& run) { scale(run.d_q(), 1.001f); }).find("d_q at head"), std::string::npos);
  EXPECT_NE(fault_of([&](BackwardRun& run) { scale(run.d_k(), 1.001f); }).find("d_k at kv head"), std::string::npos);
  EXPECT_NE(fault_of([&](BackwardRun& run) { scale(run.d_v(), 1.001f); }).find("d_v at kv head"), std::string::npos);
  Workload work(Small(false));
  EXPECT_FALSE(BackwardRun(work, {.threads = 1}).Verify().passed()) << "nothing was computed";
}

TEST(BackwardQuestion, FiveProductsCount) {
  const Workload forward(SmallCase(333, 16, true, Feature::kNone)), backward(Small(true));
  EXPECT_EQ(backward.flops(), 2.5 * forward.flops());
}

}  // namespace
}  // namespace regard::measure
