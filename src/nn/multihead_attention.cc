#include "nn/dense.h"
#include "nn/heads.h"
#include "nn/rotary.h"
#include "regard/nn.h"

namespace regard::nn {
namespace {

std::int64_t OrDefault(std::int64_t stated, std::int64_t otherwise) { return stated == 0 ? otherwise : stated; }

void CheckInputs(const TensorView& query, const TensorView& key, const TensorView& value) {
  const Tokens q = TokensOf("query", query), k = TokensOf("key", key), v = TokensOf("value", value);
  if (query.rank() != key.rank() || key.rank() != value.rank() || q.batch != k.batch || k.batch != v.batch ||
      k.tokens != v.tokens) {
    Fail(ErrorCode::kShapeMismatch, "key: shape " + ToString(key.shape()) + " with query " + ToString(query.shape()) +
                                        " and value " + ToString(value.shape()) +
                                        "; give all the same batch, and key and value the same number of tokens");
  }
}

// Numbers of heads are members that anybody may set, and the projections have their widths from when the layer was made.
void CheckHeads(const MultiheadAttention& layer) {
  CheckMade(layer.q_proj.weight);
  CheckMade(layer.out_proj.weight);
  const std::int64_t heads = layer.num_heads, kv_heads = layer.num_kv_heads;
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0 || layer.q_proj.out() % heads != 0 ||
      layer.k_proj.out() % kv_heads != 0 || layer.v_proj.out() % kv_heads != 0) {
    Fail(ErrorCode::kInvalidArgument, "num_heads: " + std::to_string(heads) + ", num_kv_heads " + std::to_string(kv_heads) +
                                          " for projections of width " + std::to_string(layer.q_proj.out()) + ", " +
                                          std::to_string(layer.k_proj.out()) + " and " + std::to_string(layer.v_proj.out()) +
                                          "; give numbers that divide them, num_kv_heads a divisor of num_heads");
  }
}

void CheckRotary(const MultiheadAttention& layer, const AttentionParams& params, const std::optional<Rotary>& rotary) {
  if (!rotary) return;
  const std::int64_t head_dim = layer.q_proj.out() / layer.num_heads;
  if (head_dim % 2 != 0)
    Fail(ErrorCode::kInvalidArgument, "rotary: head_dim=" + std::to_string(head_dim) + " is odd; give an even one, or no rotary");
  if (!(rotary->base > 0))
    Fail(ErrorCode::kInvalidArgument, "rotary: base=" + std::to_string(rotary->base) + "; give a positive one, such as 10000");
  if (params.kv_lens && !params.q_offset.is_stated()) {
    Fail(ErrorCode::kInvalidArgument,
         "rotary: with kv_lens and no q_offset, which leaves open where queries stand; set q_offset, 0 for self-attention");
  }
  if (params.q_segments || params.kv_segments)
    Fail(ErrorCode::kUnsupported, "rotary: with segments, whose positions restart; give one sequence a batch entry");
}

}  // namespace

MultiheadAttention::MultiheadAttention(const Shape& shape)
    : num_heads(shape.num_heads), num_kv_heads(OrDefault(shape.num_kv_heads, shape.num_heads)) {
  if (num_heads < 1) Fail(ErrorCode::kInvalidArgument, "num_heads: " + std::to_string(num_heads) + "; give 1 or more");
  if (num_kv_heads < 1 || num_heads % num_kv_heads != 0) {
    Fail(ErrorCode::kInvalidArgument, "num_kv_heads: " + std::to_string(num_kv_heads) + " does not divide num_heads=" +
                                          std::to_string(num_heads) + "; give a divisor, or 0 for as many");
  }
  if (shape.head_dim == 0 && shape.embed_dim % num_heads != 0) {
    Fail(ErrorCode::kInvalidArgument, "embed_dim: " + std::to_string(shape.embed_dim) + " does not divide into num_heads=" +
                                          std::to_string(num_heads) + "; give a multiple, or a head_dim");
  }
  const std::int64_t head_dim = OrDefault(shape.head_dim, shape.embed_dim / num_heads);
  q_proj = Linear(shape.embed_dim, num_heads * head_dim, shape.bias, shape.dtype);
  k_proj = Linear(OrDefault(shape.key_dim, shape.embed_dim), num_kv_heads * head_dim, shape.bias, shape.dtype);
  v_proj = Linear(OrDefault(shape.value_dim, shape.embed_dim), num_kv_heads * head_dim, shape.bias, shape.dtype);
  out_proj = Linear(num_heads * head_dim, shape.embed_dim, shape.bias, shape.dtype);
}

Tensor MultiheadAttention::Forward(const TensorView& query, const TensorView& key, const TensorView& value, Cache* cache,
                                   std::optional<std::uint64_t> dropout_seed) const {
  CheckInputs(query, key, value);
  CheckHeads(*this);
  CheckRotary(*this, params, rotary);
  AttentionParams of_run = ParamsOfRun(params, dropout_seed);
  Tensor q = q_proj.Forward(WithBatch(query)), k = k_proj.Forward(WithBatch(key)), v = v_proj.Forward(WithBatch(value));
  if (rotary) {
    Rotate(q, num_heads, *rotary, params.q_offset, 1);
    Rotate(k, num_kv_heads, *rotary, {}, 1);
  }
  HeadsResult result = AttendHeads(q, k, v, num_heads, num_kv_heads, of_run, exec);
  Tensor y = out_proj.Forward(result.context);
  if (cache != nullptr) {
    *cache = {std::move(q),          std::move(k),      std::move(v), std::move(result.context),
              std::move(result.lse), std::move(of_run), rotary};
  }
  return LikeInput(std::move(y), query);
}

MultiheadAttention::InputGrads MultiheadAttention::Backward(const TensorView& query, const TensorView& key,
                                                            const TensorView& value, const Cache& cache, const TensorView& d_y) {
  CheckInputs(query, key, value);
  CheckHeads(*this);
  CheckCache(cache.context);
  CheckRotary(*this, cache.params, cache.rotary);
  DenseLike("d_y", d_y, WithColumns(query.shape(), out_proj.out()), out_proj.weight.value.dtype());
  const Tensor d_context = out_proj.Backward(cache.context, WithBatch(d_y));
  HeadsGrads grads = AttendHeadsBackward(cache.q, cache.k, cache.v, cache.context, cache.lse, d_context, num_heads, num_kv_heads,
                                         cache.params, exec);
  if (cache.rotary) {
    Rotate(grads.d_q, num_heads, *cache.rotary, cache.params.q_offset, -1);
    Rotate(grads.d_k, num_kv_heads, *cache.rotary, {}, -1);
  }
  return {LikeInput(q_proj.Backward(WithBatch(query), grads.d_q), query),
          LikeInput(k_proj.Backward(WithBatch(key), grads.d_k), key),
          LikeInput(v_proj.Backward(WithBatch(value), grads.d_v), value)};
}

Tensor MultiheadAttention::Backward(const TensorView& x, const Cache& cache, const TensorView& d_y) {
  InputGrads grads = Backward(x, x, x, cache, d_y);
  AddTo(grads.d_query, grads.d_key);
  AddTo(grads.d_query, grads.d_value);
  return std::move(grads.d_query);
}

void MultiheadAttention::AppendParameters(const std::string& prefix, ParameterList* list) {
  q_proj.AppendParameters(prefix + "q_proj", list);
  k_proj.AppendParameters(prefix + "k_proj", list);
  v_proj.AppendParameters(prefix + "v_proj", list);
  out_proj.AppendParameters(prefix + "out_proj", list);
}

}  // namespace regard::nn
