// Products of queries in lanes and rows of keys, tile by tile, for the backward kernels: one tile, or a run in which what becomes of a tile is
// done between the products of the next.
#if defined(REGARD_KERNELS_LANE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_LANE_PRODUCTS_INL_H_
#undef REGARD_KERNELS_LANE_PRODUCTS_INL_H_
#else
#define REGARD_KERNELS_LANE_PRODUCTS_INL_H_
#endif

#include <algorithm>

#include "kernels/query_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Rows that are wanted in the cache soon, counted from the first key of a block; none where there are fewer than kKeyTile.
struct SoonRows {
  const float* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t num_rows = 0;

  /// Those of the tile at `key`, or the last.
  HWY_INLINE SoonRows Tile(std::int64_t key) const {
    if (num_rows < kKeyTile) return {};
    return {data + std::min<std::int64_t>(key, num_rows - kKeyTile) * stride, stride, kKeyTile};
  }
  /// One line of each row of a tile, that of dim i, into the second cache level: the first is full of what is at work.
  HWY_INLINE void Fetch(std::int64_t i) const {
    if (num_rows == 0) return;
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) __builtin_prefetch(data + j * stride + i, 0, 2);
  }
};

// How many keys ahead of a tile rows are fetched: 8, 16 and 32 measured alike.
inline constexpr int kKeysAhead = 16;
// Products of so many dims stand between two fetches, of one line a row: in a burst they would keep the products' own loads waiting.
inline constexpr int kDimsPerFetch = 64 / static_cast<int>(sizeof(float));

/// What is fetched beside the products of a tile: rows of a later tile, and what the gradients of its own keys will be added to. Both were
/// last used before all other keys were, and may have left every cache.
struct SoonKeys {
  SoonRows rows, sums;

  HWY_INLINE SoonKeys Tile(int key) const { return {rows.Tile(key + kKeysAhead), sums.Tile(key)}; }
  HWY_INLINE void Fetch(std::int64_t i) const {
    rows.Fetch(i);
    sums.Fetch(i);
  }
};

/// The kKeyTile rows of a tile; those beyond the last are read as the last, and invisible.
struct RowTile {
  const float* rows[kKeyTile];

  HWY_INLINE RowTile(const FloatRows& of, int first_key, int num_keys) {
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) rows[j] = of.data + std::min(first_key + j, num_keys - 1) * of.stride;
  }
};

/// sums[v][j] += lane v · row j, of one dim.
template <int NV>
HWY_INLINE void AddLaneProduct(const float* HWY_RESTRICT lanes, const RowTile& tile, std::int64_t i, VF (&sums)[NV][kKeyTile]) {
  const DF d;
  VF x[NV];
  REGARD_UNROLL for (int v = 0; v < NV; ++v) x[v] = hn::Load(d, lanes + v * kLanes);
  REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
    const VF y = hn::Set(d, tile.rows[j][i]);
    REGARD_UNROLL for (int v = 0; v < NV; ++v) sums[v][j] = hn::MulAdd(x[v], y, sums[v][j]);
  }
}

/// The same of dims [i, dim), lanes being those of dim i.
template <int NV>
HWY_INLINE void AddLaneProducts(const float* HWY_RESTRICT lanes, const RowTile& tile, const SoonKeys& soon, std::int64_t i,
                                std::int64_t dim, VF (&sums)[NV][kKeyTile]) {
  while (i < dim) {
    soon.Fetch(i);
    for (const std::int64_t stop = std::min(i + kDimsPerFetch, dim); i < stop; ++i, lanes += kQueryRows) {
      AddLaneProduct<NV>(lanes, tile, i, sums);
    }
  }
}

/// A product of all query vectors with a block of keys.
struct LaneProducts {
  const float* lanes;   // [dim, kQueryRows]
  const float* starts;  // [kQueryRows], where sums start
  FloatRows rows;
  std::int64_t dim;
  SoonKeys soon;
};

// Dims whose products stand behind each of the kQueryVectors · kKeyTile vectors of sums that a run finishes.
inline constexpr int kDimsBetween = 3;
inline constexpr int kMinRunDims = kQueryVectors * kKeyTile * kDimsBetween;

/// Whole tiles [tile, end) in a run: finish(place, sums) of every vector of sums, place being its own in [kKeyBlock, kQueryRows], between the
/// products of the next tile, dim ≥ kMinRunDims. What it takes beside multiply-adds runs in pipes that products leave idle. Bits are those of
/// tiles one by one. buffer: a tile of sums.
template <class Finish>
HWY_NOINLINE void RunTiles(const LaneProducts& of, int tile, int end, float* HWY_RESTRICT buffer, const Finish& finish) {
  const DF d;
  constexpr int NV = kQueryVectors;
  const auto tile_rows = [&of](int t) HWY_ATTR { return RowTile(of.rows, t * kKeyTile, kKeyBlock); };
  const auto place = [](int t, int v, int j) { return (t * kKeyTile + j) * kQueryRows + v * kLanes; };
  VF s[NV][kKeyTile];
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    const VF start = hn::Load(d, of.starts + v * kLanes);
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) s[v][j] = start;
  }
  AddLaneProducts<NV>(of.lanes, tile_rows(tile), of.soon.Tile(tile * kKeyTile), 0, of.dim, s);
  for (; tile + 1 < end; ++tile) {
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF start = hn::Load(d, of.starts + v * kLanes);
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        hn::Store(s[v][j], d, buffer + (v * kKeyTile + j) * kLanes);
        s[v][j] = start;
      }
    }
    const RowTile rows = tile_rows(tile + 1);
    const SoonKeys soon = of.soon.Tile((tile + 1) * kKeyTile);
    const float* HWY_RESTRICT lanes = of.lanes;
    std::int64_t i = 0;
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      soon.Fetch(i);
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        finish(place(tile, v, j), hn::Load(d, buffer + (v * kKeyTile + j) * kLanes));
        REGARD_UNROLL for (int n = 0; n < kDimsBetween; ++n, ++i, lanes += kQueryRows) AddLaneProduct<NV>(lanes, rows, i, s);
      }
    }
    AddLaneProducts<NV>(lanes, rows, soon, i, of.dim, s);
  }
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) finish(place(tile, v, j), s[v][j]);
  }
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
