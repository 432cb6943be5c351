// Backward runs of random problems, behind one call.
//
//     const GradientCase c(seed, problem);                         // draws d_context, runs the forward reference
//     const GradientResult r = RunBackward(path, problem, c);
//     ... r.d_q.at(row, d), row = (b·heads + h)·q_len + i; r.d_k.at(row, d), row = (b·kv_heads + kv_head)·kv_len + j
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "regard/backward.h"
#include "tests/support/paths.h"
#include "tests/support/placement.h"
#include "tests/support/random_problem.h"

namespace regard::test {

/// What a backward run reads beside its problem. context and lse are the reference's, in double.
struct GradientCase {
  GradientCase(std::uint64_t seed, const TestProblem& problem, bool any_layout = true);

  TensorView d_context, context, lse;
  std::vector<Tensor> memory;
};

struct GradientResult {
  Grid d_q;                              // [batch·heads·q_len, head_dim]
  Grid d_k, d_v;                         // [batch·kv_heads·kv_len, dim]
  Grid d_bias, d_alibi_slopes, d_sinks;  // [1, elements], without columns when the problem has none

  /// With the names of the gradients.
  std::vector<std::pair<std::string, const Grid*>> All() const;
  bool SameAs(const GradientResult& other) const;
};

/// Runs one backward plan for every gradient that there is, and checks that nothing outside the outputs was written.
GradientResult RunBackward(const PathCase& path, const TestProblem& problem, const GradientCase& gradient_case,
                           const RunOptions& options = {});

}  // namespace regard::test
