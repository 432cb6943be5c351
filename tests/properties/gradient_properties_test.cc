// What holds for the gradients of every attention problem, whatever computes them (include/regard/backward.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/gradient_tolerance.h"
#include "tests/support/gradients.h"
#include "tests/support/paths.h"
#include "tests/support/placement.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

MutableTensorView Writable(const TensorView& view) {
  return MutableTensorView(const_cast<void*>(view.data()), view.dtype(), view.shape(), view.strides());
}

void Spoil(Random& random, const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t t) {
  const TensorView rank4 = AsRank4(view);
  for (std::int64_t d = 0; d < rank4.dim(3); ++d) {
    Set(Writable(rank4), {b, h, t, d}, random.OneOf({kNaN, kInfinity, -kInfinity, 1e30}));
  }
}

// Sequence b of a dense [batch, …] tensor, as a batch of one.
Tensor Sequence(const TensorView& view, std::int64_t b) { return Tensor::CopyOf(view.Slice(0, b, b + 1)); }

class GradientProperties : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(All, GradientProperties, testing::ValuesIn(AllPaths()), TestName);

// A constant added to a row of scores changes nothing but the share of the sink, so the row of d_masked sums to what the sink takes.
TEST_P(GradientProperties, RowsSumToWhatTheSinkTakes) {
  std::int64_t rows = 0;
  for (std::uint64_t seed : Seeds(150)) {
    TestProblem p = MakeProblem(seed, {.any_layout = false, .any_type = false});
    SCOPED_TRACE(p.description);
    Tensor bias(DType::kF32, {p.batch, p.heads, p.q_len, p.kv_len});
    for (std::int64_t n = 0; p.params.bias && n < bias.num_elements(); ++n) {
      std::int64_t at[4], rest = n;
      for (int axis = 3; axis >= 0; --axis) {
        at[axis] = rest % bias.dim(axis);
        rest /= bias.dim(axis);
      }
      bias.MutableAs<float>()[n] = static_cast<float>(BroadcastAt(p.params.bias, at[0], at[1], at[2], at[3]));
    }
    p.params.bias = bias;
    const GradientCase c(seed, p, false);
    const RunResult stages = RunPath(ReferencePath(), p);
    const GradientResult gradients = RunBackward(GetParam(), p, c), bounds = GradientBounds(p, c, stages, GetParam().path);
    for (std::int64_t row = 0; row < p.num_rows(); ++row) {
      const std::int64_t h = row / p.q_len % p.heads, i = row % p.q_len, b = row / p.q_len / p.heads;
      double sum = 0, bound = 0, expected = 0;
      for (std::int64_t j = 0; j < p.kv_len; ++j) {
        const double gradient = gradients.d_bias.at(0, row * p.kv_len + j);
        if (stages.masked_scores.at(row, j) == -kInfinity) {
          ASSERT_EQ(gradient, 0) << "row " << row << ", key " << j << " is not visible";
        }
        sum += gradient;
        bound += bounds.d_bias.at(0, row * p.kv_len + j) + StoredHalfUnit(DType::kF32, gradient);
      }
      if (p.params.sinks && stages.lse.at(row, 0) != -kInfinity) {
        const double share = std::exp(Get(p.params.sinks, {h}) - stages.lse.at(row, 0));
        for (std::int64_t d = 0; share > 0 && d < p.v_dim; ++d) {
          expected += share * stages.context.at(row, d) * Get(AsRank4(c.d_context), {b, h, i, d});
        }
      }
      ASSERT_NEAR(sum, expected, bound + 1e-14 * std::fabs(expected)) << "row " << row;
      ++rows;
    }
  }
  EXPECT_GT(rows, 100);
}

