// The attention layers against differences of their own forward pass, in double, and what they refuse. PyTorch's numbers: goldens_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "nn/gradient_check.h"
#include "regard/nn.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/same_bits.h"

namespace regard::nn {
namespace {

using test::ExpectError;
using test::Numbers;
using test::SameBits;

TEST(SelfAttention, DerivesWhatItComputes) {
  for (const bool bias : {false, true}) {
    SelfAttention layer(5, 3, bias, DType::kF64);
    layer.params.causal = true;
    ParameterList parameters;
    layer.AppendParameters("", &parameters);
    FillAll(parameters, 0.5, 1);
    Tensor x = Numbers(DType::kF64, {2, 4, 5}, 1);
    const Tensor d_y = Numbers(DType::kF64, {2, 4, 3}, 2);
    SelfAttention::Cache cache;
    layer.Forward(x, &cache);
    const Tensor d_x = layer.Backward(x, cache, d_y);
    const auto loss = [&] { return SumOfProducts(layer.Forward(x), d_y); };
    ExpectGradient("x", x, d_x, loss);
    // A bias of the keys moves all scores of a row alike, and so nothing.
    for (const auto& [name, parameter] : parameters) {
      if (name == "W_key.bias") {
        EXPECT_LT(LargestOf(parameter->grad), 1e-12);
      } else {
        ExpectGradient(name, parameter->value, parameter->grad, loss);
      }
    }
  }
}

struct Case {
  std::string name;
  MultiheadAttention layer;
  std::int64_t q_len = 0, kv_len = 0;  // equal: self-attention where the widths are
};

// Everything that has a word in the gradients, combined so that a swapped axis or head changes a number.
std::vector<Case> Cases(const Tensor& slopes, const Tensor& sinks, const Tensor& offsets) {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const MultiheadAttention::Shape& shape, std::int64_t q_len, std::int64_t kv_len) {
    MultiheadAttention::Shape wide = shape;
    wide.dtype = DType::kF64;
    cases.push_back({name, MultiheadAttention(wide), q_len, kv_len});
    return &cases.back().layer;
  };
  add("causal, bias", {.embed_dim = 6, .num_heads = 3}, 5, 5)->params.causal = true;
  MultiheadAttention* grouped =
      add("grouped, rotary", {.embed_dim = 5, .num_heads = 4, .num_kv_heads = 2, .head_dim = 2, .bias = false}, 5, 5);
  grouped->rotary = Rotary{.base = 100};
  grouped->params.causal = true;
  MultiheadAttention* cross = add("cross, other widths", {.embed_dim = 4, .num_heads = 2, .key_dim = 3, .value_dim = 5}, 3, 4);
  cross->params.soft_cap = 2;
  cross->params.sinks = sinks;
  MultiheadAttention* later = add("rotary at offsets, a window", {.embed_dim = 8, .num_heads = 2, .num_kv_heads = 1}, 2, 5);
  later->rotary = Rotary{};
  later->params.causal = true;
  later->params.window_left = 2;
  later->params.q_offset = offsets;
  later->params.alibi_slopes = slopes;
  return cases;
}

TEST(MultiheadAttention, DerivesWhatItComputes) {
  const Tensor slopes = Tensor::Of<float>({2}, {0.5f, 0.25f}), sinks = Tensor::Of<float>({2}, {0.3f, -0.4f}),
               offsets = Tensor::Of<std::int64_t>({2}, {3, 1});
  for (Case& c : Cases(slopes, sinks, offsets)) {
    SCOPED_TRACE(c.name);
    MultiheadAttention& layer = c.layer;
    ParameterList parameters;
    layer.AppendParameters("", &parameters);
    FillAll(parameters, 0.4, 7);
    const bool self = c.q_len == c.kv_len;
    Tensor query = Numbers(DType::kF64, {2, c.q_len, layer.q_proj.in()}, 1);
    Tensor key = Numbers(DType::kF64, {2, c.kv_len, layer.k_proj.in()}, 2);
    Tensor value = Numbers(DType::kF64, {2, c.kv_len, layer.v_proj.in()}, 3);
    const Tensor d_y = Numbers(DType::kF64, {2, c.q_len, layer.out_proj.out()}, 4);
    const auto loss = [&] { return SumOfProducts(self ? layer.Forward(query) : layer.Forward(query, key, value), d_y); };
    MultiheadAttention::Cache cache;
    if (self) {
      layer.Forward(query, &cache);
      ExpectGradient("x", query, layer.Backward(query, cache, d_y), loss);
    } else {
      layer.Forward(query, key, value, &cache);
      const MultiheadAttention::InputGrads grads = layer.Backward(query, key, value, cache, d_y);
      ExpectGradient("query", query, grads.d_query, loss);
      ExpectGradient("key", key, grads.d_key, loss);
      ExpectGradient("value", value, grads.d_value, loss);
    }
    const bool key_bias_moves = layer.rotary || layer.params.soft_cap > 0 || layer.params.sinks;
    for (const auto& [name, parameter] : parameters) {
      if (name == "k_proj.bias" && !key_bias_moves) {
        EXPECT_LT(LargestOf(parameter->grad), 1e-12);
      } else {
        ExpectGradient(name, parameter->value, parameter->grad, loss);
      }
    }
  }
}

// With a seed a loss is a function like another; the backward run takes the seed from the cache.
TEST(Dropout, LayersDeriveWhatTheyComputeWithASeed) {
  Tensor x = Numbers(DType::kF64, {1, 5, 4}, 1);
  const Tensor d_y = Numbers(DType::kF64, {1, 5, 4}, 2);
  const auto check = [&](auto& layer, auto& cache, AttentionParams& params) {
    params.causal = true;
    params.dropout = 0.4f;
    ParameterList parameters;
    layer.AppendParameters("", &parameters);
    FillAll(parameters, 0.5, 1);
    layer.Forward(x, &cache, 77);
    const Tensor d_x = layer.Backward(x, cache, d_y);
    const auto loss = [&] { return SumOfProducts(layer.Forward(x, nullptr, 77), d_y); };
    ExpectGradient("x", x, d_x, loss);
    for (const auto& [name, parameter] : parameters) {
      if (name.find("key.bias") != std::string::npos || name.find("k_proj.bias") != std::string::npos) continue;  // 0
      ExpectGradient(name, parameter->value, parameter->grad, loss);
    }
  };
  SelfAttention single(4, 4, false, DType::kF64);
  SelfAttention::Cache single_cache;
  check(single, single_cache, single.params);
  MultiheadAttention several({.embed_dim = 4, .num_heads = 2, .dtype = DType::kF64});
  MultiheadAttention::Cache several_cache;
  check(several, several_cache, several.params);
  Block block({.embed_dim = 4, .num_heads = 2, .dtype = DType::kF64}, 4);
  Block::Cache block_cache;
  check(block, block_cache, block.attn.params);
}

TEST(Dropout, ActsInRunsWithASeedAlone) {
  MultiheadAttention plain({.embed_dim = 6, .num_heads = 3});
  ParameterList parameters;
  plain.AppendParameters("", &parameters);
  InitNormal(parameters, 0.5, 5);
  MultiheadAttention dropping = plain;
  dropping.params.dropout = 0.5f;
  dropping.params.dropout_seed = 9;
  const Tensor x = Numbers(DType::kF32, {7, 6}, 1);
  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::equal(a.As<float>(), a.As<float>() + a.num_elements(), b.As<float>());
  };
  const Tensor evaluated = plain.Forward(x);
  EXPECT_TRUE(same(evaluated, dropping.Forward(x)));
  EXPECT_TRUE(same(evaluated, plain.Forward(x, nullptr, 3)));
  const Tensor trained = dropping.Forward(x, nullptr, 3);
  EXPECT_FALSE(same(evaluated, trained));
  EXPECT_TRUE(same(trained, dropping.Forward(x, nullptr, 3)));
  EXPECT_FALSE(same(trained, dropping.Forward(x, nullptr, 4)));
  // The context is that of attention.h with the run's seed.
  MultiheadAttention::Cache cache;
  dropping.Forward(x, &cache, 3);
  const auto heads = [](const Tensor& rows) { return rows.view().Reshape({1, 7, 3, 2}).Transpose(1, 2); };
  const AttentionResult r = Attention(heads(cache.q), heads(cache.k), heads(cache.v), {.dropout = 0.5f, .dropout_seed = 3});
  EXPECT_TRUE(same(Tensor::CopyOf(r.context.view().Transpose(1, 2)), cache.context));
}

