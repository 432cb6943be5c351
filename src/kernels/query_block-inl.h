// What the prefill kernel keeps for one block of query rows, and for one block of keys.
#if defined(REGARD_KERNELS_QUERY_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_QUERY_BLOCK_INL_H_
#undef REGARD_KERNELS_QUERY_BLOCK_INL_H_
#else
#define REGARD_KERNELS_QUERY_BLOCK_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "core/attention_state.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels/exp2-inl.h"
#include "kernels/kernels.h"
#include "kernels/products-inl.h"
#include "kernels/stored_rows-inl.h"
#include "kernels/tile_config-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr double kLog2E = 1.4426950408889634;

// The reference of a row moves only when a score exceeds it by this many log2 units. Weights may then reach 2^17, which costs f32 no
// accuracy; moving at every new maximum (0) lost 15 points at head_dim 64, and from 8 on nothing more was gained.
inline constexpr float kRescaleThreshold = kCalmBelow;

/// How often the new reference of a lane is taken again; see MoveAndWeighTile.
inline constexpr int kMaxMoves = 3;

/// In log2 units. Models write "hidden" as the lowest finite number, which is still visible: in these units it would become −inf, and
/// with a score added it might.
inline constexpr float kLowestBias = -0x1p126f;

/// kQueryRows rows in lanes and their online-softmax state. Missing rows at the end see nothing that matters.
struct QueryBlock {
  alignas(64) float neg_ref[kQueryRows];    // −row_ref, log2 units: where score accumulators start
  alignas(64) float threshold[kQueryRows];  // −inf: no reference yet; kRescaleThreshold: has one; +inf: missing row
  alignas(64) float row_sum[kQueryRows];    // over finished key blocks
  alignas(64) float block_sum[kQueryRows];  // over the present key block
  alignas(64) float neg_slope[kQueryRows];  // −ALiBi slope, log2 units
  bool all_referenced;                      // no threshold is −inf
  bool has_faint;                           // some scores were so low that they had to be clamped
  std::int64_t key_begin[kQueryRows], key_end[kQueryRows];
  std::int64_t min_begin, max_end;  // keys that some row may see
  std::int64_t max_begin, min_end;  // keys that every row may see
  std::uint64_t all_rows;           // one bit per row
  std::uint64_t saw_key;
  const QueryRow* rows;
  int num_rows, num_vectors;
  Word* q;          // [WordsOf(head_dim), kQueryRows], as PackQueries does
  float* acc;       // [v_dim, kQueryRows]
  bool acc_is_set;  // false until the first key block is written there
  alignas(64) std::uint32_t dropout_y0[kQueryRows], dropout_y2[kQueryRows], dropout_y3[kQueryRows];  // dropout-inl.h
};

/// Whether every row has a reference, or is missing.
HWY_INLINE bool AllReferenced(const QueryBlock& block) {
  const DF d;
  MF referenced = hn::Gt(hn::Load(d, block.threshold), hn::Set(d, -kInf));
  for (int v = 1; v < kQueryVectors; ++v) {
    referenced = hn::And(referenced, hn::Gt(hn::Load(d, block.threshold + v * kLanes), hn::Set(d, -kInf)));
  }
  return hn::AllTrue(d, referenced);
}

inline constexpr int kTiles = kKeyBlock / kKeyTile;

/// Vectors first…last of a query block: those that a tile was scored on; last < 0: it was not.
struct TileVectors {
  int first, last;

  int Count() const { return last - first + 1; }
  bool Has(int vector) const { return first <= vector && vector <= last; }
  bool operator==(const TileVectors&) const = default;
};

/// Neighbouring keys of one block that the same vectors of the query block work on.
struct Stretch {
  int key_begin, key_end;  // in the block
  TileVectors vectors;
};

/// One query block against kKeyBlock keys.
struct KeyBlock {
  alignas(64) std::uint32_t lane_bit[kQueryRows];  // row r's bit in its half of a visibility word
  alignas(64) float distance[kQueryRows];          // position − origin
  alignas(64) float offset[kKeyBlock];             // where each key stands, from the origin
  alignas(64) float tile[kKeyTile * kQueryRows];   // of one: sums of a run, scores that are not calm, weights to become words
  std::int64_t origin;                             // a place on the key axis
  // The keys at work, shared by all query blocks that come to them.
  std::int64_t first_key = -1;  // −1: none yet
  int num_keys = 0;
  KeyRows<Element> k;                // their rows
  KeyRows<Word> v = {nullptr, 0};    // in words of neighbouring keys; none where v_dim is 0
  float *k_copy, *v_copy;            // [kKeyBlock, Padded(head_dim or v_dim)], for rows that cannot be used where they lie
  std::uint64_t visible[kKeyBlock];  // bit r: row r sees the key; valid if has_visible
  bool has_visible;
  TileVectors scored[kTiles];
  Stretch stretches[kTiles];
  int num_stretches;
  bool all_seen;       // every row sees every key of the stretches
  float* weights;      // [kKeyBlock, kQueryRows]: weights of the second pass; staged biases, and then weights as words
  float* bias;         // [kKeyBlock, kQueryRows], log2 units
  const float* zeros;  // stands for missing rows
};