TEST_P(GradientProperties, ALoneHeadOfAGroupGivesItsShare) {
  std::int64_t groups = 0;
  for (std::uint64_t seed : Seeds(150)) {
    const TestProblem p = MakeProblem(seed, {.bias = false, .sinks = false, .any_layout = false, .any_type = false});
    const std::int64_t group_size = p.heads / p.kv_heads;
    if (group_size == 1 || p.q.rank() == 2 || p.params.mask) continue;
    SCOPED_TRACE(p.description);
    const GradientCase c(seed, p, false);
    const GradientResult whole = RunBackward(GetParam(), p, c);
    const GradientResult bounds = GradientBounds(p, c, RunPath(ReferencePath(), p), GetParam().path);
    Grid d_k = whole.d_k, d_v = whole.d_v;
    std::fill(d_k.values.begin(), d_k.values.end(), 0.0);
    std::fill(d_v.values.begin(), d_v.values.end(), 0.0);
    std::vector<double> k_stored(d_k.values.size()), v_stored(d_v.values.size());  // what storing the parts as f32 may have lost
    for (std::int64_t g = 0; g < group_size; ++g) {
      // One query head of each group beside all kv heads.
      Tensor q(p.q.dtype(), {p.batch, p.kv_heads, p.q_len, p.head_dim});
      Tensor context(DType::kF64, {p.batch, p.kv_heads, p.q_len, p.v_dim}), lse(DType::kF64, {p.batch, p.kv_heads, p.q_len});
      Tensor d_context(c.d_context.dtype(), context.shape());
      const auto pick = [&](const TensorView& from, Tensor& to) {
        ForEachIndex(to.shape(), [&](const Dims& index) {
          Dims all = index;
          all[1] = index[1] * group_size + g;
          Set(to.mutable_view(), index, Get(from, all));
        });
      };
      pick(p.q, q);
      pick(c.context, context);
      pick(c.lse, lse);
      pick(c.d_context, d_context);
      AttentionParams params = p.params;
      if (!params.scale) params.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(p.head_dim)));
      const AttentionGrads lone = AttentionBackward(q, p.k, p.v, context, lse, d_context, params,
                                                    {.path = GetParam().path, .isa = GetParam().isa, .threads = 1});
      const auto add = [](const Tensor& part, Grid& sums, std::vector<double>& stored) {
        for (std::size_t n = 0; n < sums.values.size(); ++n) {
          const double x = static_cast<double>(part.As<float>()[n]);
          sums.values[n] += x;
          stored[n] += StoredHalfUnit(DType::kF32, x);
        }
      };
      add(lone.d_k, d_k, k_stored);
      add(lone.d_v, d_v, v_stored);
    }
    // Each head's bound is part of the whole's.
    const auto compare = [&](const Grid& grouped, const Grid& sums, const Grid& bound, const std::vector<double>& stored) {
      for (std::size_t n = 0; n < sums.values.size(); ++n) {
        ASSERT_NEAR(grouped.values[n], sums.values[n],
                    2 * bound.values[n] + stored[n] + StoredHalfUnit(grouped.dtype, grouped.values[n]));
      }
    };
    compare(whole.d_k, d_k, bounds.d_k, k_stored);
    compare(whole.d_v, d_v, bounds.d_v, v_stored);
    ++groups;
  }
  if (Seeds(2).size() > 1) {
    EXPECT_GT(groups, 20);
  }
}

// Keys that nobody sees, and queries that see nothing, may hold anything.
TEST_P(GradientProperties, WhatIsNotVisibleLeavesNoTrace) {
  std::int64_t spoiled_keys = 0, spoiled_rows = 0;
  for (std::uint64_t seed : Seeds(300)) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    const GradientCase c(seed, p);
    const GradientResult before = RunBackward(GetParam(), p, c);
    const RunResult stages = RunPath(ReferencePath(), p);
    Random random(seed);
    const std::int64_t group_rows = p.heads / p.kv_heads * p.q_len;
    for (std::int64_t key = 0; key < p.batch * p.kv_heads * p.kv_len; ++key) {
      const std::int64_t j = key % p.kv_len, head = key / p.kv_len;
      bool seen = false;
      for (std::int64_t row = head * group_rows; row < (head + 1) * group_rows; ++row) {
        seen = seen || stages.masked_scores.at(row, j) != -kInfinity;
      }
      for (std::int64_t d = 0; !seen && d < p.head_dim; ++d) ASSERT_EQ(before.d_k.at(key, d), 0);
      for (std::int64_t d = 0; !seen && d < p.v_dim; ++d) ASSERT_EQ(before.d_v.at(key, d), 0);
      if (seen) continue;
      Spoil(random, p.k, head / p.kv_heads, head % p.kv_heads, j);
      Spoil(random, p.v, head / p.kv_heads, head % p.kv_heads, j);
      ++spoiled_keys;
    }
    for (std::int64_t row = 0; row < p.num_rows(); ++row) {
      bool sees = false;
      for (std::int64_t j = 0; j < p.kv_len; ++j) sees = sees || stages.masked_scores.at(row, j) != -kInfinity;
      for (std::int64_t d = 0; !sees && d < p.head_dim; ++d) ASSERT_EQ(before.d_q.at(row, d), 0);
      if (sees) continue;
      Spoil(random, p.q, row / p.q_len / p.heads, row / p.q_len % p.heads, row % p.q_len);
      Spoil(random, c.d_context, row / p.q_len / p.heads, row / p.q_len % p.heads, row % p.q_len);
      ++spoiled_rows;
    }
    ASSERT_TRUE(before.SameAs(RunBackward(GetParam(), p, c)));
  }
  if (Seeds(2).size() > 1) {
    EXPECT_GT(spoiled_keys, 1000);
    EXPECT_GT(spoiled_rows, 300);
  }
}

