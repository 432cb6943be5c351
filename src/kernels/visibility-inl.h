// Which row sees which key of a block: intervals, bool masks and −inf biases become one word per key with one bit per row.
#if defined(REGARD_KERNELS_VISIBILITY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_VISIBILITY_INL_H_
#undef REGARD_KERNELS_VISIBILITY_INL_H_
#else
#define REGARD_KERNELS_VISIBILITY_INL_H_
#endif

#include <cstring>

#include "kernels/query_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// One bit per key of a block.
struct KeyBits {
  std::uint64_t word[kKeyBlock / 64];

  static KeyBits Range(int begin, int end) {
    KeyBits bits;
    for (int w = 0; w < kKeyBlock / 64; ++w) bits.word[w] = Below(end - 64 * w) & ~Below(begin - 64 * w);
    return bits;
  }
  void operator&=(const KeyBits& other) {
    for (int w = 0; w < kKeyBlock / 64; ++w) word[w] &= other.word[w];
  }

 private:
  static std::uint64_t Below(int n) { return n <= 0 ? 0 : n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1; }
};
static_assert(kKeyBlock % 64 == 0);

/// Bits of the nonzero ones among n ≤ kKeyBlock bytes.
HWY_INLINE KeyBits NonzeroBytes(const std::uint8_t* bytes, std::int64_t stride, int n) {
  KeyBits bits = {};
  int i = 0;
#if REGARD_HAVE_BLOCKS
  if (stride == 1) {
    const hn::CappedTag<std::uint8_t, 64> d;
    constexpr int kBytes = static_cast<int>(hn::MaxLanes(d));
    for (; i + kBytes <= n; i += kBytes) {
      std::uint8_t packed[8] = {};
      hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, bytes + i), hn::Zero(d)), packed);
      std::uint64_t word = 0;
      for (int b = 0; b < kBytes / 8; ++b) word |= std::uint64_t{packed[b]} << (8 * b);
      bits.word[i / 64] |= word << (i % 64);
    }
  }
#endif
  for (; i < n; ++i) bits.word[i / 64] |= std::uint64_t{bytes[i * stride] != 0} << (i % 64);
  return bits;
}

/// Bits of those among n ≤ kKeyBlock biases that are not −inf.
HWY_NOINLINE inline KeyBits ShownByBias(const float* values, std::int64_t stride, int n) {
  KeyBits bits = {};
  int i = 0;
#if REGARD_HAVE_BLOCKS
  if (stride == 1) {
    const DF d;
    for (; i + kLanes <= n; i += kLanes) {
      std::uint8_t packed[8] = {};
      // Not by Ne, which on AVX says of a NaN that it does not differ: a NaN is seen.
      hn::StoreMaskBits(d, hn::Not(hn::Eq(hn::LoadU(d, values + i), hn::Set(d, -kInf))), packed);
      bits.word[i / 64] |= std::uint64_t{packed[0] | std::uint32_t{packed[1]} << 8} << (i % 64);
    }
  }
#endif
  for (; i < n; ++i) bits.word[i / 64] |= std::uint64_t{values[i * stride] != -kInf} << (i % 64);
  return bits;
}

/// staged[k] = log2 e · values[k · stride], at least kLowestBias, for n ≤ kKeyBlock keys; returns the bits of those that are not −inf. Most rows hold
/// none that is, and are not asked for bits (biases 1.26 → 1.23 times the time of none, on a busy machine).
HWY_INLINE KeyBits StageBias(const float* values, std::int64_t stride, int n, float* HWY_RESTRICT staged) {
  const float to_log2 = static_cast<float>(kLog2E);
  bool hides = false;
  int i = 0;
#if REGARD_HAVE_BLOCKS
  if (stride == 1) {
    const DF d;
    const VF lowest = hn::Set(d, kLowestBias);
    MF hidden = hn::Ne(lowest, lowest);
    for (; i + kLanes <= n; i += kLanes) {
      const VF bias = hn::LoadU(d, values + i);
      const VF scaled = hn::Mul(bias, hn::Set(d, to_log2));
      hidden = hn::Or(hidden, hn::Eq(bias, hn::Set(d, -kInf)));
#if REGARD_MAX_KEEPS_NAN
      hn::Store(hn::Max(lowest, scaled), d, staged + i);
#else
      hn::Store(hn::IfThenElse(hn::Lt(scaled, lowest), lowest, scaled), d, staged + i);
#endif
    }
    hides = !hn::AllFalse(d, hidden);
  }
#endif
  for (; i < n; ++i) {
    staged[i] = std::max(to_log2 * values[i * stride], kLowestBias);  // in this order a NaN stays
    hides |= values[i * stride] == -kInf;
  }
  return HWY_LIKELY(!hides) ? KeyBits::Range(0, n) : ShownByBias(values, stride, n);
}

