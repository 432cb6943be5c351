// What the decode kernel of AVX3_BF16 loses where it takes int8 as integers, for those who bound its errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace regard::internal {

/// How far a number may be from the integer that stands for it. All 0: none does.
struct IntegerRounding {
  double q = 0;           // as a part of the largest element of its row
  double weight = 0;      // of a weight times its value's scale, as a part of the largest of a sub-block
  std::int64_t keys = 1;  // of a sub-block, which lie on a grid from key 0
};
/// Rows of k up to here go that way, if k and v are both int8: a score's sum of products fits 32 bits.
inline constexpr std::int64_t kLargestIntegerDim = 512;
/// q goes up to 127 · 257, and the largest weight · scale to 32767.5 at least. Rows of q of numbers up to 2⁻¹¹² are taken for 0, and a largest
/// weight · scale below 2⁻¹¹⁰ for 2⁻¹¹⁰.
inline constexpr IntegerRounding kI8IntegerRounding = {0.5 / (127 * 257), 0.5 / 32767.5, 32};

/// Bounds Σ |error of weight_j · scale_j| · |level_jc|, where level · scale = v and scale = max|v_j| / 127, over the keys of a row:
///     rounding · Σ over sub-blocks of max (weight_j · scale_j) · Σ |v_jc| / scale_j
class ScaledWeights {
 public:
  ScaledWeights(const IntegerRounding& rounding, std::int64_t v_dim)
      : rounding_(rounding), levels_(static_cast<std::size_t>(v_dim)), errors_(static_cast<std::size_t>(v_dim)) {}

  /// Of key j, in ascending order; value(c) is v_jc.
  template <class Value>
  void Add(std::int64_t j, double weight, const Value& value) {
    if (rounding_.weight == 0) return;
    if (j / rounding_.keys != sub_block_) Flush();
    sub_block_ = j / rounding_.keys;
    double scale = 0;
    for (std::size_t c = 0; c < levels_.size(); ++c)
      scale = std::max(scale, std::fabs(value(static_cast<std::int64_t>(c))) / 127);
    if (scale == 0) return;
    largest_ = std::max(largest_, weight * scale);
    for (std::size_t c = 0; c < levels_.size(); ++c) levels_[c] += std::fabs(value(static_cast<std::int64_t>(c))) / scale;
  }

  double Error(std::int64_t c) {
    Flush();
    return errors_[static_cast<std::size_t>(c)];
  }

 private:
  void Flush() {
    if (largest_ == 0) return;
    for (std::size_t c = 0; c < levels_.size(); ++c) {
      errors_[c] += rounding_.weight * largest_ * levels_[c];
      levels_[c] = 0;
    }
    largest_ = 0;
  }

  IntegerRounding rounding_;
  std::int64_t sub_block_ = 0;
  double largest_ = 0;
  std::vector<double> levels_, errors_;  // [v_dim]
};

}  // namespace regard::internal
