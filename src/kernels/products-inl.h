// The products of the prefill loop and of the second pass: what q, k, v and weights are while they are multiplied.
//
// Everything is multiplied in words of 32 bits. Everywhere but in AVX3_BF16 a word is one f32, and a step one multiply-add. There it is a
// pair of bf16 numbers, and a step multiplies and adds both (vdpbf16ps): neighbours of a row of q and k; of weights and values, those of
// two neighbouring keys. A row of k is read where it is stored; values are paired once a key block, weights as they are made.
#if defined(REGARD_KERNELS_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_PRODUCTS_INL_H_
#undef REGARD_KERNELS_PRODUCTS_INL_H_
#else
#define REGARD_KERNELS_PRODUCTS_INL_H_
#endif

#include <cstring>

#include "kernels/kernels.h"
#include "kernels/stored_rows-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

#if REGARD_BF16_DOT

using Element = std::uint16_t;  // of a row of k
using Word = std::uint32_t;
using DW = DU;
using VW = VU;
inline constexpr int kPerWord = 2;

/// std::bit_cast is a function, and without the attributes of this target.
HWY_INLINE VF MulAddWords(VW a, VW b, VF sum) {
  return VF{_mm512_dpbf16_ps(sum.raw, __builtin_bit_cast(__m512bh, a.raw), __builtin_bit_cast(__m512bh, b.raw))};
}

HWY_INLINE Word LoadWord(const Element* row, std::int64_t i) {
  Word word;
  std::memcpy(&word, row + kPerWord * i, sizeof(word));  // rows may begin at any element
  return word;
}

/// A query where it is stored, as bf16.
HWY_INLINE const Element* QueryElements(const RowOptions&, const QueryRow& row, std::int64_t, float*) {
  return static_cast<const Element*>(row.q);
}

/// lanes[i · kQueryRows + r] = elements 2i and 2i + 1 of row r; a last odd one has a 0 behind it.
/// Scores are scaled afterwards: q · factor would be rounded again.
HWY_INLINE void PackQueries(const Element* const* rows, std::int64_t head_dim, float, Word* lanes) {
  const std::int64_t whole = head_dim / kPerWord;
  WordsToLanes(rows, whole, lanes);
  if (whole * kPerWord == head_dim) return;
  for (int r = 0; r < kQueryRows; ++r) lanes[whole * kQueryRows + r] = rows[r][head_dim - 1];
}

/// What products came to, from `start` on.
HWY_INLINE VF FinishScore(VF sum, VF start, float factor) { return hn::MulAdd(sum, hn::Set(DF(), factor), start); }
HWY_INLINE VF StartOfProducts(VF) { return hn::Zero(DF()); }

/// Rounds the weights of two keys to bf16, to nearest, ties to even.
HWY_INLINE VW ToWords(const VF (&p)[kPerWord]) {
  const hn::Repartition<std::uint16_t, DF> d16;
  // 32 numbers, p[1] above p[0]: what pairs them.
  alignas(64) static constexpr std::uint16_t kPairs[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                           8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto both = __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(p[1].raw, p[0].raw));
  return VW{_mm512_permutexvar_epi16(hn::Load(d16, kPairs).raw, both)};
}

HWY_INLINE void ScaleWords(Word* words, VF factor) {
  const DU d;
  const VU pair = hn::Load(d, words);
  const VF p[kPerWord] = {hn::Mul(hn::BitCast(DF(), hn::ShiftLeft<16>(pair)), factor),
                          hn::Mul(hn::BitCast(DF(), hn::And(pair, hn::Set(d, 0xFFFF0000u))), factor)};
  hn::Store(ToWords(p), d, words);
}

/// sum + p v in lanes that see a key, given the visibility of the word's keys and the lanes' bit; the other lanes have p = 0, and v may be
/// anything for them.
HWY_INLINE VF MulAddSeen(const std::uint64_t* visible, int half, VU bit, VW p, Word v, VF sum) {
  const DU d;
  const auto sees = [&](int key)
                        HWY_ATTR { return hn::TestBit(hn::Set(d, static_cast<std::uint32_t>(visible[key] >> half)), bit); };
  const VU low = hn::IfThenElseZero(sees(0), hn::Set(d, v & 0x0000FFFFu));
  const VU high = hn::IfThenElseZero(sees(1), hn::Set(d, v & 0xFFFF0000u));
  return MulAddWords(p, hn::Or(low, high), sum);
}

/// Rows of k as they are stored, if they are whole words in one run, or else copied with a 0 behind them.
HWY_INLINE KeyRows<Element> BindKeyRows(const StoredRows& rows, std::int64_t first, std::int64_t n, std::int64_t dim,
                                        float* copy) {
  if (dim % kPerWord == 0 && InOneRun(rows, first, n)) {
    return {reinterpret_cast<const Element*>(StoredRow(rows, first)), rows.stride};
  }
  Element* const to = reinterpret_cast<Element*>(copy);
  const std::int64_t stride = dim + dim % kPerWord;
  for (std::int64_t j = 0; j < n; ++j) {
    std::memcpy(to + j * stride, StoredRow(rows, first + j), static_cast<std::size_t>(dim) * sizeof(Element));
    if (stride != dim) to[j * stride + dim] = 0;
  }
  return {to, stride};
}

