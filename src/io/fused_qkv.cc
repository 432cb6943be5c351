#include "io/fused_qkv.h"

#include <cstddef>

#include "core/shape_text.h"
#include "io/file_error.h"

namespace regard::io {

using enum ErrorCode;

std::array<TensorView, 3> SplitFusedQkv(const TensorView& qkv, std::int64_t num_heads, std::int64_t num_kv_heads) {
  if (qkv.rank() != 2 && qkv.rank() != 3) {
    Fail(kShapeMismatch, "qkv", "shape {} has {} {}; give [tokens, width] or [batch, tokens, width]", ToString(qkv.shape()),
         qkv.rank(), internal::AxisWord(qkv.rank()));
  }
  const TensorView x = qkv.rank() == 3 ? qkv : qkv.Unsqueeze(0);
  const std::int64_t blocks = num_heads + 2 * num_kv_heads, width = x.dim(2);
  if (width % blocks != 0) {
    Fail(kShapeMismatch, "qkv", "width {} does not divide into {} + 2·{} heads; check --num-heads and --num-kv-heads", width,
         num_heads, num_kv_heads);
  }
  const std::int64_t dim = width / blocks, stride = x.stride(2);
  const auto* data = static_cast<const std::byte*>(x.data());
  const auto part = [&](std::int64_t first, std::int64_t heads) {
    const std::int64_t bytes = first * dim * stride * static_cast<std::int64_t>(ItemSize(x.dtype()));
    return TensorView(data == nullptr ? nullptr : data + bytes, x.dtype(), {x.dim(0), heads, x.dim(1), dim},
                      {x.stride(0), dim * stride, x.stride(1), stride});
  };
  return {part(0, num_heads), part(num_heads, num_kv_heads), part(num_heads + num_kv_heads, num_kv_heads)};
}

}  // namespace regard::io
