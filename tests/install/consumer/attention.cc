// Two tokens, causal: the first sees itself only. Every public header of regard::regard is compiled.
#include <cstdio>

#include "regard/regard.h"

int main() {
  const regard::Tensor x = regard::Tensor::Of({2, 2}, {1.0f, 2.0f, 3.0f, -4.0f});
  const regard::AttentionResult r = regard::Attention(x, x, x, {.causal = true});
  std::printf("%s: %g %g\n", regard::Version(), r.context(0, 0), r.context(0, 1));
  return r.context(0, 1) == 2 ? 0 : 1;
}
