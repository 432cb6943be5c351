// What the backward kernels keep for one block of query rows: queries and d_context in lanes for the products over keys, and row by row for
// the sums that keys gather.
#if defined(REGARD_KERNELS_GRADIENT_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_GRADIENT_BLOCK_INL_H_
#undef REGARD_KERNELS_GRADIENT_BLOCK_INL_H_
#else
#define REGARD_KERNELS_GRADIENT_BLOCK_INL_H_
#endif

#include <cmath>
#include <new>
#include <utility>

#include "kernels/dropout-inl.h"
#include "kernels/query_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// Rows are kept in groups of columns, each [kQueryRows, kGroup] in one run: rows of 128 floats, a power of two apart, would leave half of the
// first cache level unused (0.6 points of the whole at dim 128).
inline constexpr int kGroup = kGatherVectors * kLanes;

/// Floats of kQueryRows rows of dim columns.
HWY_INLINE std::int64_t GroupedFloats(std::int64_t dim) { return (dim + kGroup - 1) / kGroup * kGroup * kQueryRows; }

/// query.neg_ref holds −lse in log2 units, query.acc the sums of d_q.
struct GradientBlock {
  QueryBlock query;
  alignas(64) float neg_delta[kQueryRows];  // −Σ d_context · context, where the accumulators of d_context · v start
  const GradientRow* gradients;
  std::uint64_t loose_rows;  // one bit per row: holds a NaN or an infinity, and is 0 in the two arrays of rows below
  float* d_context;          // [v_dim, kQueryRows], lanes, times the multiplier of dropout
  float* q_rows;             // [groups of head_dim, kQueryRows, kGroup], times scale; 0 behind the last dim and row
  float* d_context_rows;     // [groups of v_dim, kQueryRows, kGroup], times the multiplier of dropout; likewise
};

/// The parts of the caller's scratch.
struct GradientScratch {
  GradientBlock* blocks;  // [num_blocks]
  KeyBlock* keys;
  float* d_scores;  // [kKeyBlock, kQueryRows]
  float* q_copy;    // [Padded(head_dim)], for a query that is not stored as f32
};

HWY_INLINE std::int64_t ZerosOf(std::int64_t head_dim, std::int64_t v_dim) {
  return (std::max({head_dim, v_dim, std::int64_t{kKeyBlock}}) + 15) / 16 * 16;
}

HWY_INLINE std::size_t GradientScratchBytes(std::int64_t head_dim, std::int64_t v_dim, int num_blocks) {
  const std::int64_t block_floats = (2 * head_dim + v_dim) * kQueryRows + GroupedFloats(head_dim) + GroupedFloats(v_dim);
  const std::int64_t floats = ZerosOf(head_dim, v_dim) + Padded(head_dim) + 3 * kKeyBlock * kQueryRows +
                              kKeyBlock * (Padded(head_dim) + Padded(v_dim)) + num_blocks * block_floats;
  const std::size_t bytes = sizeof(GradientBlock) * static_cast<std::size_t>(num_blocks) + sizeof(KeyBlock) +
                            static_cast<std::size_t>(floats) * sizeof(float);
  return (bytes + 63) / 64 * 64;
}

HWY_INLINE GradientScratch PlaceGradientScratch(void* memory, std::int64_t head_dim, std::int64_t v_dim, int num_blocks) {
  std::uint8_t* at = static_cast<std::uint8_t*>(memory);
  GradientScratch scratch;
  scratch.blocks = reinterpret_cast<GradientBlock*>(at);
  at += sizeof(GradientBlock) * static_cast<std::size_t>(num_blocks);
  scratch.keys = new (at) KeyBlock;
  at += sizeof(KeyBlock);
  float* next = reinterpret_cast<float*>(at);
  const auto take = [&next](std::int64_t count) { return std::exchange(next, next + count); };
  scratch.keys->weights = take(kKeyBlock * kQueryRows);
  scratch.keys->bias = take(kKeyBlock * kQueryRows);
  scratch.d_scores = take(kKeyBlock * kQueryRows);
  scratch.keys->k_copy = take(kKeyBlock * Padded(head_dim));
  scratch.keys->v_copy = take(kKeyBlock * Padded(v_dim));
  for (int b = 0; b < num_blocks; ++b) {
    GradientBlock* block = new (scratch.blocks + b) GradientBlock;
    block->q_rows = take(GroupedFloats(head_dim));
    block->d_context_rows = take(GroupedFloats(v_dim));
    block->query.q = take(head_dim * kQueryRows);
    block->query.acc = take(head_dim * kQueryRows);
    block->d_context = take(v_dim * kQueryRows);
  }
  float* const zeros = take(ZerosOf(head_dim, v_dim));
  std::fill_n(zeros, ZerosOf(head_dim, v_dim), 0.0f);
  scratch.q_copy = next;
  scratch.keys->zeros = zeros;
  InitKeyBlock(*scratch.keys);
  return scratch;
}

