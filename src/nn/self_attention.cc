#include <utility>

#include "nn/dense.h"
#include "nn/heads.h"
#include "regard/nn.h"

namespace regard::nn {
SelfAttention::SelfAttention(std::int64_t in_dim, std::int64_t head_dim, bool bias, DType dtype)
    : w_query(in_dim, head_dim, bias, dtype), w_key(in_dim, head_dim, bias, dtype), w_value(in_dim, head_dim, bias, dtype) {}

Tensor SelfAttention::Forward(const TensorView& x, Cache* cache, std::optional<std::uint64_t> dropout_seed) const {
  TokensOf("x", x);
  Tensor q = w_query.Forward(WithBatch(x)), k = w_key.Forward(WithBatch(x)), v = w_value.Forward(WithBatch(x));
  AttentionParams of_run = ParamsOfRun(params, dropout_seed);
  HeadsResult result = AttendHeads(q, k, v, 1, 1, of_run, exec);
  if (cache == nullptr) return LikeInput(std::move(result.context), x);
  *cache = {std::move(q), std::move(k), std::move(v), std::move(result.context), std::move(result.lse), std::move(of_run)};
  return LikeInput(cache->context, x);
}

Tensor SelfAttention::Backward(const TensorView& x, const Cache& cache, const TensorView& d_y) {
  TokensOf("x", x);
  CheckMade(w_value.weight);
  CheckCache(cache.context);
  DenseLike("d_y", d_y, WithColumns(x.shape(), w_value.out()), w_value.weight.value.dtype());
  const HeadsGrads grads = AttendHeadsBackward(cache.q, cache.k, cache.v, cache.context, cache.lse,
                                               Tensor::CopyOf(WithBatch(d_y)), 1, 1, cache.params, exec);
  Tensor d_x = w_query.Backward(WithBatch(x), grads.d_q);
  AddTo(d_x, w_key.Backward(WithBatch(x), grads.d_k));
  AddTo(d_x, w_value.Backward(WithBatch(x), grads.d_v));
  return LikeInput(std::move(d_x), x);
}

void SelfAttention::LoadState(const StateDict& state, const std::string& prefix) {
  w_query.LoadState(state, prefix + "W_query");
  w_key.LoadState(state, prefix + "W_key");
  w_value.LoadState(state, prefix + "W_value");
}

void SelfAttention::SaveState(StateDict* state, const std::string& prefix) const {
  w_query.SaveState(state, prefix + "W_query");
  w_key.SaveState(state, prefix + "W_key");
  w_value.SaveState(state, prefix + "W_value");
}

void SelfAttention::AppendParameters(const std::string& prefix, ParameterList* list) {
  w_query.AppendParameters(prefix + "W_query", list);
  w_key.AppendParameters(prefix + "W_key", list);
  w_value.AppendParameters(prefix + "W_value", list);
}

}  // namespace regard::nn
