// Products of rows in lanes with rows of keys, a tile at a time: one tile, or a run of them in which what becomes of each is done between
// the products of the next. Forward, second pass and backward take their tiles here.
#if defined(REGARD_KERNELS_TILE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_TILE_PRODUCTS_INL_H_
#undef REGARD_KERNELS_TILE_PRODUCTS_INL_H_
#else
#define REGARD_KERNELS_TILE_PRODUCTS_INL_H_
#endif

#include <algorithm>

#include "kernels/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Words that the weights of a tile take in one lane.
inline constexpr int kTileWords = kKeyTile / kPerWord;
static_assert(kKeyTile % kPerWord == 0);

/// The rows of a tile; those beyond the last of a block are read as the last, and invisible.
struct TileKeys {
  const Element* rows[kKeyTile];

  HWY_INLINE TileKeys(const KeyRows<Element>& of, int first_key, int num_keys) {
    REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) rows[j] = of.data + std::min(first_key + j, num_keys - 1) * of.stride;
  }
};

/// Adds the products of word i of NV vectors of lanes, which are at `lanes`, and the keys.
template <int NV>
HWY_INLINE void MultiplyWord(const Word* HWY_RESTRICT lanes, const TileKeys& keys, std::int64_t i, VF (&s)[NV][kKeyTile]) {
  const DW dw;
  VW x[NV];
  REGARD_UNROLL for (int v = 0; v < NV; ++v) x[v] = hn::Load(dw, lanes + v * kLanes);
  REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
    const VW y = hn::Set(dw, LoadWord(keys.rows[j], i));
    REGARD_UNROLL for (int v = 0; v < NV; ++v) s[v][j] = MulAddWords(x[v], y, s[v][j]);
  }
}

/// Nothing is fetched beside the products.
struct NoSoon {
  HWY_INLINE NoSoon Tile(int) const { return {}; }
  HWY_INLINE void Fetch(std::int64_t) const {}
  static constexpr int kWordsPerFetch = 0;  // none
};

/// Vectors of lanes against a block of keys. Soon: what is fetched into the cache beside the products, as SoonKeys.
template <class Soon = NoSoon>
struct TileProducts {
  const Word* lanes;             // [words, kQueryRows], from the first of the vectors on
  const float* starts;           // where the sums of each lane start
  const KeyRows<Element>& rows;  // of the block
  int num_keys;                  // in the block
  std::int64_t words;
  float factor = 1;  // of FinishScore
  Soon soon = {};

  HWY_INLINE VF Start(int v) const { return hn::Load(DF(), starts + v * kLanes); }
  /// Of the tile whose first key is `key`.
  HWY_INLINE TileKeys Keys(int key) const { return TileKeys(rows, key, num_keys); }

  /// Words [i, words) of a tile, `at` being the lanes of word i.
  template <int NV>
  HWY_INLINE void Multiply(const Word* HWY_RESTRICT at, const TileKeys& keys, [[maybe_unused]] const Soon& soon_keys,
                           std::int64_t i, VF (&s)[NV][kKeyTile]) const {
    if constexpr (Soon::kWordsPerFetch == 0) {
      REGARD_UNROLL_FEW
      for (; i < words; ++i, at += kQueryRows) MultiplyWord(at, keys, i, s);
    } else {
      while (i < words) {
        soon_keys.Fetch(i);
        const std::int64_t stop = std::min(words, i + Soon::kWordsPerFetch);
        REGARD_UNROLL_FEW
        for (; i < stop; ++i, at += kQueryRows) {
          MultiplyWord(at, keys, i, s);
        }
      }
    }
  }

  /// The sums of the tile whose first key is `key`, to be finished.
  template <int NV>
  HWY_INLINE void Sum(int key, VF (&s)[NV][kKeyTile]) const {
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF from = StartOfProducts(Start(v));
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) s[v][j] = from;
    }
    Multiply(lanes, Keys(key), soon.Tile(key), 0, s);
  }
  template <int NV>
  HWY_INLINE void Finish(VF (&s)[NV][kKeyTile]) const {
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) s[v][j] = FinishScore(s[v][j], Start(v), factor);
    }
  }
};

