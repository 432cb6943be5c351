// Room kernels, the ISA room: the only folder that knows vectors. This header is its door: plain pointers, strides and sizes.
//
// The unit of work is a few query rows against the keys and values of one kv head. Every positional rule of the contract (causal,
// windows, kv_lens, segments) has become one interval of visible keys per row before it gets here, since each of them bounds
// keys from one side; what is left are mask, bias, ALiBi and the soft cap. Rows of one call may belong to different heads of one group.
//
// kernels.cc resolves a table of functions for one target; a Plan holds the table, and nothing is switched process-wide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard::internal {

/// Keys or values of one kv head as they are stored: rows of head_dim or v_dim elements with unit stride, any row stride, no alignment.
/// Row j lies at data + j · stride, or with pages at pages[j / page_len] + (j % page_len) · stride.
/// A row of kI8 stands for element · scale, with one f32 scale a row. The scales of a page, or of the one run of page_len rows from data,
/// lie behind its rows: that of row j at byte page_len · stride + 4 · (j % page_len).
struct StoredRows {
  const void* data = nullptr;
  std::int64_t stride = 0;             // in elements
  DType dtype = DType::kF32;           // kF32, kF16, kBF16 or kI8
  const void* const* pages = nullptr;  // null: one run from data
  std::int64_t page_len = 0;           // a multiple of kPageGrid

  /// The first row of f32 in one run.
  const float* f32() const { return static_cast<const float*>(data); }
};

/// Pages hold a multiple of this many rows, so that the kernels' smallest steps over keys never straddle two.
inline constexpr std::int64_t kPageGrid = 16;

/// Keys and values of one kv head: k [kv_len, head_dim], v [kv_len, v_dim].
/// Key 0 is the origin of the tile grid and so takes part in a row's bits: for packed sequences pass pointers to the sequence's own
/// first key. All kv_len rows must be readable, also those nobody sees; what they hold does not matter.
struct KvHead {
  StoredRows k, v;
  std::int64_t kv_len, head_dim, v_dim;
  /// Where keys stand, ascending, for caches that have forgotten some: [kv_len]; null when key j stands at j. Only distances ask
  /// (ALiBi, and what is reduced by distance); what a row may see is an interval of keys either way.
  const std::int64_t* key_positions = nullptr;
};

/// What all rows of a call share.
struct RowOptions {
  float scale;
  float soft_cap;                // 0 is off
  std::int64_t mask_key_stride;  // in bytes; 0 when one value serves all keys
  std::int64_t bias_key_stride;  // in floats
  bool has_mask, has_bias, has_alibi;
  DType q_type = DType::kF32;  // kF32, kF16 or kBF16
  // core/dropout.h. Forward kernels take the weights that are dropped as 0 and multiply what is kept by the multiplier where they finish a row;
  // decode leaves that to who finishes its states.
  std::uint32_t dropout_threshold = 0;  // 0 is off
  float dropout_multiplier = 1;
  std::uint64_t dropout_seed = 0;
  std::int64_t dropout_first_group = 0;  // of kDropoutKeys keys: where key 0 is in the mask
};

/// One query row.
struct QueryRow {
  const void* q;           // [head_dim] of RowOptions::q_type, unit stride, no alignment
  float* context;          // [v_dim], unit stride
  float* lse;              // one value, natural log; null when not wanted
  std::int64_t key_begin;  // visible keys lie in [key_begin, key_end); key_begin ≤ key_end, both in 0…kv_len
  std::int64_t key_end;
  std::int64_t position;             // where the query stands on the key axis: ALiBi's distance is |position − j|
  float alibi_slope;                 // natural units
  float sink;                        // −inf is none
  std::int64_t first_key;            // of the row's text, where several are attended as one; only tracked_prefill asks
  const std::uint8_t* mask;          // [kv_len] by mask_key_stride, nonzero = visible
  const float* bias;                 // [kv_len] by bias_key_stride; −inf = not visible
  std::uint32_t batch, head, query;  // where the row is in the mask of dropout; batch is the same for all rows of a call
};

