// Element types: names, sizes, and the conversions of the 16-bit floats.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/problem.h"
#include "regard/tensor.h"

namespace regard {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::size_t bytes;
};
constexpr DTypeFacts kFacts[] = {{"f64", 8}, {"f32", 4}, {"f16", 2}, {"bf16", 2}, {"i64", 8}, {"i32", 4}, {"i16", 2},
                                 {"i8", 1},  {"u64", 8}, {"u32", 4}, {"u16", 2},  {"u8", 1},  {"bool", 1}};

// Rounds a double to a float that keeps one sticky bit below its 24: "round to odd". A second rounding, to any format of at most 22
// bits, then gives what a single rounding would have given (Boldo and Melquiond 2008, theorem 3).
float RoundToOdd(double x) {
  float nearest = static_cast<float>(x);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == x) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const bool rounded_away = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
  if (rounded_away) --bits;  // towards zero; a positive magnitude never underflows here, since nearest != 0 when rounded away
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace

std::size_t ItemSize(DType dtype) noexcept { return kFacts[static_cast<int>(dtype)].bytes; }
std::string_view Name(DType dtype) noexcept { return kFacts[static_cast<int>(dtype)].name; }
bool IsFloat(DType dtype) noexcept { return dtype <= DType::kBF16; }
bool IsInteger(DType dtype) noexcept { return dtype >= DType::kI64 && dtype <= DType::kU8; }

bool ParseDType(std::string_view name, DType* dtype) noexcept {
  for (int i = 0; i < static_cast<int>(std::size(kFacts)); ++i) {
    if (kFacts[i].name == name) {
      *dtype = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

float ToFloat(BF16 x) noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

BF16 ToBF16(double x) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(RoundToOdd(x));
  if (std::isnan(x)) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};  // quiet, so that cutting cannot make it infinite
  const std::uint32_t round_up = 0x7FFF + ((bits >> 16) & 1);
  return {static_cast<std::uint16_t>((bits + round_up) >> 16)};
}

float ToFloat(F16 x) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1F;
  const std::uint32_t mantissa = x.bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000 | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);  // subnormal or zero
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

F16 ToF16(double x) noexcept {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return {static_cast<std::uint16_t>(sign | 0x7E00)};
  const double magnitude = std::fabs(x);
  if (magnitude >= 65520) return {static_cast<std::uint16_t>(sign | 0x7C00)};  // halfway to 2¹⁶ and beyond
  // The spacing of binary16 at this magnitude: 2^(e−10), and 2^−24 for subnormals.
  int exponent = magnitude > 0 ? std::ilogb(magnitude) : -14;
  if (exponent < -14) exponent = -14;
  const double steps = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // ties to even, exact scaling
  const auto encoded = static_cast<std::uint32_t>(steps) + (static_cast<std::uint32_t>(exponent + 14) << 10);
  // steps has its leading one at bit 10 for normal numbers, which adds the missing one to the exponent field; a carry does too.
  return {static_cast<std::uint16_t>(sign | encoded)};
}

namespace internal {

double LoadDouble(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kF64:
      return static_cast<const double*>(data)[i];
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kF16:
      return ToFloat(static_cast<const F16*>(data)[i]);
    case DType::kBF16:
      return ToFloat(static_cast<const BF16*>(data)[i]);
    case DType::kI64:
      return static_cast<double>(static_cast<const std::int64_t*>(data)[i]);
    case DType::kI32:
      return static_cast<const std::int32_t*>(data)[i];
    case DType::kI16:
      return static_cast<const std::int16_t*>(data)[i];
    case DType::kI8:
      return static_cast<const std::int8_t*>(data)[i];
    case DType::kU64:
      return static_cast<double>(static_cast<const std::uint64_t*>(data)[i]);
    case DType::kU32:
      return static_cast<const std::uint32_t*>(data)[i];
    case DType::kU16:
      return static_cast<const std::uint16_t*>(data)[i];
    case DType::kU8:
      return static_cast<const std::uint8_t*>(data)[i];
    case DType::kBool:
      return static_cast<const std::uint8_t*>(data)[i] != 0 ? 1 : 0;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void StoreDouble(void* data, DType dtype, std::int64_t i, double value) {
  switch (dtype) {
    case DType::kF64:
      static_cast<double*>(data)[i] = value;
      return;
    case DType::kF32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::kF16:
      static_cast<F16*>(data)[i] = ToF16(value);
      return;
    case DType::kBF16:
      static_cast<BF16*>(data)[i] = ToBF16(value);
      return;
    default:
      return;  // results are float types; binding has refused the rest
  }
}

std::int64_t LoadInt(const View4& view, std::int64_t i) {
  return view.dtype == DType::kI32 ? static_cast<const std::int32_t*>(view.data)[i]
                                   : static_cast<const std::int64_t*>(view.data)[i];
}

}  // namespace internal
}  // namespace regard
