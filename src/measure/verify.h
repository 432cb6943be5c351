// Is what is about to be timed right? Sampled rows of a result against the reference path, in double.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/workload.h"
#include "regard/tensor.h"

namespace regard::measure {

struct RowIndex {
  std::int64_t head = 0, query = 0;
  friend bool operator==(const RowIndex&, const RowIndex&) = default;
};

/// At most kSampledRows, ascending by query: first, last, both sides of the edges of the blocks that kernels work in, and evenly spaced ones;
/// dealt out over the heads. Each is looked at whole.
inline constexpr std::int64_t kSampledRows = 24;
std::vector<RowIndex> SampleRows(std::int64_t heads, std::int64_t q_len);

struct Verification {
  std::int64_t rows = 0;
  double worst = 0;   // the largest part of its bound that an error uses; infinite where only one side is finite
  std::string fault;  // empty when every error is within its bound

  bool passed() const { return fault.empty(); }
};

/// Compares the rows of context [1, heads, q_len, dim] and, when given, of lse [1, heads, q_len] with what the reference path says about
/// the workload's own row. With u = 2⁻²⁴, weights w_j and masked scores m_j of the row, and rounding errors taken as independent and at
/// most u each, so that n of them add up to about √n (Higham and Mary 2019):
///     ε_j = u·[(√dim + 8)·|scale|·Σ_d |q_d·k_jd| + 8·(|m_j| + |lse|)]            of masked score j: products, scale, cap, bias, exp
///     |Δcontext_d| ≤ 4·√(Σ_j (w_j·ε_j·(|v_jd| + |context_d|))²) + 2·(√n + 8)·u·Σ_j w_j·|v_jd| + rounding to the element type
///     |Δlse|       ≤ 4·√(Σ_j (w_j·ε_j)²) + 2·(√n + 8)·u + 4·u·|lse|
/// over the n visible keys. That holds for inputs like the workload's, which are independent random numbers; a kernel that skips one tile
/// of keys, or shifts a mask by one, is out of bounds by far.
Verification VerifyRows(const Workload& workload, const TensorView& context, const TensorView& lse);

}  // namespace regard::measure
