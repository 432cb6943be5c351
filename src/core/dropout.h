// Which weights dropout keeps: a pure function of a seed and of where the pair (query, key) lies. Scalar here; the ISA room has the same in
// lanes (kernels/dropout-inl.h). No order of work is in it, so that every path, tiling and number of threads has one mask.
//
// The generator is Philox4x32 with 7 rounds (Salmon, Moraes, Dror and Shaw 2011), the fewest that pass all of BigCrush. One block of it
// serves kDropoutKeys keys: the key is the seed, the counter is (key / kDropoutKeys, query, head, batch), and key j has 16 bits of the
// result, the low half of word j % kDropoutKeys / 2 before its high half. A weight is kept when these are at least `threshold`.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "regard/attention.h"

namespace regard::internal {

using PhiloxBlock = std::array<std::uint32_t, 4>;

inline constexpr std::uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;  // multipliers
inline constexpr std::uint32_t kPhiloxW0 = 0x9E3779B9u, kPhiloxW1 = 0xBB67AE85u;  // what the key grows by each round
inline constexpr int kPhiloxRounds = 7;

/// key: its low word is the first.
inline PhiloxBlock Philox(const PhiloxBlock& counter, std::uint64_t key) {
  auto [c0, c1, c2, c3] = counter;
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round, k0 += kPhiloxW0, k1 += kPhiloxW1) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxM0} * c0, p1 = std::uint64_t{kPhiloxM1} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
  }
  return {c0, c1, c2, c3};
}

/// Keys of one block of the generator.
inline constexpr std::int64_t kDropoutKeys = 8;

/// Whether the weight of a key is kept, given its block.
inline bool KeepsKey(const PhiloxBlock& block, std::int64_t key, std::uint32_t threshold) {
  const auto n = static_cast<std::size_t>(key % kDropoutKeys);
  return (block[n / 2] >> (n % 2 * 16) & 0xFFFFu) >= threshold;
}

/// The dropout of one run.
struct Dropout {
  std::uint32_t threshold = 0;  // of 2^16 equally likely numbers, those below drop; 0 is off
  float multiplier = 1;         // of what is kept: 2^16 / (2^16 − threshold)
  std::uint64_t seed = 0;
  DropoutOrigin origin = {};

  Dropout() = default;
  /// probability in [0, 1), rounded to a multiple of 2^−16 below 1.
  Dropout(float probability, std::uint64_t the_seed, const DropoutOrigin& the_origin) : seed(the_seed), origin(the_origin) {
    const long nearest = std::lround(static_cast<double>(probability) * 0x1p16);
    threshold = static_cast<std::uint32_t>(nearest < 0xFFFF ? nearest : 0xFFFF);
    multiplier = static_cast<float>(0x1p16 / (0x1p16 - threshold));
  }

  bool is_on() const { return threshold > 0; }

  /// Of a row of weights, the keys [8·group, 8·group + 8) counted from the origin of the mask.
  PhiloxBlock Block(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t group) const {
    return Philox({static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(origin.query + i),
                   static_cast<std::uint32_t>(origin.head + h), static_cast<std::uint32_t>(origin.batch + b)},
                  seed);
  }

  /// Multiplies row[j − first] for the keys first ≤ j < end of a call by 0 or by `multiplier`; a NaN or an infinity times 0 is NaN. Without
  /// dropout it does nothing.
  template <typename T>
  void Apply(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, std::int64_t end, T* row) const {
    if (!is_on()) return;
    PhiloxBlock block = {};
    for (std::int64_t j = first; j < end; ++j) {
      const std::int64_t key = origin.key + j;
      if (j == first || key % kDropoutKeys == 0) block = Block(b, h, i, key / kDropoutKeys);
      row[j - first] *= KeepsKey(block, key, threshold) ? static_cast<T>(multiplier) : T{0};
    }
  }
};

/// Whether it is in [0, 1).
Status CheckDropout(float probability) noexcept;
/// Whether a call of this shape [batch, heads, q_len, kv_len] can stand there.
Status CheckDropoutOrigin(const DropoutOrigin& origin, const Dims& shape) noexcept;

}  // namespace regard::internal
