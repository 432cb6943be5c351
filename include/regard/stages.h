// The three stages one call each, as a course on self-attention writes them.
//
//     regard::Tensor s = regard::Scores(x, x, {.scale = 1});         // all pairs, one matrix product
//     regard::Tensor w = regard::Softmax(s, -1);                     // rows sum to 1
//     regard::Tensor c = regard::Context(w, x);                      // all context vectors at once
//     regard::Tensor c1 = regard::ContextForToken(w, x, 1);          // one token's, the slow way: equals row 1 of c
//
// Tensors have rank 2 [tokens, dim] or more; leading axes (batch, heads) must be equal in both arguments. Float types only;
// results are f64 when every argument is f64, else f32. Non-finite values propagate as arithmetic says. All throw Error.
// For masks, grouped heads and long inputs see attention.h; for trainable projections see projections.h.
#pragma once

#include <cstdint>
#include <optional>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

struct ScoreOptions {
  std::optional<float> scale = {};  // not set means 1/sqrt(dim); 0 and non-finite values are errors
};

/// scores[…, i, j] = scale · Σ_d q[…, i, d]·k[…, j, d], by one matrix product a leading index. [.., q_len, dim] × [.., kv_len, dim]
/// -> [.., q_len, kv_len].
REGARD_API Tensor Scores(const TensorView& q, const TensorView& k, const ScoreOptions& options = {});

/// The same by three nested loops, each sum in the tensor's own precision.
REGARD_API Tensor ScoresByLoops(const TensorView& q, const TensorView& k, const ScoreOptions& options = {});

/// exp(x − max) / Σ exp(x − max) along one axis; negative axes count from the end. A slice of −inf only becomes zeros.
REGARD_API Tensor Softmax(const TensorView& x, int dim);

/// context = weights · v. [.., q_len, kv_len] × [.., kv_len, v_dim] -> [.., q_len, v_dim], by one matrix product a leading index.
REGARD_API Tensor Context(const TensorView& weights, const TensorView& v);

/// The context vector of query `token`, by loops: [.., v_dim].
REGARD_API Tensor ContextForToken(const TensorView& weights, const TensorView& v, std::int64_t token);

}  // namespace regard
