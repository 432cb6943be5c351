#include "nn/rotary.h"

#include <cmath>
#include <vector>

#include "nn/dense.h"

namespace regard::nn {

void Rotate(Tensor& rows, std::int64_t heads, const Rotary& rotary, const QOffset& offset, int direction) {
  const std::int64_t batch = rows.dim(0), tokens = rows.dim(1), width = rows.dim(2), half = width / heads / 2;
  std::vector<double> frequency(static_cast<std::size_t>(half));
  for (std::int64_t d = 0; d < half; ++d) {
    frequency[static_cast<std::size_t>(d)] =
        direction * std::pow(rotary.base, -static_cast<double>(d) / static_cast<double>(half));
  }
  const auto first_position = [&](std::int64_t b) {
    return offset.per_sequence() ? offset.per_sequence()(b) : static_cast<double>(offset.value().value_or(0));
  };
  WithType(rows.dtype(), [&](auto zero) {
    using T = decltype(zero);
    ForEachRow(batch * tokens, [&](std::int64_t n) {
      const double position = first_position(n / tokens) + static_cast<double>(n % tokens);
      T* const row = rows.MutableAs<T>() + n * width;
      for (std::int64_t d = 0; d < half; ++d) {
        const double angle = position * frequency[static_cast<std::size_t>(d)];
        const T cos = static_cast<T>(std::cos(angle)), sin = static_cast<T>(std::sin(angle));
        for (T* head = row; head < row + width; head += 2 * half) {
          const T low = head[d], high = head[d + half];
          head[d] = low * cos - high * sin;
          head[d + half] = high * cos + low * sin;
        }
      }
    });
  });
}

}  // namespace regard::nn
