// How far the gradients of a path may be from their definition: the derivation of tolerance.h carried on.
//
// With the error a of a masked score from there, u, γ, and the letters of Arithmetic:
//
//   weight     relative: expm1(a + 3u·|lse| + γ(head_dim)·u·|lse|) + e·u     lse is rounded, converted and where accumulators start
//   delta      γ(v_dim)·u·Σ|d_context·context|
//   d_masked   weight·(γ(v_dim)·u·(Σ|d_context·v| + |delta|) + error of delta) + |d_masked|·(relative error of the weight + 2u)
//   d_scores   that times the slope of the cap, + |d_masked|·error of the slope: (1 − tanh²)' times the error of the score, and tanh's own
//   d_sinks    in f64, but for the rounding of an f64 sink
//   d_q …      Σ |error of one factor · other factor| + γ(terms)·u·Σ|products|, and the same for each other sum
//
// With dropout the weight of d_v and Σ|d_context·v| are times their multiplier, which is one more rounding.
//
// A row whose weights may be off by half says nothing, and neither do the keys it reaches: their bounds are infinite.
#pragma once

#include "tests/support/gradients.h"
#include "tests/support/paths.h"
#include "tests/support/random_problem.h"

namespace regard::test {

/// Largest absolute error that the derivation allows for each number; grids as the results'. stages: the reference's forward run.
GradientResult GradientBounds(const TestProblem& problem, const GradientCase& gradient_case, const RunResult& stages, Path path);

}  // namespace regard::test
