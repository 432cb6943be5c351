// Exact softmax attention.
//
//     regard::AttentionResult r = regard::Attention(q, k, v, {.causal = true});
//     r.context   // [batch, heads, q_len, v_dim]
//     r.lse       // [batch, heads, q_len], natural log
//
// What is computed, for q [batch, heads, q_len, head_dim], k [batch, kv_heads, kv_len, head_dim] and
// v [batch, kv_heads, kv_len, v_dim], where query head h reads kv head h / (heads / kv_heads):
//
//     scores        = scale * q·k                           [batch, heads, q_len, kv_len]
//     capped        = soft_cap * tanh(scores / soft_cap)    when soft_cap > 0, else scores
//     masked_scores = capped + bias − alibi_slope·|p − j|   and −inf where key j is not visible to query i
//     weights       = softmax of masked_scores over keys; a sink adds exp(sink) to the denominator only
//     context       = weights · v                           with dropout (dropout ⊙ weights) · v, see AttentionParams::dropout
//     lse           = ln(Σ exp(masked_scores) [+ exp(sink)])
//
// Query i stands at position p = i + q_offset among the keys. A query that sees no key is an *empty row*: weights 0, context 0,
// lse −inf (the sink with one), and it is counted. A key or value that is not visible never influences a result, whatever it holds.
//
// Views may have any strides (BHSD and BSHD need no copy), rank 4 or rank 2 [tokens, dim]; results have the rank of q.
// For loops that call attention many times make a Plan once: Plan::Run allocates nothing. A Plan is immutable and may be
// shared between threads, each with its own Workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "regard/error.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

class KvCache;  // kv_cache.h
enum class SequenceId : std::uint64_t;

// ----------------------------------------------------------------------------------------------------------- options

/// How many keys precede query 0: not stated, one number for all sequences, or an integer tensor [batch]. May be negative.
class REGARD_API QOffset {
 public:
  QOffset() = default;
  QOffset(std::int64_t value) : value_(value) {}
  QOffset(const TensorView& per_sequence) : per_sequence_(per_sequence) {}
  QOffset(const Tensor& per_sequence) : per_sequence_(per_sequence.view()) {}

  bool is_stated() const noexcept { return value_.has_value() || static_cast<bool>(per_sequence_); }
  std::optional<std::int64_t> value() const noexcept { return value_; }
  const TensorView& per_sequence() const noexcept { return per_sequence_; }

 private:
  std::optional<std::int64_t> value_;
  TensorView per_sequence_;
};

/// The maths. Tensors are borrowed: the caller keeps them alive while a call or a Plan uses them.
struct AttentionParams {
  /// Multiplier on q·k; not set means 1/sqrt(head_dim). 0 and non-finite values are errors.
  std::optional<float> scale = {};
  /// Key j is visible only when j ≤ p.
  bool causal = false;
  /// Must be stated when causal, a window or ALiBi is used and q_len ≠ kv_len, of the call or of a segment, since the field disagrees: 0 is
  /// "top-left" (PyTorch, ONNX), kv_len − q_len is "bottom-right" (FlashAttention ≥ 2.1, FlashInfer, MLX). With kv_lens and no q_offset it
  /// is kv_lens[b] − q_len. With segments it counts the keys of the segment that precede its first query, in all of them alike.
  QOffset q_offset = {};
  /// p − j ≤ window_left: that many earlier keys besides the query's own. Not set means unlimited.
  std::optional<std::int64_t> window_left = {};
  /// j − p ≤ window_right.
  std::optional<std::int64_t> window_right = {};
  /// capped = soft_cap·tanh(scores/soft_cap); 0 is off, negative an error.
  float soft_cap = 0;

  /// bool, true = may attend; broadcast right-aligned to [batch, heads, q_len, kv_len].
  TensorView mask = {};
  /// Float, added to the capped scores; −inf means not visible; broadcast like mask.
  TensorView bias = {};
  /// i32 or i64 [batch], 0…kv_len: keys beyond are not visible.
  TensorView kv_lens = {};
  /// i32 or i64 [batch, q_len] and [batch, kv_len] (or rank 1 without the batch axis): packed sequences as contiguous runs of equal
  /// numbers; a query sees its own segment only and positions restart in each; −1 is padding, sees nothing and is seen by none. On the
  /// fused and the reference path a segment has the bits of the same text in a call of its own, wherever it lies and whatever lies beside it
  /// (not with dropout, whose mask goes by rows of q and k).
  TensorView q_segments = {};
  TensorView kv_segments = {};
  /// Float [heads], finite, at most 2¹²⁷ = 1.7·10³⁸ either way.
  TensorView alibi_slopes = {};
  /// Float [heads]: logits that enter the denominator only. −inf is "no sink"; NaN and more than 2¹²⁷ are errors.
  TensorView sinks = {};

