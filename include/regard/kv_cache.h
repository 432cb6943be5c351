// Keys and values of sequences that grow: appended once, attended to many times where they lie.
//
//     regard::KvCache cache({.kv_heads = 8, .head_dim = 128, .k_dtype = regard::DType::kBF16, .v_dtype = regard::DType::kBF16});
//     const regard::SequenceId text = cache.NewSequence();
//     for (each chunk of the prompt, then each token) {
//       cache.Append(text, k, v);                                                // [1, 8, tokens, 128] each
//       regard::AttentionResult r = regard::Attention(q, cache, {&text, 1}, {.causal = true});   // q [1, 32, tokens, 128]
//     }
//
// The queries of a call are the last tokens of each sequence: query i stands at position NextPosition − q_len + i, so that prefill in chunks
// and decode need no q_offset (AttentionParams::q_offset states another one). Sequences of one call may have any lengths. A loop makes a Plan
// once and runs it with Inputs{.q = q, .cache = &cache, .sequences = ids}, which allocates nothing; examples/decode_loop.cc is a whole one.
//
// **Pages.** A page holds page_len tokens of one sequence: for each kv head a run of its keys and a run of its values, so that a head's keys
// are read in sequence. Fork shares pages by reference; a shared page is copied when somebody writes to it, so sequences never see each other.
// Pages are taken from the system in blocks that lay the runs of one head side by side, and a sequence goes on behind its last page where it
// can: then it lies as if it had one run a head. A contiguous cache is one with page_len = the longest sequence.
//   A cache is one layer's. Layers are appended to at different times of a step, and may forget differently (sliding windows); a model with
// the same pages in all layers makes the same calls to each.
//
// **Positions.** The first token of a sequence stands at 0, each further one a step on. A key keeps its position for good: after Evict those
// of the others, and of the queries, are what they were, and causal, windows and ALiBi go by them. A mask, a bias, and whatever comes out with
// an axis kv_len refer to kept keys in order, kv_len being the longest of the call. kv_lens and segments are refused: a cache knows its own.
//
// **Types.** f32, f16, bf16, or i8 with a scale for each token and head, for k and v each. A number is rounded once, to nearest, ties to
// even. i8: scale is max|x|/127 of the row, rounded up, and each element within scale/2·(1 + 2⁻¹⁶) of x; a row of zeros has scale 0 and comes
// back as zeros; a row that holds a NaN or infinity comes back as NaN throughout, since no scale holds it. What a cache computes equals, bit
// for bit, the call without a cache on tensors of the same stored values (f32, f16, bf16; i8 has no tensors to compare with). The decode kernel
// of AVX3_BF16 multiplies i8 by q and weights as 16-bit integers, which adds about 10⁻⁴ to what i8 has lost already (docs/numerics.md).
//
// **Memory**, in bytes: a page is kv_heads · page_len · (row of k + row of v), where a row is dim · size of an element, for i8 dim + 4; a
// sequence holds ⌈length / page_len⌉ of them. Beside pages 16 · kv_heads bytes each, 65 KB or a 64th a block of them, and 8 bytes a token in
// sequences that forgot some.
//
// Guarantees. A call that throws has changed nothing. Caches count their sequences alike, so that the same calls give the same ids in the cache
// of each layer; an id of another cache is therefore not noticed. A cache that was moved from may be assigned to or destroyed, no
// more. Reading (Attention, Keys, …) is safe from many threads; what changes the cache must be alone. Dropping, truncating and destroying never
// throw. Throws Error: kInvalidArgument for a sequence that is not there, or twice in one
// Append; kShapeMismatch; kOutOfMemory when max_bytes or the system has no more pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

/// Names a sequence of one cache; never used again for another, nor valid when value-initialised.
enum class SequenceId : std::uint64_t {};

struct KvCacheOptions {
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;
  std::int64_t v_dim = 0;  // 0 means head_dim
  DType k_dtype = DType::kF32;
  DType v_dtype = DType::kF32;
  /// Tokens of a page, rounded up to a multiple of 16. 0 means a power of two that makes each run 64 KB or more: then jumping from page to
  /// page costs little. Smaller pages waste less on short sequences (half a page each) and may read slower.
  std::int64_t page_len = 0;
  /// Pages never take more; 0 means no limit.
  std::size_t max_bytes = 0;
};

struct KvCacheMemory {
  std::size_t page_bytes = 0;
  std::int64_t pages_in_use = 0;    // a page that sequences share counts once
  std::int64_t pages_reserved = 0;  // had from the system: in use or ready; given back by the destructor
  std::size_t bytes_in_use = 0, bytes_reserved = 0;
  std::size_t max_bytes = 0;  // 0: no limit
};

class REGARD_API KvCache {
 public:
  /// Takes no pages yet.
  explicit KvCache(const KvCacheOptions& options);
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  ~KvCache();

  SequenceId NewSequence();
  /// A sequence with the same tokens, which takes no page until one of both is written to. To share a prefix only, Truncate it.
  SequenceId Fork(SequenceId sequence);
  void Drop(SequenceId sequence);

  /// Appends the same number of tokens to each: k [sequences, kv_heads, tokens, head_dim], v [.., v_dim], any float types and strides;
  /// for one sequence with one kv head also [tokens, dim].
  void Append(std::span<const SequenceId> sequences, const TensorView& k, const TensorView& v);
  void Append(SequenceId sequence, const TensorView& k, const TensorView& v) { Append({&sequence, 1}, k, v); }

  /// Forgets all but the first `length` kept tokens, as if they had never been appended: the next one stands where the first of those
  /// forgotten stood.
  void Truncate(SequenceId sequence, std::int64_t length);
  /// Forgets kept tokens first … first + count − 1; the others keep their positions. Whole pages of tokens cost no more than one page of
  /// copying; else all rows behind move. So forget page_len tokens at a time rather than one. Needs memory only for pages that are shared.
  void Evict(SequenceId sequence, std::int64_t first, std::int64_t count);

  /// Kept tokens.
  std::int64_t Length(SequenceId sequence) const;
  /// Where the next token will stand: the number of tokens ever appended and not truncated.
  std::int64_t NextPosition(SequenceId sequence) const;
  /// Of the kept tokens, ascending.
  std::vector<std::int64_t> Positions(SequenceId sequence) const;

  /// The kept keys and values as f32, [1, kv_heads, length, head_dim] and [.., v_dim]: exact but for i8, where element · scale rounds once.
  Tensor Keys(SequenceId sequence) const;
  Tensor Values(SequenceId sequence) const;

  const KvCacheOptions& options() const noexcept;  // with v_dim and page_len in force
  KvCacheMemory Memory() const noexcept;

  struct Impl;  // src/core/kv_cache.h
  const Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Attention over cached keys, like that of attention.h: q [sequences, heads, q_len, head_dim]. context has v's stored type, f32 for i8. The
/// same sequence may stand in a call several times. Throws Error.
REGARD_API AttentionResult Attention(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                                     const AttentionParams& params = {}, const ExecOptions& exec = {});

/// Stages over cached keys; keys beyond a sequence's own have weight 0.
REGARD_API Stages ComputeStages(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                                const AttentionParams& params = {}, const ExecOptions& exec = {});

}  // namespace regard
