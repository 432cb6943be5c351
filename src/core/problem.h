// Room core: shapes, strided views, element types, errors, the bound problem, the online-softmax state, ParallelFor.
// Everything stands on it and it stands on nothing but the standard library and OpenMP.
//
// A Problem is one run's input after every check: all tensors bound as rank-4 views, broadcasting turned into zero strides, all
// numbers resolved. Every path, summary and fault variant reads it and none checks again.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "core/dropout.h"
#include "core/internal_api.h"
#include "core/stored_row.h"
#include "regard/attention.h"
#include "regard/kv_cache.h"
#include "regard/tensor.h"

namespace regard {
struct CachedSequence;
}

namespace regard::internal {

/// A rank-4 view without checks. data is null when the tensor was not given.
struct View4 {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t stride[4] = {};  // in elements; 0 where broadcast

  std::int64_t Offset(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    return a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3];
  }
};

/// Keys and values in a cache, where they are no tensors.
struct CachedKv {
  const KvCache::Impl* cache = nullptr;
  const SequenceId* sequences = nullptr;  // [batch], all there
  std::int64_t first_kv_head = 0;         // of the cache's, where a problem is a part of another

  const CachedSequence& Sequence(std::int64_t b) const;
};

struct REGARD_INTERNAL_API Problem {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, group_size = 0;  // group_size = heads / kv_heads
  std::int64_t q_len = 0, kv_len = 0, head_dim = 0, v_dim = 0;

  View4 q;  // [batch, heads, q_len, head_dim]
  View4 k;  // [batch, kv_heads, kv_len, head_dim]
  View4 v;  // [batch, kv_heads, kv_len, v_dim]
  /// With a cache, k and v have an element type only; kv_len is the longest sequence's, KvLen(b) each one's own.
  CachedKv cached;

  float scale = 1;
  float soft_cap = 0;  // 0 is off
  bool causal = false;
  std::optional<std::int64_t> window_left, window_right;

  View4 mask;      // bool [batch, heads, q_len, kv_len]
  View4 bias;      // float, likewise
  View4 kv_lens;   // i32 or i64 [batch, 1, 1, 1]
  View4 q_offset;  // i32 or i64 [batch, 1, 1, 1]; without data every sequence has scalar_q_offset
  std::int64_t scalar_q_offset = 0;
  View4 q_segments;    // i32 or i64 [batch, 1, 1, q_len]
  View4 kv_segments;   // i32 or i64 [batch, 1, 1, kv_len]
  View4 alibi_slopes;  // float [1, heads, 1, 1]
  View4 sinks;         // float [1, heads, 1, 1]
  Dropout dropout;

  bool is_cached() const { return cached.cache != nullptr; }
  std::int64_t KvLen(std::int64_t b) const;
  /// The position of query 0 of sequence b: the keys that precede it. Where q_offset was not given, KvLen(b) − q_len with kv_lens, and the
  /// next position − q_len with a cache.
  std::int64_t QOffset(std::int64_t b) const;
  bool q_offset_from_kv_lens = false, q_offset_from_cache = false;

  /// Rows of keys and values, j < KvLen(b) with a cache.
  StoredRow Key(std::int64_t b, std::int64_t kv_head, std::int64_t j) const;
  StoredRow Value(std::int64_t b, std::int64_t kv_head, std::int64_t j) const;
  /// Where key j stands on the axis of positions, and where all do, ascending; null when each stands at its own index.
  std::int64_t KeyPosition(std::int64_t b, std::int64_t j) const;
  const std::int64_t* KeyPositions(std::int64_t b) const;
};

/// One element of a numeric view as a double; exact except for 64-bit integers beyond 2⁵³.
REGARD_INTERNAL_API double LoadDouble(const void* data, DType dtype, std::int64_t index);
/// One element of an i32 or i64 view.
REGARD_INTERNAL_API std::int64_t LoadInt(const View4& view, std::int64_t index);
/// Rounds once to the view's float type.
void StoreDouble(void* data, DType dtype, std::int64_t index, double value);

/// Where results go: like View4, writable.
struct MutableView4 {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t stride[4] = {};

  std::int64_t Offset(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    return a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3];
  }
};

struct Results {
  MutableView4 context;                                 // [batch, heads, q_len, v_dim]
  MutableView4 lse;                                     // [batch, heads, q_len, 1]
  MutableView4 scores, capped, masked_scores, weights;  // [batch, heads, q_len, kv_len]
  std::int64_t empty_rows = 0;                          // written by the path
};

/// How a path reports progress and learns that it should stop. All calls are cheap and may come from any thread.
class RunControl {
 public:
  RunControl(const ExecOptions& exec, std::int64_t total_tasks) : exec_(exec), total_tasks_(total_tasks) {}
  bool ShouldStop() const { return exec_.stop_token.stop_requested(); }
  void TaskDone();

 private:
  const ExecOptions& exec_;
  std::mutex mutex_;
  std::int64_t total_tasks_;
  std::int64_t done_ = 0;
};

}  // namespace regard::internal
