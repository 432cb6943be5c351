// Carves one block of memory into aligned pieces: a path computes its layout twice with the same code, once from a plan's capacity to know
// the size and once from a run's problem to know the places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace regard::internal {

class ScratchLayout {
 public:
  static constexpr std::size_t kAlignment = 64;  // a cache line and an AVX-512 vector

  /// Reserves `count` items of T; returns the offset in bytes. Too large saturates total(). count < 0 cannot happen.
  template <typename T>
  std::size_t Add(std::int64_t count) {
    const std::size_t offset = total_;
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<std::size_t>(count), sizeof(T), &bytes) ||
        __builtin_add_overflow(total_, bytes, &total_) || __builtin_add_overflow(total_, kAlignment - 1, &total_)) {
      total_ = kTooLarge;
      return offset;
    }
    total_ = total_ / kAlignment * kAlignment;
    return offset;
  }
  bool too_large() const { return total_ > kTooLarge / 2; }
  std::size_t total() const { return total_; }

 private:
  static constexpr std::size_t kTooLarge = std::numeric_limits<std::size_t>::max() / 2;
  std::size_t total_ = 0;
};

/// a·b·c… as a count, saturating instead of overflowing.
template <typename... Counts>
std::int64_t SaturatingProduct(Counts... counts) {
  std::int64_t product = 1;
  bool overflow = false;
  ((overflow = __builtin_mul_overflow(product, static_cast<std::int64_t>(counts), &product) || overflow), ...);
  return overflow ? std::numeric_limits<std::int64_t>::max() : product;
}

}  // namespace regard::internal
