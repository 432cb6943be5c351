// The arrays of an HTML page: small numbers as base64 in inert <script> elements, each described by a piece of JSON. page/data.js reads them.
//
//     PageData data;
//     nlohmann::json entropy = data.AddF16(view);   // {"id": "a0", "type": "f16", "shape": [132], "scale": 1.0}
//     html += data.html();
//
// The element types, little-endian, C order; the value is scale · element:
//     f16, f32, u16, u32, i32, u8
//     root8   scale · (n/254)²; 255 is NaN
//     bits    one bit an element, the lowest bit of a byte first
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard::report {

/// RFC 4648, section 4, with padding.
std::string Base64(std::span<const std::uint8_t> bytes);

class PageData {
 public:
  /// Any shape, any float type. When the largest value is outside of what f16 can do well, all are scaled by a power of two. The
  /// description says moreover whether some value is not kept exactly: "rounded".
  nlohmann::json AddF16(const TensorView& view);
  /// Values ≥ 0 or NaN, at even steps of the square root.
  nlohmann::json AddRoot8(const TensorView& view);
  nlohmann::json AddF32(const TensorView& view);
  /// Numbers below `limit`, with −1 as the largest number of the type, which is u16 if that leaves it free, else u32.
  nlohmann::json AddIndex(const TensorView& view, std::int64_t limit);
  nlohmann::json AddBits(const TensorView& view);
  nlohmann::json AddI32(std::span<const std::int32_t> values);

  /// The elements so far.
  const std::string& html() const noexcept { return html_; }

 private:
  nlohmann::json Add(const char* type, const Dims& shape, double scale, const std::vector<std::uint8_t>& bytes);

  std::string html_;
  std::int64_t count_ = 0;
};

}  // namespace regard::report
