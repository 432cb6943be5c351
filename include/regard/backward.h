// The gradients of attention: what a loss's gradient by the context says about q, k, v and the tensors of the options.
//
//     regard::AttentionResult r = regard::Attention(q, k, v, params);
//     …                                                            // d_context, the gradient of some loss L by r.context
//     regard::AttentionGrads g = regard::AttentionBackward(q, k, v, r.context, r.lse, d_context, params);
//     g.d_q   // like q; g.d_k, g.d_v like k and v
//
// With i for the query, j for the key and weights = exp(masked_scores − lse), which are computed again and never stored:
//
//     delta_i    = Σ over v_dim of d_context_i · context_i
//     d_masked   = weights · (d_context_i · v_j − delta_i)           0 where key j is not visible to query i
//     d_scores   = d_masked · (1 − (capped / soft_cap)²)             d_masked without a soft cap
//     d_q_i      = scale · Σ_j d_scores · k_j
//     d_k_j      = scale · Σ_i d_scores · q_i                        over the queries of all heads that read the kv head
//     d_v_j      = Σ_i weights · d_context_i                         likewise
//     d_bias     = d_masked, summed over the axes along which the bias is broadcast
//     d_alibi_slopes_h = −Σ_{b,i,j} d_masked · |p − j|
//     d_sinks_h  = −Σ_{b,i} exp(sink_h − lse_i) · delta_i
//
// With dropout, whose multipliers (0 or 1/(1 − p), regard::DropoutMask) are those of the forward run when the params and the seed are,
//
//     context    = Σ_j multiplier · weights · v_j, so that delta_i = Σ_j weights · multiplier · (d_context_i · v_j) still
//     d_masked   = weights · (multiplier · (d_context_i · v_j) − delta_i)
//     d_v_j      = Σ_i multiplier · weights · d_context_i
//
// and everything else is as above: the softmax is derived as it is without dropout, from a gradient by its weights of multiplier times
// (d_context_i · v_j).
//
// Empty rows have gradient 0 and add nothing to others. What is not visible never influences a gradient, whatever it holds, and neither
// does the d_context of an empty row. Gradients that a visible NaN or infinity reaches, or a row whose lse is NaN, are unspecified.
//
// k and v may be a part of the keys that the forward run saw, with its context and lse: such parts have their own d_k and d_v, and d_q is
// the sum of theirs, as in ring attention.
//
// Arithmetic is f32 with f32 sums whatever the element types (the reference path: f64; d_bias, d_alibi_slopes and d_sinks are summed in
// f64), rounded once into the result's type. Bits never depend on threads or on batch companions (staged has its BLAS' bits), and d_q, d_k
// and d_v of a segment are those that it has in a call of its own. The context is used as it is given: one stored in 16 bits has its
// rounding in delta, and so in all gradients but d_v; it counts most where terms nearly cancel (d_bias, d_alibi_slopes). So has one whose
// weights were rounded, as those of a forward run on AVX3_BF16 are where q, k and v are bf16: run it with ExecOptions::isa "AVX3" and an
// f32 context where gradients have to be as good as f32. Keys and values may lie in a KvCache (Inputs::cache); d_k and d_v then have an
// axis of kept keys, in order.
//
// Cost: 10 · head_dim flop for each visible pair where the forward pass has 4, and about 2.5 times its time; d_bias and d_alibi_slopes
// together or alone half as much again. Memory is O(tokens): 32 bytes a query, with segments up to 72 a query and key more; for each
// thread 2 MB and 4 · (head_dim + v_dim) bytes a key; those once more for each kv head where a sequence has so few of them that its heads
// are shared between tasks; a copy of q if it is f64 or has no unit stride along dim. No weights are stored. A bias with q_len × kv_len
// numbers itself has a d_bias of that size, too.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "regard/attention.h"
#include "regard/error.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

