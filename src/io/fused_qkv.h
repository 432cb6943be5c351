// q, k and v out of one tensor [tokens, width] or [batch, tokens, width], as a fused projection gives them: in blocks [q heads | k heads | v
// heads], each head `dim` wide, so that width = (num_heads + 2·num_kv_heads)·dim. Another order in it is what `regard check` can find.
#pragma once

#include <array>
#include <cstdint>

#include "regard/tensor.h"

namespace regard::io {

/// Views of `qkv` as q, k, v [batch, heads or kv_heads, tokens, dim]; nothing is copied. Error when the shape cannot be split so.
std::array<TensorView, 3> SplitFusedQkv(const TensorView& qkv, std::int64_t num_heads, std::int64_t num_kv_heads);

}  // namespace regard::io
