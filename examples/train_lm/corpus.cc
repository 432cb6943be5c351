#include "corpus.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <vector>

namespace train_lm {
namespace {

void CopyWindow(std::string_view text, std::size_t begin, std::int64_t row, std::int64_t context, Batch* batch) {
  for (std::int64_t t = 0; t < context; ++t) {
    const std::size_t at = begin + static_cast<std::size_t>(t);
    batch->inputs.MutableAs<std::int32_t>()[row * context + t] = static_cast<unsigned char>(text[at]);
    batch->targets.MutableAs<std::int32_t>()[row * context + t] = static_cast<unsigned char>(text[at + 1]);
  }
}

Batch MakeBatch(std::int64_t batch, std::int64_t context) {
  return {regard::Tensor(regard::DType::kI32, {batch, context}), regard::Tensor(regard::DType::kI32, {batch, context})};
}

}  // namespace

Corpus::Corpus(std::string text, std::int64_t context)
    : text_(std::move(text)), split_(text_.size() / 10 * 9), context_(context) {
  if (std::min(split_, text_.size() - split_) < static_cast<std::size_t>(context) + 1)
    throw std::runtime_error("the text has " + std::to_string(text_.size()) + " bytes, too few for windows of " +
                             std::to_string(context) + "; give a longer one, or a smaller --context");
}

Batch Corpus::TrainingBatch(std::int64_t batch, std::uint64_t seed, std::int64_t step) const {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(step)};
  std::mt19937_64 random(sequence);
  Batch result = MakeBatch(batch, context_);
  const std::size_t places = training().size() - static_cast<std::size_t>(context_);
  for (std::int64_t row = 0; row < batch; ++row) CopyWindow(training(), random() % places, row, context_, &result);
  return result;
}

std::int64_t Corpus::held_out_windows() const { return (static_cast<std::int64_t>(held_out().size()) - 1) / context_; }

Batch Corpus::HeldOutBatch(std::int64_t first_window, std::int64_t batch) const {
  Batch result = MakeBatch(batch, context_);
  for (std::int64_t row = 0; row < batch; ++row)
    CopyWindow(held_out(), static_cast<std::size_t>((first_window + row) * context_), row, context_, &result);
  return result;
}

double Corpus::BigramLoss() const {
  std::vector<double> pairs(kClasses * kClasses), singles(kClasses);
  const auto byte = [](std::string_view text, std::size_t n) {
    return static_cast<std::size_t>(static_cast<unsigned char>(text[n]));
  };
  for (std::size_t n = 0; n + 1 < training().size(); ++n) {
    pairs[byte(training(), n) * kClasses + byte(training(), n + 1)] += 1;
    singles[byte(training(), n)] += 1;
  }
  const double total = static_cast<double>(training().size() - 1);
  const std::size_t predicted = static_cast<std::size_t>(held_out_windows() * context_);
  double best = 1e300;
  for (const double mixed : {0.1, 0.3, 1.0, 3.0, 10.0, 30.0}) {  // as many observations as the single bytes count for
    double loss = 0;
    for (std::size_t n = 0; n < predicted; ++n) {
      const std::size_t a = byte(held_out(), n), b = byte(held_out(), n + 1);
      const double single = (singles[b] + 1) / (total + kClasses);
      loss -= std::log((pairs[a * kClasses + b] + mixed * single) / (singles[a] + mixed));
    }
    best = std::min(best, loss / static_cast<double>(predicted));
  }
  return best;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw std::runtime_error(path + ": cannot be read; give a text file");
  return text;
}

regard::Tensor Indices(std::string_view bytes) {
  regard::Tensor indices(regard::DType::kI32, {1, static_cast<std::int64_t>(bytes.size())});
  for (std::size_t n = 0; n < bytes.size(); ++n) indices.MutableAs<std::int32_t>()[n] = static_cast<unsigned char>(bytes[n]);
  return indices;
}

}  // namespace train_lm