/// What one run reads.
struct BackwardInputs {
  Inputs forward = {};        // as in the run whose gradients are wanted
  TensorView context = {};    // [batch, heads, q_len, v_dim], what that run gave; any float type and strides, as the next two
  TensorView lse = {};        // [batch, heads, q_len], natural log, likewise
  TensorView d_context = {};  // [batch, heads, q_len, v_dim], the gradient of the loss by the context
};

/// What one run writes; leave out what is not wanted. Any float type, rounded to once; an output that overlaps an input or another
/// output is an error, as it is for Outputs.
struct BackwardOutputs {
  MutableTensorView d_q = {};             // [batch, heads, q_len, head_dim]
  MutableTensorView d_k = {};             // [batch, kv_heads, kv_len, head_dim]
  MutableTensorView d_v = {};             // [batch, kv_heads, kv_len, v_dim]
  MutableTensorView d_bias = {};          // the shape of the run's bias
  MutableTensorView d_alibi_slopes = {};  // [heads]
  MutableTensorView d_sinks = {};         // [heads]
};

/// Plan for gradients: validated once, immutable, shareable between threads, and its Run allocates nothing. It is a class of its own
/// since it needs another workspace than the forward run, which those who only infer should not pay for.
///     regard::BackwardPlan plan(regard::PlanShape::Of(q, k, v), params);
///     regard::Workspace workspace = plan.MakeWorkspace();
///     plan.Run({{q, k, v}, r.context, r.lse, d_context}, {.d_q = …, .d_k = …, .d_v = …}, workspace).ThrowIfFailed();
class REGARD_API BackwardPlan {
 public:
  /// As Plan's. Throws Error.
  BackwardPlan(const PlanShape& shape, const AttentionParams& params, const ExecOptions& exec = {});
  BackwardPlan(const BackwardPlan&) = default;
  BackwardPlan& operator=(const BackwardPlan&) = default;
  BackwardPlan(BackwardPlan&&) noexcept = default;
  BackwardPlan& operator=(BackwardPlan&&) noexcept = default;
  ~BackwardPlan();

  /// Scratch that Run needs for any problem within the capacity, in bytes.
  std::size_t WorkspaceBytes() const noexcept;
  Workspace MakeWorkspace() const { return Workspace(WorkspaceBytes()); }

  /// Computes. Checks what can change from run to run, as Plan::Run does, then runs. Allocates nothing. Any number of threads may run one
  /// plan at a time, each with its own workspace.
  Status Run(const BackwardInputs& inputs, const BackwardOutputs& outputs, Workspace& workspace) const noexcept;

  const PlanShape& shape() const noexcept;
  const AttentionParams& params() const noexcept;
  const ExecOptions& exec() const noexcept;
  float scale() const noexcept;  // the one in force
  int threads() const noexcept;  // the number in force

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Gradients that are computed on request only.
struct ExtraGrads {
  bool d_bias = false;
  bool d_alibi_slopes = false;
  bool d_sinks = false;
};

/// Each has the shape and the element type of what it is the gradient of; those not asked for are not given.
struct AttentionGrads {
  Tensor d_q = {}, d_k = {}, d_v = {};
  Tensor d_bias = {}, d_alibi_slopes = {}, d_sinks = {};
};

/// The gradients in one call, with `context` and `lse` as Attention gave them for the same q, k, v and params. Throws Error.
REGARD_API AttentionGrads AttentionBackward(const TensorView& q, const TensorView& k, const TensorView& v,
                                            const TensorView& context, const TensorView& lse, const TensorView& d_context,
                                            const AttentionParams& params = {}, const ExecOptions& exec = {},
                                            const ExtraGrads& extra = {});

/// The same over cached keys (kv_cache.h): d_k and d_v [sequences, kv_heads, keys, dim] with the rows that are left of the longest sequence,
/// zeros behind a shorter one's own, in the cache's element types, f32 for i8. A gradient by an i8 row is one by the number it stands for.
REGARD_API AttentionGrads AttentionBackward(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                                            const TensorView& context, const TensorView& lse, const TensorView& d_context,
                                            const AttentionParams& params = {}, const ExecOptions& exec = {},
                                            const ExtraGrads& extra = {});

}  // namespace regard