// A query, a d_context or a key with NaN spoils what sees it: everything else keeps its bits, on the paths that promise bits.
TEST_P(GradientProperties, ASpoiledRowSpoilsOnlyWhatItSees) {
  std::int64_t kept_keys = 0, kept_rows = 0;
  for (std::uint64_t seed : Seeds(200)) {
    const TestProblem p = MakeProblem(seed, {.empty_shapes = false});
    if (p.num_rows() == 0) continue;
    SCOPED_TRACE(p.description);
    const GradientCase c(seed, p);
    const GradientResult before = RunBackward(GetParam(), p, c);
    const RunResult stages = RunPath(ReferencePath(), p);
    Random random(seed);
    const std::int64_t spoiled = random.Int(0, p.num_rows() - 1), head = spoiled / (p.heads / p.kv_heads * p.q_len);
    Spoil(random, random.Chance(0.5) ? p.q : c.d_context, spoiled / p.q_len / p.heads, spoiled / p.q_len % p.heads,
          spoiled % p.q_len);
    const GradientResult after = RunBackward(GetParam(), p, c);
    for (std::int64_t row = 0; row < p.num_rows(); ++row) {
      if (row == spoiled) continue;
      ++kept_rows;
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        ASSERT_NEAR(after.d_q.at(row, d), before.d_q.at(row, d),
                    GetParam().path == Path::kStaged ? 1e-4 * std::fabs(before.d_q.at(row, d)) : 0)
            << "row " << row << " beside " << spoiled;
      }
    }
    for (std::int64_t key = 0; key < p.batch * p.kv_heads * p.kv_len; ++key) {
      if (key / p.kv_len == head && stages.masked_scores.at(spoiled, key % p.kv_len) != -kInfinity) continue;
      ++kept_keys;
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        ASSERT_TRUE(GetParam().path == Path::kStaged ? std::isfinite(after.d_k.at(key, d))
                                                     : after.d_k.at(key, d) == before.d_k.at(key, d));
      }
      for (std::int64_t d = 0; d < p.v_dim; ++d) {
        ASSERT_TRUE(GetParam().path == Path::kStaged ? std::isfinite(after.d_v.at(key, d))
                                                     : after.d_v.at(key, d) == before.d_v.at(key, d));
      }
    }
  }
  if (Seeds(2).size() > 1) {
    EXPECT_GT(kept_rows, 1000);
    EXPECT_GT(kept_keys, 1000);
  }
}

// ---------------------------------------------------------------------------------------------------------- determinism

class GradientDeterminism : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Deterministic, GradientDeterminism, testing::ValuesIn(DeterministicPaths()), TestName);

TEST_P(GradientDeterminism, BitsDoNotDependOnThreads) {
  for (std::uint64_t seed : Seeds(100)) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    const GradientCase c(seed, p);
    const GradientResult one = RunBackward(GetParam(), p, c, {.threads = 1});
    ASSERT_TRUE(one.SameAs(RunBackward(GetParam(), p, c, {.threads = 2})));
    ASSERT_TRUE(one.SameAs(RunBackward(GetParam(), p, c, {.threads = 3})));
  }
}

