// Random numbers that are the same on every machine and with every standard library: a seed printed by a failed test reproduces it.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

#include "core/split_mix64.h"

namespace regard::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}

  std::uint64_t Next() { return bits_.Next(); }
  /// [0, 1)
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  /// low…high, both included.
  std::int64_t Int(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(Next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool Chance(double probability) { return Uniform() < probability; }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Int(0, static_cast<std::int64_t>(values.size()) - 1)];
  }
  double Normal() {  // Box and Muller 1958
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  internal::SplitMix64 bits_;
};

}  // namespace regard::test
