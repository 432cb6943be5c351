// A summary of one's own: how much weight falls on the very next key, streamed past without ever holding the whole matrix of weights.
#include <cstdio>
#include <memory>

#include "regard/regard.h"

namespace {

struct NextKey : regard::TileVisitor {
  double sum = 0;
  std::unique_ptr<TileVisitor> Fork() const override { return std::make_unique<NextKey>(); }
  void Visit(const regard::WeightTile& t) override {
    for (std::int64_t r = 0; r < t.rows; ++r) {
      const std::int64_t c = t.first_query + r + 1 - t.first_key;
      if (c >= 0 && c < t.cols) sum += t.data[r * t.query_stride + c * t.key_stride];
    }
  }
  void Merge(TileVisitor& part) override { sum += static_cast<NextKey&>(part).sum; }
};

}  // namespace

int main() {
  // Keys of random signs; each query points to the key behind its own.
  constexpr int kTokens = 1000, kDim = 16;
  regard::Tensor q(regard::DType::kF32, {kTokens, kDim}), k(regard::DType::kF32, {kTokens, kDim});
  unsigned random = 1;
  for (int n = 0; n < kTokens * kDim; ++n) {
    random = random * 1664525u + 1013904223u;
    k.MutableAs<float>()[n] = random >> 31 ? 1.0f : -1.0f;
    if (n >= kDim) q.MutableAs<float>()[n - kDim] = 3 * k.As<float>()[n];
  }
  for (const bool causal : {false, true}) {
    const regard::AttentionParams params{.causal = causal};
    const regard::AttentionResult result = regard::Attention(q, k, k, params);
    NextKey next_key;
    regard::VisitWeights(q, k, result.lse, params, next_key);
    std::printf("%s: %.3f of the weight falls on the next key\n", causal ? "causal" : "not causal", next_key.sum / kTokens);
  }
}
