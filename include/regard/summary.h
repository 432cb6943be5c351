// The attention weights at any length: what people want to know from them, without ever holding q_len × kv_len numbers.
//
//     regard::Summary s = regard::Summarize(q, k, v, {.causal = true}, {.entropy = true, .top_k = 8, .key_mass = true});
//     s.entropy        // [batch, heads, q_len], nats
//     s.topk_index     // [batch, heads, q_len, 8], i64, the keys each query attends to most
//     s.key_mass       // [batch, heads, kv_len], attention received
//     s.context        // the same bits as Attention(q, k, v, params).context
//
// w stands for a weight, p for the query's position and j for the key's. Rows are queries. An empty row has weights 0 everywhere: its
// entropy, shares and tail are 0; what is not defined for it is NaN (an index: −1). A row that sees keys, but only with scores of −inf, is not
// empty, though its weights are 0 as well: means over non-empty queries count it. A row whose lse is NaN has NaN in everything, and indices −1.
// With a sink the weights of a row sum to 1 − sink share, and summaries speak of the keys alone. Everything is f32 unless said otherwise, and
// has the axes of the results of Attention: without batch and heads when q has rank 2. Dropout is in the context, not in w.
//
// Bits depend neither on threads, nor on what else is asked for, nor on which heads are. What is said of the queries and keys of a segment
// has the bits of a call of its own; pooled maps and kinds of heads are of a whole batch entry. The path is fused; kStaged and kReference are
// errors, since they hold the weights anyway.
//
// Cost. Most of what is said of queries is taken in the first pass, beside the context; what needs every row's final lse costs a second
// pass over q and k (no v), half of the first. Over the context alone, one core with AVX-512, head_dim 64, at 512 / 2,048 / 8,192 tokens:
// entropy, top 8 and row_max 1.23 / 1.11 / 1.07; entropy, top 8, key_mass and pooled 1.81 / 1.64 / 1.59; at 2,048 key_top_k = 8 3.1 and
// an empty visitor 1.51. Entropy or first_key_share alone cost 2 %. `regard bench --case summaries` measures it.
//
// For anything else write a TileVisitor: it sees every tile of weights once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

struct SummaryOptions {
  // One number a query, [batch, heads, q_len]. From the first pass but for distance and window_share.
  bool row_max = false;          // the largest masked score; −inf where none is above it
  bool row_argmax = false;       // its key, i64; ties go to the lower key; −1 for an empty row
  bool entropy = false;          // −Σ w ln w, nats, within [0, ln n] for n visible keys (ln(n+1) with a sink)
  int top_k = 0;                 // this many largest weights a query, by score: topk_index, topk_weight, topk_tail
  bool distance = false;         // mean and standard deviation of p − j under weights/Σ weights; NaN where all are 0
  bool first_key_share = false;  // the weight of key 0; in packed sequences of the segment's first key
  std::optional<std::int64_t> window_share = {};  // the weight of the keys with |p − j| ≤ this

  // One number a key, [batch, heads, kv_len], from the second pass.
  bool key_mass = false;       // Σ over queries of w: attention received
  bool key_mass_mean = false;  // the same divided by the number of queries that may see the key; NaN where none may
  int key_top_k = 0;           // the queries that attend to the key most, with weights above 0: key_topk_index, key_topk_weight

  // A picture of the weights, [batch, heads, R, C], from the second pass. Row bin r holds queries ⌊r·q_len/R⌋ … ⌊(r+1)·q_len/R⌋−1, columns
  // alike, R = min(pooled_rows, q_len).
  std::int64_t pooled_rows = 0, pooled_cols = 0;  // both or neither
  bool pooled_max = false;                        // moreover the largest weight of each bin

  /// What each head does, measured: see HeadKind. Turns on what it needs.
  bool head_kind = false;

  /// Which to look at; empty means all. Others cost nothing, and results have the chosen ones only, in this order.
  std::vector<std::int64_t> heads = {};
  std::vector<std::int64_t> batch = {};
};

/// A head is the first of these whose share, the mean over non-empty queries of the weight that shows it, reaches one half; kUniform must
/// reach 0.9. In a short text even weights are local, too: kUniform goes before every other whose share is clearly, by 0.001, less. The
/// score is that share; of a mixed head it is the largest of the shares of weight, NaN when every query is empty or one has NaN weights.
/// Where the rules of position let no query see a key further than 8 away, as in a text of nine tokens, all weight is local: neither kLocal
/// nor kDiagonalBand says anything there, and neither is told.
enum class HeadKind : std::uint8_t {
  kPreviousToken,  // weight on p − 1
  kSelf,           // weight on p
  kFirstToken,     // weight on the first key
  kLocal,          // weight within |p − j| ≤ 8
  kDiagonalBand,   // weight within 2 of a fixed distance other than 0 and 1
  kUniform,        // entropy divided by ln n; 1 where n = 1. A head that picks one key in ten still has 0.7
  kMixed,          // none of these; with a score of NaN, unknown
};
/// "previous-token", "self", "first-token", "local", "diagonal-band", "uniform", "mixed".
REGARD_API const char* Name(HeadKind kind) noexcept;

struct Summary {
  Tensor context, lse;
  std::int64_t empty_rows = 0;

