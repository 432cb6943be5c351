// For tests: a case that the reference path does in no time, with grouped heads.
#pragma once

#include "measure/cases.h"

namespace regard::measure {

inline BenchCase SmallCase(std::int64_t tokens, std::int64_t dim, bool causal, Feature feature) {
  BenchCase c;
  c.name = "small";
  c.heads = 4;
  c.kv_heads = 2;
  c.q_len = c.kv_len = tokens;
  c.dim = dim;
  c.causal = causal;
  c.feature = feature;
  c.exec.threads = 1;
  return c;
}

}  // namespace regard::measure