/// 64×64 bits: bit c of rows[r] and bit r of rows[c] change places (Warren, Hacker's Delight, 7-3).
HWY_INLINE void TransposeBits(std::uint64_t* rows) {
  std::uint64_t mask = 0x00000000FFFFFFFFu;
  for (int width = 32; width != 0; width >>= 1, mask ^= mask << width) {
    for (int r = 0; r < 64; r = (r + width + 1) & ~width) {
      const std::uint64_t swap = (rows[r] >> width ^ rows[r + width]) & mask;
      rows[r] ^= swap << width;
      rows[r + width] ^= swap;
    }
  }
}

/// Words from intervals alone: a row toggles its bit where its interval begins and where it ends.
HWY_INLINE void SetVisibleFromIntervals(const QueryBlock& block, std::int64_t first_key, int n, KeyBlock& keys) {
  std::uint64_t toggles[kKeyBlock + 1] = {};
  const auto in_block = [&](std::int64_t key) { return std::clamp<std::int64_t>(key - first_key, 0, n); };
  for (int r = 0; r < block.num_rows; ++r) toggles[in_block(block.key_end[r])] ^= std::uint64_t{1} << r;
  std::uint64_t word = block.all_rows;
  if (block.max_begin > first_key) {
    word = 0;
    for (int r = 0; r < block.num_rows; ++r) toggles[in_block(block.key_begin[r])] ^= std::uint64_t{1} << r;
  }
  for (int k = 0; k < kKeyBlock; ++k) keys.visible[k] = word ^= toggles[k];
}

/// Words from masks and biases too. Returns false, with the words untouched, when these hide nothing that the intervals show.
/// Stages biases [kQueryRows, kKeyBlock] in the memory of the weights, which are not there yet: each row is read from memory once, in
/// one run. Transposed straight from where they are, rows a power of two apart would drive each other out of the first cache level.
HWY_NOINLINE inline bool SetVisibleFromMasks(const CallConstants& call, const QueryBlock& block, std::int64_t first_key, int n,
                                             KeyBlock& keys) {
  constexpr int kWords = kKeyBlock / 64;
  const RowOptions& options = call.options;
  const bool has_mask = options.has_mask && options.mask_key_stride != 0;
  std::uint64_t rows[kWords][64] = {};
  std::uint64_t hidden = 0;
  KeyBits unmasked = KeyBits::Range(0, n);
  for (int r = 0; r < block.num_rows; ++r) {
    const QueryRow& row = block.rows[r];
    if (has_mask && (r == 0 || row.mask != block.rows[r - 1].mask)) {  // broadcast masks hand the same row to every query
      unmasked = NonzeroBytes(row.mask + first_key * options.mask_key_stride, options.mask_key_stride, n);
    }
    KeyBits shown = unmasked;
    if (options.has_bias) {
      shown &=
          StageBias(row.bias + first_key * options.bias_key_stride, options.bias_key_stride, n, keys.weights + r * kKeyBlock);
    }
    const auto in_block = [&](std::int64_t key) { return static_cast<int>(std::clamp<std::int64_t>(key - first_key, 0, n)); };
    const KeyBits interval = KeyBits::Range(in_block(block.key_begin[r]), in_block(block.key_end[r]));
    for (int w = 0; w < kWords; ++w) {
      rows[w][r] = interval.word[w] & shown.word[w];
      hidden |= interval.word[w] & ~shown.word[w];
    }
  }
  if (hidden == 0) return false;
  for (int w = 0; w < kWords; ++w) {
    TransposeBits(rows[w]);
    std::memcpy(keys.visible + 64 * w, rows[w], sizeof(rows[w]));
  }
  return true;
}

/// Staged biases into lanes.
HWY_INLINE void PackBias(const QueryBlock& block, int n, KeyBlock& keys) {
  const float* rows[kQueryRows];
  for (int r = 0; r < kQueryRows; ++r) rows[r] = r < block.num_rows ? keys.weights + r * kKeyBlock : keys.zeros;
  RowsToLanes(rows, n, 1.0f, keys.bias);
}

/// Settles which rows see which of the n keys from first_key on. Returns false when none sees any.
HWY_INLINE bool SetVisible(const CallConstants& call, const QueryBlock& block, std::int64_t first_key, int n, KeyBlock& keys) {
  if (block.min_begin >= first_key + n || block.max_end <= first_key) return false;
  const RowOptions& options = call.options;
  const bool has_rows = (options.has_mask && options.mask_key_stride != 0) || options.has_bias;
  if (has_rows && SetVisibleFromMasks(call, block, first_key, n, keys)) {
    keys.has_visible = true;
    std::uint64_t any = 0;
    for (int k = 0; k < n; ++k) any |= keys.visible[k];
    return any != 0;
  }
  // A last tile of fewer than kKeyTile keys needs words for the keys that do not exist.
  keys.has_visible = block.max_begin > first_key || block.min_end < first_key + n || n % kKeyTile != 0;
  if (keys.has_visible) SetVisibleFromIntervals(block, first_key, n, keys);
  return true;
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
