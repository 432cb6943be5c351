// Layers that learn: attention with its projections, and what a small transformer needs besides. Part of regard::regard.
//
//     regard::nn::MultiheadAttention attention({.embed_dim = 64, .num_heads = 4});
//     attention.params.causal = true;
//     attention.LoadState(state, "layers.0.self_attn.");            // PyTorch's names and shapes, or regard::nn::InitNormal
//     regard::nn::MultiheadAttention::Cache cache;
//     regard::Tensor y = attention.Forward(x, &cache);               // x, y [batch, tokens, embed_dim]
//     regard::Tensor d_x = attention.Backward(x, cache, d_y);        // adds to every parameter's grad
//     optimizer.Step(parameters);                                    // AdamW; then ZeroGrads(parameters)
//
// There is no graph and no tape: a layer is a struct of parameters with Forward and Backward, and whoever writes a model calls the second
// in the reverse order of the first. Forward fills a cache when one is given, and Backward wants that cache and the same inputs; it returns
// the gradient by the inputs and *adds* to the gradients of the parameters, so that one parameter may be used twice and batches may be cut.
//
// Activations are contiguous or are copied; [tokens, dim] stands for a batch of one. Everything is f32, or everything f64: a layer has the
// element type it was made with, and f64 is for checks, with attention from the reference path. Its scale is f32 even then: unless that is a
// power of two, agreement with other programs in f64 ends at some 1e-8. Matrix products go through CBLAS, attention through the fused path,
// both ways; row by row work uses OpenMP's threads. The same inputs, number of threads and BLAS give the same bits.
//
// Params are read by Forward, and the cache carries them to Backward, whatever becomes of the layer's meanwhile; the tensors that they borrow
// must live until then.
//
// Dropout of attention weights is a matter of training: a layer's params.dropout acts in those forward runs alone that are given a seed, and
// in their backward runs. Forward(x) is evaluation. Each step and each layer takes a seed of its own, such as
// step · layers + layer: the same seed drops the same weights.
//
//     attention.params.dropout = 0.1f;
//     regard::Tensor y = attention.Forward(x, &cache, /*dropout_seed=*/step);
//
// Files stay outside: a layer loads from and saves to a StateDict, which regard::io::ReadTensors and WriteSafetensors carry to files.
// Functions throw Error when shapes or types do not fit. Distinct layers may be used by distinct threads, one layer by one at a time; Forward
// alone by any number.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::nn {

// -------------------------------------------------------------------------------------------------------- parameters

/// Tensors by name, as torch.nn.Module.state_dict has them.
using StateDict = std::map<std::string, Tensor>;

struct Parameter {
  Tensor value = {};  // not given: the layer does without, such as a Linear without bias
  Tensor grad = {};   // shaped like value, zero at first
};

struct NamedParameter {
  std::string name;
  Parameter* parameter = nullptr;  // borrowed from its layer, which must not move meanwhile
};

/// In a fixed order, with the names that a state dict has for them.
using ParameterList = std::vector<NamedParameter>;

REGARD_API void ZeroGrads(const ParameterList& parameters);
/// √Σ grad², over all of them: where it jumps, training is in trouble.
REGARD_API double GradNorm(const ParameterList& parameters);
/// Matrices get independent numbers from N(0, std²), the same for a seed and a list of shapes on every machine (up to the C library's log and
/// cos); what has one axis keeps its value: 0 for biases, 1 for the weights of norms.
REGARD_API void InitNormal(const ParameterList& parameters, double std, std::uint64_t seed);
/// Copies of the values, by name.
REGARD_API StateDict StateOf(const ParameterList& parameters);
/// The inverse: every parameter must be in the state, in its shape; other entries are not looked at.
REGARD_API void LoadState(const StateDict& state, const ParameterList& parameters);

// ------------------------------------------------------------------------------------------------------------ Linear

