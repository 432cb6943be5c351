// Dropout of the weights of one key block, rows in lanes: the mask of core/dropout.h, between the weights and what is made of them.
//
// Method     All lanes of a vector share the group of keys and the batch entry, and each has its own query and head, so that what the first
//            two rounds multiply is known beforehand: with X for the state after the first and Y after the second round,
//              X0 = hi(M1·head) ^ query ^ k0       X1 = lo(M1·head)          of the row
//              X2 = hi(M0·group) ^ batch ^ k1      X3 = lo(M0·group)         of the group
//              Y0 = hi(M1·X2) ^ X1 ^ k0'           Y1 = lo(M1·X2)
//              Y2 = hi(M0·X0) ^ X3 ^ k1'           Y3 = lo(M0·X0)
//            five rounds are left. They take 32-bit numbers in 64-bit lanes, even and odd rows apart, as multiplications do.
// Cost       per vector of rows and 8 keys some 90 operations, 20 of them multiplications; without dropout one branch a key block.
#if defined(REGARD_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_DROPOUT_INL_H_
#undef REGARD_KERNELS_DROPOUT_INL_H_
#else
#define REGARD_KERNELS_DROPOUT_INL_H_
#endif

#include "core/dropout.h"
#include "kernels/query_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

static_assert(kKeyBlock % kDropoutKeys == 0 && kDropoutKeys == 2 * kKeyTile);

HWY_INLINE std::uint32_t HighProduct(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
}

/// The words of the generator that key j of a group has its 16 bits in, of the rows of one vector.
struct DropoutWords {
  VU word[4];
};

#if REGARD_HAVE_BLOCKS

/// 32-bit numbers in the lower halves of 64-bit lanes; the upper halves hold anything.
struct PhiloxLanes {
  VU c0, c1, c2, c3;

  HWY_INLINE void Round(VU k0, VU k1) {
    const DU d;
    const auto p0 = hn::MulEven(c0, hn::Set(d, kPhiloxM0)), p1 = hn::MulEven(c2, hn::Set(d, kPhiloxM1));
    c0 = hn::Xor3(hn::BitCast(d, hn::ShiftRight<32>(p1)), c1, k0);
    c2 = hn::Xor3(hn::BitCast(d, hn::ShiftRight<32>(p0)), c3, k1);
    c1 = hn::BitCast(d, p1);
    c3 = hn::BitCast(d, p0);
  }
};

/// Of the rows from lane0 on.
HWY_INLINE DropoutWords WordsOfRows(const RowOptions& options, const QueryBlock& block, int lane0, std::uint32_t group) {
  const DU d;
  const hn::Repartition<std::uint64_t, DU> d64;
  std::uint32_t k0 = static_cast<std::uint32_t>(options.dropout_seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(options.dropout_seed >> 32);
  const std::uint32_t x2 = HighProduct(kPhiloxM0, group) ^ block.rows[0].batch ^ k1, x3 = kPhiloxM0 * group;
  const VU y0 = hn::Xor(hn::Load(d, block.dropout_y0 + lane0), hn::Set(d, HighProduct(kPhiloxM1, x2)));
  const VU y1 = hn::Set(d, kPhiloxM1 * x2);
  const VU y2 = hn::Xor(hn::Load(d, block.dropout_y2 + lane0), hn::Set(d, x3));
  const VU y3 = hn::Load(d, block.dropout_y3 + lane0);
  const auto odd_of = [&](VU x) HWY_ATTR { return hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, x))); };
  PhiloxLanes even = {y0, y1, y2, y3}, odd = {odd_of(y0), y1, odd_of(y2), odd_of(y3)};
  k0 += 2 * kPhiloxW0;
  k1 += 2 * kPhiloxW1;
  REGARD_UNROLL for (int round = 2; round < kPhiloxRounds; ++round, k0 += kPhiloxW0, k1 += kPhiloxW1) {
    even.Round(hn::Set(d, k0), hn::Set(d, k1));
    odd.Round(hn::Set(d, k0), hn::Set(d, k1));
  }
  const auto join = [&](VU e, VU o) HWY_ATTR { return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(d64, o))), e); };
  return {{join(even.c0, odd.c0), join(even.c1, odd.c1), join(even.c2, odd.c2), join(even.c3, odd.c3)}};
}

#else

