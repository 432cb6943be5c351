// The bits of summaries depend neither on threads, nor on what else is asked for, nor on which heads are.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "regard/summary.h"
#include "tests/summary/comparison.h"

namespace regard::test {
namespace {

bool SameBits(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  return a.num_elements() == 0 ||
         std::memcmp(a.view().data(), b.view().data(), static_cast<std::size_t>(a.num_elements()) * ItemSize(a.dtype())) == 0;
}

// Names and tensors of what both summaries have.
void ExpectSameBits(const Summary& a, const Summary& b) {
  const std::pair<const char*, Tensor Summary::*> members[] = {
      {"context", &Summary::context},
      {"lse", &Summary::lse},
      {"row_max", &Summary::row_max},
      {"row_argmax", &Summary::row_argmax},
      {"entropy", &Summary::entropy},
      {"topk_index", &Summary::topk_index},
      {"topk_weight", &Summary::topk_weight},
      {"topk_tail", &Summary::topk_tail},
      {"distance_mean", &Summary::distance_mean},
      {"distance_std", &Summary::distance_std},
      {"first_key_share", &Summary::first_key_share},
      {"window_share", &Summary::window_share},
      {"key_mass", &Summary::key_mass},
      {"key_mass_mean", &Summary::key_mass_mean},
      {"key_topk_index", &Summary::key_topk_index},
      {"key_topk_weight", &Summary::key_topk_weight},
      {"pooled", &Summary::pooled},
      {"pooled_max", &Summary::pooled_max},
      {"head_score", &Summary::head_score},
  };
  for (const auto& [name, member] : members) {
    if (a.*member && b.*member) {
      EXPECT_TRUE(SameBits(a.*member, b.*member)) << name;
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
    const auto expect_same = [&](const char* name, const Tensor& few, const Tensor& many) {
      if (!many) return;
      for (int n = 0; n < 2; ++n) {
        const Tensor a = Tensor::CopyOf(few.view().Select(0, 0).Select(0, n));
        const Tensor b =
            Tensor::CopyOf(many.view().Select(0, options.batch[0]).Select(0, options.heads[static_cast<std::size_t>(n)]));
        EXPECT_TRUE(SameBits(a, b)) << name;
      }
    };
    expect_same("context", chosen.context, all.context);
    expect_same("lse", chosen.lse, all.lse);
    expect_same("entropy", chosen.entropy, all.entropy);
    expect_same("topk_index", chosen.topk_index, all.topk_index);
    expect_same("topk_weight", chosen.topk_weight, all.topk_weight);
    expect_same("key_mass", chosen.key_mass, all.key_mass);
    expect_same("pooled", chosen.pooled, all.pooled);
    expect_same("first_key_share", chosen.first_key_share, all.first_key_share);
    expect_same("distance_std", chosen.distance_std, all.distance_std);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace regard::test
