// Dropout: one mask whatever computes it, and nothing else that changes. That context and gradients are right with it, equivalence_test,
// gradient_equivalence_test and finite_difference_test say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "regard/backward.h"
#include "regard/kv_cache.h"
#include "regard/summary.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/paths.h"
#include "tests/support/same_bits.h"

namespace regard::test {
namespace {

constexpr float kP = 0.4f;
constexpr std::uint64_t kSeed = 0x9876543210abcdef;

class Dropout : public testing::TestWithParam<PathCase> {
 protected:
  ExecOptions Exec(int threads = 1) const { return {.path = GetParam().path, .isa = GetParam().isa, .threads = threads}; }
};
INSTANTIATE_TEST_SUITE_P(EveryPath, Dropout, testing::ValuesIn(AllPaths()), TestName);

// Queries and keys of 0 and values that are the unit vectors make a context of the mask itself, over the number of visible keys.
struct MaskProblem {
  std::int64_t batch, heads, kv_heads, q_len, kv_len;
  DType q_type = DType::kF32, kv_type = DType::kF32;
};

Tensor UnitValues(const MaskProblem& m) {
  Tensor v(DType::kF32, {m.batch, m.kv_heads, m.kv_len, m.kv_len});
  for (std::int64_t row = 0; row < m.batch * m.kv_heads * m.kv_len; ++row) {
    v.MutableAs<float>()[row * m.kv_len + row % m.kv_len] = 1;
  }
  return Tensor::CopyOf(v, m.kv_type);
}

// Weights are equal: each is 1/n but for the rounding of their sum and quotient, and to the type in which they meet the values: bf16 on the
// target that has dot products of it, 15 bits for int8.
double RelativeBound(DType stored, std::int64_t n) {
  const double weights = stored == DType::kBF16 ? 0x1p-7 : stored == DType::kI8 ? 0x1p-14 : 0;
  return weights + static_cast<double>(n + 8) * 0x1p-24;
}

void ExpectMask(const Tensor& context, const Tensor& mask, DType stored, bool causal, const std::string& what) {
  const std::int64_t q_len = mask.dim(2), kv_len = mask.dim(3);
  const Tensor wide = Tensor::CopyOf(context, DType::kF64);
  for (std::int64_t row = 0; row < mask.num_elements() / kv_len; ++row) {
    const std::int64_t visible = causal ? kv_len - q_len + row % q_len + 1 : kv_len;
    for (std::int64_t j = 0; j < kv_len; ++j) {
      const double expected =
          j < visible ? static_cast<double>(mask.As<float>()[row * kv_len + j]) / static_cast<double>(visible) : 0;
      ASSERT_NEAR(wide.As<double>()[row * kv_len + j], expected, RelativeBound(stored, visible) * expected)
          << what << ", row " << row << ", key " << j;
    }
  }
}

std::vector<MaskProblem> MaskProblems() {
  // Prefill and decode, around tiles, blocks of the generator and key blocks; a group of heads in one tile, and queries that fill several.
  std::vector<MaskProblem> problems = {
      {2, 3, 3, 1, 37}, {1, 6, 2, 2, 150}, {2, 6, 2, 5, 23}, {1, 2, 1, 70, 131}, {1, 1, 1, 300, 300}};
  for (const std::int64_t kv_len : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 127, 128, 129}) {
    problems.push_back({1, 1, 1, 1, kv_len});
    problems.push_back({1, 1, 1, 33, kv_len});
  }
  for (const DType type : {DType::kBF16, DType::kF16}) {
    problems.push_back({1, 2, 1, 40, 133, type, type});
    problems.push_back({1, 4, 1, 2, 133, type, type});
    problems.push_back({1, 2, 1, 40, 133, DType::kF32, type});
  }
  return problems;
}

TEST_P(Dropout, OneMaskForEveryShapeTypeAndNumberOfThreads) {
  const DropoutOrigin origins[] = {{}, {.batch = 3, .head = 20, .query = 1000, .key = 48}};
  for (const MaskProblem& m : MaskProblems()) {
    const std::string what = "q " + std::to_string(m.q_len) + " " + std::string(Name(m.q_type)) + ", k " +
                             std::to_string(m.kv_len) + " " + std::string(Name(m.kv_type));
    const Tensor q(m.q_type, {m.batch, m.heads, m.q_len, 5}), k(m.kv_type, {m.batch, m.kv_heads, m.kv_len, 5}), v = UnitValues(m);
    for (const bool causal : {false, true}) {
      if (causal && m.q_len > m.kv_len) continue;
      const AttentionParams params{.causal = causal, .q_offset = m.kv_len - m.q_len, .dropout = kP, .dropout_seed = kSeed};
      const Plan plan(PlanShape::Of(q, k, v), params, Exec(m.kv_len > 140 ? 3 : 1));
      Workspace workspace = plan.MakeWorkspace();
      for (const DropoutOrigin& origin : origins) {
        Tensor context(DType::kF32, {m.batch, m.heads, m.q_len, m.kv_len});
        Inputs inputs{q, k, v};
        inputs.dropout_origin = origin;
        plan.Run(inputs, {.context = context.mutable_view()}, workspace).ThrowIfFailed();
        const Tensor mask = DropoutMask({m.batch, m.heads, m.q_len, m.kv_len}, kP, kSeed, origin);
        ASSERT_NO_FATAL_FAILURE(ExpectMask(context, mask, m.kv_type, causal, what));
      }
    }
  }
}

// Pages in disorder, tokens that were forgotten: the key's row among those that are left counts.
TEST_P(Dropout, CachesCountTheRowsThatAreLeft) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (const std::int64_t q_len : {1, 20}) {
      constexpr std::int64_t kLeft = 96;
      const MaskProblem m{1, 2, 1, q_len, kLeft, DType::kF32, type == DType::kI8 ? DType::kF32 : type};
      KvCache cache({.head_dim = 32, .v_dim = kLeft, .k_dtype = type, .v_dtype = type, .page_len = 16});
      const SequenceId a = cache.NewSequence(), b = cache.NewSequence();
      const Tensor k(DType::kF32, {1, 1, kLeft, 32}), v = UnitValues(m), gone(DType::kF32, {1, 1, 21, 32}),
                                                      gone_v(DType::kF32, {1, 1, 21, kLeft});
      const auto append = [&](SequenceId id, std::int64_t begin, std::int64_t end) {
        cache.Append(id, k.view().Slice(2, begin, end), v.view().Slice(2, begin, end));
      };
      append(a, 0, 30);
      append(b, 0, 50);
      cache.Append(a, gone, gone_v);
      append(b, 50, kLeft);
      append(a, 30, kLeft);
      cache.Evict(a, 30, 21);
      const SequenceId both[] = {b, a};
      const Tensor q(DType::kF32, {2, 2, q_len, 32});
      const AttentionResult r = Attention(q, cache, both, {.dropout = kP, .dropout_seed = kSeed}, Exec(2));
      ASSERT_NO_FATAL_FAILURE(
          ExpectMask(r.context, DropoutMask({2, 2, q_len, kLeft}, kP, kSeed), type, false, std::string(Name(type))));
    }
  }
}

