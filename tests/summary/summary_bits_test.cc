// The bits of summaries depend neither on threads, nor on what else is asked for, nor on which heads are.
#include <gtest/gtest.h>

#include "regard/summary.h"
#include "tests/summary/comparison.h"
#include "tests/support/same_bits.h"
#include "tests/support/summary_members.h"

namespace regard::test {
namespace {

// Of what both summaries have.
void ExpectSameBits(const Summary& a, const Summary& b) {
  for (const SummaryMember& member : kSummaryMembers) {
    if (a.*member.tensor && b.*member.tensor) {
      EXPECT_TRUE(SameBits(a.*member.tensor, b.*member.tensor)) << member.name;
    }
  }
}

class SummaryBits : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Fused, SummaryBits, testing::ValuesIn(FusedPaths()), TestName);

TEST_P(SummaryBits, DoNotDependOnThreadsNorOnWhatElseIsAsked) {
  for (std::uint64_t seed : Seeds(60)) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    Random random(seed);
    const SummaryOptions all = Everything(p, random);
    const Summary whole = Summarize(p.q, p.k, p.v, p.params, all, {.isa = GetParam().isa, .threads = 1});
    ExpectSameBits(whole, Summarize(p.q, p.k, p.v, p.params, all, {.isa = GetParam().isa, .threads = 3}));
    SummaryOptions some = all;
    for (bool* option : {&some.row_max, &some.row_argmax, &some.entropy, &some.distance, &some.first_key_share, &some.key_mass,
                         &some.key_mass_mean, &some.pooled_max, &some.head_kind}) {
      *option = *option && random.Chance(0.5);
    }
    if (random.Chance(0.5)) some.top_k = 0;
    if (random.Chance(0.5)) some.key_top_k = 0;
    if (random.Chance(0.5)) some.window_share.reset();
    if (!some.pooled_max && random.Chance(0.5)) some.pooled_rows = some.pooled_cols = 0;
    ExpectSameBits(whole, Summarize(p.q, p.k, p.v, p.params, some, {.isa = GetParam().isa, .threads = 2}));
    const AttentionResult plain = Attention(p.q, p.k, p.v, p.params, {.isa = GetParam().isa, .threads = 1});
    EXPECT_TRUE(SameBits(plain.context, whole.context) && SameBits(plain.lse, whole.lse));
    EXPECT_EQ(plain.empty_rows, whole.empty_rows);
    if (HasFailure()) return;
  }
}

// Chosen heads have the bits they have among all.
TEST_P(SummaryBits, OfChosenHeads) {
  for (std::uint64_t seed : Seeds(60)) {
    const TestProblem p = MakeProblem(seed, {.empty_shapes = false});
    if (p.q.rank() != 4) continue;
    SCOPED_TRACE(p.description);
    Random random(seed);
    SummaryOptions options = Everything(p, random);
    const Summary all = Summarize(p.q, p.k, p.v, p.params, options, {.isa = GetParam().isa, .threads = 1});
    options.heads = {random.Int(0, p.heads - 1), random.Int(0, p.heads - 1)};
    options.batch = {random.Int(0, p.batch - 1)};
    const Summary chosen = Summarize(p.q, p.k, p.v, p.params, options, {.isa = GetParam().isa, .threads = 2});
    for (const SummaryMember& member : kSummaryMembers) {
      const Tensor &few = chosen.*member.tensor, &many = all.*member.tensor;
      if (!many) continue;
      for (int n = 0; n < 2; ++n) {
        const Tensor a = Tensor::CopyOf(few.view().Select(0, 0).Select(0, n));
        const Tensor b =
            Tensor::CopyOf(many.view().Select(0, options.batch[0]).Select(0, options.heads[static_cast<std::size_t>(n)]));
        EXPECT_TRUE(SameBits(a, b)) << member.name;
      }
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace regard::test
