// Fused attention for many query rows, f32 in, f32 accumulate.
// Computes   context = softmax(options(scale q kT)) v and lse, reading k and v once per group of query blocks.
// Shapes     rows of q [head_dim] against k [kv_len, head_dim], v [kv_len, v_dim] -> context [v_dim], lse. Rows anywhere; k and v by row
//            stride in elements; no alignment.
// Method     Online softmax (Milakov & Gimelshein 2018, Alg. 3) over key blocks (Dao et al. 2022, Alg. 1), queries in lanes: a vector
//            holds one score of kLanes queries, so max, sum and reference are vertical operations.
//            per query block: pack q transposed, scaled to log2 units; state = no reference, 0, 0
//              per key block on a grid of kKeyBlock keys from key 0:
//                per tile of kKeyTile keys: s = q k − row_ref + options; where s > threshold: move row_ref, rescale that lane;
//                                           p = exp2(s); block_sum += p
//                row_sum += block_sum; acc += (p v summed over the block from 0)
//            finish: context = acc / row_sum; lse = ln 2 · row_ref + ln row_sum; the sink's term added here
// Numerics   exp2 within 2.5 ulp; invisible keys weigh exactly 0 and may hold anything; a row's bits depend on its own q, keys and
//            options alone: lanes never mix, tiles and blocks sit on an absolute grid, an invisible key adds exactly nothing.
//            Rows that see no key give 0 and −inf. Error bound: docs/numerics.md.
// Cost       per key block and kQueryRows rows: 2 · kQueryRows · kKeyBlock · (head_dim + v_dim) flop; per score about 7 more
//            operations on the multiply pipes, which caps the rate near 95 % of peak at dims 64 and 97.5 % at 128.
// Requires   plan-validated sizes, dims >= 1, no aliasing. noexcept, no allocation; scratch by PrefillScratchBytes.
// Dispatch   exported once below; tile sizes per target in tile_config-inl.h.
// See        fused_prefill_f32_test.cc, `regard bench` rows prefill; alternatives tried: docs/numerics.md, "Ladder".
#include <algorithm>
#include <new>
#include <utility>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/fused_prefill_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/query_block-inl.h"
#include "kernels/score_tile-inl.h"
#include "kernels/value_tile-inl.h"
#include "kernels/visibility-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// Query blocks that share each key block. Worth it when k and v of the head exceed the second cache level: otherwise every query
// block would fetch all of them again (head_dim 128, 8,192 keys: 75–80 → 87–90 % of peak on small pages).
inline constexpr int kMaxQueryBlocks = 4;
inline constexpr std::int64_t kSecondLevelCacheBytes = 1 << 20;

/// The parts of the caller's scratch, one after the other, each a multiple of 64 bytes.
struct PrefillScratch {
  QueryBlock* blocks;  // [kMaxQueryBlocks]
  KeyBlock* keys;
  float* floats;
};

HWY_INLINE std::int64_t FloatsOf(std::int64_t head_dim, std::int64_t v_dim) {
  const std::int64_t zeros = (std::max<std::int64_t>(head_dim, kKeyBlock) + 15) / 16 * 16;
  return zeros + 2 * kKeyBlock * kQueryRows + kMaxQueryBlocks * (head_dim + v_dim) * kQueryRows;
}

std::size_t PrefillScratchBytes(std::int64_t head_dim, std::int64_t v_dim) {
  return sizeof(QueryBlock) * kMaxQueryBlocks + sizeof(KeyBlock) +
         static_cast<std::size_t>(FloatsOf(head_dim, v_dim)) * sizeof(float);
}

