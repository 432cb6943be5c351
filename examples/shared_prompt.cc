// A cache in its shortest form: a prompt, two continuations that share it, and what each of them attends to.
#include <cmath>
#include <cstdio>

#include "regard/regard.h"

namespace {

// [batch, heads, tokens, 64], different everywhere.
regard::Tensor Numbers(std::int64_t batch, std::int64_t heads, std::int64_t tokens, double seed) {
  regard::Tensor tensor(regard::DType::kF32, {batch, heads, tokens, 64});
  for (std::int64_t n = 0; n < tensor.num_elements(); ++n) {
    tensor.MutableAs<float>()[n] = static_cast<float>(std::sin(seed + 0.37 * static_cast<double>(n * n % 10007)));
  }
  return tensor;
}

}  // namespace

int main() {
  const regard::Tensor q_prompt = Numbers(1, 8, 100, 1), k_prompt = Numbers(1, 2, 100, 2), v_prompt = Numbers(1, 2, 100, 3);
  const regard::Tensor q = Numbers(2, 8, 1, 4), k = Numbers(2, 2, 1, 5), v = Numbers(2, 2, 1, 6);

  regard::KvCache cache({.kv_heads = 2, .head_dim = 64, .k_dtype = regard::DType::kBF16, .v_dtype = regard::DType::kBF16});
  const regard::SequenceId text = cache.NewSequence();
  cache.Append(text, k_prompt, v_prompt);                                                // [1, 2, 100, 64]: kv heads, tokens, dim
  const auto prompt = regard::Attention(q_prompt, cache, {&text, 1}, {.causal = true});  // [1, 8, 100, 64]

  const regard::SequenceId both[] = {text, cache.Fork(text)};  // the prompt's pages are shared
  cache.Append(both, k, v);                                    // [2, 2, 1, 64]: a token each
  const auto next = regard::Attention(q, cache, both, {.causal = true});
  const auto who = regard::Summarize(q, cache, both, {.causal = true}, {.top_k = 3});  // the keys each query attends to most

  std::printf("prompt: context [%s], then [%s]\n", regard::ToString(prompt.context.shape()).c_str(),
              regard::ToString(next.context.shape()).c_str());
  for (const std::int64_t b : {0, 1}) {
    std::printf("sequence %d, head 0: most weight on key %.0f of %lld\n", static_cast<int>(b), who.topk_index(b, 0, 0, 0),
                static_cast<long long>(cache.Length(both[b])));
  }
}
