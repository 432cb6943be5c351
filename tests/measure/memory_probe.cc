// One causal head of dim 64 and as many tokens as the argument says, once, f32, one thread. Prints the largest resident set of the process
// and the bytes of inputs and outputs, both in bytes. A process for each length, since the largest resident set never shrinks.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "regard/attention.h"

namespace {

long long PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    long long kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return -1;
}

}  // namespace

int main(int argc, char** argv) {
  const long long tokens = argc > 1 ? std::atoll(argv[1]) : 0;
  constexpr long long kDim = 64;
  if (tokens < 1) {
    std::fprintf(stderr, "memory_probe TOKENS\n");
    return 1;
  }
  regard::Tensor q(regard::DType::kF32, {tokens, kDim}), k(regard::DType::kF32, {tokens, kDim}),
      v(regard::DType::kF32, {tokens, kDim});
  for (long long n = 0; n < tokens * kDim; ++n) {
    q.MutableAs<float>()[n] = static_cast<float>(n % 7 - 3) * 0.25f;
    k.MutableAs<float>()[n] = static_cast<float>(n % 11 - 5) * 0.25f;
    v.MutableAs<float>()[n] = static_cast<float>(n % 13 - 6);
  }
  const regard::AttentionResult result = regard::Attention(q, k, v, {.causal = true}, {.threads = 1});
  // The first query sees the first key only.
  for (long long d = 0; d < kDim; ++d) {
    if (result.context(0, d) != v(0, d)) return 2;
  }
  std::printf("%lld %lld\n", PeakResidentBytes(), 4 * (4 * tokens * kDim + tokens));
  return 0;
}
