#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/exp2_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

float Exp2Of(float x) { return hn::GetLane(Exp2(hn::Set(DF(), x))); }
float Step() { return kStep; }
float LowestExponent() { return kLowestExponent; }
float TanhOf(float y) { return hn::GetLane(TanhOfScaled(hn::Set(DF(), y))); }

bool IsCalm(float x) {
  CalmCheck<false> check;
  check.Add(RoundExponent(hn::Zero(DF())));
  check.Add(RoundExponent(hn::Set(DF(), x)));
  check.Add(RoundExponent(hn::Set(DF(), -5.0f)));
  return check.AllCalm();
}
bool IsCalmClamped(float x) {
  CalmCheck<true> check;
  check.Add(RoundExponent(ClampForExp2(hn::Set(DF(), x))));
  check.Add(RoundExponent(hn::Zero(DF())));
  return check.AllCalm();
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

#include "kernels/kernel_case.h"

namespace regard::internal {
namespace {

HWY_EXPORT(Exp2Of);
HWY_EXPORT(Step);
HWY_EXPORT(LowestExponent);
HWY_EXPORT(TanhOf);
HWY_EXPORT(IsCalm);
HWY_EXPORT(IsCalmClamped);

class Exp2Test : public PerTarget {
 protected:
  float StepOf() const { return HWY_DISPATCH_TABLE(Step)[Index()](); }
  float Lowest() const { return HWY_DISPATCH_TABLE(LowestExponent)[Index()](); }
  std::size_t Index() const {
    for (std::uint64_t left = HWY_TARGETS; left != 0; left &= left - 1) {
      const std::int64_t target = static_cast<std::int64_t>(left & (~left + 1));
      if (GetParam() == hwy::TargetName(target)) return DispatchIndex(target);
    }
    ADD_FAILURE() << GetParam() << " is not compiled into this test";
    return 0;
  }
};

// Those of Highway: what is ours beside them has the same exp2 and tanh.
std::vector<std::string> HighwayTargetNames() {
  std::vector<std::string> names = CompiledTargetNames();
  std::erase(names, "AVX3_BF16");
  return names;
}
INSTANTIATE_TEST_SUITE_P(Targets, Exp2Test, testing::ValuesIn(HighwayTargetNames()), CaseName);

/// The distance of two neighbouring floats at x, for normal x.
double Ulp(double x) { return std::ldexp(1.0, std::ilogb(x) - 23); }

TEST_P(Exp2Test, WithinItsBound) {
  const auto exp2 = HWY_DISPATCH_TABLE(Exp2Of)[Index()];
  double worst = 0;
  for (int i = -126 * 4096; i <= 17 * 4096; ++i) {
    const float x = static_cast<float>(i) / 4096 + (i % 3 == 0 ? 1e-5f : 0.0f);
    const double expected = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::fabs(exp2(x) - expected) / Ulp(expected));
  }
  EXPECT_LE(worst, StepOf() < 1 ? 3.5 : 2.5);  // by a table, or a polynomial
  EXPECT_GE(worst, 0.4);                       // nothing is this exact: the test would be idle
}

TEST_P(Exp2Test, Edges) {
  const auto exp2 = HWY_DISPATCH_TABLE(Exp2Of)[Index()];
  EXPECT_EQ(exp2(0), 1.0f);
  EXPECT_EQ(exp2(-0.0f), 1.0f);
  for (int n = -126; n <= 126; ++n) EXPECT_EQ(exp2(static_cast<float>(n)), std::ldexp(1.0f, n));
  for (const float x : {Lowest(), Lowest() - 0.5f, -1e4f, -3e38f, -kInfinity}) EXPECT_EQ(exp2(x), 0.0f);
  for (float x = Lowest(); x < -126; x += 0.01f) {
    EXPECT_GE(exp2(x), 0.0f);
    EXPECT_LE(exp2(x), std::ldexp(1.0f, -126));
  }
}

TEST_P(Exp2Test, CalmIsWhatItSays) {
  const auto calm = HWY_DISPATCH_TABLE(IsCalm)[Index()];
  const auto clamped = HWY_DISPATCH_TABLE(IsCalmClamped)[Index()];
  const float half_step = StepOf() / 2;
  for (float x = -200; x <= 200; x += 1 / 64.0f) {
    EXPECT_EQ(calm(x), -111 - half_step <= x && x < 17 - half_step) << x;
    EXPECT_EQ(clamped(x), x < 17 - half_step) << x;
  }
  for (float x = 201; x < 1e38f; x *= 1.07f) {
    EXPECT_FALSE(calm(x)) << x;
    EXPECT_FALSE(calm(-x)) << x;
    EXPECT_FALSE(clamped(x)) << x;
    EXPECT_TRUE(clamped(-x)) << x;
  }
  for (const float bad : {kNaN, -kNaN, kOddNaN, -kOddNaN, kInfinity}) {
    EXPECT_FALSE(calm(bad));
    EXPECT_FALSE(clamped(bad));
  }
  EXPECT_FALSE(calm(-kInfinity));
  EXPECT_TRUE(clamped(-kInfinity));
}

TEST_P(Exp2Test, TanhWithinItsBound) {
  const auto tanh = HWY_DISPATCH_TABLE(TanhOf)[Index()];
  double worst = 0;
  for (float a = 1e-30f; a < 20; a *= 1.0009f) {
    for (const float y : {a, -a}) {
      const double expected = std::tanh(static_cast<double>(y) / 2.8853900817779268);
      worst = std::max(worst, std::fabs(tanh(y) - expected) / Ulp(expected));
    }
  }
  EXPECT_LE(worst, 4);
  EXPECT_GE(worst, 0.4);
}

TEST_P(Exp2Test, TanhEdges) {
  const auto tanh = HWY_DISPATCH_TABLE(TanhOf)[Index()];
  EXPECT_EQ(tanh(0), 0.0f);
  for (const float y : {30.0f, 1e4f, 3e38f, kInfinity}) {
    EXPECT_EQ(tanh(y), 1.0f);
    EXPECT_EQ(tanh(-y), -1.0f);
  }
  EXPECT_TRUE(std::isnan(tanh(kNaN)));
  EXPECT_TRUE(std::isnan(tanh(-kNaN)));
}

}  // namespace
}  // namespace regard::internal
#endif  // HWY_ONCE
