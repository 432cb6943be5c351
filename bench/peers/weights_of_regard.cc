// regard's side of weights.py: context, entropy, top 8, key mass and a pooled map of 64 × 64 bins, by Summarize or from the weights of
// the staged path. One thread.
//     weights_of_regard fused|staged IN.npz OUT.npz SECONDS
// Times for so many seconds, none at 0; writes the answers, and prints {"seconds": …, "peak_bytes": …}: the median CPU time of a call, and by how
// much the largest resident set exceeds what was resident with the inputs loaded.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "cli/blas_threads.h"
#include "measure/timing.h"
#include "regard/io.h"
#include "regard/regard.h"

namespace {

using regard::DType;
using regard::Tensor;

constexpr int kTopK = 8;
constexpr std::int64_t kBins = 64;

long long StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    long long kib = 0;
    if (word == key && status >> kib) return kib * 1024;
  }
  return 0;
}

struct Answers {
  Tensor context, entropy, topk_weight, topk_index, key_mass, pooled;
};

Answers Fused(const Tensor& q, const Tensor& k, const Tensor& v) {
  regard::Summary s = regard::Summarize(
      q, k, v, {}, {.entropy = true, .top_k = kTopK, .key_mass = true, .pooled_rows = kBins, .pooled_cols = kBins},
      {.threads = 1});
  return {s.context, s.entropy, s.topk_weight, s.topk_index, s.key_mass, s.pooled};
}

// One row of weights, reduced: entropy and the top list.
void ReduceRow(const float* w, std::int64_t keys, float* entropy, float* topk_weight, std::int64_t* topk_index) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < keys; ++j) sum -= w[j] * std::log(std::max(w[j], 1e-37f));
  *entropy = sum;
  std::fill_n(topk_weight, kTopK, -1.0f);
  for (std::int64_t j = 0; j < keys; ++j) {
    if (!(w[j] > topk_weight[kTopK - 1])) continue;
    int at = kTopK - 1;
    for (; at > 0 && topk_weight[at - 1] < w[j]; --at) {
      topk_weight[at] = topk_weight[at - 1];
      topk_index[at] = topk_index[at - 1];
    }
    topk_weight[at] = w[j];
    topk_index[at] = j;
  }
}

Answers Staged(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor weights = regard::Softmax(regard::Scores(q, k), -1);
  const std::int64_t heads = weights.dim(1), queries = weights.dim(2), keys = weights.dim(3);
  Answers a = {regard::Context(weights, v),
               Tensor(DType::kF32, {1, heads, queries}),
               Tensor(DType::kF32, {1, heads, queries, kTopK}),
               Tensor(DType::kI64, {1, heads, queries, kTopK}),
               Tensor(DType::kF32, {1, heads, keys}),
               Tensor(DType::kF32, {1, heads, kBins, kBins})};
  for (std::int64_t row = 0; row < heads * queries; ++row) {
    const float* const w = weights.As<float>() + row * keys;
    const std::int64_t head = row / queries, r = row % queries * kBins / queries;
    ReduceRow(w, keys, a.entropy.MutableAs<float>() + row, a.topk_weight.MutableAs<float>() + row * kTopK,
              a.topk_index.MutableAs<std::int64_t>() + row * kTopK);
    float* const mass = a.key_mass.MutableAs<float>() + head * keys;
    for (std::int64_t j = 0; j < keys; ++j) mass[j] += w[j];
    float* const bins = a.pooled.MutableAs<float>() + (head * kBins + r) * kBins;
    const std::int64_t width = keys / kBins;
    for (std::int64_t c = 0; c < kBins; ++c) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = c * width; j < (c + 1) * width; ++j) sum += w[j];
      bins[c] += sum * static_cast<float>(kBins) / static_cast<float>(queries);
    }
  }
  return a;
}

int Run(char** argv) {
  const bool staged = std::strcmp(argv[1], "staged") == 0;
  const regard::io::File file = regard::io::File::Open(argv[2]);
  const Tensor q = file.Read("q"), k = file.Read("k"), v = file.Read("v");
  const double seconds = std::atof(argv[4]);
  const regard::cli::BlasThreads one_thread(1);
  const long long before = StatusBytes("VmRSS:");
  Answers a = staged ? Staged(q, k, v) : Fused(q, k, v);
  const long long peak = StatusBytes("VmHWM:") - before;
  regard::measure::Timing timing;
  if (seconds > 0) {
    timing = regard::measure::TimeCalls([&] { staged ? Staged(q, k, v) : Fused(q, k, v); },
                                        {.min_seconds = seconds, .min_samples = 3, .max_seconds = 60});
  }
  regard::io::WriteNpz(argv[3], {{.name = "context", .tensor = a.context},
                                 {.name = "entropy", .tensor = a.entropy},
                                 {.name = "topk_weight", .tensor = a.topk_weight},
                                 {.name = "topk_index", .tensor = a.topk_index},
                                 {.name = "key_mass", .tensor = a.key_mass},
                                 {.name = "pooled", .tensor = a.pooled}});
  std::printf("{\"seconds\": %.9g, \"peak_bytes\": %lld}\n", timing.cpu.median, peak);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "weights_of_regard fused|staged IN.npz OUT.npz SECONDS\n");
    return 1;
  }
  try {
    return Run(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weights_of_regard: %s\n", error.what());
    return 2;
  }
}