// Whatever a layer's params become after Forward, Backward derives what Forward computed.
TEST(MultiheadAttention, BackwardGoesByTheParamsOfItsForward) {
  MultiheadAttention layer({.embed_dim = 8, .num_heads = 2});
  ParameterList parameters;
  layer.AppendParameters("", &parameters);
  FillAll(parameters, 0.5, 3);
  layer.params.causal = true;
  layer.params.dropout = 0.4f;
  layer.rotary = Rotary{};
  const Tensor x = Numbers(DType::kF32, {5, 8}, 1), d_y = Numbers(DType::kF32, {5, 8}, 2);
  MultiheadAttention::Cache cache;
  layer.Forward(x, &cache, 3);
  const Tensor expected = layer.Backward(x, cache, d_y);
  layer.params = {.scale = 2.0f, .window_left = 1, .dropout = 0.1f};
  layer.rotary = Rotary{.base = 7};
  EXPECT_TRUE(SameBits(layer.Backward(x, cache, d_y), expected));
  layer.Forward(x, &cache, 3);
  EXPECT_FALSE(SameBits(layer.Backward(x, cache, d_y), expected));
}

TEST(SelfAttention, BackwardGoesByTheParamsOfItsForward) {
  SelfAttention layer(4, 3);
  ParameterList parameters;
  layer.AppendParameters("", &parameters);
  FillAll(parameters, 0.5, 3);
  layer.params.dropout = 0.4f;
  const Tensor x = Numbers(DType::kF32, {5, 4}, 1), d_y = Numbers(DType::kF32, {5, 3}, 2);
  SelfAttention::Cache cache;
  layer.Forward(x, &cache, 3);
  const Tensor expected = layer.Backward(x, cache, d_y);
  layer.params = {.causal = true};
  EXPECT_TRUE(SameBits(layer.Backward(x, cache, d_y), expected));
}

