// The result of a bench as one JSON object; docs/bench.md describes every key.
#pragma once

#include <string>
#include <vector>

#include "measure/bench.h"
#include "measure/machine.h"

namespace regard::measure {

/// Indented by two, with a newline at the end.
std::string ToJson(const Machine& machine, const Limits& limits, const std::vector<BenchRow>& rows);

}  // namespace regard::measure
