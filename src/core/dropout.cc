#include "core/dropout.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "core/shape_text.h"

namespace regard::internal {

using enum ErrorCode;

Status CheckDropout(float probability) noexcept {
  if (probability >= 0 && probability < 1) return {};
  return Status::Failure(kInvalidArgument, "dropout: %g; give a probability of 0 or more and below 1",
                         static_cast<double>(probability));
}

Status CheckDropoutOrigin(const DropoutOrigin& origin, const Dims& shape) noexcept {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;  // the generator counts each axis in 32 bits
  const std::pair<const char*, std::int64_t> axes[] = {
      {"batch", origin.batch}, {"head", origin.head}, {"query", origin.query}, {"key", origin.key}};
  for (int axis = 0; axis < 4; ++axis) {
    const auto& [name, first] = axes[axis];
    if (first >= 0 && first <= kMost && shape[axis] <= kMost - first) continue;
    return Status::Failure(kInvalidArgument, "dropout_origin: %s=%" PRId64 " and %" PRId64 " from there on; stay within 0…2^32",
                           name, first, shape[axis]);
  }
  if (origin.key % kDropoutKeys == 0) return {};
  return Status::Failure(kInvalidArgument, "dropout_origin: key=%" PRId64 " is no multiple of %" PRId64 "; cut the keys at one",
                         origin.key, kDropoutKeys);
}

}  // namespace regard::internal

namespace regard {

Tensor DropoutMask(const Dims& shape, float dropout, std::uint64_t seed, const DropoutOrigin& origin) {
  if (shape.size() != 4) {
    throw Error(ErrorCode::kShapeMismatch, "shape: " + ToString(shape) + "; give [batch, heads, q_len, kv_len]");
  }
  internal::CheckDropout(dropout).ThrowIfFailed();
  internal::CheckDropoutOrigin(origin, shape).ThrowIfFailed();
  const internal::Dropout of_call(dropout, seed, origin);
  Tensor mask(DType::kF32, shape);
  float* row = mask.MutableAs<float>();
  std::fill_n(row, mask.num_elements(), 1.0f);
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t i = 0; i < shape[2]; ++i, row += shape[3]) of_call.Apply(b, h, i, 0, shape[3], row);
    }
  }
  return mask;
}

}  // namespace regard