// Words of the next tile's products behind each Take of a run. At T = 2,048, full, in parts of the time tile by tile: bf16 97.6 and 98.8 %
// (head_dim 64 and 128), f32 100 and 98.9 %; 1, 2 or 4 words: longer; inner loops instead of this unrolling: 105 %.
inline constexpr int kWordsBetween = 3;
/// The fewest words that tiles of so many vectors of rows may have in a run.
HWY_INLINE constexpr std::int64_t MinRunWords(int num_vectors) {
  return kInterleaves ? num_vectors * kTileWords * kWordsBetween : 0;
}

/// Gives the finished sums of the tile at `key` to `to`, see RunTiles.
template <int NV, class To>
HWY_INLINE bool GiveTile(int key, const VF (&s)[NV][kKeyTile], To& to) {
  to.Begin(key);
  REGARD_UNROLL for (int v = 0; v < NV; ++v) {
    to.BeginVector(v);
    REGARD_UNROLL for (int j = 0; j < kTileWords; ++j) {
      to.Take(
          v, j, [&](int e) HWY_ATTR __attribute__((always_inline)) { return s[v][j * kPerWord + e]; });
    }
    to.EndVector(v);
  }
  return to.End();
}

/// Tiles [tile, end) in a run, of at least MinRunWords words: where registers allow, what `to` does with the sums of each stands between the
/// products of the next, and runs in pipes that products leave idle; elsewhere a run saves the calls (AVX2, T = 2,048, head_dim 64: 84.9 to
/// 86.4 % of the peak). Bits are those of tiles one by one. parked: memory for a tile of sums.
///   to.Begin(key), of each tile in turn, key being its first in the block
///   to.BeginVector(v), to.EndVector(v) around what concerns vector v
///   to.Take(v, j, sum_of)  sum_of(e): the sum of vector v with key e of word j
///   to.End()               whether to go on
/// Returns the tile whose End said no, or else end.
template <int NV, class Soon, class To>
HWY_INLINE int RunTiles(const TileProducts<Soon>& of, int tile, int end, float* HWY_RESTRICT parked, To& to) {
  const DF d;
  VF s[NV][kKeyTile];
  if constexpr (!kInterleaves) {
    for (; tile < end; ++tile) {
      of.Sum(tile * kKeyTile, s);
      of.Finish(s);
      if (HWY_UNLIKELY(!GiveTile(tile * kKeyTile, s, to))) return tile;
    }
    return end;
  }
  of.Sum(tile * kKeyTile, s);
  for (; tile + 1 < end; ++tile) {
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      const VF start = of.Start(v);
      REGARD_UNROLL for (int j = 0; j < kKeyTile; ++j) {
        hn::Store(FinishScore(s[v][j], start, of.factor), d, parked + (v * kKeyTile + j) * kLanes);
        s[v][j] = StartOfProducts(start);
      }
    }
    const TileKeys keys = of.Keys((tile + 1) * kKeyTile);
    const Soon soon = of.soon.Tile((tile + 1) * kKeyTile);
    const Word* HWY_RESTRICT lanes = of.lanes;
    std::int64_t i = 0;
    to.Begin(tile * kKeyTile);
    REGARD_UNROLL for (int v = 0; v < NV; ++v) {
      to.BeginVector(v);
      soon.Fetch(i);
      REGARD_UNROLL for (int j = 0; j < kTileWords; ++j) {
        to.Take(
            v, j, [&](int e) HWY_ATTR __attribute__((always_inline)) {
              return hn::Load(d, parked + (v * kKeyTile + j * kPerWord + e) * kLanes);
            });
        REGARD_UNROLL for (int n = 0; n < kWordsBetween; ++n, ++i, lanes += kQueryRows) MultiplyWord(lanes, keys, i, s);
      }
      to.EndVector(v);
    }
    of.Multiply(lanes, keys, soon, i, s);
    if (HWY_UNLIKELY(!to.End())) return tile;
  }
  of.Finish(s);
  return GiveTile(tile * kKeyTile, s, to) ? end : tile;
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
