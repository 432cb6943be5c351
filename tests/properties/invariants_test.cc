// What holds for every attention problem, whatever computes it (include/regard/attention.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/fused.h"
#include "regard/stages.h"
#include "tests/support/paths.h"
#include "tests/support/placement.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Dense tensors without options of their own: what the symmetries below rearrange.
constexpr ProblemOptions kPlain = {.hiding = false, .bias = false, .sinks = true, .any_layout = false, .empty_shapes = false};

// Fails unless a's row `a_row` is b's row `b_row` within both their bounds; exactly, when the path gives the same bits.
void ExpectRowsAgree(const RunResult& a, std::int64_t a_row, const RunResult& b, std::int64_t b_row, const Bounds& bounds,
                     std::int64_t bounds_row) {
  EXPECT_NEAR(a.lse.at(a_row, 0), b.lse.at(b_row, 0), 2 * bounds.lse.at(bounds_row, 0));
  for (std::int64_t d = 0; d < a.context.columns; ++d) {
    const double stored = StoredHalfUnit(a.context.dtype, a.context.at(a_row, d));
    EXPECT_NEAR(a.context.at(a_row, d), b.context.at(b_row, d), 2 * (bounds.context.at(bounds_row, d) + stored));
  }
}

// A problem that looks at other tensors than the one it came from.
TestProblem With(const TestProblem& p, const Tensor& q, const Tensor& k, const Tensor& v) {
  TestProblem other;
  other.description = p.description;
  other.heads = p.heads;
  other.head_dim = p.head_dim;
  other.v_dim = p.v_dim;
  other.params = p.params;
  other.memory = {q, k, v};
  other.q = other.memory[0];
  other.k = other.memory[1];
  other.v = other.memory[2];
  other.batch = AsRank4(other.q).dim(0);
  other.kv_heads = AsRank4(other.k).dim(1);
  other.q_len = other.q.dim(-2);
  other.kv_len = other.k.dim(-2);
  return other;
}

// view with its axis reordered: out[.., n, ..] = view[.., order[n], ..].
Tensor Reorder(const TensorView& view, int axis, const std::vector<std::int64_t>& order) {
  Dims shape = view.shape();
  const int a = axis < 0 ? axis + view.rank() : axis;
  shape[a] = static_cast<std::int64_t>(order.size());
  Tensor out(view.dtype(), shape);
  ForEachIndex(shape, [&](const Dims& index) {
    Dims from = index;
    from[a] = order[static_cast<std::size_t>(index[a])];
    Set(out.mutable_view(), index, Get(view, from));
  });
  return out;
}

std::vector<std::int64_t> Range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> range(static_cast<std::size_t>(end - begin));
  std::iota(range.begin(), range.end(), begin);
  return range;
}

std::vector<std::int64_t> Shuffled(Random& random, std::int64_t count) {
  std::vector<std::int64_t> order = Range(0, count);
  for (std::int64_t n = count - 1; n > 0; --n)
    std::swap(order[static_cast<std::size_t>(n)], order[static_cast<std::size_t>(random.Int(0, n))]);
  return order;
}

double SinkOf(const TestProblem& p, std::int64_t row) {
  return p.params.sinks ? p.params.sinks(row / p.q_len % p.heads) : -kInfinity;
}

// --------------------------------------------------------------------------------------------------- weights and context

TEST(Invariants, WeightsAreSharesOfTheVisibleKeys) {
  for (std::uint64_t seed : Seeds(500)) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    const RunResult reference = RunPath(ReferencePath(), p);
    for (const PathCase& path : {ReferencePath(), PathCase{Path::kStaged}}) {
      const Bounds bounds = ErrorBounds(p, reference, path);
      const RunResult r = RunPath(path, p);
      double mass = 0, expected_mass = 0, mass_bound = 0;
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        const double lse = r.lse.at(row, 0), sink_share = std::isfinite(lse) ? std::exp(SinkOf(p, row) - lse) : 1;
        double sum = 0, bound = 2e-7 * (1 + std::fabs(lse)) + bounds.lse.at(row, 0);
        for (std::int64_t j = 0; j < p.kv_len; ++j) {
          const double weight = r.weights.at(row, j), masked = r.masked_scores.at(row, j);
          ASSERT_GE(weight, 0);
          if (masked == -kInfinity) {
            ASSERT_EQ(weight, 0);
          }
          if (masked - lse > -80) {
            ASSERT_GT(weight, 0);
          }
          sum += weight;
          bound += bounds.weights.at(row, j);
        }
        if (std::isfinite(lse)) {
          ASSERT_NEAR(sum, 1 - sink_share, bound) << path.Name() << " row " << row;
        }
        if (!std::isfinite(lse)) {
          ASSERT_EQ(sum, 0);
        }
        mass += sum;
        expected_mass += std::isfinite(lse) ? 1 - sink_share : 0;
        mass_bound += std::isfinite(lse) ? bound : 0;
      }
      EXPECT_NEAR(mass, expected_mass, mass_bound);
    }
    if (HasFailure()) break;
  }
}

