// One causal head of dim 64 and as many tokens as the argument says, once, f32, one thread. Prints in bytes the largest resident set of the
// process, the size of inputs and outputs, and what the headers allow besides. A process for each run, since the largest resident set
// never shrinks.
//     memory_probe attention|summaries TOKENS
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "regard/attention.h"
#include "regard/summary.h"
#include "summary/summary_request.h"

namespace {

constexpr long long kDim = 64, kTopK = 8, kBins = 64;

long long PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    long long kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return -1;
}

regard::SummaryOptions Everything() {
  regard::SummaryOptions options;
  options.row_max = options.row_argmax = options.entropy = options.distance = options.first_key_share = true;
  options.key_mass = options.key_mass_mean = options.pooled_max = options.head_kind = true;
  options.window_share = 8;
  options.top_k = options.key_top_k = kTopK;
  options.pooled_rows = options.pooled_cols = kBins;
  return options;
}

long long BytesOf(const regard::Summary& s) {
  long long bytes = 0;
  for (const regard::Tensor* tensor :
       {&s.context, &s.lse, &s.row_max, &s.row_argmax, &s.entropy, &s.topk_index, &s.topk_weight, &s.topk_tail, &s.distance_mean,
        &s.distance_std, &s.first_key_share, &s.window_share, &s.key_mass, &s.key_mass_mean, &s.key_topk_index,
        &s.key_topk_weight, &s.pooled, &s.pooled_max, &s.head_score}) {
    bytes += tensor->num_elements() * static_cast<long long>(regard::ItemSize(tensor->dtype()));
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const bool summaries = argc > 2 && std::strcmp(argv[1], "summaries") == 0;
  const long long tokens = argc > 2 ? std::atoll(argv[2]) : 0;
  if (tokens < 1 || (!summaries && std::strcmp(argv[1], "attention") != 0)) {
    std::fprintf(stderr, "memory_probe attention|summaries TOKENS\n");
    return 1;
  }
  regard::Tensor q(regard::DType::kF32, {tokens, kDim}), k(regard::DType::kF32, {tokens, kDim}),
      v(regard::DType::kF32, {tokens, kDim});
  for (long long n = 0; n < tokens * kDim; ++n) {
    q.MutableAs<float>()[n] = static_cast<float>(n % 7 - 3) * 0.25f;
    k.MutableAs<float>()[n] = static_cast<float>(n % 11 - 5) * 0.25f;
    v.MutableAs<float>()[n] = static_cast<float>(n % 13 - 6);
  }
  const regard::AttentionParams params{.causal = true};
  const regard::ExecOptions exec{.threads = 1};
  long long results = 0, scratch = 0;
  regard::Tensor context;
  if (summaries) {
    regard::Summary summary = regard::Summarize(q, k, v, params, Everything(), exec);
    results = BytesOf(summary);
    const regard::PlanShape shape = regard::PlanShape::Of(q, k, v);
    scratch = static_cast<long long>(regard::internal::StatedScratchBytes(shape, Everything(), exec.threads));
    context = std::move(summary.context);
  } else {
    regard::AttentionResult result = regard::Attention(q, k, v, params, exec);
    results = 4 * (tokens * kDim + tokens);
    context = std::move(result.context);
  }
  scratch += static_cast<long long>(regard::Plan(regard::PlanShape::Of(q, k, v), params, exec).WorkspaceBytes());
  // The first query sees the first key only.
  for (long long d = 0; d < kDim; ++d) {
    if (context(0, d) != v(0, d)) return 2;
  }
  std::printf("%lld %lld %lld\n", PeakResidentBytes(), 4 * 3 * tokens * kDim + results, scratch);
  return 0;
}
