// Attention over caches: on every path, sequences of any lengths in one call, each compared with a call of its own on tensors of the same stored
// values. Where tokens were forgotten, that call says the rules of position by a mask and ALiBi by a bias.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/cache/cached_call.h"
#include "tests/support/paths.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor RandomTensor(Random& random, DType dtype, const Dims& shape, double size) {
  Tensor tensor(DType::kF64, shape);
  for (std::int64_t n = 0; n < tensor.num_elements(); ++n) tensor.MutableAs<double>()[n] = size * random.Normal() + 0.2 * size;
  return Tensor::CopyOf(tensor, dtype);
}

// Rows of sequence b; of a stage the columns of its own keys.
Grid GridOf(const Tensor& tensor, std::size_t b, std::int64_t rows, std::int64_t columns) {
  const std::int64_t all_columns = tensor.rank() == 4 ? tensor.dim(3) : 1;
  Grid grid{rows, columns, tensor.dtype(), {}};
  const Tensor wide = Tensor::CopyOf(tensor, DType::kF64);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* const from = wide.As<double>() + (static_cast<std::int64_t>(b) * rows + row) * all_columns;
    grid.values.insert(grid.values.end(), from, from + columns);
  }
  return grid;
}

// One result for each sequence.
std::vector<RunResult> RunCached(const PathCase& path, const KvCache& cache, const CachedCall& call) {
  const ExecOptions exec{.path = path.path, .isa = path.isa, .threads = call.threads};
  std::vector<RunResult> results(call.ids.size());
  const std::int64_t rows = call.heads * call.q_len, v_dim = call.options.v_dim;
  if (path.has_stages()) {
    const Stages stages = ComputeStages(call.q, cache, call.ids, call.params, exec);
    for (std::size_t b = 0; b < results.size(); ++b) {
      const std::int64_t own = call.sequences[b].length();
      const auto stage = [&](const Tensor& tensor) { return GridOf(tensor, b, rows, own); };
      results[b] = {stage(stages.scores),
                    stage(stages.capped),
                    stage(stages.masked_scores),
                    stage(stages.weights),
                    GridOf(stages.context, b, rows, v_dim),
                    GridOf(stages.lse, b, rows, 1)};
      const Grid weights = GridOf(stages.weights, b, rows, call.kv_len),
                 masked = GridOf(stages.masked_scores, b, rows, call.kv_len);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t j = own; j < call.kv_len; ++j) {
          EXPECT_EQ(weights.at(row, j), 0) << "a key that is not there";
          EXPECT_EQ(masked.at(row, j), -kInfinity);
        }
      }
    }
    results[0].empty_rows = stages.empty_rows;
    return results;
  }
  Tensor context(DType::kF32, {static_cast<std::int64_t>(call.ids.size()), call.heads, call.q_len, v_dim}),
      lse(DType::kF32, {static_cast<std::int64_t>(call.ids.size()), call.heads, call.q_len});
  PlanShape shape = PlanShape::Of(call.q, cache, call.ids);
  shape.kv_len += call.threads;  // room to grow
  const Plan plan(shape, call.params, exec);
  Workspace workspace = plan.MakeWorkspace();
  std::int64_t empty_rows = -1;
  const Status status =
      plan.Run({.q = call.q, .cache = &cache, .sequences = call.ids},
               {.context = context.mutable_view(), .lse = lse.mutable_view(), .empty_rows = &empty_rows}, workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  for (std::size_t b = 0; b < results.size(); ++b) {
    results[b].context = GridOf(context, b, rows, v_dim);
    results[b].lse = GridOf(lse, b, rows, 1);
  }
  results[0].empty_rows = empty_rows;
  return results;
}

// Same context and lse, and stages where both have them.
void ExpectSameBits(const RunResult& result, const RunResult& expected) {
  EXPECT_TRUE(result.context.SameAs(expected.context)) << "context";
  EXPECT_TRUE(result.lse.SameAs(expected.lse)) << "lse";
  EXPECT_TRUE(result.scores.SameAs(expected.scores)) << "scores";
  EXPECT_TRUE(result.masked_scores.SameAs(expected.masked_scores)) << "masked_scores";
  EXPECT_TRUE(result.weights.SameAs(expected.weights)) << "weights";
}

std::vector<double> Values(const Tensor& tensor) {
  const Tensor wide = Tensor::CopyOf(tensor, DType::kF64);
  return {wide.As<double>(), wide.As<double>() + wide.num_elements()};
}

class CachedAttention : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Paths, CachedAttention, testing::ValuesIn(AllPaths()), TestName);

