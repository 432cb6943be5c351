// Keys and values as they are stored, one row or one block of rows at a time, as f32.
#if defined(REGARD_KERNELS_STORED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_STORED_ROWS_INL_H_
#undef REGARD_KERNELS_STORED_ROWS_INL_H_
#else
#define REGARD_KERNELS_STORED_ROWS_INL_H_
#endif

#include <cstring>

#include "kernels/kernels.h"
#include "kernels/key_lanes-inl.h"
#include "kernels/tile_config-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

HWY_INLINE constexpr std::int64_t StoredBytes(DType dtype) { return dtype == DType::kF32 ? 4 : dtype == DType::kI8 ? 1 : 2; }

/// Where a row lies: in which run, the only one or that of its page, and which row of it.
struct StoredPlace {
  const std::uint8_t* run;
  std::int64_t row;

  static HWY_INLINE StoredPlace Of(const StoredRows& rows, std::int64_t j) {
    if (rows.pages == nullptr) return {static_cast<const std::uint8_t*>(rows.data), j};
    return {static_cast<const std::uint8_t*>(rows.pages[j / rows.page_len]), j % rows.page_len};
  }
  HWY_INLINE const std::uint8_t* Elements(const StoredRows& rows, std::int64_t item) const {
    return run + row * rows.stride * item;
  }
  /// Of kI8: the scales from this row on, behind the rows of the run.
  HWY_INLINE const std::uint8_t* Scales(const StoredRows& rows) const {
    return run + rows.page_len * rows.stride + row * static_cast<std::int64_t>(sizeof(float));
  }
};

HWY_INLINE const std::uint8_t* StoredRow(const StoredRows& rows, std::int64_t j) {
  return StoredPlace::Of(rows, j).Elements(rows, StoredBytes(rows.dtype));
}

/// Of a row of kI8.
HWY_INLINE float StoredScale(const StoredRows& rows, std::int64_t j) {
  float scale;
  std::memcpy(&scale, StoredPlace::Of(rows, j).Scales(rows), sizeof(float));
  return scale;
}

/// Whether rows [first, first + n) lie in one run, n ≥ 1.
HWY_INLINE bool InOneRun(const StoredRows& rows, std::int64_t first, std::int64_t n) {
  return rows.pages == nullptr || first / rows.page_len == (first + n - 1) / rows.page_len;
}

/// Whether some blocks of kKeyBlock rows cannot be used where they lie.
HWY_INLINE bool NeedsCopies(const StoredRows& rows) {
  return rows.dtype != DType::kF32 || (rows.pages != nullptr && rows.page_len % kKeyBlock != 0);
}

/// kLanes elements as f32; scale is for kI8.
template <DType kType>
HWY_INLINE VF LoadStored(const std::uint8_t* from, VF scale) {
  const DF d;
  if constexpr (kType == DType::kF32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(from));
  } else if constexpr (kType == DType::kF16) {
#if REGARD_CONVERTS_F16
    const hn::Rebind<hwy::float16_t, DF> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
    // Exponent and fraction in the places of f32's, and the bias of the exponent made up by an exact product; inf and NaN keep the largest
    // exponent.
    const DU du;
    const hn::Rebind<std::uint16_t, DF> d16;
    const VU bits = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
    const VF finite = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
    const VU inf = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(du, 0x7BFFu)), hn::Set(du, 0x7F800000u));
    const VU sign = hn::ShiftLeft<16>(hn::Sub(bits, magnitude));
    return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(du, finite), inf), sign));
#endif
  } else if constexpr (kType == DType::kBF16) {
    const hn::Rebind<std::uint16_t, DF> d16;
    const VU wide = hn::PromoteTo(DU(), hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
    return hn::BitCast(d, hn::ShiftLeft<16>(wide));
  } else {
    static_assert(kType == DType::kI8);
    const hn::Rebind<std::int8_t, DF> d8;
    const VI wide = hn::PromoteTo(DI(), hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(from)));
    return hn::Mul(hn::ConvertTo(d, wide), scale);
  }
}

