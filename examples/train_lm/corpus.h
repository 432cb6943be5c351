// A text as bytes: what is learnt from, what is held out, and how well counts of pairs predict it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regard/tensor.h"

namespace train_lm {

inline constexpr std::int64_t kClasses = 256;  // a byte each

/// Inputs and what follows each of them: i32 [batch, context].
struct Batch {
  regard::Tensor inputs, targets;
};

class Corpus {
 public:
  /// The last tenth is held out. Throws std::runtime_error when either part is shorter than `context` + 1 bytes.
  Corpus(std::string text, std::int64_t context);

  std::string_view training() const { return std::string_view(text_).substr(0, split_); }
  std::string_view held_out() const { return std::string_view(text_).substr(split_); }

  /// Windows at random places, which follow from the seed and the step alone: a run that is resumed sees the same.
  Batch TrainingBatch(std::int64_t batch, std::uint64_t seed, std::int64_t step) const;

  /// The windows of the held-out text one after the other, `batch` at a time; the last piece of the text that fills no window is left out.
  std::int64_t held_out_windows() const;
  Batch HeldOutBatch(std::int64_t first_window, std::int64_t batch) const;

  /// What a bigram model loses on the held-out windows, in nats a byte: counts of pairs in the training text, mixed with those of single
  /// bytes. How much they are mixed is the best of a few for the held-out text itself, which flatters it.
  double BigramLoss() const;

 private:
  std::string text_;
  std::size_t split_ = 0;
  std::int64_t context_ = 0;
};

/// Throws std::runtime_error when it cannot be read.
std::string ReadText(const std::string& path);

/// Bytes as indices, i32 [1, bytes].
regard::Tensor Indices(std::string_view bytes);

}  // namespace train_lm