/// How a matrix lies in a state dict: torch.nn.Linear stores [out, in], GPT-2's Conv1D [in, out].
enum class MatrixOrder : std::uint8_t { kOutIn, kInOut };

/// y = x · weightᵀ + bias.
struct REGARD_API Linear {
  Parameter weight = {};  // [out, in]
  Parameter bias = {};    // [out], or not given

  Linear() = default;
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true, DType dtype = DType::kF32);  // zeros

  std::int64_t in() const { return weight.value.dim(1); }
  std::int64_t out() const { return weight.value.dim(0); }

  Tensor Forward(const TensorView& x) const;                    // [.., in] -> [.., out]
  Tensor Backward(const TensorView& x, const TensorView& d_y);  // d_x

  /// "<name>.weight" and, if there is one, "<name>.bias".
  void LoadState(const StateDict& state, const std::string& name, MatrixOrder order = MatrixOrder::kOutIn);
  void SaveState(StateDict* state, const std::string& name, MatrixOrder order = MatrixOrder::kOutIn) const;
  void AppendParameters(const std::string& name, ParameterList* list);
};

// --------------------------------------------------------------------------------------------------------- attention

/// The course's single head: q, k and v are three matrices times the inputs, the result is context = softmax(q·kᵀ/√head_dim)·v, and
/// nothing comes after it.
struct REGARD_API SelfAttention {
  Linear w_query, w_key, w_value;  // [head_dim, in_dim], [head_dim, in_dim], [v_dim, in_dim]
  AttentionParams params = {};     // causal, scale, …; dropout for runs with a seed, of which dropout_seed here is none
  ExecOptions exec = {};

  struct Cache {
    Tensor q, k, v, context, lse;
    AttentionParams params = {};  // of the run, dropout_seed included
  };

  SelfAttention() = default;
  SelfAttention(std::int64_t in_dim, std::int64_t head_dim, bool bias = false, DType dtype = DType::kF32);

  /// [.., tokens, in_dim] -> [.., tokens, v_dim]
  Tensor Forward(const TensorView& x, Cache* cache = nullptr, std::optional<std::uint64_t> dropout_seed = {}) const;
  Tensor Backward(const TensorView& x, const Cache& cache, const TensorView& d_y);  // d_x

  /// "<prefix>W_query.weight" and so on, as the course names them.
  void LoadState(const StateDict& state, const std::string& prefix);
  void SaveState(StateDict* state, const std::string& prefix) const;
  void AppendParameters(const std::string& prefix, ParameterList* list);
};

/// Rotary positions (Su et al. 2021), in halves as LLaMA's and GPT-NeoX's files expect them: dims d and d + head_dim/2 of q and k turn by
/// the angle position · base^(−2d/head_dim). Key j stands at j, query i at i + q_offset, which is 0
/// unless stated, and must be stated with kv_lens.
struct Rotary {
  double base = 10000;
};

/// Names under which projections lie in a state dict, after a prefix.
enum class StateFormat : std::uint8_t {
  kTorch,  // in_proj_weight [3·embed, embed] (or q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias, out_proj.weight, out_proj.bias
  kSeparate,  // q_proj.weight, k_proj.weight, v_proj.weight [out, in], out_proj.weight (o_proj is read too), their .bias
  kGpt2,      // c_attn.weight [embed, 3·embed], c_attn.bias, c_proj.weight [embed, embed], c_proj.bias: [in, out]
};

/// torch.nn.MultiheadAttention with batch_first, and grouped heads and rotary positions besides.
struct REGARD_API MultiheadAttention {
  struct Shape {
    std::int64_t embed_dim = 0;     // of the queries' inputs and of the result
    std::int64_t num_heads = 1;     // of queries
    std::int64_t num_kv_heads = 0;  // 0 means num_heads; else a divisor of it
    std::int64_t head_dim = 0;      // 0 means embed_dim / num_heads
    std::int64_t key_dim = 0;       // of the keys' inputs (torch's kdim); 0 means embed_dim
    std::int64_t value_dim = 0;     // of the values' inputs (torch's vdim); 0 means embed_dim
    bool bias = true;
    DType dtype = DType::kF32;
  };