/// What the gradients of one query row need beside it.
struct GradientRow {
  const float* context;    // [v_dim], as the forward run left it
  const float* d_context;  // [v_dim]
  float* d_q;              // [head_dim], unit stride
};

/// Floats from one row to the next of what backward adds up for keys: dim rounded up to whole vectors of any target.
inline std::int64_t GradientStride(std::int64_t dim) { return (dim + 15) / 16 * 16; }
/// Rows that must be there for kv_len keys.
inline std::int64_t GradientRows(std::int64_t kv_len) { return (kv_len + 3) / 4 * 4; }

/// A block of weights as the second pass hands it out: row first_row + r of the call gives key first_key + j
/// weights[j · key_stride + r]. The weights are valid during the visit only.
struct WeightBlock {
  std::int64_t first_row, num_rows;
  std::int64_t first_key, num_keys;
  const float* weights;
  std::int64_t key_stride;
  bool fully_visible;  // every row may see every key
};
using WeightVisitor = void (*)(void* visitor, const WeightBlock& block);

/// What tracked_prefill finds out about each row of a call, [num_rows]; null means not wanted. Nothing here depends on what else is. A row
/// whose lse is NaN has NaN everywhere, and keys −1.
struct RowTracking {
  float* entropy = nullptr;             // −Σ w ln w, nats
  float* first_key_share = nullptr;     // the weight of QueryRow::first_key
  std::int64_t* num_visible = nullptr;  // keys the row may see
  std::int64_t top_k = 0;               // ≥ 1 when any of the following is wanted, which needs the first two
  std::int64_t* topk_key = nullptr;     // [num_rows, top_k] by score, descending, ties to the lower key; −1 behind the last
  float* topk_weight = nullptr;         // [num_rows, top_k] 0 behind the last
  float* topk_tail = nullptr;           // the weight of all other keys
  float* row_max = nullptr;             // the largest masked score, natural units; −inf where none is above it

  /// The same for the rows from `row` on.
  RowTracking From(std::int64_t row) const {
    const auto at = [row](auto* to, std::int64_t each) { return to == nullptr ? to : to + row * each; };
    return {at(entropy, 1),      at(first_key_share, 1), at(num_visible, 1), top_k,
            at(topk_key, top_k), at(topk_weight, top_k), at(topk_tail, 1),   at(row_max, 1)};
  }
};

/// What the second pass takes of the weights of one head; null means not wanted. Nothing here depends on what else is wanted. Weights of a
/// row whose lse is NaN are NaN.
struct WeightReductions {
  // Written for each row of the call.
  float* distance_mean = nullptr;  // [num_rows] of position − key under the weights; NaN where all are 0
  float* distance_std = nullptr;   // [num_rows]
  float* window_share = nullptr;   // [num_rows] the weight of keys with |position − key| ≤ window
  std::int64_t window = 0;
  std::uint8_t* sees_key = nullptr;  // [num_rows] whether it may see any

  // Added to, for every key of the head.
  double* key_mass = nullptr;         // [kv_len] Σ w over the rows
  std::int64_t* key_count = nullptr;  // [kv_len] rows that may see the key
  std::int64_t key_top_k = 0;
  float* key_topk_weight = nullptr;      // [kv_len, key_top_k] descending, ties to the lower row; 0 behind the last
  std::int64_t* key_topk_row = nullptr;  // [kv_len, key_top_k], counted from row_origin

  // Added to, for every bin: row row_origin + r of q_len lies in row bin R when ⌊R·q_len/pooled_rows⌋ ≤ row_origin + r; columns alike, key
  // key_origin + j of kv_len.
  double* pooled = nullptr;     // [pooled_rows, pooled_cols] Σ w
  float* pooled_max = nullptr;  // [pooled_rows, pooled_cols] the largest; only beside pooled
  std::int64_t pooled_rows = 0, pooled_cols = 0, row_origin = 0, q_len = 0, key_origin = 0, kv_len = 0;

