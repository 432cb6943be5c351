#include "nn/dense.h"
#include "nn/state.h"
#include "regard/nn.h"

namespace regard::nn {

Block::Block(const MultiheadAttention::Shape& shape, std::int64_t hidden_dim)
    : ln_1(shape.embed_dim, shape.dtype),
      attn(shape),
      ln_2(shape.embed_dim, shape.dtype),
      mlp(shape.embed_dim, hidden_dim, shape.dtype) {}

Tensor Block::Forward(const TensorView& x, Cache* cache, std::optional<std::uint64_t> dropout_seed) const {
  Cache own;
  Cache& kept = cache != nullptr ? *cache : own;
  kept.normed_1 = ln_1.Forward(x, &kept.ln_1);
  kept.after_attn = attn.Forward(kept.normed_1, &kept.attn, dropout_seed);
  AddTo(kept.after_attn, Tensor::CopyOf(x));
  kept.normed_2 = ln_2.Forward(kept.after_attn, &kept.ln_2);
  Tensor y = mlp.Forward(kept.normed_2, &kept.mlp);
  AddTo(y, kept.after_attn);
  return y;
}

// What goes past a layer adds to what goes through it.
Tensor Block::Backward(const TensorView& x, const Cache& cache, const TensorView& d_y) {
  CheckCache(cache.after_attn);
  Tensor d_after_attn = ln_2.Backward(cache.after_attn, cache.ln_2, mlp.Backward(cache.normed_2, cache.mlp, d_y));
  AddTo(d_after_attn, Tensor::CopyOf(d_y));
  Tensor d_x = ln_1.Backward(x, cache.ln_1, attn.Backward(cache.normed_1, cache.attn, d_after_attn));
  AddTo(d_x, d_after_attn);
  return d_x;
}

void Block::LoadState(const StateDict& state, const std::string& prefix) {
  Block loaded = *this;  // a state that does not fit leaves the block as it was
  ParameterList norms;
  loaded.ln_1.AppendParameters(prefix + "ln_1", &norms);
  loaded.ln_2.AppendParameters(prefix + "ln_2", &norms);
  nn::LoadState(state, norms);
  loaded.attn.LoadState(state, prefix + "attn.");
  loaded.mlp.c_fc.LoadState(state, prefix + "mlp.c_fc", MatrixOrder::kInOut);
  loaded.mlp.c_proj.LoadState(state, prefix + "mlp.c_proj", MatrixOrder::kInOut);
  *this = std::move(loaded);
}

void Block::SaveState(StateDict* state, const std::string& prefix) const {
  Block copy = *this;
  ParameterList norms;
  copy.ln_1.AppendParameters(prefix + "ln_1", &norms);
  copy.ln_2.AppendParameters(prefix + "ln_2", &norms);
  for (auto& [name, value] : StateOf(norms)) (*state)[name] = value;
  attn.SaveState(state, prefix + "attn.", StateFormat::kGpt2);
  mlp.c_fc.SaveState(state, prefix + "mlp.c_fc", MatrixOrder::kInOut);
  mlp.c_proj.SaveState(state, prefix + "mlp.c_proj", MatrixOrder::kInOut);
}

void Block::AppendParameters(const std::string& prefix, ParameterList* list) {
  ln_1.AppendParameters(prefix + "ln_1", list);
  attn.AppendParameters(prefix + "attn.", list);
  ln_2.AppendParameters(prefix + "ln_2", list);
  mlp.AppendParameters(prefix + "mlp.", list);
}

}  // namespace regard::nn