HWY_INLINE PrefillScratch PlaceScratch(void* memory, std::int64_t head_dim, std::int64_t v_dim) {
  std::uint8_t* at = static_cast<std::uint8_t*>(memory);
  PrefillScratch scratch;
  scratch.blocks = reinterpret_cast<QueryBlock*>(at);
  at += sizeof(QueryBlock) * kMaxQueryBlocks;
  scratch.keys = new (at) KeyBlock;
  at += sizeof(KeyBlock);
  float* next = reinterpret_cast<float*>(at);
  const auto take = [&next](std::int64_t count) { return std::exchange(next, next + count); };
  scratch.keys->weights = take(kKeyBlock * kQueryRows);
  scratch.keys->bias = take(kKeyBlock * kQueryRows);
  for (int b = 0; b < kMaxQueryBlocks; ++b) {
    QueryBlock* block = new (scratch.blocks + b) QueryBlock;
    block->q = take(head_dim * kQueryRows);
    block->acc = take(v_dim * kQueryRows);
  }
  float* zeros = next;
  std::fill_n(zeros, std::max<std::int64_t>(head_dim, kKeyBlock), 0.0f);
  scratch.keys->zeros = zeros;
  for (int r = 0; r < kQueryRows; ++r) scratch.keys->lane_bit[r] = std::uint32_t{1} << (r & 31);
  return scratch;
}

/// One query block against the n keys from first_key on.
HWY_INLINE void AttendKeyBlock(const CallConstants& call, std::int64_t first_key, int n, QueryBlock& block, KeyBlock& keys) {
  const DF d;
  if (!SetVisible(call, block, first_key, n, keys)) return;
  if (call.options.has_bias) PackBias(block, n, keys);
  if (call.options.has_alibi) {
    for (int r = 0; r < kQueryRows; ++r) {
      keys.distance[r] = r < block.num_rows ? static_cast<float>(block.rows[r].position - first_key) : 0.0f;
    }
  }
  for (int r = 0; r < kQueryRows; r += kLanes) hn::Store(hn::Zero(d), d, block.block_sum + r);
  ScoreKeyBlock(call, first_key, n, block, keys);
  for (int r = 0; r < kQueryRows; r += kLanes) {
    hn::Store(hn::Add(hn::Load(d, block.row_sum + r), hn::Load(d, block.block_sum + r)), d, block.row_sum + r);
  }
  AddValues(keys, call.kv.v + first_key * call.kv.v_stride, call.kv.v_stride, call.kv.v_dim, block);
}

std::int64_t Prefill(const KvHead& kv, const RowOptions& options, const QueryRow* rows, std::int64_t num_rows, void* memory) {
  const PrefillScratch scratch = PlaceScratch(memory, kv.head_dim, kv.v_dim);
  const CallConstants call = MakeConstants(kv, options, kTanhPrescale);
  const bool fits = kv.kv_len * (kv.head_dim + kv.v_dim) * static_cast<std::int64_t>(sizeof(float)) <= kSecondLevelCacheBytes;
  const std::int64_t rows_at_once = (fits ? 1 : kMaxQueryBlocks) * kQueryRows;
  std::int64_t empty_rows = 0;
  for (std::int64_t row = 0; row < num_rows; row += rows_at_once) {
    int num_blocks = 0;
    std::int64_t begin = kv.kv_len;
    std::int64_t end = 0;
    for (std::int64_t r = row; r < std::min(row + rows_at_once, num_rows); r += kQueryRows) {
      QueryBlock& block = scratch.blocks[num_blocks++];
      const int rows_here = static_cast<int>(std::min<std::int64_t>(kQueryRows, num_rows - r));
      BeginQueryBlock(call, rows + r, rows_here, scratch.keys->zeros, block);
      begin = std::min(begin, block.min_begin);
      end = std::max(end, block.max_end);
    }
    const std::int64_t first = begin / kKeyBlock;
    const std::int64_t last = (end + kKeyBlock - 1) / kKeyBlock - 1;
    for (std::int64_t i = first; i <= last; ++i) {
      const std::int64_t key = (call.descending ? first + last - i : i) * kKeyBlock;
      const int n = static_cast<int>(std::min<std::int64_t>(kKeyBlock, kv.kv_len - key));
      for (int b = 0; b < num_blocks; ++b) AttendKeyBlock(call, key, n, scratch.blocks[b], *scratch.keys);
    }
    for (int b = 0; b < num_blocks; ++b) empty_rows += FinishQueryBlock(call, scratch.blocks[b]);
  }
  return empty_rows;
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(Prefill);
HWY_EXPORT(PrefillScratchBytes);

void AddPrefillF32(std::int64_t target, KernelTable& table) {
  table.prefill = HWY_DISPATCH_TABLE(Prefill)[DispatchIndex(target)];
  table.prefill_scratch_bytes = HWY_DISPATCH_TABLE(PrefillScratchBytes)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
