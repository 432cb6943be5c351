#include "tests/support/placement.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/problem.h"

namespace regard::test {
namespace {

constexpr unsigned char kGuard = 0xFF;

std::int64_t OffsetOf(const TensorView& view, const Dims& index) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < view.rank(); ++axis) offset += index[axis] * view.strides()[axis];
  return offset;
}

// order[n] is the axis at place n in memory, outermost first; before and after count the unused elements around each axis.
Placed PlaceInOrder(const Dims& shape, DType dtype, const std::vector<int>& order, const Dims& before, const Dims& after,
                    const Dims& reversed) {
  Dims stored;
  for (int axis : order) stored.push_back(before[axis] + shape[axis] + after[axis]);
  const Dims stored_strides = ContiguousStrides(stored);
  Placed placed;
  placed.memory = Tensor::Uninitialized(dtype, stored);
  const std::size_t bytes = static_cast<std::size_t>(placed.memory.num_elements()) * ItemSize(dtype);
  unsigned char* const first = static_cast<unsigned char*>(placed.memory.mutable_view().mutable_data());
  if (bytes > 0) std::memset(first, kGuard, bytes);
  Dims strides = shape;
  std::int64_t offset = 0;
  for (int n = 0; n < shape.size(); ++n) {
    const int axis = order[static_cast<std::size_t>(n)];
    strides[axis] = stored_strides[n];
    offset += before[axis] * stored_strides[n];
    if (reversed[axis] == 0 || shape[axis] == 0) continue;
    offset += (shape[axis] - 1) * stored_strides[n];
    strides[axis] = -stored_strides[n];
  }
  unsigned char* const start = first == nullptr ? nullptr : first + offset * static_cast<std::int64_t>(ItemSize(dtype));
  placed.view = MutableTensorView(start, dtype, shape, strides);
  return placed;
}

}  // namespace

Placed PlaceDense(const Dims& shape, DType dtype) {
  std::vector<int> order;
  Dims none;
  for (int axis = 0; axis < shape.size(); ++axis) {
    order.push_back(axis);
    none.push_back(0);
  }
  return PlaceInOrder(shape, dtype, order, none, none, none);
}

Placed PlaceRandomly(Random& random, const Dims& shape, DType dtype, bool any_stride) {
  std::vector<int> order;
  Dims before, after, reversed;
  const bool padded = random.Chance(0.5), reverse = any_stride && random.Chance(0.3);
  for (int axis = 0; axis < shape.size(); ++axis) {
    order.push_back(axis);
    before.push_back(padded ? random.Int(0, 2) : 0);
    after.push_back(padded ? random.Int(0, 2) : 0);
    reversed.push_back(reverse && random.Chance(0.5) ? 1 : 0);
  }
  const int free_axes =
      any_stride ? shape.size() : shape.size() - 1;  // the last axis stays innermost where it must have unit stride
  if (random.Chance(0.5)) {
    for (int n = free_axes - 1; n > 0; --n)
      std::swap(order[static_cast<std::size_t>(n)], order[static_cast<std::size_t>(random.Int(0, n))]);
  }
  return PlaceInOrder(shape, dtype, order, before, after, reversed);
}

bool GuardIntact(const Placed& placed) {
  const std::size_t item = ItemSize(placed.view.dtype());
  const std::int64_t count = placed.memory.num_elements();
  if (count == 0) return true;
  const unsigned char* const first = static_cast<const unsigned char*>(placed.memory.view().data());
  std::vector<bool> inside(static_cast<std::size_t>(count));
  const std::int64_t origin = (static_cast<const unsigned char*>(placed.view.data()) - first) / static_cast<std::int64_t>(item);
  ForEachIndex(placed.view.shape(),
               [&](const Dims& index) { inside[static_cast<std::size_t>(origin + OffsetOf(placed.view, index))] = true; });
  for (std::size_t n = 0; n < inside.size(); ++n) {
    for (std::size_t byte = 0; !inside[n] && byte < item; ++byte) {
      if (first[n * item + byte] != kGuard) return false;
    }
  }
  return true;
}

void ForEachIndex(const Dims& shape, const std::function<void(const Dims& index)>& f) {
  Dims index = shape;
  for (int axis = 0; axis < shape.size(); ++axis) index[axis] = 0;
  for (std::int64_t n = NumElements(shape); n > 0; --n) {
    f(index);
    for (int axis = shape.size() - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
  }
}

double Get(const TensorView& view, const Dims& index) {
  return internal::LoadDouble(view.data(), view.dtype(), OffsetOf(view, index));
}

void Set(const MutableTensorView& view, const Dims& index, double value) {
  const std::int64_t at = OffsetOf(view, index);
  switch (view.dtype()) {
    case DType::kI64:
      view.MutableAs<std::int64_t>()[at] = static_cast<std::int64_t>(value);
      return;
    case DType::kI32:
      view.MutableAs<std::int32_t>()[at] = static_cast<std::int32_t>(value);
      return;
    case DType::kBool:
      view.MutableAs<bool>()[at] = value != 0;
      return;
    default:
      internal::StoreDouble(view.mutable_data(), view.dtype(), at, value);
  }
}

double BroadcastAt(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t full[4] = {b, h, i, j};
  Dims index = view.shape();
  for (int axis = 0; axis < view.rank(); ++axis) index[axis] = view.dim(axis) == 1 ? 0 : full[axis + 4 - view.rank()];
  return Get(view, index);
}

TensorView AsRank4(const TensorView& view) { return view.rank() == 4 ? view : view.Unsqueeze(0).Unsqueeze(0); }

}  // namespace regard::test
