#include "regard/projections.h"

#include <algorithm>
#include <string>

#include "regard/error.h"
#include "staged/linear.h"
#include "staged/matrix_product.h"

namespace regard {
namespace {

using internal::CheckFloat;
using internal::CheckLinear;
using internal::Linear;

[[noreturn]] void Fail(ErrorCode code, const std::string& message) { throw Error(code, message); }

void CheckInDim(const Linear& linear, std::int64_t in_dim) {
  const TensorView& matrix = linear.matrix;
  if (!matrix || matrix.rank() != 2) return CheckLinear(linear, false, "; give [out, in], rank 2");
  CheckLinear(linear, matrix.dim(1) == in_dim,
              ", expected [out, in] with in=" + std::to_string(in_dim) +
                  (matrix.dim(0) == in_dim ? "; transpose it" : "; check the axis order"));
}

bool AllF64(const TensorView& x, std::initializer_list<const Linear*> linears) {
  bool all = x.dtype() == DType::kF64;
  for (const Linear* linear : linears) {
    all = all && (!linear->matrix || linear->matrix.dtype() == DType::kF64) &&
          (!linear->bias || linear->bias.dtype() == DType::kF64);
  }
  return all;
}

// x [rows, in], contiguous, to x·matrixᵀ + bias [rows, out]; x itself when there is no matrix.
template <typename T>
Tensor Apply(const Tensor& x, const Linear& linear) {
  if (!linear.matrix) return x;
  internal::CheckBlasMemory().ThrowIfFailed();
  const Tensor matrix = Tensor::CopyOf(linear.matrix, DTypeOf<T>());
  const std::int64_t rows = x.dim(0), in = x.dim(1), out = matrix.dim(0);
  Tensor y = Tensor::Uninitialized(DTypeOf<T>(), {rows, out});
  internal::MultiplyByTransposed(rows, out, in, T{1}, x.As<T>(), std::max<std::int64_t>(in, 1), matrix.As<T>(),
                                 std::max<std::int64_t>(in, 1), y.MutableAs<T>(), std::max<std::int64_t>(out, 1));
  if (!linear.bias) return y;
  const Tensor bias = Tensor::CopyOf(linear.bias, DTypeOf<T>());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < out; ++o) y.MutableAs<T>()[r * out + o] += bias.As<T>()[o];
  }
  return y;
}

Tensor ApplyAs(DType type, const Tensor& x, const Linear& linear) {
  return type == DType::kF64 ? Apply<double>(x, linear) : Apply<float>(x, linear);
}

// [batch·tokens, heads·dim] -> [batch, heads, tokens, dim]
Tensor SplitHeads(const Tensor& x, std::int64_t batch, std::int64_t tokens, std::int64_t heads) {
  return Tensor::CopyOf(x.view().Reshape({batch, tokens, heads, x.dim(1) / heads}).Transpose(1, 2));
}

std::int64_t OutDim(const Linear& linear, std::int64_t in_dim) { return linear.matrix ? linear.matrix.dim(0) : in_dim; }

void CheckHeads(const Linear& linear, std::int64_t in_dim, const char* count_name, std::int64_t heads) {
  const std::int64_t out = OutDim(linear, in_dim);
  if (out > 0 && out % heads == 0) return;
  Fail(ErrorCode::kShapeMismatch, std::string(linear.matrix_name) + ": " + std::to_string(out) + " rows" +
                                      (linear.matrix ? "" : " (identity)") + " do not divide into " + count_name + "=" +
                                      std::to_string(heads) + "; check " + count_name);
}

}  // namespace

Projected Project(const TensorView& inputs, const Projections& p) {
  if (!inputs) Fail(ErrorCode::kInvalidArgument, "inputs: missing; pass [tokens, in_dim] or [batch, tokens, in_dim]");
  CheckFloat("inputs", inputs);
  if (inputs.rank() != 2 && inputs.rank() != 3) {
    Fail(ErrorCode::kShapeMismatch,
         "inputs: shape " + ToString(inputs.shape()) + "; give [tokens, in_dim] or [batch, tokens, in_dim]");
  }
  if (p.num_heads < 1) Fail(ErrorCode::kInvalidArgument, "num_heads: " + std::to_string(p.num_heads) + "; give 1 or more");
  const std::int64_t kv_heads = p.num_kv_heads == 0 ? p.num_heads : p.num_kv_heads;
  if (kv_heads < 1 || p.num_heads % kv_heads != 0) {
    Fail(ErrorCode::kInvalidArgument, "num_kv_heads: " + std::to_string(p.num_kv_heads) + " does not divide num_heads=" +
                                          std::to_string(p.num_heads) + "; give a divisor, or 0 for as many");
  }
  const Linear query{"w_query", "b_query", p.w_query, p.b_query}, key{"w_key", "b_key", p.w_key, p.b_key},
      value{"w_value", "b_value", p.w_value, p.b_value};
  const std::int64_t batch = inputs.rank() == 3 ? inputs.dim(0) : 1, tokens = inputs.dim(-2), in_dim = inputs.dim(-1);
  for (const Linear* linear : {&query, &key, &value}) CheckInDim(*linear, in_dim);
  CheckHeads(query, in_dim, "num_heads", p.num_heads);
  CheckHeads(key, in_dim, "num_kv_heads", kv_heads);
  CheckHeads(value, in_dim, "num_kv_heads", kv_heads);
  const std::int64_t q_dim = OutDim(query, in_dim) / p.num_heads, k_dim = OutDim(key, in_dim) / kv_heads;
  if (q_dim != k_dim) {
    Fail(ErrorCode::kShapeMismatch, "w_key: head_dim=" + std::to_string(k_dim) + " over " + std::to_string(kv_heads) +
                                        " kv heads, expected w_query's " + std::to_string(q_dim) + "; check num_kv_heads");
  }
  const DType type = AllF64(inputs, {&query, &key, &value}) ? DType::kF64 : DType::kF32;
  Tensor copy = Tensor::CopyOf(inputs, type);
  const Tensor x = Tensor::CopyOf(copy.view().Reshape({batch * tokens, in_dim}));
  return {SplitHeads(ApplyAs(type, x, query), batch, tokens, p.num_heads),
          SplitHeads(ApplyAs(type, x, key), batch, tokens, kv_heads),
          SplitHeads(ApplyAs(type, x, value), batch, tokens, kv_heads)};
}

Tensor ProjectContext(const TensorView& context, const Projections& p) {
  if (!context || context.rank() != 4) {
    Fail(ErrorCode::kShapeMismatch, "context: " + (context ? "shape " + ToString(context.shape()) : std::string("missing")) +
                                        "; give [batch, heads, tokens, v_dim]");
  }
  CheckFloat("context", context);
  const Linear out{"w_out", "b_out", p.w_out, p.b_out};
  const std::int64_t batch = context.dim(0), tokens = context.dim(2), merged = context.dim(1) * context.dim(3);
  CheckInDim(out, merged);
  const DType type = AllF64(context, {&out}) ? DType::kF64 : DType::kF32;
  const Tensor side_by_side = Tensor::CopyOf(context.Transpose(1, 2), type);
  const Tensor x = Tensor::CopyOf(side_by_side.view().Reshape({batch * tokens, merged}));
  const Tensor y = ApplyAs(type, x, out);
  return Tensor::CopyOf(y.view().Reshape({batch, tokens, y.dim(1)}));
}

}  // namespace regard
