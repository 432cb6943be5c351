// Rotary positions in halves.
#pragma once

#include <cstdint>

#include "regard/nn.h"
#include "regard/tensor.h"

namespace regard::nn {

/// Turns every head of `rows` [batch, tokens, heads · head_dim] in place: row t by position t + offset, an offset that is not stated
/// being 0. `direction` is 1, or −1 to turn back, which is how gradients go.
void Rotate(Tensor& rows, std::int64_t heads, const Rotary& rotary, const QOffset& offset, int direction);

}  // namespace regard::nn
