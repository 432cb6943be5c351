// Some or all query rows of a call, and what a path computes for them.
//
//     const RowSample sample = SampleRows(shape, {.max_work = 1 << 25});
//     const RowStages reference = ComputeRows(call, sample, {.path = Path::kReference});
//     reference.weights   // [rows, kv_len]; row r belongs to sample.rows[r]
//
// A small problem is computed whole, in one run. Of a large one only the sampled rows are computed, each as a problem of its own
// (RowCall), so that memory stays O(rows · kv_len) and nothing q_len × kv_len is ever held.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "regard/tensor.h"

namespace regard::report {

/// The arguments of one attention call; tensors of rank 4, borrowed.
struct Call {
  TensorView q, k, v;
  AttentionParams params;
};

struct RowIndex {
  std::int64_t batch = 0, head = 0, query = 0;
  friend bool operator==(const RowIndex&, const RowIndex&) = default;
};

struct RowSample {
  std::vector<RowIndex> rows;  // ascending by batch, head, query
  bool everything = false;     // all rows there are
  std::int64_t total = 0;      // how many there are
};

/// Rows such that rows·kv_len·(head_dim + v_dim), the multiplications of looking at them, is about `max_work` or less: all of
/// them if possible, else at least kMinSampledRows (or all): first, last, the edges of the blocks that kernels work in, and
/// evenly spaced ones, dealt out over sequences and heads.
inline constexpr std::int64_t kMinSampledRows = 8;
RowSample SampleRows(const PlanShape& shape, std::int64_t max_work);

/// The rows `queries` of every chosen sequence and head.
RowSample ChosenRows(const PlanShape& shape, const std::vector<std::int64_t>& batches, const std::vector<std::int64_t>& heads,
                     const std::vector<std::int64_t>& queries);

/// One query row as a call of its own: one sequence, the heads that share the row's kv head, and the query repeated `copies`
/// times, or as often as its segment has queries if that is less. Row 0 of head `head_in_group` of any result has the bits it has in the
/// whole call, provided that the same kernel runs; the copies are there to get the kernel for many rows, and stand for nothing.
/// Positions, mask, bias, lengths, segments, slopes and sinks follow the row.
struct RowCall {
  RowCall(const Call& whole, const RowIndex& row, std::int64_t copies);

  Call call;
  std::int64_t head_in_group = 0;

 private:
  std::vector<std::int64_t> q_segments_;
};

/// What one path says about rows, as f64; a stage that does not exist is not given.
struct RowStages {
  Tensor scores, capped, masked_scores, weights;  // [rows, kv_len]
  Tensor context;                                 // [rows, v_dim]
  Tensor lse;                                     // [rows]
  std::int64_t empty_rows = 0;                    // counted only when everything was computed
};

/// Path kFused gives context and lse only. No result is rounded to v's type. Runs of single rows use the kernel that the whole
/// call would use. Throws Error.
RowStages ComputeRows(const Call& call, const RowSample& sample, const ExecOptions& exec);

/// The rows of a result [batch, heads, q_len, n] or [batch, heads, q_len], as f64 [rows, n] or [rows].
Tensor GatherRows(const TensorView& result, const RowSample& sample);

/// "all 6 rows", "64 of 1,572,864 rows: first, last, block edges, evenly spaced".
std::string Describe(const RowSample& sample);

}  // namespace regard::report