TEST_P(CachedAttention, EqualsTheCallOnTensorsOfTheStoredValues) {
  const PathCase& path = GetParam();
  ErrorLedger ledger;
  std::map<std::string, int> compared;
  const std::vector<std::uint64_t> seeds = Seeds(250);
  for (const std::uint64_t seed : seeds) {
    Random random(seed);
    const ModelledCache modelled = RandomCache(random, seed % 2 == 0);
    const CachedCall call = RandomCall(random, modelled);
    SCOPED_TRACE(call.description + "\nREGARD_TEST_SEED=" + std::to_string(seed));
    std::vector<RunResult> results = RunCached(path, modelled.cache, call);
    const std::int64_t all_empty_rows = results[0].empty_rows;
    std::int64_t empty_rows = 0;
    for (std::size_t b = 0; b < results.size(); ++b) {
      const TestProblem own = ProblemOf(modelled.cache, call, b);
      const RunResult reference = RunPath(ReferencePath(), own);
      empty_rows += reference.empty_rows;
      results[b].empty_rows = reference.empty_rows;  // they are counted together, and compared below
      const bool i8 = call.options.k_dtype == DType::kI8 || call.options.v_dtype == DType::kI8,
                 forgot = call.sequences[b].forgot();
      if (path.path == Path::kReference) {
        ExpectSameBits(results[b], reference);
        ++compared[forgot ? "forgot" : "whole"];
      } else {
        ledger.Compare(path, own, results[b], reference,
                       ErrorBounds(own, reference, path, IntegerRoundingOf(modelled.cache, call, path.isa)));
        if (path.path == Path::kFused && !i8 && !forgot) {
          ExpectSameBits(results[b], RunPath(path, own));
          ++compared["bits"];
        }
      }
      if (HasFailure()) return;
    }
    EXPECT_EQ(all_empty_rows, empty_rows);
  }
  if (seeds.size() == 1) return;
  if (path.path != Path::kReference) ledger.ExpectAlive();
  for (const auto& [what, count] : compared) EXPECT_GT(count, 60) << what;
}

// More keys than one split and one super-block of rows; chunks, then single tokens, then all queries at once without a cache. Pages lie in
// disorder, since two sequences grow in turns.
TEST_P(CachedAttention, OfLongSequencesInChunks) {
  const PathCase& path = GetParam();
  if (path.path != Path::kFused) return;
  Random random(7);
  constexpr std::int64_t kTokens = 2699, kHeads = 2, kKvHeads = 1, kDim = 24;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Tensor q = RandomTensor(random, DType::kF32, {2, kHeads, kTokens, kDim}, 1),
                 k = RandomTensor(random, type, {2, kKvHeads, kTokens, kDim}, 1),
                 v = RandomTensor(random, type, {2, kKvHeads, kTokens, kDim}, 1);
    KvCache cache({.kv_heads = kKvHeads, .head_dim = kDim, .k_dtype = type, .v_dtype = type, .page_len = 80});
    const SequenceId both[] = {cache.NewSequence(), cache.NewSequence()};
    const ExecOptions exec{.isa = path.isa, .threads = 2};
    const auto part = [](const Tensor& tensor, std::int64_t begin, std::int64_t end) {
      return tensor.view().Slice(2, begin, end);
    };
    std::int64_t done = 0;
    for (const std::int64_t chunk : {900, 31, 1400, 1, 367}) {
      cache.Append(both, part(k, done, done + chunk), part(v, done, done + chunk));
      const AttentionResult r = Attention(part(q, done, done + chunk), cache, both, {.causal = true}, exec);
      const AttentionResult expected = Attention(part(q, done, done + chunk), part(k, 0, done + chunk), part(v, 0, done + chunk),
                                                 {.causal = true, .q_offset = done}, exec);
      EXPECT_TRUE(std::ranges::equal(Values(r.context), Values(expected.context))) << Name(type) << " after " << done;
      EXPECT_TRUE(std::ranges::equal(Values(r.lse), Values(expected.lse))) << Name(type) << " after " << done;
      done += chunk;
    }
    EXPECT_EQ(done, kTokens);
  }
}

// A cache of int8 errs by its rounding: the bound follows each key's and value's half step through the softmax.
TEST(CachedI8, ErrsByItsRounding) {
  Random random(9);
  constexpr std::int64_t kTokens = 300, kDim = 64;
  const Tensor q = RandomTensor(random, DType::kF32, {1, 2, 8, kDim}, 1),
               k = RandomTensor(random, DType::kF32, {1, 1, kTokens, kDim}, 1),
               v = RandomTensor(random, DType::kF32, {1, 1, kTokens, kDim}, 1);
  KvCache cache({.head_dim = kDim, .k_dtype = DType::kI8, .v_dtype = DType::kI8});
  const SequenceId text = cache.NewSequence();
  cache.Append(text, k, v);
  const Stages exact = ComputeStages(q, k, v, {.causal = true, .q_offset = kTokens - 8}, {.path = Path::kReference});
  const AttentionResult r = Attention(q, cache, {&text, 1}, {.causal = true});
  double worst = 0;
  const auto half_step = [&](const Tensor& rows, std::int64_t j) {
    double largest = 0;
    for (std::int64_t d = 0; d < kDim; ++d) largest = std::max(largest, std::fabs(rows(0, 0, j, d)));
    return largest / 127 * 0.5001;
  };
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 8; ++i) {
      double length = 0, shift = 0;  // Σ|q|; the largest error of a score of the row
      for (std::int64_t d = 0; d < kDim; ++d) length += std::fabs(q(0, h, i, d));
      for (std::int64_t j = 0; j < kTokens; ++j)
        shift = std::max(shift, length * half_step(k, j) / std::sqrt(static_cast<double>(kDim)));
      for (std::int64_t d = 0; d < kDim; ++d) {
        double bound = 1e-5;  // of f32
        for (std::int64_t j = 0; j < kTokens; ++j) {
          const double w = exact.weights(0, h, i, j);
          bound += w * (std::expm1(2 * shift) * std::fabs(v(0, 0, j, d)) + std::exp(2 * shift) * half_step(v, j));
        }
        const double error = std::fabs(r.context(0, h, i, d) - exact.context(0, h, i, d));
        ASSERT_LE(error, bound);
        worst = std::max(worst, error / bound);
      }
    }
  }
  EXPECT_GT(worst, 0.005)
      << "the bound of the worst case, all roundings to one side, is far from what random ones give, but not this far";
}

}  // namespace
}  // namespace regard::test
