// Observed tensors in full shape, whichever way their axes lie; or Error, which names the shapes that would do and what probably happened.
// Axes of length 1 in front may be missing or be too many.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "regard/tensor.h"

namespace regard::internal {

/// [batch, heads, q_len, v_dim], from that, [batch, q_len, heads, v_dim], packed [batch, q_len, heads·v_dim] or [batch·q_len, heads·v_dim].
TensorView ContextInFullShape(const TensorView& given, const Problem& p);
/// [batch, heads, q_len, kv_len]; `name` is that of the stage.
TensorView StageInFullShape(const char* name, const TensorView& given, const Problem& p);
/// [batch, heads, q_len, 1], from [batch, heads, q_len] or that.
TensorView LseInFullShape(const TensorView& given, const Problem& p);
/// [batch, 1, q_len, out_dim], from [batch, q_len, out_dim].
TensorView ProjectedInFullShape(const TensorView& given, const Problem& p, std::int64_t out_dim);

}  // namespace regard::internal
