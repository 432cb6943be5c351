#include "diagnose/problem_shape.h"

#include <string>

#include "regard/error.h"
#include "staged/linear.h"

namespace regard::internal {
namespace {

[[noreturn]] void FailShape(const char* name, const TensorView& x, const std::string& expected) {
  throw Error(ErrorCode::kShapeMismatch, std::string(name) + ": shape " + ToString(x.shape()) + "; give " + expected);
}

void CheckInputs(const DiagnosisProblem& given, const Problem& p) {
  const TensorView& inputs = given.inputs;
  CheckFloat("inputs", inputs);
  const bool has_batch = inputs.rank() == 3;
  if ((!has_batch && inputs.rank() != 2) || (has_batch ? inputs.dim(0) : 1) != p.batch || inputs.dim(-2) != p.q_len) {
    FailShape(
        "inputs", inputs,
        "[batch, tokens, in_dim] with batch " + std::to_string(p.batch) + " and the " + std::to_string(p.q_len) + " tokens of q");
  }
  const std::int64_t in_dim = inputs.dim(-1);
  const auto check = [&](const char* matrix_name, const TensorView& matrix, const char* bias_name, const TensorView& bias,
                         std::int64_t out_dim) {
    const Dims shape{out_dim, in_dim};
    CheckLinear({matrix_name, bias_name, matrix, bias}, matrix && matrix.shape() == shape,
                "; give [out_dim, in_dim] " + ToString(shape));
  };
  const Projections& w = given.projections;
  check("w_query", w.w_query, "b_query", w.b_query, p.heads * p.head_dim);
  check("w_key", w.w_key, "b_key", w.b_key, p.kv_heads * p.head_dim);
  check("w_value", w.w_value, "b_value", w.b_value, p.kv_heads * p.v_dim);
}

// Before the rotation q and k have the shape that they have after it, up to axes of length 1 in front.
void CheckUnrotated(const char* name, TensorView x, const Dims& shape) {
  CheckFloat(name, x);
  const TensorView as_given = x;
  while (x.rank() < 4) x = x.Unsqueeze(0);
  if (x.shape() != shape) FailShape(name, as_given, ToString(shape) + ", as the rotated one is");
}

void CheckPositions(const TensorView& positions, const Problem& p) {
  const int rank = positions.rank();
  const bool fits = (rank == 1 || (rank == 2 && (positions.dim(0) == 1 || positions.dim(0) == p.batch))) &&
                    (positions.dim(-1) == p.q_len || positions.dim(-1) == p.kv_len);
  if (!fits) {
    FailShape("positions", positions,
              "[tokens] or [batch, tokens] with batch " + std::to_string(p.batch) + " and q_len " + std::to_string(p.q_len) +
                  " or kv_len " + std::to_string(p.kv_len) + " tokens");
  }
}

}  // namespace

void CheckSources(const DiagnosisProblem& given, const Problem& p) {
  const Projections& w = given.projections;
  const std::int64_t merged = p.heads * p.v_dim;
  CheckLinear({"w_out", "b_out", w.w_out, w.b_out}, w.w_out && w.w_out.rank() == 2 && w.w_out.dim(1) == merged,
              "; give [out_dim, heads·v_dim] with heads·v_dim = " + std::to_string(merged));
  if (given.inputs) CheckInputs(given, p);
  if (given.q_pre_rope) CheckUnrotated("q_pre_rope", given.q_pre_rope, {p.batch, p.heads, p.q_len, p.head_dim});
  if (given.k_pre_rope) CheckUnrotated("k_pre_rope", given.k_pre_rope, {p.batch, p.kv_heads, p.kv_len, p.head_dim});
  if (given.positions) CheckPositions(given.positions, p);
}

}  // namespace regard::internal