TEST(Invariants, ContextIsTheWeightedMeanOfTheValues) {
  for (std::uint64_t seed : Seeds(300)) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    const RunResult reference = RunPath(ReferencePath(), p);
    const Tensor v = Tensor::CopyOf(AsRank4(p.v), DType::kF64);
    for (const PathCase& path : AllPaths()) {
      const RunResult r = RunPath(path, p);
      const Bounds bounds = ErrorBounds(p, reference, path);
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        const std::int64_t b = row / (p.heads * p.q_len), kv_head = row / p.q_len % p.heads / (p.heads / p.kv_heads);
        for (std::int64_t d = 0; d < p.v_dim; ++d) {
          double low = kInfinity, high = -kInfinity, sum = 0, sum_abs = 0, share = 0;
          for (std::int64_t j = 0; j < p.kv_len; ++j) {
            if (reference.masked_scores.at(row, j) == -kInfinity) continue;
            const double value = v(b, kv_head, j, d);
            const double weight = r.weights.values.empty() ? reference.weights.at(row, j) : r.weights.at(row, j);
            low = std::min(low, value);
            high = std::max(high, value);
            sum += weight * value;
            sum_abs += std::fabs(weight * value);
            share += reference.weights.at(row, j);
          }
          const double bound =
              bounds.context.at(row, d) + StoredHalfUnit(r.context.dtype, r.context.at(row, d)) + 1e-15 * sum_abs;
          ASSERT_NEAR(r.context.at(row, d), sum, bound) << path.Name();
          if (share == 0) continue;
          ASSERT_GE(r.context.at(row, d), share * low - bound) << path.Name();
          ASSERT_LE(r.context.at(row, d), share * high + bound) << path.Name();
        }
      }
    }
    if (HasFailure()) break;
  }
}