/// Which rows see keys of the tile at `key`, where the block has words of visibility.
struct TileRows {
  std::uint64_t some;   // one bit per row
  bool all;             // every row sees every key
  TileVectors vectors;  // that hold some
};

HWY_INLINE TileRows RowsThatSee(const KeyBlock& keys, int key, std::uint64_t all_rows) {
  static_assert(kKeyTile == 4);
  const std::uint64_t* visible = keys.visible + key;
  const std::uint64_t some = visible[0] | visible[1] | visible[2] | visible[3];
  const bool all = (visible[0] & visible[1] & visible[2] & visible[3]) == all_rows;
  if (some == 0) return {some, all, {0, -1}};
  return {some,
          all,
          {static_cast<int>(hwy::Num0BitsBelowLS1Bit_Nonzero64(some)) / kLanes,
           (63 - static_cast<int>(hwy::Num0BitsAboveMS1Bit_Nonzero64(some))) / kLanes}};
}

/// Fills the stretches: neighbouring tiles on the same vectors, in ascending order.
HWY_INLINE void FindStretches(int n, KeyBlock& keys) {
  keys.num_stretches = 0;
  if (!keys.has_visible) {
    keys.stretches[keys.num_stretches++] = {0, n, keys.scored[0]};
    return;
  }
  for (int tile = 0; tile * kKeyTile < n; ++tile) {
    const TileVectors& vectors = keys.scored[tile];
    if (vectors.last < 0) continue;
    const int key = tile * kKeyTile;
    const int end = std::min(key + kKeyTile, n);
    Stretch* const next = keys.stretches + keys.num_stretches;
    if (keys.num_stretches > 0 && next[-1].key_end == key && next[-1].vectors == vectors) {
      next[-1].key_end = end;
    } else {
      keys.stretches[keys.num_stretches++] = {key, end, vectors};
    }
  }
}

/// [WordsOf(kKeyBlock), kQueryRows]
HWY_INLINE Word* WeightWords(const KeyBlock& keys) { return reinterpret_cast<Word*>(keys.weights); }

/// What is the same for all blocks of a call.
struct CallConstants {
  KvHead kv;
  RowOptions options;
  // Into q or into the sum of products: scores come out in log2 units, or as TanhOfScaled's argument with a soft cap.
  float q_factor;
  float cap_log2;  // soft_cap · log2 e
  // From the last key to the first. With ALiBi and causal attention the scores fall this way; upwards the reference of every lane
  // would have to move every few keys.
  bool descending;
};

HWY_INLINE CallConstants MakeConstants(const KvHead& kv, const RowOptions& options, double tanh_prescale) {
  // Caps below 2^−60 would overflow here; from there on the cap leaves nothing of a score either way. Caps above 2^127 would in log2 units, and
  // are held there.
  const double cap = std::min<double>(options.soft_cap, 0x1p127);
  const double to_log2 = cap > 0 ? std::min(tanh_prescale / cap, 0x1p60) : kLog2E;
  return {kv, options, static_cast<float>(options.scale * to_log2), static_cast<float>(cap * kLog2E), options.has_alibi};
}

/// What is the same for all blocks of keys; places are counted from the first key of a block, until BindKeys says otherwise.
HWY_INLINE void InitKeyBlock(KeyBlock& keys) {
  for (int r = 0; r < kQueryRows; ++r) keys.lane_bit[r] = std::uint32_t{1} << (r & 31);
  for (int j = 0; j < kKeyBlock; ++j) keys.offset[j] = static_cast<float>(j);
}

/// Rows and places of the n keys from first_key on, unless they are bound already.
HWY_INLINE void BindKeys(const KvHead& kv, std::int64_t first_key, int n, KeyBlock& keys) {
  if (keys.first_key == first_key) return;
  keys.k = BindKeyRows(kv.k, first_key, n, kv.head_dim, keys.k_copy);
  if (kv.v_dim > 0) keys.v = BindValueRows(kv.v, first_key, n, kv.v_dim, keys.v_copy);
  keys.origin = first_key;
  if (kv.key_positions != nullptr) {
    // Where a cache has forgotten keys a block may span more than f32 counts exactly. Seen from the last key, the nearest to the queries,
    // what is near stays exact.
    const std::int64_t* const positions = kv.key_positions + first_key;
    keys.origin = positions[n - 1];
    for (int j = 0; j < kKeyBlock; ++j) keys.offset[j] = static_cast<float>(positions[std::min(j, n - 1)] - keys.origin);
  }
  keys.first_key = first_key;
  keys.num_keys = n;
}

HWY_INLINE void SetDistances(const QueryBlock& block, KeyBlock& keys) {
  for (int r = 0; r < kQueryRows; ++r) {
    keys.distance[r] = r < block.num_rows ? static_cast<float>(block.rows[r].position - keys.origin) : 0.0f;
  }
}