  std::int64_t num_heads = 1, num_kv_heads = 1;
  Linear q_proj, k_proj, v_proj;  // [heads · head_dim, in], heads of k and v: num_kv_heads
  Linear out_proj;                // [embed_dim, num_heads · head_dim]
  /// causal, windows, masks, … as in attention.h. Tensors are borrowed and get no gradient. dropout acts in runs that are given a seed;
  /// dropout_seed here is none.
  AttentionParams params = {};
  std::optional<Rotary> rotary = {};  // head_dim must be even; not with segments, whose positions restart
  ExecOptions exec = {};

  /// What the forward run leaves for the backward run, [batch, tokens, heads · head_dim]; q and k as attention reads them, turned.
  struct Cache {
    Tensor q, k, v, context;
    Tensor lse;                         // [batch, heads, q_len]
    AttentionParams params = {};        // of the run, dropout_seed included
    std::optional<Rotary> rotary = {};  // likewise
  };
  struct InputGrads {
    Tensor d_query, d_key, d_value;
  };

  MultiheadAttention() = default;
  explicit MultiheadAttention(const Shape& shape);  // zeros

  /// Self-attention: [.., tokens, embed_dim] -> the same shape.
  Tensor Forward(const TensorView& x, Cache* cache = nullptr, std::optional<std::uint64_t> dropout_seed = {}) const {
    return Forward(x, x, x, cache, dropout_seed);
  }
  /// Cross-attention: query [.., q_len, embed_dim], key [.., kv_len, key_dim], value [.., kv_len, value_dim] -> [.., q_len, embed_dim].
  Tensor Forward(const TensorView& query, const TensorView& key, const TensorView& value, Cache* cache = nullptr,
                 std::optional<std::uint64_t> dropout_seed = {}) const;

  Tensor Backward(const TensorView& x, const Cache& cache, const TensorView& d_y);
  InputGrads Backward(const TensorView& query, const TensorView& key, const TensorView& value, const Cache& cache,
                      const TensorView& d_y);

  /// Any of the formats, told by its names; `prefix` such as "h.0.attn.". A state without biases fits a layer without them only.
  void LoadState(const StateDict& state, const std::string& prefix);
  void SaveState(StateDict* state, const std::string& prefix, StateFormat format) const;
  /// As in StateFormat::kSeparate.
  void AppendParameters(const std::string& prefix, ParameterList* list);
};

// ---------------------------------------------------------------------------------------------- the rest of a transformer

/// y = (x − mean) / √(variance + epsilon) · weight + bias, over the last axis; the variance is the biased one. epsilon is finite, 0 or more.
struct REGARD_API LayerNorm {
  Parameter weight = {}, bias = {};  // [dim]: ones, zeros
  double epsilon = 1e-5;

  struct Cache {
    Tensor mean, inverse_std;  // f64 [rows]
  };

  LayerNorm() = default;
  explicit LayerNorm(std::int64_t dim, DType dtype = DType::kF32);

  Tensor Forward(const TensorView& x, Cache* cache = nullptr) const;
  Tensor Backward(const TensorView& x, const Cache& cache, const TensorView& d_y);
  void AppendParameters(const std::string& name, ParameterList* list);
};

/// y = x / √(mean of x² + epsilon) · weight, over the last axis: what LLaMA's blocks have in place of a LayerNorm.
/// torch.nn.RMSNorm(dim, eps=1e-5); without eps that takes the element type's own, 1.2e-7 for f32. epsilon is finite, 0 or more.
struct REGARD_API RmsNorm {
  Parameter weight = {};  // [dim]: ones
  double epsilon = 1e-5;

  struct Cache {
    Tensor inverse_rms;  // f64 [rows]
  };

  RmsNorm() = default;
  explicit RmsNorm(std::int64_t dim, DType dtype = DType::kF32);

