#include "measure/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "measure/small_case.h"

namespace regard::measure {
namespace {

BenchCase Small(Feature feature) { return SmallCase(700, 16, true, feature); }

AttentionResult Compute(const Workload& work, const AttentionParams& params, const ExecOptions& exec = {.threads = 1}) {
  return Attention(work.inputs().q, work.inputs().k, work.inputs().v, params, exec);
}

TEST(SampleRows, HasBothEndsAndBlockEdgesAndEveryHead) {
  const std::vector<RowIndex> rows = SampleRows(4, 700);
  EXPECT_LE(rows.size(), static_cast<std::size_t>(kSampledRows));
  std::set<std::int64_t> queries, heads;
  for (const RowIndex& row : rows) {
    EXPECT_TRUE(queries.insert(row.query).second);
    heads.insert(row.head);
  }
  for (const std::int64_t query : {0, 63, 64, 255, 256, 699}) EXPECT_TRUE(queries.contains(query)) << query;
  EXPECT_EQ(heads.size(), 4u);
}

TEST(SampleRows, OfOneQueryLooksAtTheHeads) {
  const std::vector<RowIndex> rows = SampleRows(8, 1);
  ASSERT_EQ(rows.size(), 8u);
  for (std::int64_t h = 0; h < 8; ++h) EXPECT_EQ(rows[static_cast<std::size_t>(h)], (RowIndex{h, 0}));
}

TEST(SampleRows, OfFewQueriesAreAll) {
  const std::vector<RowIndex> rows = SampleRows(1, 5);
  ASSERT_EQ(rows.size(), 5u);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(rows[static_cast<std::size_t>(i)].query, i);
}

TEST(Verify, AcceptsEveryPathAndFeature) {
  for (const Feature feature :
       {Feature::kNone, Feature::kMask, Feature::kBias, Feature::kAlibi, Feature::kWindow, Feature::kSinks, Feature::kSoftCap,
        Feature::kDropout, Feature::kPacked, Feature::kTokenMajor, Feature::kRising}) {
    const Workload work(Small(feature));
    for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
      const AttentionResult result = Compute(work, work.params(), {.path = path, .threads = 1});
      const Verification verification = VerifyRows(work, result.context, result.lse);
      EXPECT_TRUE(verification.passed()) << Name(path) << ": " << verification.fault;
      EXPECT_EQ(verification.rows, 24);
      // The bound must be near what happens, or it would let faults pass.
      EXPECT_GT(verification.worst, path == Path::kReference ? -1 : 0.01)
          << Name(path) << ", feature " << static_cast<int>(feature);
    }
  }
}

TEST(Verify, RejectsWhatIsOffByOne) {
  const Workload work(Small(Feature::kNone));
  AttentionParams shifted = work.params();
  shifted.q_offset = 1;
  AttentionParams scaled = work.params();
  scaled.scale = 0.2502f;  // for 0.25
  AttentionParams windowed = work.params();
  windowed.window_left = 690;  // the last rows miss their first keys
  for (const AttentionParams& params : {shifted, scaled, windowed}) {
    const AttentionResult result = Compute(work, params);
    EXPECT_FALSE(VerifyRows(work, result.context, result.lse).passed());
    EXPECT_FALSE(VerifyRows(work, result.context, {}).passed()) << "the context alone must tell";
  }
}

TEST(Verify, RejectsWhatWasNotWritten) {
  const Workload work(Small(Feature::kNone));
  AttentionResult result = Compute(work, work.params());
  result.context.MutableAs<float>()[700 * 16 - 1] = std::numeric_limits<float>::quiet_NaN();  // head 0, last query
  // The last query is looked at in the head its place in the sample gives it, so spoil it in all.
  for (std::int64_t h = 1; h <= 4; ++h)
    result.context.MutableAs<float>()[h * 700 * 16 - 1] = std::numeric_limits<float>::quiet_NaN();
  const Verification verification = VerifyRows(work, result.context, result.lse);
  EXPECT_FALSE(verification.passed());
  EXPECT_TRUE(std::isinf(verification.worst));
  EXPECT_NE(verification.fault.find("query 699"), std::string::npos) << verification.fault;
}

TEST(Verify, LooksAtLse) {
  const Workload work(Small(Feature::kNone));
  AttentionResult result = Compute(work, work.params());
  for (std::int64_t n = 0; n < result.lse.num_elements(); ++n) result.lse.MutableAs<float>()[n] += 1e-3f;
  EXPECT_FALSE(VerifyRows(work, result.context, result.lse).passed());
}

}  // namespace
}  // namespace regard::measure
