#include "staged/linear.h"

#include "regard/error.h"

namespace regard::internal {
namespace {

[[noreturn]] void FailShape(const char* name, const TensorView& x, const std::string& hint) {
  throw Error(ErrorCode::kShapeMismatch, std::string(name) + ": shape " + ToString(x.shape()) + hint);
}

}  // namespace

void CheckFloat(const char* name, const TensorView& x) {
  if (!x || IsFloat(x.dtype())) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(name) + ": element type " + std::string(regard::Name(x.dtype())) +
                                               " is not a float type; convert it to f32, f16, bf16 or f64");
}

void CheckLinear(const Linear& linear, bool fits, const std::string& hint) {
  const auto& [matrix_name, bias_name, matrix, bias] = linear;
  CheckFloat(matrix_name, matrix);
  CheckFloat(bias_name, bias);
  if (bias && !matrix) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(bias_name) + ": given without " + matrix_name + "; give both or neither");
  }
  if (!matrix) return;
  if (!fits) FailShape(matrix_name, matrix, hint);
  if (bias && bias.shape() != Dims{matrix.dim(0)})
    FailShape(bias_name, bias, "; give [out] = [" + std::to_string(matrix.dim(0)) + "]");
}

}  // namespace regard::internal
