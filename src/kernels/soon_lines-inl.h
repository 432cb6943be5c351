// How decode asks memory for rows where registers cannot hold queries: for the lines of k and v that come later, in the order of their
// addresses, of both in turn. With 16 registers tiles read rows in another order, two keys at once or a few columns of many keys. No
// prefetcher follows that, and what a core has to wait for misses with (24 lines on Zen 3) does not cover the latency of memory alone. It
// does follow two streams that never pause. 32,768 keys of 128, f32, Zen 3, where reading alone gets 20–22 GB/s: 11 when each line that was read
// asked for that of a later key, 13.5 with v asked for during k and k during v, 16 with both in turn, 21 with loops in rounds of four as well.
#if defined(REGARD_KERNELS_SOON_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_SOON_LINES_INL_H_
#undef REGARD_KERNELS_SOON_LINES_INL_H_
#else
#define REGARD_KERNELS_SOON_LINES_INL_H_
#endif

#include "kernels/stored_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

inline constexpr std::int64_t kLineBytes = 64;

HWY_INLINE void AskFor(const void* line) { __builtin_prefetch(line, 0, 2); }

/// The lines of rows, one after the other, without end.
struct LineStream {
  const std::uint8_t *line, *row_end;
  std::int64_t row_bytes, stride;  // in bytes

  /// Rows from `key` on, all in one run.
  static HWY_INLINE LineStream From(const StoredRows& rows, std::int64_t key, std::int64_t dim) {
    const std::int64_t item = StoredBytes(rows.dtype);
    const std::int64_t together = rows.stride == dim ? kSubBlock : 1;  // rows without gaps are one
    const std::uint8_t* const line = StoredRow(rows, key);
    return {line, line + together * dim * item, together * dim * item, together * rows.stride * item};
  }

  HWY_INLINE void Ask() {
    AskFor(line);
    line += kLineBytes;
    if (HWY_UNLIKELY(line >= row_end)) {
      row_end += stride;
      line = row_end - row_bytes;
    }
  }
};

/// Those of k and v.
struct SoonLines {
  LineStream k, v;

  /// Asks for as many lines as kBytes take, and at least one of each. What lies beyond the sub-block comes later still.
  template <std::int64_t kBytes>
  HWY_INLINE void Ask() {
    constexpr int kEach = kBytes < 4 * kLineBytes ? 1 : static_cast<int>(kBytes / kLineBytes / 2);
    REGARD_UNROLL for (int i = 0; i < kEach; ++i) {
      k.Ask();
      v.Ask();
    }
  }
};

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
