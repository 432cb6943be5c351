#include "measure/append_run.h"

#include <gtest/gtest.h>

#include "measure/small_case.h"

namespace regard::measure {
namespace {

BenchCase Append(std::int64_t tokens, std::int64_t sequences, Feature feature) {
  BenchCase c = SmallCase(80, 24, false, feature);
  c.appends = true;
  c.q_len = tokens;
  c.sequences = sequences;
  return c;
}

TEST(AppendRun, TheCacheHoldsWhatItWasGivenAndThenTakesItBack) {
  for (const Feature feature : {Feature::kNone, Feature::kPagedI8}) {
    for (const auto& [tokens, sequences] : {std::pair{1, 5}, {70, 1}}) {
      AppendRun run(Append(tokens, sequences, feature));
      for (int again = 0; again < 2; ++again) {
        run.Run();
        const Verification verification = run.Verify();
        EXPECT_TRUE(verification.passed()) << verification.fault;
        EXPECT_EQ(verification.rows, tokens == 1 ? 2 * 5 : 24);
        EXPECT_EQ(verification.worst > 0.9, feature == Feature::kPagedI8) << "int8 rounds, f32 does not";
      }
    }
  }
}

TEST(AppendRun, BytesAreReadAndWritten) {
  EXPECT_EQ(AppendRun(Append(1, 5, Feature::kNone)).bytes(), 2.0 * 5 * 2 * (24 * 4 + 24 * 4));
  EXPECT_EQ(AppendRun(Append(1, 5, Feature::kPagedI8)).bytes(), 2.0 * 5 * 2 * (24 * 4 + 24 + 4));
}

}  // namespace
}  // namespace regard::measure