TEST(Invariants, OneKeyGivesItsValue) {
  for (std::uint64_t seed : Seeds(150)) {
    ProblemOptions options = kPlain;
    options.sinks = false;
    const TestProblem whole = MakeProblem(seed, options);
    const TestProblem p = With(whole, Tensor::CopyOf(whole.q), Reorder(whole.k, -2, {0}), Reorder(whole.v, -2, {0}));
    SCOPED_TRACE(p.description);
    for (const PathCase& path : AllPaths()) {
      const RunResult r = RunPath(path, p);
      const bool has_dots = path.path == Path::kFused && internal::WeightRounding(PlanShape::Of(p.q, p.k, p.v), path.isa) > 0;
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        for (std::int64_t d = 0; d < p.v_dim; ++d) {
          const double value = AsRank4(p.v)(row / (p.heads * p.q_len), row / p.q_len % p.heads / (p.heads / p.kv_heads), 0, d);
          double stored = path.path == Path::kReference ? value : static_cast<double>(static_cast<float>(value));
          // To bf16 dot products numbers below the smallest normal one are 0 (docs/numerics.md, section 5).
          if (has_dots && std::fabs(stored) < std::numeric_limits<float>::min()) stored = 0;
          ASSERT_EQ(r.context.at(row, d), stored) << path.Name();
        }
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ symmetries

TEST(Invariants, PermutingQueriesPermutesRows) {
  for (std::uint64_t seed : Seeds(150)) {
    const TestProblem p = MakeProblem(seed, kPlain);
    SCOPED_TRACE(p.description);
    Random random(seed);
    const std::vector<std::int64_t> order = Shuffled(random, p.q_len);
    const TestProblem permuted = With(p, Reorder(p.q, -2, order), Tensor::CopyOf(p.k), Tensor::CopyOf(p.v));
    for (const PathCase& path : DeterministicPaths()) {
      const RunResult a = RunPath(path, p), b = RunPath(path, permuted);
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        const std::int64_t from = row / p.q_len * p.q_len + order[static_cast<std::size_t>(row % p.q_len)];
        for (std::int64_t d = 0; d < p.v_dim; ++d) ASSERT_EQ(b.context.at(row, d), a.context.at(from, d)) << path.Name();
        ASSERT_EQ(b.lse.at(row, 0), a.lse.at(from, 0)) << path.Name();
      }
    }
  }
}

TEST(Invariants, PermutingPairsOfKeyAndValueChangesNothing) {
  for (std::uint64_t seed : Seeds(150)) {
    const TestProblem p = MakeProblem(seed, kPlain);
    SCOPED_TRACE(p.description);
    Random random(seed);
    const std::vector<std::int64_t> order = Shuffled(random, p.kv_len);
    const TestProblem permuted = With(p, Tensor::CopyOf(p.q), Reorder(p.k, -2, order), Reorder(p.v, -2, order));
    const RunResult reference = RunPath(ReferencePath(), p);
    for (const PathCase& path : AllPaths()) {
      const RunResult a = RunPath(path, p), b = RunPath(path, permuted);
      const Bounds bounds = ErrorBounds(p, reference, path);
      for (std::int64_t row = 0; row < p.num_rows(); ++row) ExpectRowsAgree(a, row, b, row, bounds, row);
    }
    if (HasFailure()) break;
  }
}

TEST(Invariants, DoublingEveryPairAddsLn2ToTheLse) {
  ProblemOptions options = kPlain;
  options.sinks = false;
  for (std::uint64_t seed : Seeds(150)) {
    const TestProblem p = MakeProblem(seed, options);
    SCOPED_TRACE(p.description);
    std::vector<std::int64_t> twice = Range(0, p.kv_len);
    twice.insert(twice.end(), twice.begin(), twice.end());
    const TestProblem doubled = With(p, Tensor::CopyOf(p.q), Reorder(p.k, -2, twice), Reorder(p.v, -2, twice));
    const RunResult reference = RunPath(ReferencePath(), doubled);
    for (const PathCase& path : AllPaths()) {
      RunResult a = RunPath(path, p);
      const RunResult b = RunPath(path, doubled);
      const Bounds bounds = ErrorBounds(doubled, reference, path);
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        a.lse.at(row, 0) += std::numbers::ln2;
        ExpectRowsAgree(a, row, b, row, bounds, row);
      }
    }
    if (HasFailure()) break;
  }
}

TEST(Invariants, AConstantAddedToARowOfScoresOnlyMovesTheLse) {
  ProblemOptions options = kPlain;
  options.sinks = false;
  for (std::uint64_t seed : Seeds(150)) {
    TestProblem p = MakeProblem(seed, options);
    SCOPED_TRACE(p.description);
    Random random(seed);
    const RunResult plain = RunPath(ReferencePath(), p);
    std::vector<RunResult> before;
    for (const PathCase& path : AllPaths()) before.push_back(RunPath(path, p));
    Tensor bias(DType::kF32, {p.q_len, 1});
    for (std::int64_t i = 0; i < p.q_len; ++i) bias.MutableAs<float>()[i] = static_cast<float>(10 * random.Normal());
    p.params.bias = bias;
    const RunResult reference = RunPath(ReferencePath(), p);
    std::size_t n = 0;
    for (const PathCase& path : AllPaths()) {
      const RunResult after = RunPath(path, p);
      RunResult& moved = before[n++];
      const Bounds bounds = ErrorBounds(p, reference, path);
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        moved.lse.at(row, 0) += bias(row % p.q_len, 0);
        ExpectRowsAgree(moved, row, after, row, bounds, row);
      }
    }
    if (HasFailure()) break;
  }
}

