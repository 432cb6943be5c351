// What the second pass takes of each key, each bin of a pooled map, and each distance.
#if defined(REGARD_KERNELS_KEY_REDUCTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_KEY_REDUCTION_INL_H_
#undef REGARD_KERNELS_KEY_REDUCTION_INL_H_
#else
#define REGARD_KERNELS_KEY_REDUCTION_INL_H_
#endif

#include "kernels/key_lanes-inl.h"
#include "kernels/weight_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// The bin of element i when n elements are cut into `bins` at ⌊b·n/bins⌋; and where a bin begins.
HWY_INLINE std::int64_t BinOf(std::int64_t i, std::int64_t bins, std::int64_t n) { return ((i + 1) * bins - 1) / n; }
HWY_INLINE std::int64_t BinBegin(std::int64_t bin, std::int64_t bins, std::int64_t n) { return bin * n / bins; }

/// key_mass[key] += the sum over all lanes. Keys beyond n hold anything and stay by themselves.
HWY_INLINE void AddKeyMass(const WeightScratch& scratch, int n, double* key_mass) {
  const DF d;
  static_assert(kSubBlock == 16 && kKeyBlock % kSubBlock == 0);
  const auto sum_of = [&](int key) HWY_ATTR { return hn::Load(d, scratch.key_sums + key * kLanes); };
  for (int key = 0; key < n; key += kSubBlock) {
    alignas(64) float block_sums[kSubBlock / 4 * kBlockSums];
    alignas(64) float sums[kSubBlock];
    for (int i = 0; i < kSubBlock; i += 4) {
      StoreBlockSums(sum_of(key + i), sum_of(key + i + 1), sum_of(key + i + 2), sum_of(key + i + 3),
                     block_sums + i / 4 * kBlockSums);
    }
    SumAcrossBlocks(block_sums, sums);
    for (int i = 0; i < std::min(kSubBlock, n - key); ++i) key_mass[key + i] += sums[i];
  }
}

HWY_INLINE void CountRows(const WeightScratch& scratch, int n, std::int64_t* key_count) {
  const KeyBlock& keys = *scratch.keys;
  for (int key = 0; key < n; ++key) {
    key_count[key] += keys.has_visible ? static_cast<std::int64_t>(hwy::PopCount(keys.visible[key])) : scratch.block->num_rows;
  }
}

/// Lists of rows, per key. Rows come in ascending order: one of equal weight stays behind. A weight of 0 is never listed.
HWY_INLINE void ListTopRows(const WeightReductions& out, std::int64_t row, std::int64_t first_key, int n,
                            const WeightScratch& scratch) {
  const DF d;
  const std::int64_t top = out.key_top_k;
  for (int key = 0; key < n; ++key) {
    float* const list = out.key_topk_weight + (first_key + key) * top;
    std::int64_t* const rows = out.key_topk_row + (first_key + key) * top;
    const float* const weights = scratch.keys->weights + key * kQueryRows;
    for (int v = 0; v < scratch.block->num_vectors; ++v) {
      if (hn::AllFalse(d, hn::Gt(hn::Load(d, weights + v * kLanes), hn::Set(d, list[top - 1])))) continue;
      for (int lane = v * kLanes; lane < (v + 1) * kLanes; ++lane) {
        if (!(weights[lane] > list[top - 1])) continue;
        std::int64_t at = top - 1;
        for (; at > 0 && list[at - 1] < weights[lane]; --at) {
          list[at] = list[at - 1];
          rows[at] = rows[at - 1];
        }
        list[at] = weights[lane];
        rows[at] = out.row_origin + row + lane;
      }
    }
  }
}

/// Per row of the block and column bin: sums and maxima over the keys so far.
struct PooledRows {
  float* sum;  // [pooled_cols, kQueryRows]
  float* max;  // likewise; null when not wanted
};

/// The column bins that the key blocks at work for a block of rows reach: [first, end).
struct PooledCols {
  std::int64_t first = 0, end = 0;

  HWY_INLINE PooledCols(const WeightReductions& out, const QueryBlock& block) {
    if (block.min_begin >= block.max_end) return;
    const std::int64_t first_key = out.key_origin + block.min_begin / kKeyBlock * kKeyBlock;
    const std::int64_t end_key = out.key_origin + (block.max_end + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
    first = BinOf(first_key, out.pooled_cols, out.kv_len);
    end = BinOf(std::min(end_key, out.kv_len) - 1, out.pooled_cols, out.kv_len) + 1;
  }
};

HWY_INLINE void BeginPooled(const WeightReductions& out, const WeightScratch& scratch, PooledRows& pooled) {
  if (out.pooled == nullptr) return;
  const PooledCols cols(out, *scratch.block);
  std::fill(pooled.sum + cols.first * kQueryRows, pooled.sum + cols.end * kQueryRows, 0.0f);
  if (pooled.max != nullptr) std::fill(pooled.max + cols.first * kQueryRows, pooled.max + cols.end * kQueryRows, 0.0f);
}

/// Adds keys [begin, end) of a block, NV vectors of numbers each, to one column bin.
template <int NV, bool kMax>
HWY_INLINE void PoolKeys(const float* HWY_RESTRICT numbers, int begin, int end, float* HWY_RESTRICT to_sum,
                         float* HWY_RESTRICT to_max) {
  const DF d;
  VF sum[NV], max[NV];
  REGARD_UNROLL for (int v = 0; v < NV; ++v) sum[v] = max[v] = hn::Zero(d);
  for (int key = begin; key < end; ++key) {
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF number = hn::Load(d, numbers + (key * NV + v) * kLanes);
      sum[v] = hn::Add(sum[v], number);
      if constexpr (kMax) max[v] = hn::Max(max[v], number);
    }
  }
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    hn::Store(hn::Add(hn::Load(d, to_sum + v * kLanes), sum[v]), d, to_sum + v * kLanes);
    if constexpr (kMax) hn::Store(hn::Max(hn::Load(d, to_max + v * kLanes), max[v]), d, to_max + v * kLanes);
  }
}

