// Room diagnose: the same problem with a mistake in it, row by row, in double precision.
//
// A Variant is the computation of one row as six steps, each of which an edit may change or replace:
//
//     operands ─► scores ─► capped ─► masked_scores ─► weights ─► context ─► where the row is written
//     (q, k, v,   (scale)   (cap)     (bias, rules,     (softmax,  (value
//      heads)                          masking)          reweigh)   product)
//
// Without edits it is the contract, and a test holds it to the reference path. A mistake is an edit (fault.h); two mistakes that
// change different steps (Slots) compose.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/problem.h"

namespace regard::internal {

struct RowId {
  std::int64_t b = 0, h = 0, i = 0;
  friend auto operator<=>(const RowId&, const RowId&) = default;
};

/// Contiguous doubles, and which kv head a query head reads.
struct Operands {
  std::int64_t kv_heads = 0, kv_len = 0, head_dim = 0, v_dim = 0;
  std::int64_t heads = 0, q_len = 0;
  std::shared_ptr<const std::vector<double>> q, k, v;  // [batch, heads, q_len, head_dim], [batch, kv_heads, kv_len, …]
  std::vector<std::int64_t> k_head, v_head;            // [heads]
  std::vector<double> q_norm, k_norm;                  // ‖row‖ of every row of q and k
  /// Dot products of rows that are asked for again and again; null: none are kept.
  std::shared_ptr<const std::map<RowId, std::vector<double>>> dots;
  void KeepDots(const std::vector<RowId>& rows);
  const std::vector<double>* FindDots(RowId row) const;

  /// Call after q and k have changed.
  void ComputeNorms();

  const double* Q(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return q->data() + ((b * heads + h) * q_len + i) * head_dim;
  }
  const double* K(std::int64_t b, std::int64_t kv_head, std::int64_t j) const {
    return k->data() + ((b * kv_heads + kv_head) * kv_len + j) * head_dim;
  }
  const double* V(std::int64_t b, std::int64_t kv_head, std::int64_t j) const {
    return v->data() + ((b * kv_heads + kv_head) * kv_len + j) * v_dim;
  }
};

/// Who may see whom: the rules of the problem, each of which a mistake may bend.
struct Rules {
  bool causal = false;
  std::int64_t causal_shift = 0;                // causal: j ≤ p + causal_shift
  std::optional<std::int64_t> absolute_offset;  // instead of every q_offset, for the causal rule and windows
  std::optional<std::int64_t> window_left, window_right;
  bool kv_lens = true, segments = true, padding_segments = true;
  bool pads_see_pads = false;  // segment −1 as a segment like any other
  enum class Mask : std::uint8_t { kAsGiven, kIgnored, kInverted } mask = Mask::kAsGiven;
  bool all_inverted = false;                    // the complement of everything above
  std::function<RowId(RowId)> mask_row;         // reads another row of the mask
  std::optional<std::int64_t> mask_row_stride;  // reads mask and bias rows this far apart instead of kv_len
  bool mask_transposed = false;                 // reads element (j, i); q_len = kv_len
  bool bias_hides = true;                       // bias −inf hides a key
};

class Evaluator;
struct Variant;

/// One row on its way. Vectors over keys have operands.kv_len entries.
struct RowState {
  RowId id;
  const Evaluator* evaluator = nullptr;
  const Variant* variant = nullptr;

