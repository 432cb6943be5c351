// From inputs to q, k, v: trainable weight matrices, heads, grouped heads; and back to one vector a token.
//
//     regard::Projected p = regard::Project(x, {.w_query = wq, .w_key = wk, .w_value = wv, .num_heads = 4, .num_kv_heads = 2});
//     regard::AttentionResult r = regard::Attention(p.q, p.k, p.v, {.causal = true});
//     regard::Tensor y = regard::ProjectContext(r.context, {.w_out = wo, .b_out = bo});
//
// A matrix that is left out is the identity: Project(x, {}) gives q = k = v = x, and with scale 1 that is simplified
// self-attention. Matrices are [out, in] as torch.nn.Linear stores them (y = x·wᵀ + b); transpose the view of an [in, out] one.
#pragma once

#include <cstdint>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

/// All borrowed, float types. Biases need their matrix.
struct Projections {
  TensorView w_query = {};                                        // [num_heads · head_dim, in_dim]
  TensorView w_key = {};                                          // [num_kv_heads · head_dim, in_dim]
  TensorView w_value = {};                                        // [num_kv_heads · v_dim, in_dim]
  TensorView w_out = {};                                          // [out_dim, num_heads · v_dim]
  TensorView b_query = {}, b_key = {}, b_value = {}, b_out = {};  // [out] of their matrix
  std::int64_t num_heads = 1;
  std::int64_t num_kv_heads = 0;  // 0 means num_heads
};

struct Projected {
  Tensor q;  // [batch, num_heads, tokens, head_dim]
  Tensor k;  // [batch, num_kv_heads, tokens, head_dim]
  Tensor v;  // [batch, num_kv_heads, tokens, v_dim]
};

/// `inputs` [tokens, in_dim] or [batch, tokens, in_dim]. f32 (f64 when everything is f64), by one matrix product each. Throws Error.
REGARD_API Projected Project(const TensorView& inputs, const Projections& projections);

/// Heads side by side, then w_out: context [batch, heads, tokens, v_dim] -> [batch, tokens, out_dim]. Throws Error.
REGARD_API Tensor ProjectContext(const TensorView& context, const Projections& projections);

}  // namespace regard
