// Is what is about to be timed right? Sampled rows of a result against the reference path, in double.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/integer_rounding.h"
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
  /// Takes one number into account; `place` says which it is when it is the worst so far.
  void Expect(double value, double reference, double bound, const std::function<std::string()>& place);
};

/// Compares the rows of context [1, heads, q_len, dim] and, when given, of lse [1, heads, q_len] with what the reference path says about
/// the workload's own row, within the bounds of row_check.h; weight_unit and integers as there.
Verification VerifyRows(const Workload& workload, const TensorView& context, const TensorView& lse, double weight_unit = 0,
                        const internal::IntegerRounding& integers = {});

}  // namespace regard::measure