/// row: the first of the block. Where all rows fall into one bin, their sums are pooled, as if they were a single vector's.
HWY_INLINE void PoolBlock(const WeightReductions& out, std::int64_t row, std::int64_t first_key, int n,
                          const WeightScratch& scratch, const PooledRows& pooled) {
  const float* const weights = scratch.keys->weights;
  const std::int64_t first = out.key_origin + first_key, first_row = out.row_origin + row;
  const bool one_bin =
      BinOf(first_row, out.pooled_rows, out.q_len) == BinOf(first_row + scratch.block->num_rows - 1, out.pooled_rows, out.q_len);
  std::int64_t bin = BinOf(first, out.pooled_cols, out.kv_len);
  for (int begin = 0; begin < n; ++bin) {
    const int end = static_cast<int>(std::min<std::int64_t>(n, BinBegin(bin + 1, out.pooled_cols, out.kv_len) - first));
    float* const sum = pooled.sum + bin * kQueryRows;
    if (pooled.max != nullptr) {
      PoolKeys<kQueryVectors, true>(weights, begin, end, sum, pooled.max + bin * kQueryRows);
    } else if (one_bin) {
      PoolKeys<1, false>(scratch.key_sums, begin, end, sum, nullptr);
    } else {
      PoolKeys<kQueryVectors, false>(weights, begin, end, sum, nullptr);
    }
    begin = end;
  }
}

/// The sum of lanes [begin, end) of a block's.
HWY_INLINE float SumOfRows(const float* lanes, int begin, int end) {
  const DF d;
  const DI di;
  VF sum = hn::Zero(d);
  for (int v = begin / kLanes; v * kLanes < end; ++v) {
    const VI lane = hn::Add(hn::Iota(di, 0), hn::Set(di, v * kLanes));
    const auto within = hn::AndNot(hn::Lt(lane, hn::Set(di, begin)), hn::Lt(lane, hn::Set(di, end)));
    sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(d, within), hn::Load(d, lanes + v * kLanes)));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Adds what the block's rows have in each column bin to the bins of rows.
HWY_INLINE void FinishPooled(const WeightReductions& out, std::int64_t row, const WeightScratch& scratch,
                             const PooledRows& pooled) {
  if (out.pooled == nullptr) return;
  const PooledCols cols(out, *scratch.block);
  const std::int64_t first = out.row_origin + row;
  std::int64_t bin = BinOf(first, out.pooled_rows, out.q_len);
  for (int begin = 0; begin < scratch.block->num_rows; ++bin) {
    const int end =
        static_cast<int>(std::min<std::int64_t>(scratch.block->num_rows, BinBegin(bin + 1, out.pooled_rows, out.q_len) - first));
    for (std::int64_t c = cols.first; c < cols.end; ++c) {
      const float* const sums = pooled.sum + c * kQueryRows;
      out.pooled[bin * out.pooled_cols + c] += SumOfRows(sums, begin, end);
      if (pooled.max == nullptr) continue;
      float& max = out.pooled_max[bin * out.pooled_cols + c];
      for (int r = begin; r < end; ++r) {
        // The vector maximum drops NaN; the sum has kept it.
        const float of_row = std::isnan(sums[r]) ? sums[r] : pooled.max[c * kQueryRows + r];
        if (std::isnan(of_row) || of_row > max) max = of_row;
      }
    }
    begin = end;
  }
}

/// Weights by distance. Rows usually stand one behind the other: then a key's weights lie side by side among the distances too.
HWY_INLINE void AddDistances(const KvHead& kv, const WeightReductions& out, std::int64_t first_key, int n,
                             const WeightScratch& scratch) {
  const DF d;
  const QueryBlock& block = *scratch.block;
  bool consecutive = kv.key_positions == nullptr;
  for (int r = 1; r < block.num_rows; ++r) consecutive &= block.rows[r].position == block.rows[0].position + r;
  if (!consecutive) {
    for (int r = 0; r < block.num_rows; ++r) {
      if (block.key_begin[r] >= block.key_end[r]) continue;  // its position may be out of range
      const std::int64_t at = block.rows[r].position - out.first_distance;
      for (int key = 0; key < n; ++key) {
        const float w = scratch.keys->weights[key * kQueryRows + r];
        if (w != 0) out.distances[at - (kv.key_positions == nullptr ? first_key + key : kv.key_positions[first_key + key])] += w;
      }
    }
    return;
  }
  alignas(64) float sums[kKeyBlock + kQueryRows] = {};  // of distance position[0] − first_key − (kKeyBlock − 1) + i
  for (int key = 0; key < n; ++key) {
    float* const to = sums + kKeyBlock - 1 - key;
    for (int v = 0; v < block.num_vectors; ++v) {
      const VF w = hn::Load(d, scratch.keys->weights + key * kQueryRows + v * kLanes);
      hn::StoreU(hn::Add(hn::LoadU(d, to + v * kLanes), w), d, to + v * kLanes);
    }
  }
  const std::int64_t at = block.rows[0].position - first_key - (kKeyBlock - 1) - out.first_distance;
  for (int i = 0; i < kKeyBlock + kQueryRows; ++i) {
    if (sums[i] != 0) out.distances[at + i] += sums[i];
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