TEST_P(GradientDeterminism, BitsDoNotDependOnBatchCompanions) {
  std::int64_t compared = 0;
  for (std::uint64_t seed : Seeds(200)) {
    const TestProblem p = MakeProblem(seed, {.bias = false, .sinks = false, .any_layout = false});
    // Options with a batch axis would need the same cut; the others suffice here.
    const AttentionParams& o = p.params;
    if (p.batch < 2 || o.mask || o.kv_lens || o.q_segments || o.q_offset.per_sequence()) continue;
    SCOPED_TRACE(p.description);
    const GradientCase c(seed, p, false);
    const GradientResult together = RunBackward(GetParam(), p, c);
    const Tensor q = Sequence(p.q, 1), k = Sequence(p.k, 1), v = Sequence(p.v, 1);
    Tensor d_q(DType::kF64, q.shape()), d_k(DType::kF64, k.shape()), d_v(DType::kF64, v.shape());
    const BackwardPlan plan(PlanShape::Of(q, k, v), o, {.path = GetParam().path, .isa = GetParam().isa, .threads = 1});
    Workspace workspace = plan.MakeWorkspace();
    const Status status = plan.Run({{q, k, v}, Sequence(c.context, 1), Sequence(c.lse, 1), Sequence(c.d_context, 1)},
                                   {.d_q = d_q.mutable_view(), .d_k = d_k.mutable_view(), .d_v = d_v.mutable_view()}, workspace);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto compare = [&](const Tensor& alone, const Grid& grid) {
      const std::size_t first = static_cast<std::size_t>(alone.num_elements());  // of sequence 1
      for (std::size_t n = 0; n < first; ++n) ASSERT_EQ(alone.As<double>()[n], grid.values[first + n]);
    };
    compare(d_q, together.d_q);
    compare(d_k, together.d_k);
    compare(d_v, together.d_v);
    ++compared;
  }
  if (Seeds(2).size() > 1) {
    EXPECT_GT(compared, 10);
  }
}

// Long enough for several tasks a head, for blocks of queries that share keys, and for sums beside results that are not f32.
void CheckLongGradients(const AttentionParams& params) {
  TestProblem p;
  p.batch = 1, p.heads = 2, p.kv_heads = 1, p.q_len = 530, p.kv_len = 2055, p.head_dim = 40, p.v_dim = 33;
  Random random(7);
  const auto make = [&](const Dims& shape, double mean) {
    Tensor tensor(DType::kF32, shape);
    for (std::int64_t n = 0; n < tensor.num_elements(); ++n) {
      tensor.MutableAs<float>()[n] = static_cast<float>(random.Normal() + mean);
    }
    p.memory.push_back(std::move(tensor));
    return p.memory.back().view();
  };
  p.q = make({1, 2, p.q_len, p.head_dim}, 0.2);
  p.k = make({1, 1, p.kv_len, p.head_dim}, -0.1);
  p.v = make({1, 1, p.kv_len, p.v_dim}, 0.4);
  p.params = params;
  p.params.q_offset = p.kv_len - p.q_len;
  const GradientCase c(7, p, false);
  const GradientResult reference = RunBackward(ReferencePath(), p, c, {.threads = 2});
  const RunResult stages = RunPath(ReferencePath(), p, {.threads = 2});
  const GradientResult staged_bounds = GradientBounds(p, c, stages, Path::kStaged),
                       fused_bounds = GradientBounds(p, c, stages, Path::kFused);
  for (const PathCase& path : OptimizedPaths()) {
    const GradientResult& bounds = path.path == Path::kStaged ? staged_bounds : fused_bounds;
    const GradientResult result = RunBackward(path, p, c, {.threads = 1});
    ErrorLedger ledger;
    ledger.CompareGrid(path.Name() + " d_q", result.d_q, reference.d_q, bounds.d_q, 0x1p-24);
    ledger.CompareGrid(path.Name() + " d_k", result.d_k, reference.d_k, bounds.d_k, 0x1p-24);
    ledger.CompareGrid(path.Name() + " d_v", result.d_v, reference.d_v, bounds.d_v, 0x1p-24);
    if (path.path == Path::kStaged) continue;
    EXPECT_TRUE(result.SameAs(RunBackward(path, p, c, {.threads = 3}))) << path.Name();
    Random layout(3);
    const GradientResult narrow = RunBackward(path, p, c, {.layout = &layout, .any_output_type = true, .threads = 2});
    for (std::size_t n = 0; n < result.d_k.values.size(); ++n) {
      ASSERT_NEAR(narrow.d_k.values[n], result.d_k.values[n], StoredHalfUnit(narrow.d_k.dtype, result.d_k.values[n]));
    }
  }
}

TEST(LongGradients, CausalFollowTheDefinitionWhateverTheThreads) { CheckLongGradients({.causal = true}); }

// Tasks that see different parts of the keys, and some keys that none sees.
TEST(LongGradients, OfAWindowFollowTheDefinitionWhateverTheThreads) { CheckLongGradients({.causal = true, .window_left = 300}); }

}  // namespace
}  // namespace regard::test
