// A case made real: its tensors, and exactly how much work it is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "measure/cases.h"
#include "regard/attention.h"
#include "regard/kv_cache.h"
#include "regard/tensor.h"

namespace regard::measure {

/// Keys that a query may see, counted through the sequences of the case: [begin, end).
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};

/// Numbers that are nearly normal with variance 1, the same on every machine.
Tensor NormalTensor(const Dims& shape, DType dtype, std::uint64_t seed);

class Workload {
 public:
  /// Inputs are NormalTensors. Throws Error kOutOfMemory.
  explicit Workload(const BenchCase& bench_case);
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  const BenchCase& bench_case() const { return case_; }
  PlanShape shape() const;
  const AttentionParams& params() const { return params_; }
  Inputs inputs() const {
    return cache_ ? Inputs::Of(q_view_, *cache_, sequences_) : Inputs{.q = q_view_, .k = k_view_, .v = v_view_};
  }
  Outputs outputs() { return {.context = context_view_, .lse = lse_.mutable_view(), .empty_rows = &empty_rows_}; }
  /// Of all queries, q_len or one for each sequence.
  std::int64_t queries() const { return case_.q_len * case_.sequences; }
  TensorView context() const { return AsRows(context_view_); }  // [1, heads, queries, dim]
  TensorView lse() const { return AsRows(lse_); }               // [1, heads, queries]
  std::int64_t empty_rows() const { return empty_rows_; }
  /// Of backward cases, like context.
  TensorView d_context() const { return d_context_; }

  KeyRange VisibleKeys(std::int64_t query) const;
  /// Pairs (query, key) of one head where the query sees the key: counted, not T²/2.
  std::int64_t visible_pairs() const { return visible_pairs_; }
  /// 4 · heads · visible_pairs · dim: two products, a multiplication and an addition each; backward has five, 10 · …. What softmax costs
  /// does not count.
  double flops() const;
  /// Keys and values once, queries and context once: what has to pass between memory and the core.
  double bytes() const;

  /// The one query row (head, query) as a call of its own, with the same meaning and stated without segments.
  struct Row {
    TensorView q, k, v;  // [1, 1, 1 or keys, dim]
    AttentionParams params;
    DropoutOrigin place;  // of the row in the case's mask of dropout
  };
  Row RowCall(std::int64_t head, std::int64_t query) const;

 private:
  void MakeFeature();
  void MakeRising();
  void MakeCache();
  /// The keys of the query's sequence.
  KeyRange OwnKeys(std::int64_t query) const;
  /// Where it stands in the keys.
  std::int64_t Position(std::int64_t query) const { return query + (case_.kv_len - case_.q_len); }
  /// Sequences of one query each become the queries of one.
  TensorView AsRows(const TensorView& view) const { return case_.sequences > 1 ? view.Transpose(0, 2) : view; }

  BenchCase case_;
  Tensor q_, k_, v_, context_, lse_, d_context_;
  TensorView q_view_, k_view_, v_view_;  // [1 or sequences of q, heads, tokens, dim]
  MutableTensorView context_view_;
  std::optional<KvCache> cache_;
  std::vector<SequenceId> sequences_;
  Tensor mask_, bias_, slopes_, sinks_, segments_;
  std::vector<std::int64_t> segment_ends_;  // of the sequences, packed or in the cache
  AttentionParams params_;
  std::int64_t visible_pairs_ = 0;
  std::int64_t empty_rows_ = 0;
};

}  // namespace regard::measure