TEST(Invariants, ContextIsLinearInTheValues) {
  for (std::uint64_t seed : Seeds(200)) {
    const TestProblem p = MakeProblem(seed, kPlain);
    SCOPED_TRACE(p.description);
    Random random(seed);
    Tensor other(p.v.dtype(), p.v.shape()), combined(DType::kF64, p.v.shape());
    const double size = p.family == Family::kDenormal ? 1e-6 : 1;
    ForEachIndex(p.v.shape(), [&](const Dims& index) {
      Set(other.mutable_view(), index, size * random.Normal());
      Set(combined.mutable_view(), index, 2 * Get(p.v, index) - 3 * Get(other, index));
    });
    const TestProblem second = With(p, Tensor::CopyOf(p.q), Tensor::CopyOf(p.k), other);
    const TestProblem third = With(p, Tensor::CopyOf(p.q), Tensor::CopyOf(p.k), combined);
    const RunResult reference[] = {RunPath(ReferencePath(), p), RunPath(ReferencePath(), second),
                                   RunPath(ReferencePath(), third)};
    for (const PathCase& path : AllPaths()) {
      const RunResult a = RunPath(path, p), b = RunPath(path, second), c = RunPath(path, third);
      const Bounds bounds[] = {ErrorBounds(p, reference[0], path), ErrorBounds(second, reference[1], path),
                               ErrorBounds(third, reference[2], path)};
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        for (std::int64_t d = 0; d < p.v_dim; ++d) {
          const auto stored = [&](const RunResult& r) { return StoredHalfUnit(r.context.dtype, r.context.at(row, d)); };
          const double bound = 2 * (bounds[0].context.at(row, d) + stored(a)) + 3 * (bounds[1].context.at(row, d) + stored(b)) +
                               bounds[2].context.at(row, d) + stored(c);
          ASSERT_NEAR(c.context.at(row, d), 2 * a.context.at(row, d) - 3 * b.context.at(row, d), bound) << path.Name();
        }
      }
    }
  }
}

TEST(Invariants, ChangingARowOfWeightsChangesThatRowOfContext) {
  for (std::uint64_t seed : Seeds(200)) {
    const TestProblem p = MakeProblem(seed, kPlain);
    SCOPED_TRACE(p.description);
    Random random(seed);
    Tensor weights = Softmax(Scores(AsRank4(p.q).Select(0, 0).Select(0, 0), AsRank4(p.k).Select(0, 0).Select(0, 0)), -1);
    const TensorView v = AsRank4(p.v).Select(0, 0).Select(0, 0);
    const Tensor before = Context(weights, v);
    const std::int64_t row = random.Int(0, p.q_len - 1);
    for (std::int64_t j = 0; j < p.kv_len; ++j) Set(weights.mutable_view(), {row, j}, weights(row, j) + 0.5);
    const Tensor after = Context(weights, v);
    bool changed = false;
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      for (std::int64_t d = 0; d < p.v_dim; ++d) {
        if (i != row) {
          ASSERT_EQ(before(i, d), after(i, d));
        }
        changed = changed || before(i, d) != after(i, d);
      }
    }
    EXPECT_TRUE(changed);
  }
}

// ------------------------------------------------------------------------------------------------------- parts and wholes

TEST(Invariants, SplittingKeysAndMergingGivesTheWhole) {
  ProblemOptions options = kPlain;
  options.sinks = false;
  for (std::uint64_t seed : Seeds(150)) {
    const TestProblem p = MakeProblem(seed, options);
    SCOPED_TRACE(p.description);
    Random random(seed);
    const std::int64_t split = random.Int(0, p.kv_len);
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      return With(p, Tensor::CopyOf(p.q), Reorder(p.k, -2, Range(begin, end)), Reorder(p.v, -2, Range(begin, end)));
    };
    const TestProblem left = part(0, split), right = part(split, p.kv_len);
    const RunResult reference = RunPath(ReferencePath(), p);
    for (const PathCase& path : AllPaths()) {
      const RunResult whole = RunPath(path, p), a = RunPath(path, left), b = RunPath(path, right);
      const Bounds bounds = ErrorBounds(p, reference, path);
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        const double top = std::max(a.lse.at(row, 0), b.lse.at(row, 0));
        const double share_a = std::exp(a.lse.at(row, 0) - top), share_b = std::exp(b.lse.at(row, 0) - top);
        // Shares inherit the error of the parts' lse, which is that of the scores.
        ASSERT_NEAR(whole.lse.at(row, 0), top + std::log(share_a + share_b), 4 * bounds.lse.at(row, 0) + 1e-6 * std::fabs(top));
        for (std::int64_t d = 0; d < p.v_dim; ++d) {
          const double size = std::fabs(a.context.at(row, d)) + std::fabs(b.context.at(row, d));
          const double merged = (share_a * a.context.at(row, d) + share_b * b.context.at(row, d)) / (share_a + share_b);
          ASSERT_NEAR(whole.context.at(row, d), merged,
                      4 * bounds.context.at(row, d) + size * (4 * bounds.lse.at(row, 0) + 3e-7 * (1 + std::fabs(top))))
              << path.Name();
        }
      }
    }
  }
}