  // Added to, for every distance: distances[position − key − first_distance] takes the weight.
  double* distances = nullptr;
  std::int64_t first_distance = 0;
};

/// The kernels of one target. All are noexcept in effect, allocate nothing, and keep nothing between calls. A row's bits depend on its
/// own q, options and visible keys, on kv's lengths and dims, on the target and on which kernel ran: never on the other rows of the
/// call, their number or order, nor on strides and alignment. NaN results are NaN for sure, though their payloads may differ.
struct KernelTable {
  const char* target;  // "AVX3"

  /// Rows in lanes: for many rows that share keys. Writes context and lse of each row, sink included; returns how many rows saw no key.
  /// k and v of f32 that lie in one run a key block are used where they are; others are converted, 128 keys at a time.
  /// scratch: prefill_scratch_bytes(head_dim, v_dim), 64-byte aligned, private to the thread. It grows by 128 + 4·(rows in lanes) floats
  /// a dim of head_dim + v_dim, whatever the lengths.
  std::int64_t (*prefill)(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                          void* scratch);
  std::size_t (*prefill_scratch_bytes)(std::int64_t head_dim, std::int64_t v_dim);
  /// prefill leaves no lane empty where num_rows is a multiple of this.
  std::int64_t prefill_rows;

  /// prefill with a tracker: the same bits, and what `tracking` asks for. kv.v_dim may be 0: then no context is written, and v is not read.
  /// scratch: tracked_scratch_bytes(kv_len, head_dim, v_dim, tracking.top_k), 64-byte aligned, private to the thread. prefill's, and with
  /// top_k ≤ 32 a float a row in lanes and bucket of keys, of which there are 1,024 or one to 128 keys; beside that 1.3 KB and
  /// head_dim floats to a row in lanes. What is enough for kv_len keys is enough for fewer.
  std::int64_t (*tracked_prefill)(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                                  const RowTracking& tracking, void* scratch);
  std::size_t (*tracked_scratch_bytes)(std::int64_t kv_len, std::int64_t head_dim, std::int64_t v_dim, std::int64_t top_k);

  /// Keys in lanes, each K and V row read once for all rows: for few rows (≤ kMaxDecodeRows) against many keys, over keys
  /// [first_key, last_key) only. Adds nothing to context: writes each row's online-softmax state, to be merged over splits and finished
  /// by the caller: weights sum to row_sum at reference row_ref (log2 units), acc = weights · v, unnormalised. Identity: (−inf, 0, 0).
  /// row_ref, row_sum [num_rows]; acc [num_rows, acc_stride]; saw_key [num_rows], 1 where any key was visible, else 0. Keys are taken
  /// 16 at a time on a grid from key 0; splits at multiples of 16 are the fast ones. sink, context and lse of the rows are not used.
  /// scratch: decode_scratch_bytes(head_dim, v_dim), 64-byte aligned, private to the thread.
  void (*decode)(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows, std::int64_t first_key,
                 std::int64_t last_key, float* row_ref, float* row_sum, float* acc, std::int64_t acc_stride,
                 std::uint8_t* saw_key, void* scratch);
  std::size_t (*decode_scratch_bytes)(std::int64_t head_dim, std::int64_t v_dim);

  /// Gradients, from what the forward run left: reads *lse of each row, sink included; QueryRow::context and sink are not used. Writes d_q of
  /// each row and adds to d_k [GradientRows(kv_len), GradientStride(head_dim)] and d_v [GradientRows(kv_len), GradientStride(v_dim)], both
  /// 64-byte aligned, what the rows of the call come to, in blocks of rows from the first of the call on. The bits that a key gets depend on
  /// the rows of the call that see it, their places in the call, and the target. Rows that see no key, or whose gradients are not finite,
  /// leave no trace in what does not see them.
  /// scratch: backward_scratch_bytes(head_dim, v_dim), 64-byte aligned, private to the thread.
  void (*backward)(const KvHead& kv, const RowOptions& options, const QueryRow* rows, const GradientRow* gradients,
                   std::int64_t num_rows, float* d_k, float* d_v, void* scratch);
  std::size_t (*backward_scratch_bytes)(std::int64_t head_dim, std::int64_t v_dim);

