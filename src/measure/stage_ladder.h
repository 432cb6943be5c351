// The ladder a course climbs, timed: attention by loops, by one matrix product a stage, and fused.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "measure/bench.h"

namespace regard::measure {

/// One head, dim 64, f32, one thread, one call of each from inputs to context, with the memory of its results.
struct LadderRung {
  std::int64_t tokens = 0;
  BenchRow loops;    // ScoresByLoops, Softmax, ContextForToken for every token
  BenchRow product;  // Scores, Softmax, Context
  BenchRow fused;    // Attention
};

inline constexpr std::int64_t kLadderDim = 64;
inline constexpr std::int64_t kLadderTokens[] = {6, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

/// Rungs up to `max_tokens`. Every rung is verified like any case. The caller keeps the BLAS to one thread. `on_rung` is called after each
/// one. Throws Error.
std::vector<LadderRung> MeasureLadder(Bench& bench, const std::string& isa, const TimingOptions& timing, std::int64_t max_tokens,
                                      const std::function<void(const LadderRung&)>& on_rung);

/// The fewest tokens from which on `faster` stays faster than `slower` on every rung; nothing when it does not at the last.
std::optional<std::int64_t> Crossover(const std::vector<LadderRung>& rungs, const BenchRow LadderRung::*slower,
                                      const BenchRow LadderRung::*faster);

}  // namespace regard::measure