  /// For training: each weight is dropped with this probability p, in [0, 1), and those kept are multiplied by 1/(1 − p), so that the context
  /// is (DropoutMask ⊙ weights)·v. Never on unless asked. p is rounded to a multiple of 2⁻¹⁶ (at most 1 − 2⁻¹⁶), and that one is meant here.
  /// The weights themselves, as a stage, a summary, a row or a tile, and the lse stay those of the softmax, so that rows sum to 1 and the
  /// backward run finds its weights again by exp(masked_scores − lse); PyTorch's layers return them with dropout applied. Sinks are not
  /// dropped. A key that is dropped is still visible: a NaN in its value spoils that element, 0·NaN.
  float dropout = 0;
  /// Which weights these are: the seed, the batch entry, the query head, the query's row in q and the key's row in k (in a cache: among
  /// the rows that are left) settle it for each on its own. Paths, kernels, instruction sets, threads and element types do not matter, so
  /// that the backward run has the mask of the forward run by the same seed. Another seed, another mask: training takes a new one each step
  /// and layer (Inputs::dropout_seed).
  std::uint64_t dropout_seed = 0;
};

/// Where the first batch entry, query head, query and key of a call stand in a mask of dropout: all 0 but for a call that is a part of a
/// larger one (some queries, some heads, a shard of the keys) and shall have that part of its mask. Not
/// negative, and all places below 2³²; key a multiple of 8.
struct DropoutOrigin {
  std::int64_t batch = 0, head = 0, query = 0, key = 0;
};

enum class Path : std::uint8_t {
  kFused,      // streams over keys, memory O(tokens)
  kStaged,     // whole matrices: scores by one product, softmax, context by one product
  kReference,  // the definition in double precision, one query at a time
};
REGARD_API const char* Name(Path path) noexcept;  // "fused", "staged", "reference"

/// How, never what.
struct ExecOptions {
  Path path = Path::kFused;
  /// Instruction set of the kernels by name, spelled as Targets() and `regard info` do; empty means the best this CPU has. The names are
  /// Highway's: AVX3 and what begins with it are AVX-512.
  std::string isa = {};
  /// 0 means all that OpenMP offers; 1 opens no parallel region. Results do not depend on it (staged has its BLAS' bits).
  /// It does not bind the BLAS that the staged path calls: CBLAS has no argument for it, and the settings of the process are the program's
  /// own. Where one thread must do, set the BLAS library's number to 1, as OPENBLAS_NUM_THREADS does.
  int threads = 0;
  /// Called now and then with the fraction done, from one thread at a time. Must not throw.
  std::function<void(double)> on_progress = {};
  /// When triggered, the run ends soon with ErrorCode::kCancelled; outputs are then unspecified.
  std::stop_token stop_token = {};
};

// --------------------------------------------------------------------------------------------------------------- plan

/// The largest problem a Plan will be run on. batch, q_len and kv_len are capacities; the rest is exact.
///     regard::Plan plan({.heads = 32, .kv_heads = 8, .q_len = 1, .kv_len = 4096, .head_dim = 128, .v_dim = 128}, {.causal = true});
struct PlanShape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t head_dim = 0;
  std::int64_t v_dim = 0;
  DType q_dtype = DType::kF32;
  DType k_dtype = DType::kF32;
  DType v_dtype = DType::kF32;
  /// Whether inputs may lack unit stride along dim. Such inputs are copied first; the workspace then has room for the copies.
  bool strided_dim = false;

  /// The shape of these tensors (rank 4, or rank 2 [tokens, dim]). Error if they do not fit together.
  REGARD_API static PlanShape Of(const TensorView& q, const TensorView& k, const TensorView& v);
  /// The same with keys and values in a cache: kv_len is the longest sequence's, to be raised where they grow. Error if one is not there.
  REGARD_API static PlanShape Of(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences);
};

/// What one run reads: q, and either k and v or as many sequences of a cache as q's batch. A tensor left out falls back to the one in the
/// plan's AttentionParams; a tensor given must have been given to the plan too, with the same element type, and with length 1 on the same
/// axes.
struct Inputs {
  TensorView q, k, v;
  QOffset q_offset = {};
  TensorView mask = {}, bias = {}, kv_lens = {}, q_segments = {}, kv_segments = {}, alibi_slopes = {}, sinks = {};
  const KvCache* cache = nullptr;
  std::span<const SequenceId> sequences = {};
  /// Instead of the plan's; without effect where the plan's dropout is 0.
  std::optional<std::uint64_t> dropout_seed = {};
  DropoutOrigin dropout_origin = {};