TEST(MultiheadAttention, GradientsAddUpUntilTheyAreZeroed) {
  MultiheadAttention layer({.embed_dim = 6, .num_heads = 2});
  ParameterList parameters;
  layer.AppendParameters("", &parameters);
  FillAll(parameters, 0.5, 3);
  const Tensor x = Numbers(DType::kF32, {3, 6}, 1), d_y = Numbers(DType::kF32, {3, 6}, 2);
  MultiheadAttention::Cache cache;
  layer.Forward(x, &cache);
  layer.Backward(x, cache, d_y);
  const Tensor once = layer.v_proj.weight.grad;
  layer.Backward(x, cache, d_y);
  for (std::int64_t n = 0; n < once.num_elements(); ++n)
    EXPECT_FLOAT_EQ(layer.v_proj.weight.grad.As<float>()[n], 2 * once.As<float>()[n]);
  EXPECT_GT(GradNorm(parameters), 0);
  ZeroGrads(parameters);
  EXPECT_EQ(GradNorm(parameters), 0);
}

TEST(MultiheadAttention, HasTheBitsOfASecondRunAndTakesStridedInputs) {
  MultiheadAttention layer({.embed_dim = 8, .num_heads = 4, .num_kv_heads = 2});
  layer.rotary = Rotary{};
  ParameterList parameters;
  layer.AppendParameters("", &parameters);
  InitNormal(parameters, 0.3, 5);
  const Tensor wide = Numbers(DType::kF32, {5, 2, 8}, 1);
  const TensorView strided = wide.view().Transpose(0, 1);
  const Tensor x = Tensor::CopyOf(strided), a = layer.Forward(x), b = layer.Forward(strided);
  for (std::int64_t n = 0; n < a.num_elements(); ++n) EXPECT_EQ(a.As<float>()[n], b.As<float>()[n]);
}

TEST(MultiheadAttention, RotaryDependsOnDistancesOnly) {
  MultiheadAttention layer({.embed_dim = 8, .num_heads = 2, .dtype = DType::kF64});
  ParameterList parameters;
  layer.AppendParameters("", &parameters);
  InitNormal(parameters, 0.5, 5);
  const Tensor x = Numbers(DType::kF64, {6, 8}, 1), flat = layer.Forward(x);
  layer.rotary = Rotary{};
  const Tensor turned = layer.Forward(x);
  EXPECT_GT(std::fabs(turned(5, 0) - flat(5, 0)), 1e-3);
  // The last three queries alone, at their offset, are the last three rows of the whole.
  layer.params.q_offset = 3;
  const Tensor last = layer.Forward(x.view().Slice(0, 3, 6), x, x);
  ExpectClose("rows 3 to 5", last, Tensor::CopyOf(turned.view().Slice(0, 3, 6)), 100);
}

TEST(MultiheadAttention, EveryFormatComesBack) {
  MultiheadAttention layer({.embed_dim = 6, .num_heads = 3, .num_kv_heads = 1});
  ParameterList parameters;
  layer.AppendParameters("", &parameters);
  FillAll(parameters, 0.5, 3);
  const Tensor x = Numbers(DType::kF32, {4, 6}, 1), y = layer.Forward(x);
  for (const StateFormat format : {StateFormat::kTorch, StateFormat::kSeparate, StateFormat::kGpt2}) {
    StateDict state;
    layer.SaveState(&state, "h.0.attn.", format);
    MultiheadAttention other({.embed_dim = 6, .num_heads = 3, .num_kv_heads = 1});
    other.LoadState(state, "h.0.attn.");
    const Tensor again = other.Forward(x);
    for (std::int64_t n = 0; n < y.num_elements(); ++n) EXPECT_EQ(again.As<float>()[n], y.As<float>()[n]);
  }
}

