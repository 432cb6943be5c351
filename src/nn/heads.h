// Attention between projections: heads that lie side by side in rows, forward and backward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "regard/attention.h"
#include "regard/tensor.h"

namespace regard::nn {

/// [tokens, dim] or [batch, tokens, dim]. Error for other ranks.
struct Tokens {
  std::int64_t batch = 1, tokens = 0, dim = 0;
};
Tokens TokensOf(const char* name, const TensorView& x);

/// Rank 2 as a batch of one, and a result of that in the rank of `x`.
TensorView WithBatch(const TensorView& x);
Tensor LikeInput(Tensor y, const TensorView& x);

/// A tensor of batch · tokens rows of `heads` vectors side by side, as attention reads it: [batch, heads, tokens, dim]. No copy.
TensorView HeadsFirst(const Tensor& rows, const Tokens& of, std::int64_t heads);
MutableTensorView MutableHeadsFirst(Tensor& rows, const Tokens& of, std::int64_t heads);

struct HeadsResult {
  Tensor context;  // [batch, q_len, heads · v_dim]
  Tensor lse;      // [batch, heads, q_len]
};
struct HeadsGrads {
  Tensor d_q, d_k, d_v;  // shaped like q, k and v
};

/// A layer's params in one run: dropout with the run's seed, or none without one.
AttentionParams ParamsOfRun(AttentionParams params, std::optional<std::uint64_t> dropout_seed);

/// q [batch, q_len, heads · head_dim]; k, v [batch, kv_len, kv_heads · dim]; f32, or f64, for which the reference path is taken.
HeadsResult AttendHeads(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t heads, std::int64_t kv_heads,
                        const AttentionParams& params, const ExecOptions& exec);
HeadsGrads AttendHeadsBackward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& context, const Tensor& lse,
                               const Tensor& d_context, std::int64_t heads, std::int64_t kv_heads, const AttentionParams& params,
                               const ExecOptions& exec);

}  // namespace regard::nn
