// Everything read once more as [batch, tokens, heads, dim], in case that is how it lies.
#pragma once

#include <vector>

#include "diagnose/search.h"

namespace regard::internal {

/// F100, when q, k, v and the context match exactly with their second and third axes exchanged; else nothing.
std::vector<Candidate> MatchInOtherLayout(const DiagnosisProblem& problem, const ObservedTensors& observed,
                                          const DiagnoseOptions& options);

}  // namespace regard::internal
