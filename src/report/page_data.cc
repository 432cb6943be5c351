#include "report/page_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/problem.h"

namespace regard::report {
namespace {

using Bytes = std::vector<std::uint8_t>;

template <typename T>
void Append(Bytes* bytes, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes->push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

// Calls visit(element's position in memory) in C order.
template <typename Visit>
void ForEachOffset(const TensorView& view, int axis, std::int64_t offset, const Visit& visit) {
  if (axis == view.rank()) return visit(offset);
  for (std::int64_t i = 0; i < view.dim(axis); ++i) ForEachOffset(view, axis + 1, offset + i * view.stride(axis), visit);
}

template <typename Visit>
void ForEachValue(const TensorView& view, const Visit& visit) {
  ForEachOffset(view, 0, 0, [&](std::int64_t offset) { visit(internal::LoadDouble(view.data(), view.dtype(), offset)); });
}

double LargestFinite(const TensorView& view) {
  double largest = 0;
  ForEachValue(view, [&](double x) { largest = std::isfinite(x) ? std::max(largest, std::fabs(x)) : largest; });
  return largest;
}

// f16 ends at 65504 and loses digits below 2⁻¹⁴. Between 1/64 and its end an array is stored as it is, so that f16 input keeps its bits;
// outside, its largest value is moved to [2¹⁴, 2¹⁵).
double F16Scale(double largest) {
  if (largest == 0 || (largest >= 0x1p-6 && largest <= 65504)) return 1;
  // Not below 2⁻¹⁰⁰⁰: the inverse must be finite.
  return std::ldexp(1.0, std::max(std::ilogb(largest) - 14, -1000));
}

}  // namespace

std::string Base64(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t n = 0; n < 3; ++n) group = (group << 8) | (n < count ? bytes[i + n] : 0u);
    for (std::size_t n = 0; n < 4; ++n) text += n <= count ? kDigits[(group >> (18 - 6 * n)) & 63] : '=';
  }
  return text;
}

nlohmann::json PageData::Add(const char* type, const Dims& shape, double scale, const Bytes& bytes) {
  const std::string id = "a" + std::to_string(count_++);
  html_ += "<script type=\"application/octet-stream\" id=\"" + id + "\">" + Base64(bytes) + "</script>\n";
  return {{"id", id}, {"type", type}, {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())}, {"scale", scale}};
}

nlohmann::json PageData::AddF16(const TensorView& view) {
  const double scale = F16Scale(LargestFinite(view));
  Bytes bytes;
  bytes.reserve(static_cast<std::size_t>(view.num_elements()) * 2);
  bool rounded = false;
  ForEachValue(view, [&](double x) {
    const F16 stored = ToF16(x / scale);
    rounded = rounded || (!std::isnan(x) && ToFloat(stored) * scale != x);
    Append(&bytes, stored.bits);
  });
  nlohmann::json entry = Add("f16", view.shape(), scale, bytes);
  entry["rounded"] = rounded;
  return entry;
}

nlohmann::json PageData::AddRoot8(const TensorView& view) {
  constexpr double kLevels = 254;
  constexpr std::uint8_t kNaN = 255;
  const double largest = LargestFinite(view);
  Bytes bytes;
  bytes.reserve(static_cast<std::size_t>(view.num_elements()));
  ForEachValue(view, [&](double x) {
    const double level = largest > 0 ? std::sqrt(std::clamp(x / largest, 0.0, 1.0)) * kLevels : 0;
    bytes.push_back(std::isfinite(x) ? static_cast<std::uint8_t>(std::lround(level)) : kNaN);
  });
  return Add("root8", view.shape(), largest, bytes);
}

nlohmann::json PageData::AddF32(const TensorView& view) {
  Bytes bytes;
  ForEachValue(view, [&](double x) { Append(&bytes, std::bit_cast<std::uint32_t>(static_cast<float>(x))); });
  return Add("f32", view.shape(), 1, bytes);
}

nlohmann::json PageData::AddIndex(const TensorView& view, std::int64_t limit) {
  const bool is_short = limit < std::numeric_limits<std::uint16_t>::max();
  Bytes bytes;
  ForEachValue(view, [&](double x) {
    // −1 wraps around to the largest number of either type.
    const auto index = static_cast<std::uint32_t>(static_cast<std::int64_t>(x));
    if (is_short) return Append(&bytes, static_cast<std::uint16_t>(index));
    Append(&bytes, index);
  });
  return Add(is_short ? "u16" : "u32", view.shape(), 1, bytes);
}

nlohmann::json PageData::AddBits(const TensorView& view) {
  Bytes bytes(static_cast<std::size_t>((view.num_elements() + 7) / 8), 0);
  std::size_t at = 0;
  ForEachValue(view, [&](double x) {
    if (x != 0) bytes[at / 8] = static_cast<std::uint8_t>(bytes[at / 8] | (1u << (at % 8)));
    ++at;
  });
  return Add("bits", view.shape(), 1, bytes);
}

nlohmann::json PageData::AddI32(std::span<const std::int32_t> values) {
  Bytes bytes;
  for (const std::int32_t value : values) Append(&bytes, static_cast<std::uint32_t>(value));
  return Add("i32", {static_cast<std::int64_t>(values.size())}, 1, bytes);
}

}  // namespace regard::report
