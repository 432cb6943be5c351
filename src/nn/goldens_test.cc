// The layers against PyTorch, forward and backward: testdata/nn, made in double by tools/make_nn_goldens.py.
//
// In double both sides round at 2⁻⁵³, in float this side at 2⁻²⁴. A number here passes at most six sums in a row (two norms and four
// products, the longest of 36 terms) and softmax with scores below 16, each adding its length in roundings of numbers no larger than some
// times the largest element (the scale is a float on both sides, since it is 1/2 everywhere): below 3,000 roundings in all. A wrong axis
// or a missing factor is off by millions.
#include <gtest/gtest.h>

#include <string>

#include "nn/gradient_check.h"
#include "regard/io.h"
#include "regard/nn.h"

namespace regard::nn {
namespace {

constexpr double kRoundings = 3000;
constexpr DType kTypes[] = {DType::kF64, DType::kF32};

class Golden {
 public:
  explicit Golden(const std::string& name) : arrays_(io::ReadTensors(io::File::Open("testdata/nn/" + name + ".safetensors"))) {}

  Tensor At(const std::string& name, DType dtype) const { return Tensor::CopyOf(arrays_.at(name), dtype); }
  const StateDict& all() const { return arrays_; }

  void Expect(const std::string& name, const Tensor& actual) const { ExpectClose(name, actual, arrays_.at(name), kRoundings); }
  /// Every gradient of the file. The key's bias has none but roundings, unless something tells keys apart by more than scores.
  void ExpectGrads(const StateDict& grads) const {
    std::size_t compared = 0;
    for (const auto& [name, expected] : arrays_) {
      if (!name.starts_with("grad.")) continue;
      ASSERT_TRUE(grads.contains(name)) << name;
      Expect(name, grads.at(name));
      ++compared;
    }
    EXPECT_EQ(compared, grads.size());
  }