/// Σ d_context · context; a context of 0, as in an empty row, adds 0 whatever d_context holds.
HWY_INLINE float DeltaOf(const GradientRow& row, std::int64_t v_dim) {
  const DF d;
  VF sum = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + kLanes <= v_dim; c += kLanes) {
    const VF context = hn::LoadU(d, row.context + c);
    const VF with = hn::MulAdd(hn::LoadU(d, row.d_context + c), context, sum);
    sum = hn::IfThenElse(hn::Eq(context, hn::Zero(d)), sum, with);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; c < v_dim; ++c) total += row.context[c] == 0.0f ? 0.0f : row.d_context[c] * row.context[c];
  return total;
}

/// Row r of grouped rows becomes factor · row, or zeros for a null row; 0 behind the last dim.
HWY_INLINE void PutRow(const float* row, std::int64_t dim, float factor, int r, float* HWY_RESTRICT grouped) {
  const DF d;
  const VF f = hn::Set(d, factor);
  for (std::int64_t first = 0; first < dim; first += kGroup) {
    float* const to = grouped + first * kQueryRows + r * kGroup;
    const std::int64_t count = row == nullptr ? 0 : std::min<std::int64_t>(kGroup, dim - first);
    std::int64_t c = 0;
    for (; c + kLanes <= count; c += kLanes) hn::Store(hn::Mul(hn::LoadU(d, row + first + c), f), d, to + c);
    for (; c < count; ++c) to[c] = row[first + c] * factor;
    std::fill(to + c, to + kGroup, 0.0f);
  }
}

/// Takes up to kQueryRows rows. A row without a visible key has an lse of −inf or of its sink alone; its weights are 0 either way.
HWY_INLINE void BeginGradientBlock(const CallConstants& call, const QueryRow* rows, const GradientRow* gradients, int num_rows,
                                   const GradientScratch& scratch, GradientBlock& block) {
  const float* const zeros = scratch.keys->zeros;
  const std::int64_t head_dim = call.kv.head_dim, v_dim = call.kv.v_dim;
  // Row by row, as prefetchers follow, before PackQueries takes many at once.
  std::uint64_t finite_q = 0;
  for (int r = 0; r < num_rows; ++r) {
    finite_q |= std::uint64_t{IsFinite(FloatQuery(call.options, rows[r], head_dim, scratch.q_copy), head_dim)} << r;
  }
  BeginQueryBlock(call, rows, num_rows, *scratch.keys, block.query);
  if (call.options.dropout_threshold > 0) BeginDropout(call.options, block.query);
  block.gradients = gradients;
  block.loose_rows = 0;
  const float* d_context[kQueryRows];
  for (int r = 0; r < kQueryRows; ++r) {
    const bool missing = r >= num_rows || block.query.key_begin[r] >= block.query.key_end[r];
    d_context[r] = missing ? zeros : gradients[r].d_context;
    block.neg_delta[r] = 0.0f;
    const float* q_row = nullptr;
    const float* d_context_row = nullptr;
    if (!missing) {
      const float lse = *rows[r].lse;
      if (lse != -kInf) block.query.neg_ref[r] = static_cast<float>(-kLog2E * lse);
      block.neg_delta[r] = -DeltaOf(gradients[r], v_dim);
      if (!std::isfinite(block.query.neg_ref[r])) block.neg_delta[r] = std::numeric_limits<float>::quiet_NaN();
      if ((finite_q >> r & 1) != 0 && IsFinite(gradients[r].d_context, v_dim) && !std::isnan(block.neg_delta[r])) {
        q_row = FloatQuery(call.options, rows[r], head_dim, scratch.q_copy);
        d_context_row = gradients[r].d_context;
      } else {
        block.loose_rows |= std::uint64_t{1} << r;
      }
    }
    PutRow(q_row, head_dim, call.options.scale, r, block.q_rows);
    PutRow(d_context_row, v_dim, call.options.dropout_multiplier, r, block.d_context_rows);
  }
  RowsToLanes(d_context, v_dim, call.options.dropout_multiplier, block.d_context);
}

/// Writes d_q of the rows that want it.
HWY_INLINE void FinishGradientBlock(const CallConstants& call, GradientBlock& block) {
  QueryBlock& query = block.query;
  if (!query.acc_is_set) std::fill_n(query.acc, call.kv.head_dim * kQueryRows, 0.0f);
  alignas(64) float factor[kQueryRows];
  float* d_q[kQueryRows];
  for (int r = 0; r < kQueryRows; ++r) factor[r] = call.options.scale;
  for (int r = 0; r < query.num_rows; ++r) d_q[r] = block.gradients[r].d_q;
  LanesToRows(query.acc, call.kv.head_dim, factor, d_q, query.num_rows);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
