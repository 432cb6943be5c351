// The model: bytes are embedded, pass through blocks of causal attention and MLPs, and become logits of the next byte. Positions are rotary.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regard/nn.h"

namespace train_lm {

struct ModelShape {
  std::int64_t layers = 4, heads = 4, dim = 128;
  float dropout = 0;  // of attention weights, in training
};

class LanguageModel {
 public:
  /// What the forward run leaves for the backward run.
  struct Cache {
    std::vector<regard::Tensor> x;  // what each block reads, and last what they all make
    std::vector<regard::nn::Block::Cache> blocks;
    regard::nn::LayerNorm::Cache norm;
    regard::Tensor normed;
  };

  LanguageModel(const ModelShape& shape, std::uint64_t seed);
  LanguageModel(const LanguageModel&) = delete;  // the list points into it
  LanguageModel& operator=(const LanguageModel&) = delete;

  /// bytes i32 [batch, tokens] -> logits [batch, tokens, 256]; with dropout only when a seed is given, another one each step.
  regard::Tensor Forward(const regard::TensorView& bytes, Cache* cache, std::optional<std::uint64_t> dropout_seed = {}) const;
  /// Adds to the gradients of all parameters.
  void Backward(const regard::TensorView& bytes, const Cache& cache, const regard::TensorView& d_logits);

  const regard::nn::ParameterList& parameters() const { return parameters_; }
  std::int64_t num_parameters() const;
  const ModelShape& shape() const { return shape_; }

 private:
  ModelShape shape_;
  regard::nn::Embedding embedding_;
  std::vector<regard::nn::Block> blocks_;
  regard::nn::LayerNorm norm_;
  regard::nn::Linear head_;
  regard::nn::ParameterList parameters_;
};

}  // namespace train_lm
