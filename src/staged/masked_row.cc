#include "staged/masked_row.h"

#include <limits>

#include "core/copy.h"

namespace regard::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

const void* ElementAt(const View4& view, std::int64_t offset) {
  return static_cast<const char*>(view.data) + offset * static_cast<std::int64_t>(ItemSize(view.dtype));
}

float LoadPerHead(const View4& view, std::int64_t h, float otherwise) {
  return view.data == nullptr ? otherwise : static_cast<float>(LoadDouble(view.data, view.dtype, view.Offset(0, h, 0, 0)));
}

std::int64_t MaskRow(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, const RowKeys& keys, float* row,
                     float* bias) {
  const std::int64_t count = keys.end - keys.begin;
  std::int64_t num_visible = count;
  float* const cells = row + keys.begin;
  if (p.bias.data != nullptr) {
    LoadBiasRow(ElementAt(p.bias, p.bias.Offset(b, h, i, keys.begin)), p.bias.dtype, p.bias.stride[3], count, bias);
    for (std::int64_t j = 0; j < count; ++j) cells[j] += bias[j];
  }
  if (p.alibi_slopes.data != nullptr) {
    const float slope = LoadPerHead(p.alibi_slopes, h, 0);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t distance = keys.position - p.KeyPosition(b, keys.begin + j);
      cells[j] -= slope * static_cast<float>(distance < 0 ? -distance : distance);
    }
  }
  if (p.bias.data == nullptr && p.mask.data == nullptr) return num_visible;
  // −inf is assigned, not added: what an invisible key holds, be it NaN, must not stay.
  const std::uint8_t* mask = static_cast<const std::uint8_t*>(p.mask.data);
  if (mask != nullptr) mask += p.mask.Offset(b, h, i, keys.begin);
  for (std::int64_t j = 0; j < count; ++j) {
    const bool hidden = (p.bias.data != nullptr && bias[j] == -kInfinity) || (mask != nullptr && mask[j * p.mask.stride[3]] == 0);
    if (!hidden) continue;
    cells[j] = -kInfinity;
    --num_visible;
  }
  return num_visible;
}

}  // namespace regard::internal