TEST_P(Dropout, LeavesWeightsLseAndEmptyRowsAlone) {
  const Tensor q = Numbers(DType::kF32, {2, 4, 9, 8}, 1), k = Numbers(DType::kF32, {2, 2, 30, 8}, 2),
               v = Numbers(DType::kF32, {2, 2, 30, 6}, 3);
  const Tensor sinks = Tensor::Of<float>({4}, {0.5f, -1, 0, 2});
  const AttentionParams plain{.causal = true, .q_offset = -2, .sinks = sinks};
  AttentionParams params = plain;
  params.dropout = kP;
  const AttentionResult without = Attention(q, k, v, plain, Exec()), with = Attention(q, k, v, params, Exec());
  EXPECT_TRUE(SameBits(without.lse, with.lse));
  EXPECT_EQ(without.empty_rows, 16);
  EXPECT_EQ(with.empty_rows, 16);
  EXPECT_EQ(with.context(1, 3, 1, 2), 0);
  EXPECT_FALSE(SameBits(without.context, with.context));
  if (!GetParam().has_stages()) return;
  const Stages a = ComputeStages(q, k, v, plain, Exec()), b = ComputeStages(q, k, v, params, Exec());
  EXPECT_TRUE(SameBits(a.weights, b.weights));
  EXPECT_TRUE(SameBits(a.masked_scores, b.masked_scores));
  EXPECT_TRUE(SameBits(Tensor::CopyOf(b.context, DType::kF32), with.context));
}

TEST_P(Dropout, IsOffUnlessAskedFor) {
  const Tensor x = Numbers(DType::kF32, {1, 2, 20, 8}, 1);
  const AttentionResult plain = Attention(x, x, x, {}, Exec());
  for (const float off : {0.0f, 0x1p-20f}) {  // the second is rounded to 0
    const Plan plan(PlanShape::Of(x, x, x), {.dropout = off, .dropout_seed = 3}, Exec());
    Workspace workspace = plan.MakeWorkspace();
    Tensor context(plain.context.dtype(), plain.context.shape());
    Inputs inputs{x, x, x};
    inputs.dropout_seed = 4;
    plan.Run(inputs, {.context = context.mutable_view()}, workspace).ThrowIfFailed();
    EXPECT_TRUE(SameBits(plain.context, context)) << off;
  }
}

