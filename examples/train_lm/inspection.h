// Looking at a model: what it writes, and what its heads attend to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "language_model.h"

namespace train_lm {

/// `count` bytes that continue `prompt`, each drawn from the model's distribution sharpened by a temperature below 1. The window is run again
/// for every byte, which is the simplest way and not the fastest.
std::string Sample(const LanguageModel& model, std::string_view prompt, std::int64_t count, std::int64_t context,
                   double temperature, std::uint64_t seed);

/// q, k and v of every head on a passage, as `regard map`, `run` and `explain` read them: layers.N.q, layers.N.k, layers.N.v [1, heads, tokens,
/// head_dim], turned by their positions, and in the metadata `tokens` and `causal`.
void WriteHeads(const LanguageModel& model, std::string_view passage, const std::string& path);

}  // namespace train_lm
