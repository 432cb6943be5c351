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

#include "core/kv_cache.h"
#include "tests/cache/cache_model.h"
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

// One call: some sequences of a cache, queries, options.
struct CachedCall {
  KvCacheOptions options;
  std::vector<ModelSequence> sequences;
  std::vector<SequenceId> ids;
  std::int64_t heads, q_len, kv_len = 0;
  Tensor q, mask, bias, slopes, sinks, offsets;
  AttentionParams params;
  int threads;
  std::string description;

  std::int64_t QOffset(std::size_t b) const {
    if (params.q_offset.value()) return *params.q_offset.value();
    return offsets ? static_cast<std::int64_t>(offsets(static_cast<std::int64_t>(b))) : sequences[b].next_position - q_len;
  }
};

// A cache whose sequences have been appended to, forked, and perhaps have forgotten some tokens.
ModelledCache RandomCache(Random& random, bool forget) {
  KvCacheOptions options = RandomCacheOptions(random);
  options.max_bytes = 0;
  ModelledCache modelled(options);
  modelled.New();
  while (modelled.sequences.size() < 4) {
    const auto n = static_cast<std::size_t>(random.Int(0, static_cast<std::int64_t>(modelled.sequences.size()) - 1));
    modelled.Append({n}, random.Int(0, 60), random);
    if (forget && random.Chance(0.7)) {
      const std::int64_t length = modelled.sequences[n].length(), first = random.Int(0, length);
      modelled.Evict(n, first, random.Int(0, length - first));
    }
    if (random.Chance(0.5)) modelled.Append({n}, random.Int(1, 3), random);
    if (random.Chance(0.3)) {
      modelled.New();
    } else {
      modelled.Fork(n);
    }
  }
  return modelled;
}

CachedCall RandomCall(Random& random, const ModelledCache& modelled) {
  CachedCall call;
  call.options = modelled.cache.options();
  std::vector<std::size_t> which;
  for (std::int64_t n = random.Int(1, 4); n > 0; --n) {
    which.push_back(static_cast<std::size_t>(random.Int(0, static_cast<std::int64_t>(modelled.sequences.size()) - 1)));
    call.sequences.push_back(modelled.sequences[which.back()]);
    call.kv_len = std::max(call.kv_len, call.sequences.back().length());
  }
  call.ids = modelled.Ids(which);
  const auto batch = static_cast<std::int64_t>(which.size());
  call.heads = call.options.kv_heads * random.Int(1, 4);
  call.q_len = random.Chance(0.5) ? 1 : random.Int(1, 24);
  call.q = RandomTensor(random, random.OneOf({DType::kF32, DType::kF32, DType::kBF16, DType::kF16}),
                        {batch, call.heads, call.q_len, call.options.head_dim}, random.Uniform(0.2, 4));
  AttentionParams& params = call.params;
  params.causal = random.Chance(0.6);
  if (random.Chance(0.3)) params.window_left = random.Int(0, 30);
  if (random.Chance(0.2)) params.window_right = random.Int(0, 10);
  if (random.Chance(0.2)) params.soft_cap = static_cast<float>(random.Uniform(1, 8));
  if (random.Chance(0.2)) params.scale = static_cast<float>(random.Uniform(-1, 1));
  if (random.Chance(0.3)) {
    call.slopes = Tensor(DType::kF32, {call.heads});
    for (std::int64_t h = 0; h < call.heads; ++h) {
      call.slopes.MutableAs<float>()[h] = static_cast<float>(std::ldexp(1.0, -static_cast<int>(random.Int(0, 6))));
    }
    params.alibi_slopes = call.slopes;
  } else if (random.Chance(0.3)) {
    call.bias = RandomTensor(random, DType::kF32, {random.OneOf({batch, std::int64_t{1}}), 1, call.q_len, call.kv_len}, 1);
    params.bias = call.bias;
  }
  if (random.Chance(0.3)) {
    call.mask = Tensor(DType::kBool, {batch, random.OneOf({call.heads, std::int64_t{1}}), 1, call.kv_len});
    for (std::int64_t n = 0; n < call.mask.num_elements(); ++n) call.mask.MutableAs<bool>()[n] = random.Chance(0.7);
    params.mask = call.mask;
  }
  if (random.Chance(0.3)) params.sinks = call.sinks = RandomTensor(random, DType::kF32, {call.heads}, 2);
  if (random.Chance(0.1)) params.q_offset = random.Int(-5, 70);
  if (!params.q_offset.is_stated() && random.Chance(0.1)) {
    call.offsets = Tensor(DType::kI64, {batch});
    for (std::int64_t b = 0; b < batch; ++b) call.offsets.MutableAs<std::int64_t>()[b] = random.Int(0, 60);
    params.q_offset = call.offsets;
  }
  call.threads = static_cast<int>(random.Int(1, 3));
  call.description = std::string("k ") + std::string(Name(call.options.k_dtype)) + ", v " +
                     std::string(Name(call.options.v_dtype)) + ", page_len " + std::to_string(call.options.page_len) +
                     ", batch " + std::to_string(batch) + ", heads " + std::to_string(call.heads) + ", kv_heads " +
                     std::to_string(call.options.kv_heads) + ", q_len " + std::to_string(call.q_len) + ", kv_len " +
                     std::to_string(call.kv_len);
  return call;
}