TEST_P(Dropout, ARunsSeedComesBeforeThePlans) {
  const Tensor x = Numbers(DType::kF32, {1, 2, 20, 8}, 1);
  const auto run = [&](std::uint64_t planned, std::optional<std::uint64_t> own) {
    const Plan plan(PlanShape::Of(x, x, x), {.dropout = kP, .dropout_seed = planned}, Exec());
    Workspace workspace = plan.MakeWorkspace();
    Tensor context(DType::kF64, x.shape());
    Inputs inputs{x, x, x};
    inputs.dropout_seed = own;
    plan.Run(inputs, {.context = context.mutable_view()}, workspace).ThrowIfFailed();
    return context;
  };
  EXPECT_TRUE(SameBits(run(1, 2), run(2, {})));
  EXPECT_FALSE(SameBits(run(1, 2), run(1, {})));
  EXPECT_FALSE(SameBits(run(1, std::uint64_t{1} << 32), run(1, 0)));
}

// A dropped key is visible still: 0·NaN.
TEST_P(Dropout, ADroppedNaNIsSeen) {
  for (const std::int64_t q_len : {2, 40}) {
    const Tensor q(DType::kF32, {q_len, 4}), k(DType::kF32, {24, 4});
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Tensor v(DType::kF32, {24, 3});
      v.MutableAs<float>()[17 * 3 + 1] = bad;
      const AttentionResult r = Attention(q, k, v, {.causal = true, .q_offset = 30, .dropout = 0.999f}, Exec());
      const AttentionResult unseen = Attention(q, k, v, {.causal = true, .q_offset = 16 - q_len, .dropout = 0.999f}, Exec());
      for (std::int64_t i = 0; i < q_len; ++i) {
        EXPECT_FALSE(std::isfinite(r.context(i, 1))) << bad;
        EXPECT_TRUE(std::isfinite(r.context(i, 0)) && std::isfinite(unseen.context(i, 1))) << bad;
      }
    }
  }
}

// Queries in chunks, heads apart and batch entries apart are the whole when they are told where they stand, and so are shards of the keys,
// whose contexts are merged by their lse.
TEST_P(Dropout, PartsThatKnowTheirPlaceAreTheWhole) {
  const Tensor q = Numbers(DType::kF32, {2, 4, 50, 8}, 1), k = Numbers(DType::kF32, {2, 2, 60, 8}, 2),
               v = Numbers(DType::kF32, {2, 2, 60, 6}, 3), d_context = Numbers(DType::kF32, {2, 4, 50, 6}, 4);
  const AttentionParams params{.dropout = kP, .dropout_seed = kSeed};
  const AttentionResult whole = Attention(q, k, v, params, Exec());
  const AttentionGrads whole_grads = AttentionBackward(q, k, v, whole.context, whole.lse, d_context, params, Exec());
  Tensor d_k(DType::kF64, k.shape());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (const std::int64_t h : {0, 2}) {
      for (const std::int64_t i : {0, 19}) {
        const auto rows = [&](const TensorView& x) {
          const TensorView heads = x.Slice(0, b, b + 1).Slice(1, h, h + 2);
          return heads.Slice(2, i, i == 0 ? 19 : 50);
        };
        const auto keys = [&](const TensorView& x) { return x.Slice(0, b, b + 1).Slice(1, h / 2, h / 2 + 1); };
        for (const std::int64_t j : {0, 24}) {
          const auto shard = [&](const TensorView& x) { return keys(x).Slice(2, j, j == 0 ? 24 : 60); };
          Inputs inputs{rows(q), shard(k), shard(v)};
          inputs.dropout_origin = {.batch = b, .head = h, .query = i, .key = j};
          const BackwardPlan plan(PlanShape::Of(inputs.q, inputs.k, inputs.v), params, Exec());
          Workspace workspace = plan.MakeWorkspace();
          Tensor part(DType::kF64, inputs.k.shape());
          plan.Run({inputs, rows(whole.context), rows(whole.lse), rows(d_context)}, {.d_k = part.mutable_view()}, workspace)
              .ThrowIfFailed();
          for (std::int64_t n = 0; n < part.dim(2); ++n) {
            for (std::int64_t d = 0; d < 8; ++d)
              d_k.MutableAs<double>()[((b * 2 + h / 2) * 60 + j + n) * 8 + d] += part(0, 0, n, d);
          }
        }
        Inputs inputs{rows(q), keys(k), keys(v)};
        inputs.dropout_origin = {.batch = b, .head = h, .query = i};
        const Plan plan(PlanShape::Of(inputs.q, inputs.k, inputs.v), params, Exec());
        Workspace workspace = plan.MakeWorkspace();
        Tensor context(DType::kF64, {1, 2, inputs.q.dim(2), 6});
        plan.Run(inputs, {.context = context.mutable_view()}, workspace).ThrowIfFailed();
        for (std::int64_t n = 0; n < context.num_elements(); ++n) {
          const std::int64_t head = n / 6 / context.dim(2), row = n / 6 % context.dim(2), d = n % 6;
          ASSERT_NEAR(context.As<double>()[n], whole.context(b, h + head, i + row, d), 2e-6);
        }
      }
    }
  }
  for (std::int64_t n = 0; n < d_k.num_elements(); ++n)
    ASSERT_NEAR(d_k.As<double>()[n], static_cast<double>(whole_grads.d_k.As<float>()[n]), 2e-5) << n;
}