TEST(MultiheadAttention, OneMatrixHoldsInputsOfOneWidth) {
  const MultiheadAttention::Shape widths = {.embed_dim = 6, .num_heads = 3, .value_dim = 5};
  MultiheadAttention layer(widths), other(widths), same({.embed_dim = 6, .num_heads = 3});
  StateDict state;
  same.SaveState(&state, "h.", StateFormat::kTorch);
  ExpectError([&] { layer.LoadState(state, "h."); }, ErrorCode::kShapeMismatch,
              "h.in_proj_weight: one matrix for inputs of different widths; give q_proj_weight, k_proj_weight and v_proj_weight");
  ExpectError([&] { layer.SaveState(&state, "h.", StateFormat::kGpt2); }, ErrorCode::kUnsupported,
              "h.c_attn.weight: one matrix cannot hold inputs of different widths; save it as kTorch");
  state.clear();
  layer.v_proj.weight.value.MutableAs<float>()[29] = 3;
  layer.SaveState(&state, "h.", StateFormat::kTorch);
  other.LoadState(state, "h.");
  EXPECT_EQ(other.v_proj.weight.value(5, 4), 3);
}

TEST(MultiheadAttention, RefusesWhatDoesNotFit) {
  MultiheadAttention layer({.embed_dim = 6, .num_heads = 3});
  const Tensor x = Numbers(DType::kF32, {4, 6}, 1), narrow = Numbers(DType::kF32, {4, 5}, 1),
               wide = Numbers(DType::kF64, {4, 6}, 1), five = Numbers(DType::kF32, {5, 6}, 1), row = Numbers(DType::kF32, {6}, 1);
  const auto make = [](const MultiheadAttention::Shape& shape) { return MultiheadAttention(shape); };
  ExpectError([&] { make({.embed_dim = 6, .num_heads = 4}); }, ErrorCode::kInvalidArgument, "embed_dim: 6 does not divide");
  ExpectError([&] { make({.embed_dim = 6, .num_heads = 0}); }, ErrorCode::kInvalidArgument, "num_heads: 0");
  ExpectError([&] { make({.embed_dim = 6, .num_heads = 3, .num_kv_heads = 2}); }, ErrorCode::kInvalidArgument, "num_kv_heads: 2");
  ExpectError([&] { make({.num_heads = 1}); }, ErrorCode::kInvalidArgument, "of a parameter");
  ExpectError([&] { make({.embed_dim = 6, .dtype = DType::kBF16}); }, ErrorCode::kUnsupported, "dtype: bf16");
  ExpectError([&] { layer.Forward(narrow); }, ErrorCode::kShapeMismatch, "x: shape 1×4×5; give [.., 6]");
  ExpectError([&] { layer.Forward(wide); }, ErrorCode::kInvalidArgument, "x: element type f64; this layer is f32");
  ExpectError([&] { layer.Forward(row); }, ErrorCode::kShapeMismatch, "query: shape 6; give [tokens, dim]");
  ExpectError([&] { layer.Forward(x, x, five); }, ErrorCode::kShapeMismatch, "key: shape 4×6");
  MultiheadAttention::Cache cache;
  ExpectError([&] { layer.Backward(x, cache, x); }, ErrorCode::kInvalidArgument, "cache: empty");
  layer.Forward(x, &cache);
  ExpectError([&] { layer.Backward(x, cache, five); }, ErrorCode::kShapeMismatch, "d_y: shape 5×6; give 4×6");
  layer.params.causal = true;
  ExpectError([&] { layer.Forward(x, five, five); }, ErrorCode::kInvalidArgument, "q_offset");
  layer.rotary = Rotary{.base = -1};
  ExpectError([&] { layer.Forward(x); }, ErrorCode::kInvalidArgument, "rotary: base");
  layer.rotary = Rotary{};
  const Tensor lengths = Tensor::Of<std::int32_t>({1}, {4});
  layer.params.kv_lens = lengths;
  ExpectError([&] { layer.Forward(x); }, ErrorCode::kInvalidArgument, "rotary: with kv_lens and no q_offset");
  layer.params.kv_lens = {};
  layer.params.q_segments = layer.params.kv_segments = lengths;
  ExpectError([&] { layer.Forward(x); }, ErrorCode::kUnsupported, "rotary: with segments");
  MultiheadAttention odd({.embed_dim = 9, .num_heads = 3});
  odd.rotary = Rotary{};
  ExpectError([&] { odd.Forward(Numbers(DType::kF32, {2, 9}, 1)); }, ErrorCode::kInvalidArgument, "rotary: head_dim=3 is odd");
}

