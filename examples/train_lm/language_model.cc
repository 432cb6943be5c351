#include "language_model.h"

#include <cmath>
#include <string>
#include <utility>

#include "corpus.h"

namespace train_lm {

using regard::Tensor;
using regard::TensorView;

LanguageModel::LanguageModel(const ModelShape& shape, std::uint64_t seed)
    : shape_(shape), embedding_(kClasses, shape.dim), norm_(shape.dim), head_(shape.dim, kClasses, /*with_bias=*/false) {
  for (std::int64_t n = 0; n < shape.layers; ++n) {
    regard::nn::MultiheadAttention::Shape attention;
    attention.embed_dim = shape.dim;
    attention.num_heads = shape.heads;
    blocks_.emplace_back(attention, 4 * shape.dim);
    blocks_.back().attn.params.causal = true;
    blocks_.back().attn.params.dropout = shape.dropout;
    blocks_.back().attn.rotary = regard::nn::Rotary{};
  }
  embedding_.AppendParameters("embedding", &parameters_);
  for (std::size_t n = 0; n < blocks_.size(); ++n) blocks_[n].AppendParameters("blocks." + std::to_string(n) + ".", &parameters_);
  norm_.AppendParameters("norm", &parameters_);
  head_.AppendParameters("head", &parameters_);
  // Half of what keeps the size of a vector through a product: blocks begin by changing little.
  regard::nn::InitNormal(parameters_, 0.5 / std::sqrt(static_cast<double>(shape.dim)), seed);
}

Tensor LanguageModel::Forward(const TensorView& bytes, Cache* cache, std::optional<std::uint64_t> dropout_seed) const {
  *cache = {};
  cache->blocks.resize(blocks_.size());
  cache->x.push_back(embedding_.Forward(bytes));
  for (std::size_t n = 0; n < blocks_.size(); ++n) {
    std::optional<std::uint64_t> own_seed;  // or all layers would drop the same weights
    if (dropout_seed) own_seed = *dropout_seed * blocks_.size() + n;
    cache->x.push_back(blocks_[n].Forward(cache->x[n], &cache->blocks[n], own_seed));
  }
  cache->normed = norm_.Forward(cache->x.back(), &cache->norm);
  return head_.Forward(cache->normed);
}

void LanguageModel::Backward(const TensorView& bytes, const Cache& cache, const TensorView& d_logits) {
  Tensor d_x = norm_.Backward(cache.x.back(), cache.norm, head_.Backward(cache.normed, d_logits));
  for (std::size_t n = blocks_.size(); n-- > 0;) d_x = blocks_[n].Backward(cache.x[n], cache.blocks[n], d_x);
  embedding_.Backward(bytes, d_x);
}

std::int64_t LanguageModel::num_parameters() const {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : parameters_) count += parameter->value.num_elements();
  return count;
}

}  // namespace train_lm