 private:
  StateDict arrays_;
};

// The layer with its gradients in place of its values, so that they can be saved under the names of any format.
MultiheadAttention OfGrads(MultiheadAttention layer) {
  for (Linear* linear : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.out_proj}) {
    linear->weight.value = linear->weight.grad;
    linear->bias.value = linear->bias.grad;
  }
  return layer;
}

StateDict GradsOf(const MultiheadAttention& layer, StateFormat format, const std::string& prefix = "grad.") {
  StateDict grads;
  OfGrads(layer).SaveState(&grads, prefix, format);
  return grads;
}

// Self-attention of the file's x.
void CheckSelf(const Golden& golden, MultiheadAttention layer, StateFormat format, DType dtype) {
  layer.LoadState(golden.all(), "state.");
  const Tensor x = golden.At("x", dtype);
  MultiheadAttention::Cache cache;
  golden.Expect("y", layer.Forward(x, &cache));
  golden.Expect("d_x", layer.Backward(x, cache, golden.At("d_y", dtype)));
  StateDict grads = GradsOf(layer, format);
  if (const auto out = grads.find("grad.out_proj.weight"); format == StateFormat::kSeparate && out != grads.end()) {
    grads["grad.o_proj.weight"] = out->second;
    grads.erase(out);
  }
  golden.ExpectGrads(grads);
}

void CheckCross(const Golden& golden, MultiheadAttention layer, DType dtype) {
  layer.LoadState(golden.all(), "state.");
  const Tensor query = golden.At("query", dtype), key = golden.At("key", dtype), value = golden.At("value", dtype);
  MultiheadAttention::Cache cache;
  golden.Expect("y", layer.Forward(query, key, value, &cache));
  const MultiheadAttention::InputGrads grads = layer.Backward(query, key, value, cache, golden.At("d_y", dtype));
  golden.Expect("d_query", grads.d_query);
  golden.Expect("d_key", grads.d_key);
  golden.Expect("d_value", grads.d_value);
  golden.ExpectGrads(GradsOf(layer, StateFormat::kTorch));
}

TEST(Goldens, TorchMultiheadAttentionCausal) {
  const Golden golden("torch_causal");
  for (const DType dtype : kTypes) {
    MultiheadAttention layer({.embed_dim = 12, .num_heads = 3, .dtype = dtype});
    layer.params.causal = true;
    CheckSelf(golden, layer, StateFormat::kTorch, dtype);
  }
}

TEST(Goldens, TorchMultiheadAttentionAcrossWidthsWithAMask) {
  const Golden golden("torch_cross");
  const Tensor mask = golden.all().at("mask");
  for (const DType dtype : kTypes) {
    MultiheadAttention layer({.embed_dim = 12, .num_heads = 3, .key_dim = 5, .value_dim = 8, .dtype = dtype});
    layer.params.mask = mask;
    CheckCross(golden, layer, dtype);
  }
}

TEST(Goldens, TorchMultiheadAttentionAcrossWithoutBias) {
  const Golden golden("torch_cross_same_width");
  for (const DType dtype : kTypes)
    CheckCross(golden, MultiheadAttention({.embed_dim = 8, .num_heads = 2, .bias = false, .dtype = dtype}), dtype);
}

TEST(Goldens, GroupedHeadsWithRotaryPositions) {
  const Golden golden("grouped_rotary");
  for (const DType dtype : kTypes) {
    MultiheadAttention layer({.embed_dim = 10, .num_heads = 6, .num_kv_heads = 2, .head_dim = 4, .bias = false, .dtype = dtype});
    layer.params.causal = true;
    layer.rotary = Rotary{};
    CheckSelf(golden, layer, StateFormat::kSeparate, dtype);
  }
}

TEST(Goldens, Gpt2Block) {
  const Golden golden("gpt2_block");
  for (const DType dtype : kTypes) {
    Block block({.embed_dim = 12, .num_heads = 3, .dtype = dtype}, 20);
    block.attn.params.causal = true;
    block.LoadState(golden.all(), "state.");
    const Tensor x = golden.At("x", dtype);
    Block::Cache cache;
    golden.Expect("y", block.Forward(x, &cache));
    golden.Expect("d_x", block.Backward(x, cache, golden.At("d_y", dtype)));
    StateDict grads = GradsOf(block.attn, StateFormat::kGpt2, "grad.attn.");
    for (const auto& [name, linear] :
         {std::pair{"grad.mlp.c_fc", &block.mlp.c_fc}, std::pair{"grad.mlp.c_proj", &block.mlp.c_proj}}) {
      Linear of_grads;
      of_grads.weight.value = linear->weight.grad;
      of_grads.bias.value = linear->bias.grad;
      of_grads.SaveState(&grads, name, MatrixOrder::kInOut);
    }
    for (const auto& [name, norm] : {std::pair{"grad.ln_1", &block.ln_1}, std::pair{"grad.ln_2", &block.ln_2}}) {
      grads[std::string(name) + ".weight"] = norm->weight.grad;
      grads[std::string(name) + ".bias"] = norm->bias.grad;
    }
    golden.ExpectGrads(grads);
  }
}

TEST(Goldens, RmsNorm) {
  const Golden golden("rms_norm");
  for (const DType dtype : kTypes) {
    RmsNorm norm(5, dtype);
    norm.epsilon = 0.25;
    norm.weight.value = golden.At("state.weight", dtype);
    const Tensor x = golden.At("x", dtype);
    RmsNorm::Cache cache;
    golden.Expect("y", norm.Forward(x, &cache));
    golden.Expect("d_x", norm.Backward(x, cache, golden.At("d_y", dtype)));
    golden.ExpectGrads({{"grad.weight", norm.weight.grad}});
  }
}

TEST(Goldens, TheCoursesSingleHead) {
  const Golden golden("course");
  for (const DType dtype : kTypes) {
    SelfAttention layer(3, 4, false, dtype);
    layer.LoadState(golden.all(), "state.");
    const Tensor x = golden.At("x", dtype);
    SelfAttention::Cache cache;
    golden.Expect("y", layer.Forward(x, &cache));
    golden.Expect("d_x", layer.Backward(x, cache, golden.At("d_y", dtype)));
    golden.ExpectGrads({{"grad.W_query.weight", layer.w_query.weight.grad},
                        {"grad.W_key.weight", layer.w_key.weight.grad},
                        {"grad.W_value.weight", layer.w_value.weight.grad}});
  }
}

TEST(Goldens, AdamW) {
  const Golden golden("adamw");
  for (const DType dtype : kTypes) {
    Parameter matrix{golden.At("matrix.0", dtype), {}}, bias{golden.At("bias.0", dtype), {}};
    AdamW optimizer{.learning_rate = 0.03, .beta_1 = 0.9, .beta_2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    for (int step = 1; step <= 4; ++step) {
      matrix.grad = golden.At("matrix.grad." + std::to_string(step), dtype);
      bias.grad = golden.At("bias.grad." + std::to_string(step), dtype);
      optimizer.Step({{"matrix", &matrix}, {"bias", &bias}});
      golden.Expect("matrix." + std::to_string(step), matrix.value);
      golden.Expect("bias." + std::to_string(step), bias.value);
    }
  }
}

}  // namespace
}  // namespace regard::nn