  std::vector<double> dots;  // q·k
  std::vector<double> scores, capped, bias, masked, weights;
  std::vector<char> visible;   // by every rule
  std::vector<char> in_rules;  // by every rule but mask and bias
  std::int64_t num_visible = 0;
  double sink = 0;  // −inf: none
  double lse = 0;
  std::vector<double> context;      // [v_dim]
  std::vector<double> magnitude;    // [v_dim] Σ |weight·v|: what rounding errors of the context are proportional to
  std::int64_t max_dims = 1 << 30;  // only so many dimensions of the context, for a first look
  // Over visible keys whose weight is not negligible: what rounding errors of the scores are proportional to.
  double largest_dot = 0;    // |scale|·‖q‖·max ‖k‖
  double largest_score = 0;  // max |masked score|, of the sink too
};

using RowEdit = std::function<void(RowState&)>;

struct Variant {
  std::shared_ptr<const Operands> operands;
  Rules rules;
  double scale = 1;
  double soft_cap = 0;
  /// Each null unless a mistake is there. `score`, `reweigh` change what is there; the others replace their step.
  RowEdit score, cap, bias, masking, softmax, reweigh, product;
  std::function<double(const RowState&)> sink;
  std::function<RowId(RowId)> output_row;   // the row whose results were written to where those of a row belong
  std::function<RowId(RowId)> context_row;  // the same for the context alone
  /// How heads, side by side, become one vector a token; looked at when that vector was observed.
  enum class OutProjection : std::uint8_t {
    kAsGiven,
    kTransposed,
    kWithoutBias,
    kLeftOut
  } out_projection = OutProjection::kAsGiven;
  /// Called for rows that see no key, after softmax.
  RowEdit empty_row;
  /// Of this variant alone: whole heads that some mistakes need, by (batch, head).
  std::shared_ptr<std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>>> memo;
};

/// Where a token stands among the tokens of its segment.
struct TokenPlace {
  std::int64_t segment = 0, position = 0;
};

class Evaluator {
 public:
  /// The problem is copied, its tensors are converted. `weights` that are given take the place of the softmax.
  explicit Evaluator(const Problem& problem, const View4& weights = {});

  const Problem& problem() const { return problem_; }
  const Operands& operands() const { return *operands_; }
  /// The contract itself.
  Variant Unedited() const;
  /// Keeps the dot products of these rows for the variants that share them.
  void KeepDots(const std::vector<RowId>& rows) { operands_->KeepDots(rows); }

  /// Everything of one row. `state` is reused memory.
  void Evaluate(const Variant& variant, RowId row, RowState* state) const;
  /// Up to masked_scores only, without regard to output_row.
  void EvaluateMasked(const Variant& variant, RowId row, RowState* state) const;

  std::int64_t QOffset(std::int64_t b) const { return problem_.QOffset(b); }
  std::int64_t KvLen(std::int64_t b) const { return problem_.KvLen(b); }
  TokenPlace QueryPlace(std::int64_t b, std::int64_t i) const {
    return q_places_[static_cast<std::size_t>(b * problem_.q_len + i)];
  }
  /// A variant may have more keys than the problem; those have no segment of their own.
  TokenPlace KeyPlace(std::int64_t b, std::int64_t j) const {
    if (j >= problem_.kv_len) return {0, j};
    return k_places_[static_cast<std::size_t>(b * problem_.kv_len + j)];
  }
  double Slope(std::int64_t h) const;

  /// Adds bias and ALiBi to s.masked, and keeps what was added in s.bias. `element` takes the place of the bias of a key.
  using BiasElement = std::function<double(const RowState&, std::int64_t j)>;
  void AddBias(RowState& s, const BiasElement& element = nullptr) const;
  /// Element (i, j) of the bias for sequence and head of a row, 0 for keys that only a variant has; the problem has one.
  double Bias(RowId row, std::int64_t i, std::int64_t j) const;

  /// Steps as the contract has them, for edits that change their input.
  static void MaskByRules(RowState& s);  // −inf where not visible
  static void SoftmaxOverKeys(RowState& s);
  static void MultiplyByValues(RowState& s);

 private:
  void FindVisible(const Variant& variant, RowState& s) const;
  static void FindMagnitudes(RowState& s);
  bool MaskKeeps(const Variant& variant, RowId row, std::int64_t j) const;

  Problem problem_;
  View4 given_weights_;
  std::shared_ptr<Operands> operands_;
  std::vector<TokenPlace> q_places_, k_places_;
};

}  // namespace regard::internal
