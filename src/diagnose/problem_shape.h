// Shapes of what a problem gives beside q, k, v and params: where they come from, and w_out behind them.
#pragma once

#include "core/problem.h"
#include "regard/diagnose.h"

namespace regard::internal {

/// Throws Error where one of them cannot belong to the problem `p` that q, k and v make.
void CheckSources(const DiagnosisProblem& given, const Problem& p);

}  // namespace regard::internal