/// Packs the queries of a block. Rows that have to be converted pass through the memory of copied keys.
HWY_INLINE void PackBlockQueries(const CallConstants& call, const QueryRow* rows, int num_rows, KeyBlock& keys, Word* lanes) {
  static_assert(kQueryRows <= kKeyBlock);
  const std::int64_t head_dim = call.kv.head_dim;
  const Element* q[kQueryRows];
  for (int r = 0; r < num_rows; ++r) q[r] = QueryElements(call.options, rows[r], head_dim, keys.k_copy + r * Padded(head_dim));
  for (int r = num_rows; r < kQueryRows; ++r) q[r] = reinterpret_cast<const Element*>(keys.zeros);
  PackQueries(q, head_dim, call.q_factor, lanes);
  keys.first_key = -1;  // its copies are gone
}

/// Takes up to kQueryRows rows. Masks and biases that hold one value for all keys are settled here.
HWY_INLINE void BeginQueryBlock(const CallConstants& call, const QueryRow* rows, int num_rows, KeyBlock& keys,
                                QueryBlock& block) {
  const RowOptions& options = call.options;
  const std::int64_t kv_len = call.kv.kv_len;
  const bool one_mask = options.has_mask && options.mask_key_stride == 0;
  const bool one_bias = options.has_bias && options.bias_key_stride == 0;
  block.rows = rows;
  block.num_rows = num_rows;
  block.num_vectors = (num_rows + kLanes - 1) / kLanes;
  block.all_rows = ~std::uint64_t{0} >> (64 - num_rows);
  block.saw_key = 0;
  block.acc_is_set = false;
  block.all_referenced = false;
  block.has_faint = false;
  std::int64_t min_begin = kv_len, min_end = kv_len, max_begin = 0, max_end = 0;
  for (int r = 0; r < num_rows; ++r) {
    const QueryRow& row = rows[r];
    const bool masked_out = (one_mask && *row.mask == 0) || (one_bias && *row.bias == -kInf);
    const std::int64_t begin = row.key_begin;
    const std::int64_t end = masked_out ? begin : row.key_end;
    block.neg_slope[r] = options.has_alibi ? static_cast<float>(-kLog2E * row.alibi_slope) : 0.0f;
    block.key_begin[r] = begin;
    block.key_end[r] = end;
    if (begin >= end) {
      max_begin = kv_len;  // no key is seen by every row
    } else {
      min_begin = std::min(min_begin, begin);
      max_begin = std::max(max_begin, begin);
      min_end = std::min(min_end, end);
      max_end = std::max(max_end, end);
    }
  }
  for (int r = num_rows; r < kQueryRows; ++r) {
    block.neg_slope[r] = 0.0f;
    block.key_begin[r] = block.key_end[r] = 0;
  }
  block.min_begin = min_begin;
  block.max_begin = max_begin;
  block.min_end = min_end;
  block.max_end = max_end;
  for (int r = 0; r < kQueryRows; ++r) {
    block.neg_ref[r] = block.row_sum[r] = 0.0f;
    block.threshold[r] = r < num_rows ? -kInf : kInf;
  }
  PackBlockQueries(call, rows, num_rows, keys, block.q);
}

/// Writes context and lse; returns how many rows saw no key.
HWY_INLINE std::int64_t FinishQueryBlock(const CallConstants& call, QueryBlock& block) {
  const DF d;
  alignas(64) float factor[kQueryRows];
  alignas(64) float lse[kQueryRows];
  for (int r = 0; r < kQueryRows; r += kLanes) {
    const VF sum = hn::Load(d, block.row_sum + r);
    const MF none = hn::Eq(sum, hn::Zero(d));
    // Log is defined for positive numbers; a NaN passes by it.
    const VF log_sum = hn::IfThenElse(hn::Gt(sum, hn::Zero(d)), hn::Log(d, sum), sum);
    const VF whole = hn::NegMulAdd(hn::Load(d, block.neg_ref + r), hn::Set(d, static_cast<float>(1 / kLog2E)), log_sum);
    hn::Store(hn::IfThenElse(none, hn::Zero(d), hn::Div(hn::Set(d, 1.0f), sum)), d, factor + r);
    hn::Store(hn::IfThenElse(none, hn::Set(d, -kInf), whole), d, lse + r);
  }
  float* context[kQueryRows];
  for (int r = 0; r < block.num_rows; ++r) {
    const QueryRow& row = block.rows[r];
    context[r] = row.context;
    if (row.sink != -kInf) {
      const Finished finished = Finish({-block.neg_ref[r], block.row_sum[r]}, row.sink);
      factor[r] = finished.factor;
      lse[r] = finished.lse;
    }
    if (row.lse != nullptr) *row.lse = lse[r];
  }
  if (call.options.dropout_threshold > 0) {
    for (float& f : factor) f *= call.options.dropout_multiplier;
  }
  if (!block.acc_is_set) std::fill_n(block.acc, call.kv.v_dim * kQueryRows, 0.0f);
  LanesToRows(block.acc, call.kv.v_dim, factor, context, block.num_rows);
  return block.num_rows - static_cast<int>(hwy::PopCount(block.saw_key & block.all_rows));
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
