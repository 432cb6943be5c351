// Vector exp2 and the tanh of the soft cap, which share a method: split x = n + f with n integer and |f| ≤ ½, a polynomial for
// 2^f, and n added to the exponent bits.
#if defined(REGARD_KERNELS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_EXP2_INL_H_
#undef REGARD_KERNELS_EXP2_INL_H_
#else
#define REGARD_KERNELS_EXP2_INL_H_
#endif

#include "kernels/tile_config-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

/// 2^x for x ≤ 126 or −inf, the weight of a score x in log2 units.
/// Error ≤ 2.5 ulp for x ≥ −126; exactly 1 at 0; exactly 0 at −127 and below, hence at −inf; between −127 and −126 some value in
/// [0, 2^−126]. A NaN gives garbage: callers sort NaN out before.
HWY_INLINE VF Exp2(VF x) {
  const DF d;
  const DI di;
  // Adding 1.5·2²³ rounds x to an integer in the low mantissa bits; the add and the subtractions leave the multiply pipes free.
  const VF magic = hn::Set(d, 12582912.0f);
  x = hn::Max(hn::Set(d, -127.0f), x);
  const VF t = hn::Add(x, magic);
  const VF f = hn::Sub(x, hn::Sub(t, magic));
  // Minimax on [−½, ½] of relative error 1.1e-7 under the condition that the constant term is exactly 1. One degree more brings
  // 2e-8, which the rounding of the score hides, for 0.7 % of the time at head_dim 64.
  VF p = hn::Set(d, 0.001326472731307149f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.009671512991189957f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550733581185341f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022242426872253f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931470036506653f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, t))));
}

/// What tanh's argument is multiplied by before TanhOfScaled: 2·log2(e).
inline constexpr double kTanhPrescale = 2.8853900817779268;

/// tanh(y / kTanhPrescale). Error ≤ 4 ulp of the result everywhere, also next to 0; ±1 at ±inf; NaN stays NaN.
HWY_INLINE VF TanhOfScaled(VF y) {
  const DF d;
  const DI di;
  const VF magic = hn::Set(d, 12582912.0f);
  const VF one = hn::Set(d, 1.0f);
  // tanh(a) = (e^{2a} − 1)/(e^{2a} + 1) for a ≥ 0, with expm1 in the numerator so that nothing cancels. From 2^30 on it is 1.
  const VF magnitude = hn::Abs(y);
  const MF large = hn::Ge(magnitude, hn::Set(d, 30.0f));
  const VF x = hn::IfThenElse(large, hn::Set(d, 30.0f), magnitude);  // a NaN compares false and stays
  const VF t = hn::Add(x, magic);
  const VF f = hn::Sub(x, hn::Sub(t, magic));
  VF q = hn::Set(d, 0.00015403512225020677f);  // (2^f − 1)/f, minimax, relative error 2e-8
  q = hn::MulAdd(q, f, hn::Set(d, 0.0013390735257416964f));
  q = hn::MulAdd(q, f, hn::Set(d, 0.009618237614631653f));
  q = hn::MulAdd(q, f, hn::Set(d, 0.05550357326865196f));
  q = hn::MulAdd(q, f, hn::Set(d, 0.24022649228572845f));
  q = hn::MulAdd(q, f, hn::Set(d, 0.6931471824645996f));
  const VF fraction = hn::Mul(q, f);
  const VF power = hn::BitCast(d, hn::Add(hn::BitCast(di, one), hn::ShiftLeft<23>(hn::BitCast(di, t))));  // 2^n, 0 ≤ n ≤ 30
  const VF expm1 = hn::MulAdd(power, fraction, hn::Sub(power, one));
  return hn::CopySignToAbs(hn::Div(expm1, hn::Add(expm1, hn::Set(d, 2.0f))), y);
}

}  // namespace regard::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