  Tensor row_max, row_argmax, entropy;
  Tensor topk_index, topk_weight;  // [batch, heads, q_len, top_k], largest first, ties to the lower key; padded with −1 and 0
  Tensor topk_tail;                // [batch, heads, q_len], the weight of all other keys
  Tensor distance_mean, distance_std, first_key_share, window_share;
  Tensor key_mass, key_mass_mean;
  Tensor key_topk_index, key_topk_weight;  // [batch, heads, kv_len, key_top_k], ties to the lower query; padded with −1 and 0
  Tensor pooled;      // mean over the bin's non-empty queries of the weight that falls into the key bin; NaN if none
  Tensor pooled_max;  // the largest weight of one of these queries on one key of the bin; NaN if there are none
  std::vector<HeadKind> head_kind;  // batch by heads, in C order
  Tensor head_score;                // [batch, heads]
};

/// What was asked for, with the context. Memory besides the results, as long as q and k are f32 with unit stride along dim: that of
/// Attention, 48 bytes a query, and a thread's 0.5 MB + 512 · head_dim bytes, 1 MB for lists of top keys (8 bytes a key beyond 131,072), 512
/// bytes a column of the pooled map (twice with its maxima); when keys are asked about, 16 + 12 · key_top_k bytes a key, for head_kind 8 a
/// distance, for pooled 12 a bin, each once more than there are threads. Distances (distance, window_share, head_kind) need q_offset when
/// q_len ≠ kv_len, of the call or of a segment. Throws Error.
REGARD_API Summary Summarize(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionParams& params,
                             const SummaryOptions& options, const ExecOptions& exec = {});
/// The same over sequences of a cache (kv_cache.h). Keys are counted among those that each sequence kept, and what has an axis kv_len is as
/// long as the longest; distances go by position, and columns of the pooled map divide each sequence's own keys.
REGARD_API Summary Summarize(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                             const AttentionParams& params, const SummaryOptions& options, const ExecOptions& exec = {});

// ------------------------------------------------------------------------------------------------- exact weights on demand

struct WeightWindow {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::vector<std::int64_t> rows = {};  // queries; empty means all
  std::int64_t key_begin = 0;
  std::int64_t key_end = -1;  // −1 means kv_len
};

/// The weights of some queries and a range of keys, [rows, keys], from q, k and the lse that Attention gave: exp(masked_scores − lse).
/// Only these are computed. Throws Error.
REGARD_API Tensor WeightRows(const TensorView& q, const TensorView& k, const TensorView& lse, const AttentionParams& params,
                             const WeightWindow& window);
REGARD_API Tensor WeightRows(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                             const TensorView& lse, const AttentionParams& params, const WeightWindow& window);

// ------------------------------------------------------------------------------------------------------- the tile stream

/// A block of weights: data[r·query_stride + c·key_stride] is the weight that query first_query + r gives key first_key + c.
struct WeightTile {
  std::int64_t batch, head;
  std::int64_t first_query, first_key;
  std::int64_t rows, cols;
  const float* data;
  std::int64_t query_stride, key_stride;
  bool fully_visible;  // every query of the tile may see every key of it; else invisible pairs have weight 0
};

/// Sees every tile that is not all zero by the rules, once. A user's own summary derives from it:
///
///     // How much weight falls on the very next key, over everything.
///     struct NextKey : regard::TileVisitor {
///       double sum = 0;
///       std::unique_ptr<TileVisitor> Fork() const override { return std::make_unique<NextKey>(); }
///       void Visit(const regard::WeightTile& t) override {
///         for (std::int64_t r = 0; r < t.rows; ++r) {
///           const std::int64_t c = t.first_query + r + 1 - t.first_key;
///           if (c >= 0 && c < t.cols) sum += t.data[r * t.query_stride + c * t.key_stride];
///         }
///       }
///       void Merge(TileVisitor& part) override { sum += static_cast<NextKey&>(part).sum; }
///     };
///
/// Each task of the run, up to 256 queries of one head, gets a fork; forks are merged in ascending order of (batch, head, first query),
/// whatever the number of threads, so that the result does not depend on it. Fork and Merge are never called at the same time, Visit on
/// different forks is. What Visit throws, VisitWeights throws.
class REGARD_API TileVisitor {
 public:
  virtual ~TileVisitor() = default;
  /// An empty visitor of the same kind, to be used by one thread.
  virtual std::unique_ptr<TileVisitor> Fork() const = 0;
  virtual void Visit(const WeightTile& tile) = 0;
  /// Adds what a fork has seen.
  virtual void Merge(TileVisitor& part) = 0;
};

/// Streams the weights of q and k past the visitor, given the lse that Attention gave. No weight exceeds 1. A row whose lse is NaN has
/// NaN for weights. Memory: lse as f32, 32 bytes a query, with segments up to 40 a query and key more, scratch of 100 KB + 256 · head_dim
/// bytes a thread, and copies of q and k that are f64 or have no unit stride along dim. Throws Error.
REGARD_API void VisitWeights(const TensorView& q, const TensorView& k, const TensorView& lse, const AttentionParams& params,
                             TileVisitor& visitor, const ExecOptions& exec = {});
REGARD_API void VisitWeights(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences,
                             const TensorView& lse, const AttentionParams& params, TileVisitor& visitor,
                             const ExecOptions& exec = {});

}  // namespace regard