  /// The gradients by masked scores, before the soft cap, in blocks as stream_weights hands out weights; GradientRow::d_q is not used. A
  /// number's bits depend on its own pair alone.
  /// scratch: score_gradients_scratch_bytes(head_dim, v_dim), 64-byte aligned, private to the thread.
  void (*stream_score_gradients)(const KvHead& kv, const RowOptions& options, const QueryRow* rows, const GradientRow* gradients,
                                 std::int64_t num_rows, WeightVisitor visit, void* visitor, void* scratch);
  std::size_t (*score_gradients_scratch_bytes)(std::int64_t head_dim, std::int64_t v_dim);

  /// The second pass: weights = exp(masked_scores − lse), block by block of rows and keys, both ascending, rows first. Reads *lse of each row,
  /// as prefill and decode leave it; context, sink and kv.v are not used. Blocks where no row sees any key are skipped. A weight's bits
  /// depend on its own q, k, options and lse alone. A row whose lse is NaN has NaN wherever its score is not −inf.
  /// scratch: stream_scratch_bytes(head_dim), 64-byte aligned, private to the thread. It grows by 128 + (rows in lanes) floats a dim.
  void (*stream_weights)(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                         WeightVisitor visit, void* visitor, void* scratch);
  std::size_t (*stream_scratch_bytes)(std::int64_t head_dim);

  /// The second pass with reductions in place of a visitor. For the rows of one head, in ascending order; key and bin reductions take their
  /// sums in blocks of rows from the first of the call on.
  /// scratch: reduce_scratch_bytes(head_dim, reductions), 64-byte aligned, private to the thread. stream_weights', and the rows' moments
  /// and pooled columns.
  void (*reduce_weights)(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows,
                         const WeightReductions& reductions, void* scratch);
  std::size_t (*reduce_scratch_bytes)(std::int64_t head_dim, const WeightReductions& reductions);

  /// Whole rows, for the staged path. softmax_row turns masked scores into weights in place and returns the lse, natural log; a sink
  /// of −inf is none.
  ///   all −inf or count = 0   weights 0; the lse is the sink
  ///   a NaN or +inf in it     weights NaN but for scores of −inf, which weigh 0 in any row; the lse is NaN
  float (*softmax_row)(float* row, std::int64_t count, float sink);
  /// row = cap·tanh(row/cap), cap > 0; ±inf becomes ±cap, NaN stays.
  void (*soft_cap_row)(float* row, std::int64_t count, float cap);
  /// row [count] as f16 or bf16, into `to` [count]: the bits of ToF16 and ToBF16.
  void (*store_row)(DType dtype, const float* row, std::int64_t count, void* to);

  /// For measuring what the machine can do. All return a value only so that the work is not optimised away.
  /// peak_flops: steps times peak_flops_per_step floating-point operations in independent multiply-add chains in registers.
  std::int64_t peak_flops_per_step;
  float (*peak_flops)(std::int64_t steps);
  /// The same for bf16 dot products, by the target whose kernels use them; null elsewhere.
  std::int64_t peak_bf16_flops_per_step;
  float (*peak_bf16_flops)(std::int64_t steps);
  /// Reads bytes from 64-byte aligned data once, in ascending order.
  float (*read_bytes)(const void* data, std::size_t bytes);
};

inline constexpr std::int64_t kMaxDecodeRows = 16;

/// Compiled targets, best first, and whether this CPU can run them.
struct TargetInfo {
  std::string name;
  bool supported;
};
std::vector<TargetInfo> CompiledTargets();

/// The table of a target by name, or of the best supported one for "". Null when the name is not compiled in or not supported here.
const KernelTable* FindKernels(const std::string& target);

}  // namespace regard::internal
