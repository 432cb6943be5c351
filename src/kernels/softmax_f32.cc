// Softmax and soft cap of one row, for the path that holds whole rows.
// Computes   row -> exp(row − max)/Σ and the lse; row -> cap·tanh(row/cap). In place.
// Shapes     row [count], unit stride, no alignment.
// Method     Three passes: largest (and whether all are below +inf), exp and sum, division. A fused path has no use for it: it sees
//            a row in tiles.
// Numerics   Blanchard, Higham and Higham 2021, the shifted softmax; exp within 1 ulp (Highway's), tanh within 4; the sum in 2·lanes
//            parts, so that its error grows with count/(2·lanes).
// Cost       about 20 instructions a vector; three times the row through the nearest cache.
// Requires   nothing beyond readable memory. noexcept in effect, no allocation.
// Dispatch   exported once below, into KernelTable.
// See        softmax_f32_test.cc.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/softmax_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include <cmath>
#include <cstring>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/exp2-inl.h"
#include "kernels/tile_config-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// Calls f(vector, store) for each vector of the row; what is missing in the last one reads as `missing` and is not stored.
template <class F>
HWY_INLINE void ForEachVector(float* row, std::int64_t count, float missing, const F& f) {
  const DF d;
  std::int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) f(hn::LoadU(d, row + j), [&](VF x) { hn::StoreU(x, d, row + j); });
  if (j == count) return;
  HWY_ALIGN float tail[kLanes];
  const std::size_t bytes = static_cast<std::size_t>(count - j) * sizeof(float);
  hn::Store(hn::Set(d, missing), d, tail);
  std::memcpy(tail, row + j, bytes);
  f(hn::Load(d, tail), [&](VF x) {
    hn::Store(x, d, tail);
    std::memcpy(row + j, tail, bytes);
  });
}

float SoftmaxRow(float* row, std::int64_t count, float sink) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  const DF d;
  const VF inf = hn::Set(d, kInf);
  VF top = hn::Set(d, sink);
  MF defined = hn::Eq(inf, inf);
  ForEachVector(row, count, -kInf, [&](VF x, const auto&) {
    defined = hn::And(defined, hn::Lt(x, inf));
    top = hn::Max(top, x);
  });
  if (!hn::AllTrue(d, defined)) {
    for (std::int64_t j = 0; j < count; ++j) row[j] = row[j] == -kInf ? 0.0f : kNaN;
    return kNaN;
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, top));
  if (largest == -kInf) {  // exp(−inf − (−inf)) would be NaN
    for (std::int64_t j = 0; j < count; ++j) row[j] = 0;
    return sink;
  }
  const VF shift = hn::Set(d, largest);
  VF sum[2] = {hn::Zero(d), hn::Zero(d)};
  ForEachVector(row, count, -kInf, [&](VF x, const auto& store) {
    const VF weight = hn::Exp(d, hn::Sub(x, shift));
    store(weight);
    const VF other = sum[1];  // the two take turns
    sum[1] = hn::Add(sum[0], weight);
    sum[0] = other;
  });
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[0], sum[1]))) + std::exp(sink - largest);
  const VF inverse = hn::Set(d, 1.0f / total);  // total ≥ 1: the largest term is 1
  ForEachVector(row, count, 0, [&](VF x, const auto& store) { store(hn::Mul(x, inverse)); });
  return largest + std::log(total);
}

void SoftCapRow(float* row, std::int64_t count, float cap) {
  const DF d;
  const VF limit = hn::Set(d, cap), prescale = hn::Set(d, static_cast<float>(kTanhPrescale));
  ForEachVector(row, count, 0, [&](VF x, const auto& store) {
    // Divided first: kTanhPrescale/cap overflows for the smallest caps.
    store(hn::Mul(limit, TanhOfScaled(hn::Mul(hn::Div(x, limit), prescale))));
  });
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::internal {

HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(SoftCapRow);

void AddSoftmaxF32(std::int64_t target, KernelTable& table) {
  const std::size_t index = DispatchIndex(target);
  table.softmax_row = HWY_DISPATCH_TABLE(SoftmaxRow)[index];
  table.soft_cap_row = HWY_DISPATCH_TABLE(SoftCapRow)[index];
}

}  // namespace regard::internal
#endif  // HWY_ONCE
