// Tile sizes per target: the only place that compares HWY_TARGET.
#if defined(REGARD_KERNELS_TILE_CONFIG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_TILE_CONFIG_INL_H_
#undef REGARD_KERNELS_TILE_CONFIG_INL_H_
#else
#define REGARD_KERNELS_TILE_CONFIG_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

// A target with one lane has no 128-bit blocks to shuffle.
#undef REGARD_HAVE_BLOCKS
#define REGARD_HAVE_BLOCKS (HWY_TARGET != HWY_SCALAR)

// Where Max(a, b) is b when either is NaN. NEON's and that of the portable target drop a NaN.
#undef REGARD_MAX_KEEPS_NAN
#define REGARD_MAX_KEEPS_NAN (HWY_ARCH_X86 && REGARD_HAVE_BLOCKS)

// Where Highway converts f16 with an instruction of the machine. Its own way elsewhere takes inf and NaN for numbers.
#undef REGARD_CONVERTS_F16
#define REGARD_CONVERTS_F16 (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON)

// Whether exp2 looks powers up: 32 numbers in two registers of 32, by one instruction.
#undef REGARD_EXP2_BY_TABLE
#define REGARD_EXP2_BY_TABLE (HWY_TARGET == HWY_AVX3)

// Arrays of vectors stay in registers when every loop over them is unrolled whole.
#undef REGARD_UNROLL
#define REGARD_UNROLL _Pragma("GCC unroll 16")
#undef REGARD_UNROLL_LONG
#define REGARD_UNROLL_LONG _Pragma("GCC unroll 32")
// Loops of products, four steps at a time where a step is short (Zen 3: T = 128 +5 %, T = 2,048 +2 %). By GCC itself: where the steps are written
// out it mixes them, and accumulators leave the registers. Not measured with AVX-512, whose steps take three times as long.
#undef REGARD_UNROLL_FEW
#if HWY_TARGET == HWY_AVX3
#define REGARD_UNROLL_FEW
#else
#define REGARD_UNROLL_FEW _Pragma("GCC unroll 4")
#endif

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<std::int32_t>;
using DU = hn::ScalableTag<std::uint32_t>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
using MF = hn::Mask<DF>;

inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));

// A prefill tile is kQueryVectors vectors of queries by kKeyTile keys. It holds kQueryVectors · kKeyTile accumulators plus
// kQueryVectors loaded vectors plus one broadcast, which must fit the register file: 16 + 4 + 1 of 32 with AVX-512,
// 12 + 3 + 1 of 16 otherwise. On Zen 4 neighbouring shapes (3×8, 6×4, 2×8) were within 1.5 points on AVX-512; on AVX2 2×4 lost 4
// points and 3×8 spilled and lost 25.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kQueryVectors = 4;
#else
inline constexpr int kQueryVectors = 3;
#endif
inline constexpr int kKeyTile = 4;

// Whether a run of tiles takes what becomes of each between the products of the next (RunTiles): 16 accumulators and what exponentials need
// fit 32 registers, not 16.
inline constexpr bool kInterleaves = HWY_TARGET == HWY_AVX3;

// Query blocks that may share each key block. Those of AVX2 have 24 rows, of AVX-512 64 (AVX2, 8 instead of 4: 8,192 keys of head_dim 128
// +6 %, 2,048 +1; 12: +9, but −2).
inline constexpr int kMaxQueryBlocks = HWY_TARGET == HWY_AVX2 ? 8 : 4;

// What k and v of a query block may take until blocks share them: half of the second cache level, which is 512 KB in a CPU with AVX2 at best (Zen 3)
// and 1 MB or more in most with AVX-512. With 256 KB AVX2 won 0.5 to 4 % (512 keys of head_dim 128, 1,024 of 64), more beside others' work.
inline constexpr std::int64_t kMaxUnsharedBytes = HWY_TARGET == HWY_AVX2 ? 1 << 18 : 1 << 19;

// Whether a query block of one vector is avoided: on AVX2 its four accumulators leave the multiply pipes half idle.
inline constexpr bool kAvoidsLoneVectors = HWY_TARGET == HWY_AVX2;

// Whether lanes are compressed by an instruction. Highway 1.0.3 looks the order of 8 lanes up in a table, of which GCC 12 makes a copy each
// time: a tenth of all summaries together.
inline constexpr bool kCompresses = HWY_TARGET == HWY_AVX3;

// Keys per block: weights of one query tile (kQueryRows · kKeyBlock · 4 bytes, 32 KB with AVX-512) stay in the first two cache
// levels. 64, 128 and 256 measured alike. Part of the result's definition: sums are taken per block.
inline constexpr int kKeyBlock = 128;

// Keys per decode sub-block. Its k and v rows, each read in one run, take turns: 32, 64 and 128 keys gave 62, 68 and 80 % of the read
// bandwidth where 16 gave 90 (another day 52 and 57 where 16 gave 72).
inline constexpr int kSubBlock = 16;

// Whether registers hold the queries that decode scores: two rows of up to 8 vectors, 16 + 8 accumulators + 1. Elsewhere up to four rows share the
// loads of a query and of two keys, 8 accumulators + 4, and lines are asked for by SoonLines.
inline constexpr bool kHoldsQueries = HWY_TARGET == HWY_AVX3;
// Vectors of columns that decode weighs for two rows at once: 16 accumulators of 32 registers with AVX-512, 8 of 16 otherwise.
inline constexpr int kDecodeTileColumns = HWY_TARGET == HWY_AVX3 ? 8 : 4;

// Backward gathers for kKeyTile keys at once kGatherVectors vectors of columns: 16 accumulators + 4 rows + 1 broadcast of 32 registers
// with AVX-512, 12 + 3 + 1 of 16 otherwise.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kGatherVectors = 4;
#else
inline constexpr int kGatherVectors = 3;
#endif

inline constexpr int kQueryRows = kQueryVectors * kLanes;
static_assert(kQueryRows <= 64, "visibility keeps one bit per row in a 64-bit word");

/// GCC 12 folds a load into each of two uses as a memory operand, which doubles the loads where those are scarce. This pins it.
template <class V>
HWY_INLINE void KeepInRegister(V& v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL && REGARD_HAVE_BLOCKS
  asm("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

/// The same, and whatever is read from memory after it in the source is read after it. GCC 12 moves loads ahead, even of rows that come
/// later, and a stream out of order is none to the machine's prefetchers: 62 → 73 % of the read bandwidth.
template <class V>
HWY_INLINE void KeepReadOrder(V& v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL && REGARD_HAVE_BLOCKS
  asm volatile("" : "+v"(v.raw) : : "memory");
#else
  (void)v;
#endif
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
