#include "inspection.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <vector>

#include "corpus.h"
#include "regard/io.h"

namespace train_lm {
namespace {

// A JSON list with a string for each byte; bytes beyond ASCII stand for the characters of Latin-1.
std::string TokensJson(std::string_view passage) {
  std::string json = "[";
  for (const char c : passage) {
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    json += json.size() > 1 ? ",\"" : "\"";
    json += escaped;
    json += '"';
  }
  return json + "]";
}

}  // namespace

std::string Sample(const LanguageModel& model, std::string_view prompt, std::int64_t count, std::int64_t context,
                   double temperature, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(prompt);
  for (std::int64_t n = 0; n < count; ++n) {
    const std::size_t window = std::min(text.size(), static_cast<std::size_t>(context));
    LanguageModel::Cache cache;
    const regard::Tensor logits = model.Forward(Indices(std::string_view(text).substr(text.size() - window)), &cache);
    const float* const row = logits.As<float>() + (logits.dim(1) - 1) * kClasses;
    std::vector<double> sums(kClasses);
    double sum = 0;
    const double largest = *std::max_element(row, row + kClasses);
    for (std::size_t c = 0; c < sums.size(); ++c)
      sums[c] = sum += std::exp((static_cast<double>(row[c]) - largest) / temperature);
    const double draw = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
    text += static_cast<char>(std::upper_bound(sums.begin(), sums.end() - 1, draw) - sums.begin());
  }
  return text;
}

void WriteHeads(const LanguageModel& model, std::string_view passage, const std::string& path) {
  LanguageModel::Cache cache;
  model.Forward(Indices(passage), &cache);
  const std::int64_t heads = model.shape().heads;
  std::map<std::string, regard::Tensor> tensors;
  for (std::size_t n = 0; n < cache.blocks.size(); ++n) {
    const regard::nn::MultiheadAttention::Cache& attention = cache.blocks[n].attn;
    const auto add = [&](const char* name, const regard::Tensor& rows) {
      const regard::TensorView split = rows.view().Reshape({1, rows.dim(1), heads, rows.dim(2) / heads});
      tensors["layers." + std::to_string(n) + "." + name] = regard::Tensor::CopyOf(split.Transpose(1, 2));
    };
    add("q", attention.q);
    add("k", attention.k);
    add("v", attention.v);
  }
  regard::io::WriteTensors(path, tensors, {{"tokens", TokensJson(passage)}, {"causal", "true"}});
}

}  // namespace train_lm
