#include <algorithm>

#include "nn/dense.h"
#include "nn/state.h"
#include "regard/nn.h"

namespace regard::nn {
namespace {

// Contiguous, and every index below `count`.
Dense CheckedIndices(const char* name, const TensorView& indices, std::int64_t count) {
  if (!indices || indices.rank() == 0 || indices.rank() == kMaxRank)
    Fail(ErrorCode::kInvalidArgument, std::string(name) + ": missing, a scalar or of too many axes; give i32 [..]");
  Dense dense(name, indices, indices.dim(-1), DType::kI32);
  for (std::int64_t n = 0; n < indices.num_elements(); ++n) {
    const std::int32_t index = dense.As<std::int32_t>()[n];
    if (index < 0 || index >= count)
      Fail(ErrorCode::kInvalidArgument,
           std::string(name) + ": " + std::to_string(index) + "; give 0 to " + std::to_string(count - 1));
  }
  return dense;
}

}  // namespace

Embedding::Embedding(std::int64_t count, std::int64_t dim, DType dtype) : weight(MakeParameter(dtype, {count, dim})) {}

Tensor Embedding::Forward(const TensorView& indices) const {
  CheckMade(weight);
  const std::int64_t dim = weight.value.dim(1);
  const Dense dense = CheckedIndices("indices", indices, weight.value.dim(0));
  Dims shape = dense.shape();
  shape.push_back(dim);
  Tensor y = Tensor::Uninitialized(weight.value.dtype(), shape);
  WithType(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t n = 0; n < NumElements(dense.shape()); ++n)
      std::copy_n(weight.value.As<T>() + dense.As<std::int32_t>()[n] * dim, dim, y.MutableAs<T>() + n * dim);
  });
  return y;
}

void Embedding::Backward(const TensorView& indices, const TensorView& d_y) {
  CheckMade(weight);
  const std::int64_t dim = weight.value.dim(1);
  const Dense dense = CheckedIndices("indices", indices, weight.value.dim(0));
  Dims shape = dense.shape();
  shape.push_back(dim);
  const Dense d_out = DenseLike("d_y", d_y, shape, weight.value.dtype());
  WithType(weight.value.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t n = 0; n < NumElements(dense.shape()); ++n) {
      T* const row = weight.grad.MutableAs<T>() + dense.As<std::int32_t>()[n] * dim;
      for (std::int64_t d = 0; d < dim; ++d) row[d] += d_out.As<T>()[n * dim + d];
    }
  });
}

void Embedding::AppendParameters(const std::string& name, ParameterList* list) { Append(name + ".weight", weight, list); }

}  // namespace regard::nn