// What the model holds as a tensor [1, kv_heads, length, dim]: i8 as f64, which holds element · scale exactly.
Tensor TensorOf(const KvCache& cache, const ModelSequence& s, bool keys) {
  const KvCacheOptions& o = cache.options();
  const DType stored = keys ? o.k_dtype : o.v_dtype;
  if (stored != DType::kI8) return Tensor::CopyOf(keys ? cache.Keys(s.id) : cache.Values(s.id), stored);
  const CachedSequence& sequence = *cache.impl().Find(s.id);
  const std::int64_t dim = keys ? o.head_dim : o.v_dim;
  Tensor tensor(DType::kF64, {1, o.kv_heads, s.length(), dim});
  for (std::int64_t row = 0; row < o.kv_heads * s.length(); ++row) {
    const std::int64_t h = row / s.length(), j = row % s.length();
    const internal::StoredRow from = keys ? cache.impl().Key(sequence, h, j) : cache.impl().Value(sequence, h, j);
    internal::LoadStored(from, dim, tensor.MutableAs<double>() + row * dim);
  }
  return tensor;
}

// Says by a mask, and by a bias, what positions mean to keys whose neighbours are gone.
void SpellOutPositions(const CachedCall& call, std::size_t b, TestProblem* p) {
  const ModelSequence& s = call.sequences[b];
  Tensor mask(DType::kBool, {1, p->heads, p->q_len, p->kv_len}), bias(DType::kF64, {1, p->heads, p->q_len, p->kv_len});
  for (std::int64_t cell = 0; cell < mask.num_elements(); ++cell) {
    const std::int64_t h = cell / p->kv_len / p->q_len, i = cell / p->kv_len % p->q_len, j = cell % p->kv_len;
    const std::int64_t distance = i + call.QOffset(b) - s.tokens[static_cast<std::size_t>(j)].position;
    const auto batch = static_cast<std::int64_t>(b);
    mask.MutableAs<bool>()[cell] = (!call.params.causal || distance >= 0) &&
                                   (!call.params.window_left || distance <= *call.params.window_left) &&
                                   (!call.params.window_right || -distance <= *call.params.window_right) &&
                                   (!call.mask || call.mask(batch, call.mask.dim(1) == 1 ? 0 : h, 0, j) != 0);
    if (call.slopes) bias.MutableAs<double>()[cell] = -call.slopes(h) * std::fabs(static_cast<double>(distance));
    if (call.bias) bias.MutableAs<double>()[cell] = call.bias(call.bias.dim(0) == 1 ? 0 : batch, 0, i, j);
  }
  p->params.causal = false;
  p->params.window_left = p->params.window_right = std::nullopt;
  p->params.alibi_slopes = {};
  p->params.q_offset = {};
  p->memory.push_back(std::move(mask));
  p->params.mask = p->memory.back();
  if (!call.slopes && !call.bias) return;
  p->memory.push_back(std::move(bias));
  p->params.bias = p->memory.back();
}

// Sequence b as a call of its own, without a cache.
TestProblem ProblemOf(const KvCache& cache, const CachedCall& call, std::size_t b) {
  const ModelSequence& s = call.sequences[b];
  const auto batch = static_cast<std::int64_t>(b);
  TestProblem p;
  p.heads = call.heads;
  p.kv_heads = call.options.kv_heads;
  p.q_len = call.q_len;
  p.kv_len = s.length();
  p.head_dim = call.options.head_dim;
  p.v_dim = call.options.v_dim;
  p.threads = 1;
  p.description = call.description;
  p.memory.reserve(4);
  p.q = call.q.view().Slice(0, batch, batch + 1);
  p.memory.push_back(TensorOf(cache, s, true));
  p.k = p.memory.back();
  p.memory.push_back(TensorOf(cache, s, false));
  p.v = p.memory.back();
  p.params = call.params;
  p.params.q_offset = call.QOffset(b);
  const auto own = [&](const TensorView& view) {
    return (view.dim(0) == 1 ? view : view.Slice(0, batch, batch + 1)).Slice(3, 0, s.length());
  };
  if (call.mask) p.params.mask = own(call.mask);
  if (call.bias) p.params.bias = own(call.bias);
  if (s.forgot()) SpellOutPositions(call, b, &p);
  return p;
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

class CachedAttention : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Paths, CachedAttention, testing::ValuesIn(AllPaths()), TestName);

TEST_P(CachedAttention, EqualsTheCallOnTensorsOfTheStoredValues) {
  const PathCase& path = GetParam();
  ErrorLedger ledger;
  std::map<std::string, int> compared;
  const std::vector<std::uint64_t> seeds = Seeds(600);
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
        ledger.Compare(path, own, results[b], reference, ErrorBounds(own, reference, path.path));
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
  for (const auto& [what, count] : compared) EXPECT_GT(count, 100) << what;
}

}  // namespace
}  // namespace regard::test