TEST(MultiheadAttention, WithoutSizesComputesNothing) {
  MultiheadAttention none;
  const Tensor x = Numbers(DType::kF32, {4, 6}, 1);
  const char* const message = "layer: made without sizes, so without parameters; give them first";
  ExpectError([&] { none.Forward(x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { none.Backward(x, {.q = x, .k = x, .v = x, .context = x, .lse = x}, x); }, ErrorCode::kInvalidArgument,
              message);
  none.rotary = Rotary{};
  ExpectError([&] { none.Forward(x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { SelfAttention().Forward(x); }, ErrorCode::kInvalidArgument, message);
  StateDict state;
  ExpectError([&] { none.SaveState(&state, "", StateFormat::kTorch); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { none.LoadState(state, ""); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { SelfAttention().Backward(x, {.q = x, .k = x, .v = x, .context = x, .lse = x}, x); },
              ErrorCode::kInvalidArgument, message);
  ExpectError([&] { Block().Forward(x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { Mlp().Forward(x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { Embedding().Forward(Tensor(DType::kI32, {2})); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { Embedding().Backward(Tensor(DType::kI32, {2}), x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { Linear().Backward(x, x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { LayerNorm().Forward(x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { LayerNorm().Backward(x, {}, x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { RmsNorm().Forward(x); }, ErrorCode::kInvalidArgument, message);
  ExpectError([&] { RmsNorm().Backward(x, {}, x); }, ErrorCode::kInvalidArgument, message);
}

TEST(MultiheadAttention, NumbersOfHeadsThatDoNotFitAreRefused) {
  const Tensor x = Numbers(DType::kF32, {4, 8}, 1);
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 2}, {2, 0}, {-2, -2}, {4, 3}, {3, 3}}) {
    MultiheadAttention layer({.embed_dim = 8, .num_heads = 2});
    layer.num_heads = heads;
    layer.num_kv_heads = kv_heads;
    ExpectError([&] { layer.Forward(x); }, ErrorCode::kInvalidArgument, "num_heads: " + std::to_string(heads));
  }
}

TEST(MultiheadAttention, KeysOfTorchThatItHasNotAreRefused) {
  MultiheadAttention layer({.embed_dim = 4, .num_heads = 2});
  StateDict state;
  layer.SaveState(&state, "h.", StateFormat::kTorch);
  state["h.bias_k"] = Numbers(DType::kF32, {1, 1, 4}, 1);
  ExpectError([&] { layer.LoadState(state, "h."); }, ErrorCode::kUnsupported, "h.bias_k: a key or value of torch's add_bias_kv");
}

TEST(MultiheadAttention, AStateThatDoesNotFitChangesNothing) {
  MultiheadAttention layer({.embed_dim = 4, .num_heads = 2}), other({.embed_dim = 6, .num_heads = 2}),
      bare({.embed_dim = 4, .num_heads = 2, .bias = false});
  StateDict state;
  other.SaveState(&state, "", StateFormat::kTorch);
  ExpectError([&] { layer.LoadState(state, ""); }, ErrorCode::kShapeMismatch, "in_proj_weight: shape 18×6; this layer has 12×4");
  ExpectError([&] { layer.LoadState(state, "h.0."); }, ErrorCode::kInvalidArgument, "h.0.…: no in_proj_weight");
  state.clear();
  layer.q_proj.weight.value.MutableAs<float>()[0] = 3;
  bare.SaveState(&state, "", StateFormat::kSeparate);
  ExpectError([&] { layer.LoadState(state, ""); }, ErrorCode::kInvalidArgument, "q_proj.bias: not in the state");
  EXPECT_EQ(layer.q_proj.weight.value(0, 0), 3);
  layer.SaveState(&state, "", StateFormat::kGpt2);
  state.erase("q_proj.weight");
  ExpectError([&] { bare.LoadState(state, ""); }, ErrorCode::kShapeMismatch, "c_attn.bias: in the state");
  state["c_attn.weight"] = Tensor(DType::kI32, {4, 12});
  ExpectError([&] { layer.LoadState(state, ""); }, ErrorCode::kInvalidArgument, "c_attn.weight: element type i32");
}

}  // namespace
}  // namespace regard::nn