TEST_P(Dropout, GradientsHaveTheSameBitsWithAnyNumberOfThreads) {
  if (GetParam().path != Path::kFused)
    GTEST_SKIP() << "staged has the bits of its BLAS; reference takes long, and is one number at a time";
  const Tensor q = Numbers(DType::kF32, {1, 4, 300, 16}, 1), k = Numbers(DType::kF32, {1, 2, 300, 16}, 2),
               d_context = Numbers(DType::kF32, {1, 4, 300, 16}, 4);
  const AttentionParams params{.causal = true, .dropout = kP, .dropout_seed = kSeed};
  const AttentionResult forward = Attention(q, k, k, params, Exec());
  const AttentionGrads one = AttentionBackward(q, k, k, forward.context, forward.lse, d_context, params, Exec(1)),
                       three = AttentionBackward(q, k, k, forward.context, forward.lse, d_context, params, Exec(3));
  EXPECT_TRUE(SameBits(one.d_q, three.d_q) && SameBits(one.d_k, three.d_k) && SameBits(one.d_v, three.d_v));
}

// What is said of the weights is said of the softmax's, beside a context with dropout; chosen heads keep their masks.
TEST(DropoutSummary, SpeaksOfTheWeightsOfTheSoftmax) {
  const Tensor q = Numbers(DType::kF32, {2, 4, 40, 8}, 1), k = Numbers(DType::kF32, {2, 2, 40, 8}, 2),
               v = Numbers(DType::kF32, {2, 2, 40, 6}, 3);
  const AttentionParams params{.causal = true, .dropout = kP, .dropout_seed = kSeed};
  const SummaryOptions options{.entropy = true, .top_k = 3, .key_mass = true};
  const Summary plain = Summarize(q, k, v, {.causal = true}, options), s = Summarize(q, k, v, params, options);
  EXPECT_TRUE(SameBits(plain.entropy, s.entropy) && SameBits(plain.topk_weight, s.topk_weight) &&
              SameBits(plain.key_mass, s.key_mass));
  const AttentionResult r = Attention(q, k, v, params);
  EXPECT_TRUE(SameBits(r.context, s.context) && SameBits(r.lse, s.lse));
  SummaryOptions some = options;
  some.batch = {1};
  some.heads = {3};
  const Summary one = Summarize(q, k, v, params, some);
  EXPECT_TRUE(SameBits(one.context, Tensor::CopyOf(r.context.view().Slice(0, 1, 2).Slice(1, 3, 4))));
}

TEST(DropoutErrors, NameTheArgument) {
  const Tensor x = Numbers(DType::kF32, {3, 4}, 1);
  for (const float p : {-0.5f, 1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    ExpectError([&] { Attention(x, x, x, {.dropout = p}); }, ErrorCode::kInvalidArgument, "dropout: ");
  }
  const Plan plan(PlanShape::Of(x, x, x), {.dropout = kP});
  Workspace workspace = plan.MakeWorkspace();
  Inputs inputs{x, x, x};
  inputs.dropout_origin.key = 12;
  ExpectError([&] { plan.Run(inputs, {}, workspace).ThrowIfFailed(); }, ErrorCode::kInvalidArgument,
              "dropout_origin: key=12 is no multiple of 8");
  inputs.dropout_origin = {.query = -1};
  ExpectError([&] { plan.Run(inputs, {}, workspace).ThrowIfFailed(); }, ErrorCode::kInvalidArgument, "dropout_origin: query=-1");
}

}  // namespace
}  // namespace regard::test