HWY_INLINE DropoutWords WordsOfRows(const RowOptions& options, const QueryBlock& block, int lane0, std::uint32_t group) {
  const QueryRow& row = block.rows[std::min(lane0, block.num_rows - 1)];
  const PhiloxBlock words = Philox({group, row.query, row.head, row.batch}, options.dropout_seed);
  const DU d;
  return {{hn::Set(d, words[0]), hn::Set(d, words[1]), hn::Set(d, words[2]), hn::Set(d, words[3])}};
}

#endif

/// What the rows of a block bring into WordsOfRows.
HWY_NOINLINE inline void BeginDropout(const RowOptions& options, QueryBlock& block) {
  const std::uint32_t k0 = static_cast<std::uint32_t>(options.dropout_seed);
  const std::uint32_t k1 = static_cast<std::uint32_t>(options.dropout_seed >> 32);
  for (int r = 0; r < kQueryRows; ++r) {
    const QueryRow& row = block.rows[std::min(r, block.num_rows - 1)];
    const std::uint32_t x0 = HighProduct(kPhiloxM1, row.head) ^ row.query ^ k0;
    block.dropout_y0[r] = kPhiloxM1 * row.head ^ (k0 + kPhiloxW0);
    block.dropout_y2[r] = HighProduct(kPhiloxM0, x0) ^ (k1 + kPhiloxW1);
    block.dropout_y3[r] = kPhiloxM0 * x0;
  }
}

/// Where a word of weights, of the keys n of a group and the next in its word, is kept: f32.
HWY_INLINE MF KeptKey(const DropoutWords& words, int n, VU above) {
  const VU word = words.word[n / 2];
  return hn::RebindMask(DF(), hn::Gt(n % 2 == 0 ? hn::ShiftLeft<16>(word) : word, above));
}

/// Calls take(key, words) for each vector of rows and group of keys of the block that weights were written for; key counts from the block's
/// first.
template <class Take>
HWY_INLINE void ForEachDropoutGroup(const CallConstants& call, std::int64_t first_key, int n, const QueryBlock& block,
                                    const KeyBlock& keys, const Take& take) {
  const std::uint32_t first_group = static_cast<std::uint32_t>(call.options.dropout_first_group + first_key / kDropoutKeys);
  for (int key = 0; key < n; key += static_cast<int>(kDropoutKeys)) {
    const TileVectors &a = keys.scored[key / kKeyTile], &b = keys.scored[key / kKeyTile + 1];
    const int first = a.last < 0 ? b.first : b.last < 0 ? a.first : std::min(a.first, b.first), last = std::max(a.last, b.last);
    for (int v = first; v <= last; ++v) {
      const std::uint32_t group = first_group + static_cast<std::uint32_t>(key / kDropoutKeys);
      take(key, v * kLanes, WordsOfRows(call.options, block, v * kLanes, group));
    }
  }
}

/// Weights that are dropped become 0; what is kept is to be multiplied by dropout_multiplier later.
HWY_NOINLINE inline void DropWeights(const CallConstants& call, std::int64_t first_key, int n, const QueryBlock& block,
                                     KeyBlock& keys) {
  const auto drop = [&](int key, int lane0, const DropoutWords& words) HWY_ATTR {
    Word* HWY_RESTRICT to = WeightWords(keys) + key / kPerWord * kQueryRows + lane0;
#if REGARD_BF16_DOT
    // Two keys to a word there as here.
    const hn::Repartition<std::uint16_t, DU> d16;
    const auto above = hn::Set(d16, static_cast<std::uint16_t>(call.options.dropout_threshold - 1));
    REGARD_UNROLL for (int w = 0; w < 4; ++w, to += kQueryRows) {
      const auto kept = hn::Gt(hn::BitCast(d16, words.word[w]), above);
      hn::Store(hn::BitCast(DU(), hn::IfThenElseZero(kept, hn::BitCast(d16, hn::Load(DU(), to)))), DU(), to);
    }
#else
    const VU above = hn::Set(DU(), (call.options.dropout_threshold << 16) - 1);
    REGARD_UNROLL for (int j = 0; j < kDropoutKeys; ++j, to += kQueryRows) {
      hn::Store(hn::IfThenElseZero(KeptKey(words, j, above), hn::Load(DF(), to)), DF(), to);
    }
#endif
  };
  ForEachDropoutGroup(call, first_key, n, block, keys, drop);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
