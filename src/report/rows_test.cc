#include "report/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "report/six_tokens.h"
#include "tests/support/random_problem.h"

namespace regard::report {
namespace {

Call CallOf(const test::TestProblem& p) {
  const auto rank4 = [](const TensorView& view) { return view.rank() == 4 ? view : view.Unsqueeze(0).Unsqueeze(0); };
  return {rank4(p.q), rank4(p.k), rank4(p.v), p.params};
}

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

// A few rows of every problem, also those past the first sequence, head, segment and block.
RowSample SomeRows(const Call& call) {
  const std::int64_t batch = call.q.dim(0), heads = call.q.dim(1), queries = call.q.dim(2);
  RowSample sample;
  sample.total = batch * heads * queries;
  for (std::int64_t r = 0; r < sample.total; r += 1 + sample.total / 11) {
    sample.rows.push_back({r / (heads * queries), r / queries % heads, r % queries});
  }
  return sample;
}

class OneRowAtATime : public testing::TestWithParam<Path> {};

// All options: masks and biases in every broadcast form, lengths, offsets, windows, segments, ALiBi, sinks, grouped heads.
TEST_P(OneRowAtATime, HasTheNumbersOfTheWholeRun) {
  std::int64_t rows_seen = 0;
  for (const std::uint64_t seed : test::Seeds(600)) {
    const test::TestProblem p = test::MakeProblem(seed);
    SCOPED_TRACE(p.description);
    const Call call = CallOf(p);
    const RowSample sample = SomeRows(call);
    if (sample.rows.empty()) continue;
    const ExecOptions exec{.path = GetParam(), .threads = 1};
    RowSample everything = sample;
    everything.everything = true;
    const RowStages whole = ComputeRows(call, everything, exec), some = ComputeRows(call, sample, exec);
    const std::int64_t heads = call.q.dim(1), queries = call.q.dim(2), keys = call.k.dim(2), v_dim = call.v.dim(3);
    // Staged has its BLAS' bits, which depend on the size of the product.
    const auto same = [](double a, double b) {
      return GetParam() == Path::kStaged ? SameBits(a, b) || std::fabs(a - b) <= 1e-3 * std::max(1.0, std::fabs(b))
                                         : SameBits(a, b);
    };
    for (std::size_t n = 0; n < sample.rows.size(); ++n) {
      const RowIndex& row = sample.rows[n];
      const std::int64_t r = static_cast<std::int64_t>(n), w = (row.batch * heads + row.head) * queries + row.query;
      ASSERT_TRUE(same(some.lse(r), whole.lse(w))) << some.lse(r) << " instead of " << whole.lse(w) << " in row " << w;
      for (std::int64_t d = 0; d < v_dim; ++d) {
        ASSERT_TRUE(same(some.context(r, d), whole.context(w, d)))
            << some.context(r, d) << " instead of " << whole.context(w, d) << " in row " << w;
      }
      for (std::int64_t j = 0; some.masked_scores && j < keys; ++j) {
        // Which keys are visible is exact on every path.
        ASSERT_EQ(std::isinf(some.masked_scores(r, j)), std::isinf(whole.masked_scores(w, j))) << "row " << w << ", key " << j;
      }
      ++rows_seen;
    }
  }
  EXPECT_GT(rows_seen, 1000);
}

INSTANTIATE_TEST_SUITE_P(Paths, OneRowAtATime, testing::Values(Path::kFused, Path::kStaged, Path::kReference),
                         [](const auto& path) { return std::string(Name(path.param)); });

TEST(SampleRows, TakesEverythingWhenThatIsLittle) {
  const RowSample sample =
      SampleRows({.batch = 2, .heads = 3, .kv_heads = 3, .q_len = 5, .kv_len = 7, .head_dim = 16, .v_dim = 16}, 1 << 20);
  EXPECT_TRUE(sample.everything);
  ASSERT_EQ(sample.rows.size(), 30u);
  EXPECT_EQ(sample.rows[7], (RowIndex{0, 1, 2}));
  EXPECT_EQ(Describe(sample), "all 30 rows");
}

TEST(SampleRows, TakesEndsAndBlockEdgesOfALongOneInOrder) {
  const RowSample sample = SampleRows(
      {.batch = 1, .heads = 1, .kv_heads = 1, .q_len = 5000, .kv_len = 5000, .head_dim = 64, .v_dim = 64}, std::int64_t{1} << 25);
  EXPECT_FALSE(sample.everything);
  EXPECT_EQ(sample.total, 5000);
  EXPECT_LE(sample.rows.size(), 64u);
  EXPECT_GE(sample.rows.size(), 32u);
  for (const std::int64_t query : {0, 15, 16, 255, 256, 4999}) {
    EXPECT_NE(std::find(sample.rows.begin(), sample.rows.end(), RowIndex{0, 0, query}), sample.rows.end()) << query;
  }
  for (std::size_t n = 1; n < sample.rows.size(); ++n) EXPECT_LT(sample.rows[n - 1].query, sample.rows[n].query);
}

TEST(SampleRows, MeetsManyHeadsAndSequences) {
  const PlanShape shape{.batch = 4, .heads = 32, .kv_heads = 8, .q_len = 4096, .kv_len = 4096, .head_dim = 128, .v_dim = 128};
  const RowSample sample = SampleRows(shape, std::int64_t{1} << 25);
  std::vector<std::int64_t> batches, heads;
  for (const RowIndex& row : sample.rows) {
    batches.push_back(row.batch);
    heads.push_back(row.head);
  }
  std::sort(batches.begin(), batches.end());
  std::sort(heads.begin(), heads.end());
  EXPECT_EQ(std::unique(batches.begin(), batches.end()) - batches.begin(), 4);
  EXPECT_GT(std::unique(heads.begin(), heads.end()) - heads.begin(), 7);
}

TEST(SampleRows, NeverFewerThanTheMinimum) {
  const PlanShape shape{
      .batch = 1, .heads = 1, .kv_heads = 1, .q_len = 1000000, .kv_len = 1000000, .head_dim = 256, .v_dim = 256};
  EXPECT_EQ(static_cast<std::int64_t>(SampleRows(shape, 1).rows.size()), kMinSampledRows);
}

TEST(SampleRows, EmptyProblemsHaveNoRows) {
  const RowSample sample =
      SampleRows({.batch = 1, .heads = 2, .kv_heads = 2, .q_len = 0, .kv_len = 7, .head_dim = 4, .v_dim = 4}, 100);
  EXPECT_TRUE(sample.everything);
  EXPECT_TRUE(sample.rows.empty());
}

TEST(GatherRows, PicksRowsOfResults) {
  const Tensor context = Tensor::Of<float>({1, 2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const RowSample sample{{{0, 0, 2}, {0, 1, 1}}, false, 6};
  const Tensor rows = GatherRows(context, sample);
  EXPECT_EQ(rows(0, 0), 4);
  EXPECT_EQ(rows(1, 1), 9);
}

}  // namespace
}  // namespace regard::report
