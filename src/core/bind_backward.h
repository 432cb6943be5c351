// The checks of a backward run: Bind for what its forward run read, and the same for what comes on top.
#pragma once

#include "core/problem.h"
#include "regard/backward.h"
#include "regard/error.h"

namespace regard::internal {

/// Beside the Problem: what the forward run gave, and where the gradients go. data is null for what is not wanted.
struct Gradients {
  View4 context;    // [batch, heads, q_len, v_dim]
  View4 lse;        // [batch, heads, q_len, 1]
  View4 d_context;  // [batch, heads, q_len, v_dim]

  MutableView4 d_q;                 // [batch, heads, q_len, head_dim]
  MutableView4 d_k;                 // [batch, kv_heads, kv_len, head_dim]
  MutableView4 d_v;                 // [batch, kv_heads, kv_len, v_dim]
  MutableView4 d_bias;              // [batch, heads, q_len, kv_len] with stride 0 where the bias is broadcast
  std::int64_t d_bias_dim[4] = {};  // the length of each of its axes: 1 where broadcast
  MutableView4 d_alibi_slopes;      // [1, heads, 1, 1]
  MutableView4 d_sinks;             // [1, heads, 1, 1]
};

/// `scale` is the one in force. Allocates nothing.
Status BindBackward(const PlanShape& capacity, const AttentionParams& params, float scale, const BackwardInputs& inputs,
                    const BackwardOutputs& outputs, Problem* problem, Gradients* gradients) noexcept;

}  // namespace regard::internal
