#include "measure/workload.h"

#include <gtest/gtest.h>

#include <cmath>

#include "attention/fused.h"
#include "measure/small_case.h"
#include "measure/verify.h"

namespace regard::measure {
namespace {

BenchCase Small(Feature feature, bool causal) { return SmallCase(331, 8, causal, feature); }

constexpr Feature kFeatures[] = {Feature::kNone,  Feature::kMask,    Feature::kBias,   Feature::kAlibi,  Feature::kWindow,
                                 Feature::kSinks, Feature::kSoftCap, Feature::kPacked, Feature::kRising, Feature::kTokenMajor};

Stages Reference(const Workload& work) {
  return ComputeStages(work.inputs().q, work.inputs().k, work.inputs().v, work.params(),
                       {.path = Path::kReference, .threads = 1});
}

// The pairs that are counted are those that the reference path, which knows the rules and not the count, gives weight to.
TEST(Workload, CountsThePairsThatAreVisible) {
  for (const Feature feature : kFeatures) {
    for (const bool causal : {false, true}) {
      if (feature == Feature::kWindow && !causal) continue;  // no such case: a window that is open to the right
      const Workload work(Small(feature, causal));
      const Stages stages = Reference(work);
      std::int64_t seen = 0;
      const double* const masked = stages.masked_scores.As<double>();
      for (std::int64_t n = 0; n < stages.masked_scores.num_elements(); ++n) seen += std::isinf(masked[n]) ? 0 : 1;
      EXPECT_EQ(seen, work.visible_pairs() * 4) << "feature " << static_cast<int>(feature) << (causal ? ", causal" : "");
      EXPECT_EQ(work.flops(), 4.0 * static_cast<double>(seen) * 8);
    }
  }
}

TEST(Workload, CausalIsNotHalfTheSquare) {
  const Workload work(Small(Feature::kNone, true));
  EXPECT_EQ(work.visible_pairs(), 331 * 332 / 2);
}

TEST(Workload, BytesAreThoseOfKeysValuesQueriesAndContext) {
  BenchCase decode = Small(Feature::kNone, false);
  decode.q_len = 1;
  EXPECT_EQ(Workload(decode).bytes(), 4.0 * 8 * (2 * 2 * 331 + 2 * 4));
}

// A row on its own is the row of the whole, also where the whole has segments and the row is stated without.
TEST(Workload, RowsMeanTheSameAlone) {
  for (const Feature feature : kFeatures) {
    const Workload work(Small(feature, true));
    const Stages whole = Reference(work);
    for (const std::int64_t query : {0, 1, 113, 114, 115, 156, 166, 330}) {
      const std::int64_t head = query % 4;
      const Workload::Row row = work.RowCall(head, query);
      const Stages alone = ComputeStages(row.q, row.k, row.v, row.params, {.path = Path::kReference, .threads = 1});
      EXPECT_EQ(alone.lse(0, 0, 0), whole.lse(0, head, query)) << "feature " << static_cast<int>(feature) << ", query " << query;
      for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(alone.context(0, 0, 0, d), whole.context(0, head, query, d));
    }
  }
}

// Rows are compared with the numbers that the cache holds.
TEST(Workload, CachedCasesReadACache) {
  for (const Feature feature : {Feature::kPaged, Feature::kPagedI8}) {
    Workload work(Small(feature, true));
    ASSERT_NE(work.inputs().cache, nullptr);
    const Plan plan(work.shape(), work.params());
    Workspace workspace = plan.MakeWorkspace();
    plan.Run(work.inputs(), work.outputs(), workspace).ThrowIfFailed();
    const Verification verification = VerifyRows(work, work.context(), work.lse());
    EXPECT_TRUE(verification.passed()) << verification.fault;
    EXPECT_EQ(work.bytes(),
              feature == Feature::kPaged ? 4.0 * 8 * (2 * 2 * 331 + 2 * 4 * 331) : 12.0 * 2 * 2 * 331 + 32 * 2 * 4 * 331);
    EXPECT_EQ(work.visible_pairs(), 331 * 332 / 2);
  }
}

// Sequences of unequal lengths, one query each, and what each sees are those of the call.
TEST(Workload, SequencesOfOneCacheSeeTheirOwnKeys) {
  for (const Feature feature : {Feature::kPaged, Feature::kPagedI8}) {
    BenchCase batch = Small(feature, false);
    batch.q_len = 1;
    batch.sequences = 5;
    Workload work(batch);
    ASSERT_EQ(work.inputs().sequences.size(), 5u);
    EXPECT_EQ(work.queries(), 5);
    std::int64_t end = 0;
    for (std::int64_t n = 0; n < 5; ++n) {
      const KeyRange keys = work.VisibleKeys(n);
      EXPECT_EQ(keys.begin, end);
      EXPECT_EQ(keys.end - keys.begin, work.inputs().cache->Length(work.inputs().sequences[static_cast<std::size_t>(n)]));
      end = keys.end;
    }
    EXPECT_EQ(end, 331);
    EXPECT_EQ(work.visible_pairs(), 331);
    const Plan plan(work.shape(), work.params());
    Workspace workspace = plan.MakeWorkspace();
    plan.Run(work.inputs(), work.outputs(), workspace).ThrowIfFailed();
    const Verification verification =
        VerifyRows(work, work.context(), work.lse(), 0, internal::IntegerRoundingOf(work.shape(), ""));
    EXPECT_TRUE(verification.passed()) << verification.fault;
    EXPECT_EQ(verification.rows, 5);
    EXPECT_GT(verification.worst, 0.01);
  }
}

// The last queries of a text are its last rows.
TEST(Workload, AChunkIsTheEndOfItsText) {
  BenchCase chunk = Small(Feature::kNone, true);
  chunk.q_len = 30;
  const Workload work(chunk);
  EXPECT_EQ(work.visible_pairs(), 331 * 332 / 2 - 301 * 302 / 2);
  EXPECT_EQ(work.VisibleKeys(0).end, 302);
  const Stages stages = Reference(work);
  for (const std::int64_t query : {0, 17, 29}) {
    const Workload::Row row = work.RowCall(1, query);
    EXPECT_EQ(ComputeStages(row.q, row.k, row.v, row.params, {.path = Path::kReference, .threads = 1}).lse(0, 0, 0),
              stages.lse(0, 1, query));
  }
}

TEST(Workload, RisingScoresRise) {
  const Workload work(Small(Feature::kRising, false));
  const Stages stages = Reference(work);
  for (std::int64_t h = 0; h < 4; ++h) {
    for (std::int64_t i = 0; i < 331; ++i) {
      for (std::int64_t j = 1; j < 331; ++j) {
        ASSERT_GT(stages.masked_scores(0, h, i, j), stages.masked_scores(0, h, i, j - 1) + 20.0 / 331);
      }
    }
  }
}

TEST(Workload, InputsLookNormal) {
  const Workload work(Small(Feature::kNone, false));
  const TensorView q = work.inputs().q;
  double sum = 0, squares = 0;
  for (std::int64_t n = 0; n < q.num_elements(); ++n) {
    sum += q.As<float>()[n];
    squares += q.As<float>()[n] * q.As<float>()[n];
  }
  const double count = static_cast<double>(q.num_elements());
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
}

}  // namespace
}  // namespace regard::measure
