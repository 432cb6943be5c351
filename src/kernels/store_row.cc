// A finished row in 16 bits.
// Computes   row of f32 -> f16 or bf16, to nearest, ties to even; −0, infinities and subnormals as they are, a NaN stays one, with its sign.
// Shapes     row [count] -> to [count], unit strides, no alignment.
// Numerics   the bits of ToF16 and ToBF16 (regard/tensor.h), for every number.
// Cost       10 operations a vector for bf16, 4 for f16 where the machine converts it. Written for SSE2 by the compiler, as in core/copy.cc, bf16
//            took 120 cycles for 64 numbers, 2 % of the time of causal bf16 prefill at head_dim 64.
// Requires   f16 or bf16, and memory to read and to write. noexcept in effect, no allocation.
// Dispatch   exported once below, into KernelTable.
// See        stored_rows_test.cc.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/store_row.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include <cstdint>

#include "core/copy.h"
#include "kernels/tile_config-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

#if REGARD_HAVE_BLOCKS

/// kLanes numbers. A NaN becomes quiet, or cutting its fraction could make it infinite.
HWY_INLINE void StoreBf16(VF x, std::uint16_t* to) {
  const DU d;
  const VU bits = hn::BitCast(d, x), cut = hn::ShiftRight<16>(bits);
  const VU rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7FFFu)), hn::And(cut, hn::Set(d, 1u))));
  const VU quiet = hn::Or(cut, hn::Set(d, 0x40u));
  const VU result = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(x)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(hn::Rebind<std::uint16_t, DI>(), hn::BitCast(DI(), result)), hn::Rebind<std::uint16_t, DI>(), to);
}

#endif

#if REGARD_CONVERTS_F16

HWY_INLINE void StoreF16(VF x, std::uint16_t* to) {
  const DF d;
  const hn::Rebind<hwy::float16_t, DF> d16;
  const VF nan = hn::CopySign(hn::BitCast(d, hn::Set(DU(), 0x7FC00000u)), x);  // whatever it carries
  hn::StoreU(hn::DemoteTo(d16, hn::IfThenElse(hn::IsNaN(x), nan, x)), d16, reinterpret_cast<hwy::float16_t*>(to));
}

#endif

void StoreRowAs(DType dtype, const float* row, std::int64_t count, void* to) {
  std::uint16_t* const numbers = static_cast<std::uint16_t*>(to);
  std::int64_t i = 0;
#if REGARD_HAVE_BLOCKS
  if (dtype == DType::kBF16) {
    for (; i + kLanes <= count; i += kLanes) StoreBf16(hn::LoadU(DF(), row + i), numbers + i);
  }
#endif
#if REGARD_CONVERTS_F16
  if (dtype == DType::kF16) {
    for (; i + kLanes <= count; i += kLanes) StoreF16(hn::LoadU(DF(), row + i), numbers + i);
  }
#endif
  if (i < count) StoreRow(row + i, count - i, numbers + i, dtype, 1);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(StoreRowAs);

void AddStoreRow(std::int64_t target, KernelTable& table) {
  table.store_row = HWY_DISPATCH_TABLE(StoreRowAs)[DispatchIndex(target)];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
