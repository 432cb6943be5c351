// A bound problem as the kernels take it: queries, keys and values as they are stored, one interval of keys per query, options, query
// rows and kv heads. Made once a run and shared by everything that runs kernels on it; immutable from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/operand.h"
#include "core/problem.h"
#include "core/row_keys.h"
#include "core/scratch.h"
#include "core/sequences.h"
#include "kernels/kernels.h"

namespace regard::internal {

/// Where the inputs' own memory lies in a workspace; see ScratchLayout. Lengths are a plan's capacity or a run's; the element types and
/// which options exist are the same for both.
struct KernelInputsLayout {
  /// What options ask for.
  struct Options {
    std::int64_t bias_count;  // floats that a copy of the bias takes: 0 for none, or one of f32
    bool packed;              // whether there are segments

    static Options Of(const PlanShape& capacity, const AttentionParams& params);
    static Options Of(const Problem& problem);
  };
  KernelInputsLayout(const PlanShape& shape, const Options& options, ScratchLayout& layout);

  static PlanShape ShapeOf(const Problem& problem);

  std::size_t row_keys, sequences, q, k, v, bias;
};

/// The queries of one head of a sequence. What they share is found once: attention of few rows to few keys takes no longer than to find all
/// of it for each.
class HeadRows {
 public:
  /// Query i, counted from the sequence's first: everything but where the results go.
  QueryRow Row(std::int64_t i) const {
    const RowKeys& keys = keys_[i];
    QueryRow row = first_;
    row.q = static_cast<const char*>(first_.q) + i * q_stride_;
    if (keys.begin < keys.end) {
      row.key_begin = keys.begin - first_key_;
      row.key_end = keys.end - first_key_;
    }
    row.position = keys.position - first_key_;
    row.first_key = keys.first_key - first_key_;
    row.mask = first_.mask + i * mask_stride_;
    row.bias = first_.bias + i * bias_stride_;
    row.query = static_cast<std::uint32_t>(first_.query + i);
    return row;
  }

 private:
  friend class KernelInputs;

  QueryRow first_{};
  const RowKeys* keys_;
  std::int64_t first_key_, q_stride_ = 0, mask_stride_ = 0, bias_stride_ = 0;  // strides in bytes, but bias in floats
};

class KernelInputs {
 public:
  enum class Values { kUsed, kUnused };  // without them, the kv heads have no v

  /// Copies what needs copying (rows spread over threads) and computes the tables of rows and sequences.
  KernelInputs(const Problem& problem, const KernelInputsLayout& layout, std::byte* workspace, int threads,
               Values values = Values::kUsed);

  const Problem& problem() const { return p_; }
  const RowOptions& options() const { return options_; }
  const RowKeys& Keys(std::int64_t b, std::int64_t i) const { return row_keys_[b * p_.q_len + i]; }
  /// Of all batch entries, one entry after the other, each as SequenceWalk has them. With dropout, whose mask goes by rows of q and k in steps
  /// of kDropoutKeys, an entry is one, and its rows' intervals of keys keep segments apart.
  std::span<const Sequence> sequences() const { return sequences_; }
  /// All of a batch entry, packed or not: for what has the same bits wherever keys lie.
  Sequence Entry(std::int64_t b) const { return {b, 0, p_.q_len, 0, p_.is_cached() ? p_.KvLen(b) : p_.kv_len}; }
  /// Keys and values of a sequence, key 0 being its first.
  KvHead Head(const Sequence& sequence, std::int64_t kv_head) const;
  float Sink(std::int64_t h) const;  // −inf is none
  /// The queries of head h, for the keys of Head.
  HeadRows Rows(const Sequence& sequence, std::int64_t h) const;
  /// One of them.
  QueryRow Row(const Sequence& sequence, std::int64_t h, std::int64_t i) const { return Rows(sequence, h).Row(i); }

 private:
  void BindBias(float* copy, int threads);

  const Problem& p_;
  const RowKeys* row_keys_;
  std::span<const Sequence> sequences_;
  StoredOperand q_, k_, v_;
  FloatOperand bias_;
  std::int64_t bias_key_stride_ = 0;
  RowOptions options_{};
};

}  // namespace regard::internal