/// Rows [first, first + n), each written as Padded(dim) floats, `stride` apart, of which those behind dim are of no meaning.
template <DType kType>
HWY_NOINLINE void ConvertRowsOf(const StoredRows& rows, std::int64_t first, std::int64_t n, std::int64_t dim, float* to,
                                std::int64_t stride) {
  const DF d;
  const std::int64_t item = StoredBytes(kType), whole = dim / kLanes * kLanes;
  for (std::int64_t j = 0; j < n; ++j, to += stride) {
    const std::uint8_t* const from = StoredRow(rows, first + j);
    const VF scale = hn::Set(d, kType == DType::kI8 ? StoredScale(rows, first + j) : 1.0f);
    for (std::int64_t c = 0; c < whole; c += kLanes) hn::StoreU(LoadStored<kType>(from + c * item, scale), d, to + c);
    if (whole == dim) continue;
    std::uint8_t tail[kLanes * sizeof(float)] = {};  // reading on might leave the allocation
    std::memcpy(tail, from + whole * item, static_cast<std::size_t>((dim - whole) * item));
    hn::StoreU(LoadStored<kType>(tail, scale), d, to + whole);
  }
}

HWY_INLINE void ConvertRows(const StoredRows& rows, std::int64_t first, std::int64_t n, std::int64_t dim, float* to,
                            std::int64_t stride) {
  switch (rows.dtype) {
    case DType::kF16:
      return ConvertRowsOf<DType::kF16>(rows, first, n, dim, to, stride);
    case DType::kBF16:
      return ConvertRowsOf<DType::kBF16>(rows, first, n, dim, to, stride);
    case DType::kI8:
      return ConvertRowsOf<DType::kI8>(rows, first, n, dim, to, stride);
    default:
      return ConvertRowsOf<DType::kF32>(rows, first, n, dim, to, stride);
  }
}

/// Row j as f32: where it is stored, or converted into `copy` [Padded(dim)].
HWY_INLINE const float* FloatRow(const StoredRows& rows, std::int64_t j, std::int64_t dim, float* copy) {
  if (rows.dtype == DType::kF32) return reinterpret_cast<const float*>(StoredRow(rows, j));
  ConvertRows(rows, j, 1, dim, copy, 0);
  return copy;
}

/// A query as f32: where it is stored, or converted into `copy` [Padded(dim)].
HWY_INLINE const float* FloatQuery(const RowOptions& options, const QueryRow& row, std::int64_t dim, float* copy) {
  return FloatRow({row.q, 0, options.q_type}, 0, dim, copy);
}

/// Whether all of a row is finite.
HWY_INLINE bool IsFinite(const float* row, std::int64_t dim) {
  const DF d;
  VF check = hn::Zero(d);  // of x·0: NaN for good once an x is not finite
  float tail = 0.0f;
  std::int64_t c = 0;
  for (; c + kLanes <= dim; c += kLanes) check = hn::MulAdd(hn::LoadU(d, row + c), hn::Zero(d), check);
  for (; c < dim; ++c) tail += row[c] * 0.0f;
  return hn::AllTrue(d, hn::Eq(check, hn::Zero(d))) && tail == 0.0f;
}

/// Rows of one block of keys.
template <class T>
struct KeyRows {
  const T* data;
  std::int64_t stride;
};
using FloatRows = KeyRows<float>;

/// Rows [first, first + n): where they are stored, or as they are written to `copy` [n, Padded(dim)].
HWY_INLINE FloatRows FloatBlock(const StoredRows& rows, std::int64_t first, std::int64_t n, std::int64_t dim, float* copy) {
  if (rows.dtype == DType::kF32 && InOneRun(rows, first, n)) {
    return {reinterpret_cast<const float*>(StoredRow(rows, first)), rows.stride};
  }
  ConvertRows(rows, first, n, dim, copy, Padded(dim));
  return {copy, Padded(dim)};
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
