// Cases that derive: the backward run that is timed, and whether its gradients are right.
#pragma once

#include "measure/verify.h"
#include "measure/workload.h"
#include "regard/backward.h"

namespace regard::measure {

/// One forward run, and then as many backward runs as wanted, without any allocation.
class BackwardRun {
 public:
  /// Throws Error.
  BackwardRun(Workload& workload, const ExecOptions& exec);

  void Run();

  /// Compares d_q of the rows that SampleRows names, and d_k and d_v of the keys at the same places, with the reference path, which is given
  /// one query or the few keys around one with the context and lse of the forward run. Workloads without features but dropout only.
  ///
  /// With the errors ε of row_check.h, a pair's weight w, g = d_masked and P = Σ|d_context·v| + Σ|d_context·context| (a score that starts
  /// at −lse):  |Δg| ≤ |g|·ε + w·(√dim + 8)·u·P,  and for a sum over n pairs of g·x
  ///     |Δ| ≤ scale·(4·√Σ(|Δg|·|x|)² + 2·(√n + 8)·u·Σ|g·x|) + rounding to the element type,  of w·x likewise with |Δw| ≤ w·ε
  /// With dropout the weights of w·x and d_context·v are times their multiplier.
  Verification Verify() const;

  /// The gradients, for tests that spoil them.
  Tensor& d_q() { return d_q_; }
  Tensor& d_k() { return d_k_; }
  Tensor& d_v() { return d_v_; }

 private:
  /// d_q, d_k and d_v in f64.
  AttentionGrads Reference(const Inputs& inputs, const AttentionParams& params, const TensorView& context, const TensorView& lse,
                           const TensorView& d_context) const;
  void VerifyQuery(std::int64_t head, std::int64_t query, Verification* result) const;
  void VerifyKey(std::int64_t kv_head, std::int64_t key, Verification* result) const;

  Workload& work_;
  BackwardPlan plan_;
  Workspace workspace_;
  Tensor d_q_, d_k_, d_v_;
};

}  // namespace regard::measure