TEST(Invariants, ACausalRowIsFullAttentionToItsPrefix) {
  for (std::uint64_t seed : Seeds(150)) {
    TestProblem p = MakeProblem(seed, kPlain);
    SCOPED_TRACE(p.description);
    Random random(seed);
    const std::int64_t i = random.Int(0, p.q_len - 1),
                       offset = random.Int(-i, p.kv_len - 1 - i);  // sees at least key 0, at most all
    const TestProblem prefix =
        With(p, Reorder(p.q, -2, {i}), Reorder(p.k, -2, Range(0, i + offset + 1)), Reorder(p.v, -2, Range(0, i + offset + 1)));
    p.params.causal = true;
    p.params.q_offset = offset;
    const RunResult reference = RunPath(ReferencePath(), p);
    for (const PathCase& path : AllPaths()) {
      const RunResult causal = RunPath(path, p), full = RunPath(path, prefix);
      const Bounds bounds = ErrorBounds(p, reference, path);
      for (std::int64_t head = 0; head < p.batch * p.heads; ++head) {
        ExpectRowsAgree(causal, head * p.q_len + i, full, head, bounds, head * p.q_len + i);
      }
    }
    if (HasFailure()) break;
  }
}

TEST(Invariants, GroupedHeadsAreRepeatedKeysAndValues) {
  for (std::uint64_t seed : Seeds(150)) {
    TestProblem p = MakeProblem(seed, kPlain);
    SCOPED_TRACE(p.description);
    std::vector<std::int64_t> repeated;
    for (std::int64_t h = 0; h < p.heads; ++h) repeated.push_back(h / (p.heads / p.kv_heads));
    const TestProblem all_heads =
        With(p, Tensor::CopyOf(AsRank4(p.q)), Reorder(AsRank4(p.k), 1, repeated), Reorder(AsRank4(p.v), 1, repeated));
    const RunResult reference = RunPath(ReferencePath(), p);
    for (const PathCase& path : AllPaths()) {
      const RunResult grouped = RunPath(path, p), whole = RunPath(path, all_heads);
      const Bounds bounds = ErrorBounds(p, reference, path);
      for (std::int64_t row = 0; row < p.num_rows(); ++row) ExpectRowsAgree(grouped, row, whole, row, bounds, row);
    }
    if (HasFailure()) break;
  }
}

// ---------------------------------------------------------------------------------------------------------- determinism

TEST(Determinism, BitsDoNotDependOnThreadsOrLayout) {
  for (std::uint64_t seed : Seeds(100)) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    TestProblem dense = With(p, Tensor::CopyOf(p.q), Tensor::CopyOf(p.k), Tensor::CopyOf(p.v));
    dense.kv_heads = p.kv_heads;
    for (const PathCase& path : DeterministicPaths()) {
      const RunResult one = RunPath(path, p, {.threads = 1});
      ASSERT_TRUE(one.SameAs(RunPath(path, p, {.threads = 2}))) << path.Name();
      ASSERT_TRUE(one.SameAs(RunPath(path, p, {.threads = 3}))) << path.Name();
      ASSERT_TRUE(one.SameAs(RunPath(path, dense))) << path.Name() << " on dense copies";
    }
  }
}

TEST(Determinism, BitsDoNotDependOnBatchCompanions) {
  ProblemOptions options;
  options.any_layout = false;
  options.bias = false;
  for (std::uint64_t seed : Seeds(200)) {
    const TestProblem p = MakeProblem(seed, options);
    // Options with a batch axis would need the same cut; the others suffice here.
    const AttentionParams& o = p.params;
    if (p.batch < 2 || o.mask || o.kv_lens || o.q_segments || o.q_offset.per_sequence()) continue;
    SCOPED_TRACE(p.description);
    const TestProblem alone = With(p, Reorder(p.q, 0, {1}), Reorder(p.k, 0, {1}), Reorder(p.v, 0, {1}));
    const std::int64_t rows = p.heads * p.q_len;
    for (const PathCase& path : DeterministicPaths()) {
      const RunResult together = RunPath(path, p), single = RunPath(path, alone);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t d = 0; d < p.v_dim; ++d)
          ASSERT_EQ(single.context.at(row, d), together.context.at(rows + row, d)) << path.Name();
        ASSERT_EQ(single.lse.at(row, 0), together.lse.at(rows + row, 0)) << path.Name();
      }
    }
  }
}

}  // namespace
}  // namespace regard::test
