// Tensors laid out in memory in every way a caller might: axes in any order, gaps between rows, reversed axes.
//
// The memory around the elements is filled with 0xFF, which is NaN in every float type and −1 in every integer, so that a read outside a
// view spoils a result; GuardIntact tells whether a write outside one happened.
#pragma once

#include <cstdint>
#include <functional>

#include "regard/tensor.h"
#include "tests/support/random.h"

namespace regard::test {

struct Placed {
  Tensor memory;
  MutableTensorView view;
};

/// Dense, C order.
Placed PlaceDense(const Dims& shape, DType dtype);
/// A layout drawn from `random`; axes may be permuted, padded and, when `any_stride`, reversed and with no unit stride along the last one.
Placed PlaceRandomly(Random& random, const Dims& shape, DType dtype, bool any_stride);

bool GuardIntact(const Placed& placed);

/// Calls f(index) for every element in C order.
void ForEachIndex(const Dims& shape, const std::function<void(const Dims& index)>& f);

double Get(const TensorView& view, const Dims& index);
/// Any element type; floats are rounded to nearest even.
void Set(const MutableTensorView& view, const Dims& index, double value);

/// value at [b, h, i, j] of a tensor that broadcasts right-aligned to rank 4.
double BroadcastAt(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);

/// [tokens, dim] as [1, 1, tokens, dim].
TensorView AsRank4(const TensorView& view);

}  // namespace regard::test
