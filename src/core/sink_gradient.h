// d_sinks, which asks for no pair of query and key and so is the same on the accelerated paths.
#pragma once

#include <cstdint>

#include "core/bind_backward.h"
#include "core/problem.h"

namespace regard::internal {

/// −Σ exp(sink − lse) · delta over the queries of head h in all sequences, in f64 and in ascending order; `sink` −inf gives 0.
double SinkGradient(const Problem& problem, const Gradients& gradients, std::int64_t h, double sink);

}  // namespace regard::internal
