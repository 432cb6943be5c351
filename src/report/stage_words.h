// How each stage came about, in the words of the problem at hand.
#pragma once

#include <string>

#include "regard/problem.h"

namespace regard::report {

/// "inputs" for simplified self-attention, else "q", "k", "v".
std::string QueryName(const io::Problem& problem);
std::string KeyName(const io::Problem& problem);
std::string ValueName(const io::Problem& problem);

/// "inputs 6×3 · w_queryᵀ 3×4 + b_query, in 2 heads"; `name` is "q", "k" or "v" of a problem with projections.
std::string HowProjected(const io::Problem& problem, char name);
/// "inputs 6×3 · inputsᵀ 3×6: 36 pairs, 3 summed away".
std::string HowScores(const io::Problem& problem);
/// "20 · tanh(scores / 20)".
std::string HowCapped(const io::Problem& problem);
/// "scores + bias, -inf where not visible: causal, mask".
std::string HowMasked(const io::Problem& problem);
std::string HowWeights(const io::Problem& problem);
/// "weights 6×6 · inputs 6×3".
std::string HowContext(const io::Problem& problem);

/// Whether masked_scores may differ from capped.
bool HasMaskingRules(const io::Problem& problem);

}  // namespace regard::report
