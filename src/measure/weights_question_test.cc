#include "measure/weights_question.h"

#include <gtest/gtest.h>

#include <string>

#include "measure/bench.h"
#include "measure/small_case.h"

namespace regard::measure {
namespace {

constexpr Asked kQuestions[] = {Asked::kFirstPass, Asked::kSummaries, Asked::kKeyTopK, Asked::kVisitor};

BenchCase Small(Asked asked, bool causal, Feature feature = Feature::kNone) {
  BenchCase c = SmallCase(333, 16, causal, feature);
  c.asked = asked;
  return c;
}

TEST(WeightsQuestion, RightAnswersPassAndUseTheirBound) {
  for (const Asked asked : kQuestions) {
    for (const bool causal : {false, true}) {
      for (const Feature feature : {Feature::kNone, Feature::kRising}) {
        const Workload work(Small(asked, causal, feature));
        const Verification verification = VerifyAnswers(work, Answers(work, {.threads = 1}));
        const std::string what = work.bench_case().Options();
        EXPECT_TRUE(verification.passed()) << what << ": " << verification.fault;
        EXPECT_EQ(verification.rows, kSampledRows);
        EXPECT_GT(verification.worst, 0.01) << what << ": so wide a bound would let faults pass";
      }
    }
  }
}

// What goes wrong when a tile is left out, a list is not in order, or a sum is divided by the wrong count.
TEST(WeightsQuestion, WrongAnswersDoNotPass) {
  const auto fault_of = [](Asked asked, const auto& spoil) {
    const Workload work(Small(asked, true));
    Summary answers = Answers(work, {.threads = 1});
    spoil(answers);
    return VerifyAnswers(work, answers).fault;
  };
  const auto scale = [](Tensor Summary::*member, float factor) {
    return [member, factor](Summary& s) {
      for (std::int64_t n = 0; n < (s.*member).num_elements(); ++n) (s.*member).MutableAs<float>()[n] *= factor;
    };
  };
  EXPECT_NE(fault_of(Asked::kFirstPass, scale(&Summary::entropy, 1.0002f)).find("entropy at head"), std::string::npos);
  EXPECT_NE(fault_of(Asked::kFirstPass, scale(&Summary::row_max, 1.0002f)).find("row_max at head"), std::string::npos);
  EXPECT_NE(fault_of(Asked::kFirstPass, scale(&Summary::topk_weight, 0.9999f)).find("in the list of head"), std::string::npos);
  EXPECT_NE(fault_of(Asked::kFirstPass,
                     [](Summary& s) {
                       for (std::int64_t n = 0; n < s.topk_index.num_elements(); n += 8)
                         std::swap(s.topk_index.MutableAs<std::int64_t>()[n], s.topk_index.MutableAs<std::int64_t>()[n + 1]);
                     })
                .find("in the list of head"),
            std::string::npos);
  EXPECT_NE(fault_of(Asked::kSummaries, scale(&Summary::key_mass, 1.0001f)).find("key_mass"), std::string::npos);
  EXPECT_NE(fault_of(Asked::kSummaries, scale(&Summary::pooled, 1.0001f)).find("pooled at head"), std::string::npos);
  EXPECT_NE(fault_of(Asked::kKeyTopK, scale(&Summary::key_topk_weight, 0.9999f)).find("key 0"), std::string::npos);
  EXPECT_NE(fault_of(Asked::kVisitor, scale(&Summary::key_mass, 0.9999f)).find("key_mass"), std::string::npos);
  EXPECT_NE(fault_of(Asked::kVisitor, scale(&Summary::context, 1.0001f)).find("context at head"), std::string::npos);
  // A key between the sampled ones: the total tells.
  EXPECT_NE(fault_of(Asked::kSummaries, [](Summary& s) { s.key_mass.MutableAs<float>()[1] += 0.1f; }).find("in all of head 0"),
            std::string::npos);
}

TEST(WeightsQuestion, IsTimedAgainstTheContextAlone) {
  Bench bench({.min_seconds = 0, .min_samples = 1});
  BenchCase silent = Small(Asked::kNothing, false);
  silent.name = "silent";
  bench.Run(silent);
  for (const Asked asked : kQuestions) {
    BenchCase c = Small(asked, false);
    c.baseline = "silent";
    const BenchRow row = bench.Run(c);
    EXPECT_TRUE(row.verification.passed()) << row.options << ": " << row.verification.fault;
    EXPECT_GT(row.timing.samples, 0);
    EXPECT_TRUE(row.ratio.has_value());
  }
}

}  // namespace
}  // namespace regard::measure