/// Rows of v in pairs of keys: [(n + 1) / 2, Padded(dim)] words. A last odd key has zeros beside it.
HWY_NOINLINE inline KeyRows<Word> BindValueRows(const StoredRows& rows, std::int64_t first, std::int64_t n, std::int64_t dim,
                                                float* copy) {
  const DU d;
  const hn::Rebind<std::uint16_t, DU> d16;
  const std::int64_t whole = dim / kLanes * kLanes, stride = Padded(dim);
  alignas(64) static constexpr std::uint16_t kZeros[kLanes] = {};
  Word* to = reinterpret_cast<Word*>(copy);
  for (std::int64_t j = 0; j < n; j += kPerWord, to += stride) {
    const auto* const even = reinterpret_cast<const std::uint16_t*>(StoredRow(rows, first + j));
    const bool alone = j + 1 == n;
    const auto* const odd = alone ? kZeros : reinterpret_cast<const std::uint16_t*>(StoredRow(rows, first + j + 1));
    const auto pair = [&](const std::uint16_t* low, const std::uint16_t* high, Word* at) HWY_ATTR {
      const VU above = hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(d16, high)));
      hn::Store(hn::Or(hn::PromoteTo(d, hn::LoadU(d16, low)), above), d, at);
    };
    for (std::int64_t c = 0; c < whole; c += kLanes) pair(even + c, alone ? kZeros : odd + c, to + c);
    if (whole == dim) continue;
    std::uint16_t tails[2][kLanes] = {};  // reading on might leave the allocation
    const std::size_t bytes = static_cast<std::size_t>(dim - whole) * sizeof(std::uint16_t);
    std::memcpy(tails[0], even + whole, bytes);
    if (!alone) std::memcpy(tails[1], odd + whole, bytes);
    pair(tails[0], tails[1], to + whole);
  }
  return {reinterpret_cast<const Word*>(copy), stride};
}

#else  // f32

using Element = float;
using Word = float;
using DW = DF;
using VW = VF;
inline constexpr int kPerWord = 1;

HWY_INLINE VF MulAddWords(VW a, VW b, VF sum) { return hn::MulAdd(a, b, sum); }
HWY_INLINE Word LoadWord(const Element* row, std::int64_t i) { return row[i]; }

/// A query as f32: where it is stored, or converted into `copy` [Padded(head_dim)].
HWY_INLINE const Element* QueryElements(const RowOptions& options, const QueryRow& row, std::int64_t head_dim, float* copy) {
  return FloatQuery(options, row, head_dim, copy);
}

/// lanes[i · kQueryRows + r] = factor · rows[r][i]
HWY_INLINE void PackQueries(const Element* const* rows, std::int64_t head_dim, float factor, Word* lanes) {
  RowsToLanes(rows, head_dim, factor, lanes);
}

/// Products start where the score shall, which makes that addition free.
HWY_INLINE VF FinishScore(VF sum, VF, float) { return sum; }
HWY_INLINE VF StartOfProducts(VF start) { return start; }

HWY_INLINE VW ToWords(const VF (&p)[kPerWord]) { return p[0]; }
HWY_INLINE void ScaleWords(Word* words, VF factor) { hn::Store(hn::Mul(hn::Load(DF(), words), factor), DF(), words); }

/// sum + p v in lanes that see the key, given its visibility and the lanes' bit; v may be anything for the others.
HWY_INLINE VF MulAddSeen(const std::uint64_t* visible, int half, VU bit, VW p, Word v, VF sum) {
  const DF d;
  const VU word = hn::Set(DU(), static_cast<std::uint32_t>(*visible >> half));
  return hn::IfThenElse(hn::RebindMask(d, hn::TestBit(word, bit)), hn::MulAdd(p, hn::Set(d, v), sum), sum);
}

HWY_INLINE KeyRows<Element> BindKeyRows(const StoredRows& rows, std::int64_t first, std::int64_t n, std::int64_t dim,
                                        float* copy) {
  return FloatBlock(rows, first, n, dim, copy);
}
HWY_INLINE KeyRows<Word> BindValueRows(const StoredRows& rows, std::int64_t first, std::int64_t n, std::int64_t dim,
                                       float* copy) {
  return FloatBlock(rows, first, n, dim, copy);
}

#endif

/// Words that hold n elements.
HWY_INLINE std::int64_t WordsOf(std::int64_t n) { return (n + kPerWord - 1) / kPerWord; }

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
