// What backward fetches into the cache beside the products of a tile.
#if defined(REGARD_KERNELS_SOON_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_SOON_KEYS_INL_H_
#undef REGARD_KERNELS_SOON_KEYS_INL_H_
#else
#define REGARD_KERNELS_SOON_KEYS_INL_H_
#endif

#include <algorithm>

#include "kernels/tile_products-inl.h"

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
inline constexpr int kBackwardKeysAhead = 16;

/// What is fetched beside the products of a tile: rows of a later tile, and what the gradients of its own keys will be added to. Both were
/// last used before all other keys were, and may have left every cache.
struct SoonKeys {
  // Products of so many words stand between two fetches, of one line a row: in a burst they would keep the products' own loads waiting.
  static constexpr int kWordsPerFetch = 64 / static_cast<int>(sizeof(float));

  SoonRows rows, sums;

  HWY_INLINE SoonKeys Tile(int key) const { return {rows.Tile(key + kBackwardKeysAhead), sums.Tile(key)}; }
  HWY_INLINE void Fetch(std::int64_t i) const {
    rows.Fetch(i);
    sums.Fetch(i);
  }
};

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
