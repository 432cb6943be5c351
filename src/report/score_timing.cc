#include "report/score_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "regard/stages.h"
#include "report/text.h"

namespace regard::report {
namespace {

// Loops do about 1e9 multiply-adds a second, so that one call takes 8 ms at most.
constexpr std::int64_t kMaxProducts = 8'000'000;
constexpr int kRepetitions = 5;
// A repetition is this long at least, that the clock's own 20–50 ns do not count.
constexpr double kMinSeconds = 1e-4;

// Seconds of one call.
template <typename Call>
double TimeCall(const Call& call) {
  using Clock = std::chrono::steady_clock;
  call();  // warm: caches, the library's first use
  std::int64_t calls = 1;
  double best = 0;
  for (int repetition = 0; repetition < kRepetitions;) {
    const Clock::time_point start = Clock::now();
    for (std::int64_t c = 0; c < calls; ++c) call();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds < kMinSeconds) {
      calls *= std::clamp<std::int64_t>(static_cast<std::int64_t>(kMinSeconds / std::max(seconds, 1e-9)) + 1, 2, 1000);
      continue;
    }
    const double one = seconds / static_cast<double>(calls);
    best = repetition == 0 ? one : std::min(best, one);
    ++repetition;
  }
  return best;
}

}  // namespace

ScoreTiming TimeScores(const TensorView& q, const TensorView& k, float scale) {
  ScoreTiming timing;
  timing.dim = q.dim(1);
  timing.all_queries = q.dim(0);
  timing.all_keys = k.dim(0);
  const std::int64_t pairs = std::max<std::int64_t>(1, kMaxProducts / std::max<std::int64_t>(1, timing.dim));
  // Both axes are cut alike, since a product gains most from a square.
  timing.queries = std::min(timing.all_queries, pairs);
  timing.keys = std::min(timing.all_keys, pairs);
  while (timing.queries * timing.keys > pairs) (timing.queries > timing.keys ? timing.queries : timing.keys) /= 2;
  const Tensor queries = Tensor::CopyOf(q.Slice(0, 0, timing.queries), DType::kF32);
  const Tensor keys = Tensor::CopyOf(k.Slice(0, 0, timing.keys), DType::kF32);
  timing.loops_seconds = TimeCall([&] { return ScoresByLoops(queries, keys, {.scale = scale}); });
  timing.product_seconds = TimeCall([&] { return Scores(queries, keys, {.scale = scale}); });
  return timing;
}

std::string Show(const ScoreTiming& timing) {
  const bool cut = timing.queries < timing.all_queries || timing.keys < timing.all_keys;
  const std::string size = fmt::format("{}×{}{}", timing.queries, timing.keys,
                                       cut ? fmt::format(" of {}×{}", timing.all_queries, timing.all_keys) : "");
  const double ratio = timing.ratio();
  const std::string verdict = ratio >= 1 ? fmt::format("the product is {:.3g} times as fast", ratio)
                                         : fmt::format("the loops are {:.3g} times as fast", ratio > 0 ? 1 / ratio : 0.0);
  return fmt::format("time of scores {}, f32, one thread, warm: by loops {}, by one product {}; {}\n", size,
                     ShowSeconds(timing.loops_seconds), ShowSeconds(timing.product_seconds), verdict);
}

}  // namespace regard::report
