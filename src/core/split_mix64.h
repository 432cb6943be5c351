// Random bits that are the same on every machine and with every standard library.
#pragma once

#include <cstdint>

namespace regard::internal {

/// SplitMix64 (Steele, Lea and Flood 2014): as good as any small generator for making up inputs, and one number a multiplication or two.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace regard::internal
