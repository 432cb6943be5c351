// Vector exp2 and the tanh of the soft cap, which share a method: x = n + f, n in steps, f at most half of one; 2^f by a polynomial, and n
// added to the exponent bits. Steps are of 1, or where a table fits registers of 1/32.
#if defined(REGARD_KERNELS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_EXP2_INL_H_
#undef REGARD_KERNELS_EXP2_INL_H_
#else
#define REGARD_KERNELS_EXP2_INL_H_
#endif

#include "kernels/tile_config-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::internal::HWY_NAMESPACE {

// x is rounded to steps: of 1, or with a table of 1/32.
inline constexpr int kStepBits = REGARD_EXP2_BY_TABLE ? 5 : 0;
inline constexpr float kStep = 1.0f / (1 << kStepBits);

/// 2^ of this is 0.
inline constexpr float kLowestExponent = REGARD_EXP2_BY_TABLE ? -128.0f : -127.0f;

// Adding 1.5·2²³ steps rounds x to a number of steps in the low mantissa bits; the add and the subtractions leave the multiply pipes free. With
// 111 more, the low bits are those of 0 to just below 128 for −111 ≤ x < 17. What they scale is small by 2^−111 to make up for it.
inline constexpr float kExponentMagic = 12582912.0f * kStep + 111.0f;
inline constexpr std::uint32_t kExponentBits = 0x4B400000u - (static_cast<std::uint32_t>(kStepBits) << 23);  // of 1.5·2²³ steps
inline constexpr std::uint32_t kExponentMask = (128u << kStepBits) - 1;
HWY_INLINE VF RoundExponent(VF x) { return hn::Add(x, hn::Set(DF(), kExponentMagic)); }

/// What is calm lies below, see CalmCheck.
inline constexpr float kCalmBelow = 17.0f - kStep / 2;

/// Whether all of many x are calm, found from RoundExponent(x) by what leaves the multiply pipes free: a comparison for each x took a point
/// of the rate at head_dim 64. NaN and +inf are not calm.
///   kClamped   x < kCalmBelow, given that every x is at least kLowestExponent
///   otherwise  −111 − kStep / 2 ≤ x < kCalmBelow
template <bool kClamped>
struct CalmCheck {
  VU seen;

  HWY_INLINE CalmCheck() : seen(hn::Set(DU(), kExponentBits)) {}
  HWY_INLINE void Add(VF rounded) {
    const VU bits = hn::BitCast(DU(), rounded);
    // A NaN of either sign has larger bits than any number that is not negative.
    seen = kClamped ? hn::Max(seen, bits) : hn::Or(seen, bits);
    KeepInRegister(seen);  // compilers would keep all that is added, to join it in the end
  }
  HWY_INLINE bool AllCalm() const {
    const DU d;
    if constexpr (kClamped) return hn::AllFalse(d, hn::Gt(seen, hn::Set(d, kExponentBits | kExponentMask)));
    return hn::AllTrue(d, hn::Eq(hn::And(seen, hn::Set(d, ~(kExponentBits | kExponentMask))), hn::Zero(d)));
  }
};

/// At least kLowestExponent. A NaN stays.
HWY_INLINE VF ClampForExp2(VF x) {
  const VF lowest = hn::Set(DF(), kLowestExponent);
#if REGARD_MAX_KEEPS_NAN
  return hn::Max(lowest, x);
#else
  return hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
#endif
}

#if REGARD_EXP2_BY_TABLE

// 2^x = w · v: w, for the steps, is 2 to 4 times 2^steps; v = ((f + a)² + b) / 8 for |f| ≤ 1/64 is a square completed so that it takes one
// multiply-add, and an addition to the exponent. Relative error of v 5.3e-8 under the condition that w · v is exactly 1 at 0. That is two
// operations of the multiply pipes, where the polynomial of other targets takes five; a lookup, like additions and shifts, runs beside
// them.
inline constexpr float kSquareShift = 1.4427162408828735f, kSquareRest = 2.0813081263542175f;
/// w of i 32nds times 2^−111, as bits, less i << 18: steps << 18, added to it, then count their whole part alone.
alignas(64) inline constexpr std::int32_t kPowers[32] = {
    0x0875FDEF, 0x087760E2, 0x08787103, 0x08774103, 0x087620C8, 0x087510A8, 0x08741100, 0x0873222A,
    0x08724486, 0x08717874, 0x0870BE56, 0x08701690, 0x086F818B, 0x086EFFAE, 0x086E9166, 0x086E3720,
    0x086DF14B, 0x086DC05C, 0x086DA4C6, 0x086D9F02, 0x086DAF8A, 0x086DD6DB, 0x086E1574, 0x086E6BD9,
    0x086EDA8E, 0x086F621B, 0x0870030D, 0x0870BDF2, 0x0871935A, 0x087283DA, 0x0873900B, 0x0874B888,
};

/// 2^x for −128 ≤ x ≤ 126, rounded = RoundExponent(x). Error ≤ 3.5 ulp for x ≥ −126; exactly 1 at 0; exactly 0 at −128; between
/// −128 and −126 some value in [0, 2^−126]. Anything else, NaN too, gives garbage.
HWY_INLINE VF Exp2OfRounded(VF x, VF rounded) {
  const DF d;
  const DI di;
  const VF f = hn::Sub(x, hn::Sub(rounded, hn::Set(d, kExponentMagic)));
  const VF shifted = hn::Add(f, hn::Set(d, kSquareShift));
  const VF eighth = hn::BitCast(d, hn::Add(hn::BitCast(di, shifted), hn::Set(di, -(3 << 23))));
  const VI steps = hn::BitCast(di, rounded);
  const VI power = {_mm512_permutex2var_epi32(hn::Load(di, kPowers).raw, steps.raw, hn::Load(di, kPowers + kLanes).raw)};
  const VI bits = hn::Add(power, hn::ShiftLeft<23 - kStepBits>(steps));
  const VF w = hn::BitCast(d, hn::Max(bits, hn::Zero(di)));  // exponents there are not, at −128
  return hn::Mul(w, hn::MulAdd(shifted, eighth, hn::Set(d, kSquareRest / 8)));
}

#else

/// 2^x for −127 ≤ x ≤ 126, rounded = RoundExponent(x). Error ≤ 2.5 ulp for x ≥ −126; exactly 1 at 0; exactly 0 at −127; between
/// −127 and −126 some value in [0, 2^−126]. Anything else, NaN too, gives garbage.
HWY_INLINE VF Exp2OfRounded(VF x, VF rounded) {
  const DF d;
  const DI di;
  const VF f = hn::Sub(x, hn::Sub(rounded, hn::Set(d, kExponentMagic)));
  // Minimax on [−½, ½] of relative error 1.1e-7 under the condition that the constant term is exactly 1, times 2^−111. One degree more
  // brings 2e-8, which the rounding of the score hides, for 0.7 % of the time at head_dim 64.
  VF p = hn::Set(d, 0x1p-111f * 0.001326472731307149f);
  p = hn::MulAdd(p, f, hn::Set(d, 0x1p-111f * 0.009671512991189957f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1p-111f * 0.05550733581185341f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1p-111f * 0.24022242426872253f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1p-111f * 0.6931470036506653f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1p-111f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, rounded))));
}

#endif  // REGARD_EXP2_BY_TABLE

/// 2^x for x ≤ 126 or −inf: exactly 0 at kLowestExponent and below. A NaN gives garbage: callers sort NaN out before.
HWY_INLINE VF Exp2(VF x) {
  x = ClampForExp2(x);
  return Exp2OfRounded(x, RoundExponent(x));
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