  static Inputs Of(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences) {
    Inputs inputs;
    inputs.q = q;
    inputs.cache = &cache;
    inputs.sequences = sequences;
    return inputs;
  }
};

/// What one run writes; leave out what is not wanted. Element types are the caller's choice among the float types, and are
/// rounded to once, at the end. On AVX3_BF16 the weights of a call whose q, k and v are all bf16 are rounded too, by 2⁻⁸ of each at most;
/// ExecOptions::isa "AVX3" keeps them f32. Stages are [batch, heads, q_len, kv_len] and come from the staged and reference paths only.
/// An output that overlaps an input or another one is an error, and so are strides that lead to one element twice. Ranges of bytes are
/// compared: views that interleave count as overlapping.
struct Outputs {
  MutableTensorView context = {};  // [batch, heads, q_len, v_dim]
  MutableTensorView lse = {};      // [batch, heads, q_len], natural log
  MutableTensorView scores = {}, capped = {}, masked_scores = {}, weights = {};
  std::int64_t* empty_rows = nullptr;  // how many (batch, head, query) rows saw no key
};

/// Scratch memory for runs of one plan, one at a time.
class REGARD_API Workspace {
 public:
  Workspace() = default;
  explicit Workspace(std::size_t bytes)
      : memory_(Tensor::Uninitialized(DType::kU8, {static_cast<std::int64_t>(bytes)})), size_(bytes) {}

  std::byte* data() noexcept { return static_cast<std::byte*>(memory_.mutable_view().mutable_data()); }
  std::size_t size() const noexcept { return size_; }

 private:
  Tensor memory_;
  std::size_t size_ = 0;
};

class REGARD_API Plan {
 public:
  /// Validates everything that does not depend on the data. Throws Error; kOutOfMemory when the workspace would need more than 2^48
  /// bytes.
  Plan(const PlanShape& shape, const AttentionParams& params, const ExecOptions& exec = {});
  Plan(const Plan&) = default;
  Plan& operator=(const Plan&) = default;
  Plan(Plan&&) noexcept = default;
  Plan& operator=(Plan&&) noexcept = default;
  ~Plan();

  /// Scratch that Run needs for any problem within the capacity, in bytes.
  std::size_t WorkspaceBytes() const noexcept;
  Workspace MakeWorkspace() const { return Workspace(WorkspaceBytes()); }

  /// Computes. Checks what can change from run to run (pointers, types, lengths, kv_lens, segments, sinks, slopes), then runs.
  /// Allocates nothing. Any number of threads may run one plan at a time, each with its own workspace.
  Status Run(const Inputs& inputs, const Outputs& outputs, Workspace& workspace) const noexcept;

  const PlanShape& shape() const noexcept;
  const AttentionParams& params() const noexcept;
  const ExecOptions& exec() const noexcept;
  float scale() const noexcept;  // the one in force
  int threads() const noexcept;  // the number in force
  /// What runs and why, in one line: "fused, AVX3, 2 threads, prefill kernel (q_len·group_size 2048 ≥ 16)". Each segment has the kernel
  /// that its own length asks for.
  std::string Description() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// ------------------------------------------------------------------------------------------------------ one-line calls

struct AttentionResult {
  Tensor context;  // v's element type
  Tensor lse;      // f32 (f64 from the reference path), natural log
  std::int64_t empty_rows = 0;
};

/// context and lse. Throws Error.
REGARD_API AttentionResult Attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                     const AttentionParams& params = {}, const ExecOptions& exec = {});

/// What dropout multiplies the weights of a call by, f32 of shape [batch, heads, q_len, kv_len]: 0, or 1/(1 − dropout) rounded to f32. For
/// problems small enough to hold it: calls make no such tensor. Throws Error.
///     regard::Tensor mask = regard::DropoutMask({1, 12, 128, 128}, 0.1f, seed);
REGARD_API Tensor DropoutMask(const Dims& shape, float dropout, std::uint64_t seed, const DropoutOrigin& origin = {});

/// Every checkpoint, each [batch, heads, q_len, kv_len]: for problems small enough to hold them.
struct Stages {
  Tensor scores, capped, masked_scores, weights, context, lse;
  std::int64_t empty_rows = 0;
};

/// All stages as f32 (f64 with Path::kReference). `exec.path` kFused means kStaged here, since fused holds no stage. Throws Error.
REGARD_API Stages ComputeStages(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionParams& params = {},
                                const ExecOptions& exec = {});

}  // namespace regard
