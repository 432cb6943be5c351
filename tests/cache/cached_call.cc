#include "tests/cache/cached_call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attention/fused.h"
#include "core/kv_cache.h"

namespace regard::test {
namespace {

Tensor RandomTensor(Random& random, DType dtype, const Dims& shape, double size) {
  Tensor tensor(DType::kF64, shape);
  for (std::int64_t n = 0; n < tensor.num_elements(); ++n) tensor.MutableAs<double>()[n] = size * random.Normal() + 0.2 * size;
  return Tensor::CopyOf(tensor, dtype);
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

// Leaves NaN behind the last row, where nobody may look.
void Poison(ModelledCache& modelled, std::size_t which, std::int64_t tokens) {
  const KvCacheOptions& o = modelled.cache.options();
  Tensor k(DType::kF32, {1, o.kv_heads, tokens, o.head_dim}), v(DType::kF32, {1, o.kv_heads, tokens, o.v_dim});
  for (Tensor* t : {&k, &v}) std::fill_n(t->MutableAs<float>(), t->num_elements(), std::numeric_limits<float>::quiet_NaN());
  const ModelSequence& s = modelled.sequences[which];
  modelled.cache.Append(s.id, k, v);
  modelled.cache.Truncate(s.id, s.length());
}

}  // namespace

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
    if (random.Chance(0.5)) Poison(modelled, n, random.Int(1, 40));
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
  if (random.Chance(0.25)) {
    params.dropout = static_cast<float>(random.OneOf({0.1, 0.5}));
    params.dropout_seed = random.Next();
  }
  call.description = std::string("k ") + std::string(Name(call.options.k_dtype)) + ", v " +
                     std::string(Name(call.options.v_dtype)) + ", page_len " + std::to_string(call.options.page_len) +
                     ", batch " + std::to_string(batch) + ", heads " + std::to_string(call.heads) + ", kv_heads " +
                     std::to_string(call.options.kv_heads) + ", q_len " + std::to_string(call.q_len) + ", kv_len " +
                     std::to_string(call.kv_len);
  return call;
}

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
  p.dropout_origin.batch = batch;
  const auto own = [&](const TensorView& view) {
    return (view.dim(0) == 1 ? view : view.Slice(0, batch, batch + 1)).Slice(3, 0, s.length());
  };
  if (call.mask) p.params.mask = own(call.mask);
  if (call.bias) p.params.bias = own(call.bias);
  if (s.forgot()) SpellOutPositions(call, b, &p);
  return p;
}

internal::IntegerRounding IntegerRoundingOf(const KvCache& cache, const CachedCall& call, const std::string& isa) {
  return internal::IntegerRoundingOf(PlanShape::Of(call.q, cache, call.ids), isa);
}

}  // namespace regard::test