  Tensor Forward(const TensorView& x, Cache* cache = nullptr) const;
  Tensor Backward(const TensorView& x, const Cache& cache, const TensorView& d_y);
  void AppendParameters(const std::string& name, ParameterList* list);
};

/// c_proj(gelu(c_fc(x))), the gelu by tanh as GPT-2 has it: x/2 · (1 + tanh(√(2/π)(x + 0.044715 x³))).
struct REGARD_API Mlp {
  Linear c_fc, c_proj;

  struct Cache {
    Tensor hidden, tanh, activated;  // [.., hidden_dim]: before the gelu, its tanh, after it
  };

  Mlp() = default;
  Mlp(std::int64_t dim, std::int64_t hidden_dim, DType dtype = DType::kF32);

  Tensor Forward(const TensorView& x, Cache* cache = nullptr) const;
  Tensor Backward(const TensorView& x, const Cache& cache, const TensorView& d_y);
  /// "<prefix>fc.weight", …: not GPT-2's names, whose matrices lie the other way round.
  void AppendParameters(const std::string& prefix, ParameterList* list);
};

/// GPT-2's block: x + attn(ln_1(x)), and to that + mlp(ln_2(·)).
struct REGARD_API Block {
  LayerNorm ln_1;
  MultiheadAttention attn;
  LayerNorm ln_2;
  Mlp mlp;

  struct Cache {
    LayerNorm::Cache ln_1, ln_2;
    MultiheadAttention::Cache attn;
    Mlp::Cache mlp;
    Tensor normed_1, after_attn, normed_2;
  };

  Block() = default;
  Block(const MultiheadAttention::Shape& shape, std::int64_t hidden_dim);

  /// dropout_seed: of attn; there is no other dropout.
  Tensor Forward(const TensorView& x, Cache* cache = nullptr, std::optional<std::uint64_t> dropout_seed = {}) const;
  Tensor Backward(const TensorView& x, const Cache& cache, const TensorView& d_y);
  /// GPT-2's: "<prefix>ln_1.weight", "<prefix>attn.c_attn.weight", …, matrices [in, out].
  void LoadState(const StateDict& state, const std::string& prefix);
  void SaveState(StateDict* state, const std::string& prefix) const;
  /// By the names of the layers, [out, in]; StateOf and nn::LoadState go by these.
  void AppendParameters(const std::string& prefix, ParameterList* list);
};

/// A row of a table for each index.
struct REGARD_API Embedding {
  Parameter weight = {};  // [count, dim]

  Embedding() = default;
  Embedding(std::int64_t count, std::int64_t dim, DType dtype = DType::kF32);  // zeros

  /// indices i32 [..], 0 ≤ index < count -> [.., dim].
  Tensor Forward(const TensorView& indices) const;
  void Backward(const TensorView& indices, const TensorView& d_y);
  void AppendParameters(const std::string& name, ParameterList* list);
};

/// The mean over rows of −ln softmax(logits)[target], in nats: logits [.., classes], targets i32 [..]. Fills d_logits, its gradient in the shape
/// of logits, when that is given.
REGARD_API double CrossEntropy(const TensorView& logits, const TensorView& targets, Tensor* d_logits = nullptr);

/// Loshchilov and Hutter 2019, with both moments corrected for their start. Decay applies to what has two axes or more.
///     value −= learning_rate · (m̂ / (√v̂ + epsilon) + weight_decay · value)
struct REGARD_API AdamW {
  double learning_rate = 1e-3, beta_1 = 0.9, beta_2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  std::int64_t steps = 0;                       // done so far
  std::map<std::string, Tensor> first, second;  // moments by the parameter's name, made when first needed

  /// One update from the grads, each times `grad_scale` first (clipping to a norm c: min(1, c / GradNorm)).
  void Step(const ParameterList& parameters, double grad_scale = 1);
};

}  // namespace regard::nn
