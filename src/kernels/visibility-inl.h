// Which row sees which key of a block: intervals, bool masks and −inf biases become one word per key with one bit per row.
#if defined(REGARD_KERNELS_VISIBILITY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_VISIBILITY_INL_H_
#undef REGARD_KERNELS_VISIBILITY_INL_H_
#else
#define REGARD_KERNELS_VISIBILITY_INL_H_
#endif

#include <cstring>

#include "src/kernels/query_block-inl.h"

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

/// Bits of those among n ≤ kKeyBlock floats that are not −inf.
HWY_INLINE KeyBits AboveMinusInf(const float* values, std::int64_t stride, int n) {
  KeyBits bits = {};
  int i = 0;
#if REGARD_HAVE_BLOCKS
  if (stride == 1) {
    const DF d;
    for (; i + kLanes <= n; i += kLanes) {
      std::uint8_t packed[8] = {};
      hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, values + i), hn::Set(d, -kInf)), packed);
      bits.word[i / 64] |= std::uint64_t{packed[0] | std::uint32_t{packed[1]} << 8} << (i % 64);
    }
  }
#endif
  for (; i < n; ++i) bits.word[i / 64] |= std::uint64_t{values[i * stride] != -kInf} << (i % 64);
  return bits;
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
  for (int r = 0; r < block.num_rows; ++r) {
    const std::int64_t begin = std::clamp<std::int64_t>(block.key_begin[r] - first_key, 0, n);
    const std::int64_t end = std::clamp<std::int64_t>(block.key_end[r] - first_key, 0, n);
    toggles[begin] ^= std::uint64_t{1} << r;
    toggles[end] ^= std::uint64_t{1} << r;
  }
  std::uint64_t word = 0;
  for (int k = 0; k < kKeyBlock; ++k) keys.visible[k] = word ^= toggles[k];
}

/// Words from masks and biases too. Returns false, with the words untouched, when these hide nothing that the intervals show.
HWY_NOINLINE inline bool SetVisibleFromMasks(const CallConstants& call, const QueryBlock& block, std::int64_t first_key, int n,
                                             KeyBlock& keys) {
  constexpr int kWords = kKeyBlock / 64;
  const std::int64_t mask_stride = call.options.has_mask ? call.options.mask_key_stride : 0;
  const std::int64_t bias_stride = call.options.has_bias ? call.options.bias_key_stride : 0;
  std::uint64_t rows[kWords][64] = {};
  std::uint64_t hidden = 0;
  KeyBits shown = {};
  for (int r = 0; r < block.num_rows; ++r) {
    const QueryRow& row = block.rows[r];
    // Broadcast masks hand the same row to every query.
    const bool new_row = r == 0 || (mask_stride != 0 && row.mask != block.rows[r - 1].mask) ||
                         (bias_stride != 0 && row.bias != block.rows[r - 1].bias);
    if (new_row) {
      shown = KeyBits::Range(0, n);
      if (mask_stride != 0) shown &= NonzeroBytes(row.mask + first_key * mask_stride, mask_stride, n);
      if (bias_stride != 0) shown &= AboveMinusInf(row.bias + first_key * bias_stride, bias_stride, n);
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

/// Settles which rows see which of the n keys from first_key on. Returns false when none sees any.
HWY_INLINE bool SetVisible(const CallConstants& call, const QueryBlock& block, std::int64_t first_key, int n, KeyBlock& keys) {
  if (block.min_begin >= first_key + n || block.max_end <= first_key) return false;
  const RowOptions& options = call.options;
  const bool may_hide = (options.has_mask && options.mask_key_stride != 0) || (options.has_bias && options.bias_key_stride != 0);
  if (may_hide && SetVisibleFromMasks(call, block, first_key, n, keys)) {
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
