// Random numbers that are the same on every machine and with every standard library: a seed printed by a failed test reproduces it.
// A fuzzer gives bytes instead: they decide the first draws, two bytes each, so that whoever alters one byte alters one choice.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <span>

#include "core/split_mix64.h"

namespace regard::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}
  /// The bytes are borrowed. Once they are used up, the draws that follow depend on all of them.
  explicit Random(std::span<const std::uint8_t> bytes) : chosen_(bytes), bits_(Hash(bytes)) {}

  std::uint64_t Next() {
    if (chosen_.size() < 2) return bits_.Next();
    const std::uint64_t two = static_cast<std::uint64_t>(chosen_[0] | chosen_[1] << 8);
    chosen_ = chosen_.subspan(2);
    return two * 0x0001000100010001u;  // high bits for Uniform, low ones for Int
  }
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
  static std::uint64_t Hash(std::span<const std::uint8_t> bytes) {  // FNV-1a, Fowler, Noll and Vo
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3u;
    return hash;
  }

  std::span<const std::uint8_t> chosen_;
  internal::SplitMix64 bits_;
};

}  // namespace regard::test
