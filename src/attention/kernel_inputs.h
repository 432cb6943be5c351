// A bound problem as the kernels take it: f32 queries, keys and values as they are stored, one interval of keys per query, options, query
// rows and kv heads. Made once a run and shared by everything that runs kernels on it; immutable from then on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/operand.h"
#include "core/problem.h"
#include "core/row_keys.h"
#include "core/scratch.h"
#include "kernels/kernels.h"

namespace regard::internal {

/// Where the inputs' own memory lies in a workspace; see ScratchLayout. Lengths are a plan's capacity or a run's; the element types and
/// which options exist are the same for both.
struct KernelInputsLayout {
  KernelInputsLayout(const PlanShape& shape, std::int64_t bias_count, ScratchLayout& layout);

  /// Floats that a copy of the bias takes: 0 for none, or one of f32.
  static std::int64_t BiasCount(const PlanShape& capacity, const AttentionParams& params);
  static std::int64_t BiasCount(const Problem& problem);
  static PlanShape ShapeOf(const Problem& problem);

  std::size_t row_keys, q, k, v, bias;
};

class KernelInputs {
 public:
  enum class Values { kUsed, kUnused };  // without them, the kv heads have no v

  /// Copies what needs copying (rows spread over threads) and computes the row table.
  KernelInputs(const Problem& problem, const KernelInputsLayout& layout, std::byte* workspace, int threads,
               Values values = Values::kUsed);

  const Problem& problem() const { return p_; }
  const RowOptions& options() const { return options_; }
  const RowKeys& Keys(std::int64_t b, std::int64_t i) const { return row_keys_[b * p_.q_len + i]; }
  KvHead Head(std::int64_t b, std::int64_t kv_head) const;
  /// Keys that Head(b, …) has: those of all sequences alike, or with a cache the sequence's own.
  std::int64_t KvLen(std::int64_t b) const { return p_.is_cached() ? p_.KvLen(b) : p_.kv_len; }
  float Sink(std::int64_t h) const;  // −inf is none
  /// Everything but where the results go.
  QueryRow Row(std::int64_t b, std::int64_t h, std::int64_t i) const;

 private:
  void BindBias(float* copy, int threads);

  const Problem& p_;
  const RowKeys* row_keys_;
  FloatOperand q_, bias_;
  StoredOperand k_, v_;
  std::int64_t bias_key_stride_ = 0;
  RowOptions options_{};
};

}  // namespace regard::internal
