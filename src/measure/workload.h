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

/// Keys that query i of any sequence of the case may see: [begin, end).
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};

class Workload {
 public:
  /// Inputs are nearly normal with variance 1 and the same on every machine. Throws Error kOutOfMemory.
  explicit Workload(const BenchCase& bench_case);
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  const BenchCase& bench_case() const { return case_; }
  PlanShape shape() const;
  const AttentionParams& params() const { return params_; }
  Inputs inputs() const {
    return cache_ ? Inputs::Of(q_view_, *cache_, {&sequence_, 1}) : Inputs{.q = q_view_, .k = k_view_, .v = v_view_};
  }
  Outputs outputs() { return {.context = context_view_, .lse = lse_.mutable_view(), .empty_rows = &empty_rows_}; }
  TensorView context() const { return context_view_; }
  TensorView lse() const { return lse_; }
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
  };
  Row RowCall(std::int64_t head, std::int64_t query) const;

 private:
  void MakeFeature();
  void MakeRising();
  void MakeCache();
  std::int64_t SegmentBegin(std::int64_t token) const;
  std::int64_t SegmentEnd(std::int64_t token) const;

  BenchCase case_;
  Tensor q_, k_, v_, context_, lse_, d_context_;
  TensorView q_view_, k_view_, v_view_;  // [1, heads, tokens, dim]
  MutableTensorView context_view_;
  std::optional<KvCache> cache_;
  SequenceId sequence_{};
  Tensor mask_, bias_, slopes_, sinks_, segments_;
  std::vector<std::int64_t> segment_ends_;  // packed sequences; else one
  AttentionParams params_;
  std::int64_t visible_pairs_ = 0;
  std::int64_t empty_rows_ = 0;
};

}  // namespace regard::measure
