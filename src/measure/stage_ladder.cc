#include "measure/stage_ladder.h"

#include <fmt/format.h>

#include <algorithm>

#include "regard/stages.h"

namespace regard::measure {
namespace {

Tensor ByLoops(const TensorView& q, const TensorView& k, const TensorView& v) {
  const Tensor weights = Softmax(ScoresByLoops(q, k), -1);
  Tensor context = Tensor::Uninitialized(DType::kF32, q.shape());
  for (std::int64_t i = 0; i < q.dim(0); ++i) {
    const Tensor row = ContextForToken(weights, v, i);
    std::copy_n(row.As<float>(), row.num_elements(), context.MutableAs<float>() + i * row.num_elements());
  }
  return context;
}

Tensor ByProducts(const TensorView& q, const TensorView& k, const TensorView& v) { return Context(Softmax(Scores(q, k), -1), v); }

}  // namespace

std::vector<LadderRung> MeasureLadder(Bench& bench, const std::string& isa, const TimingOptions& timing, std::int64_t max_tokens,
                                      const std::function<void(const LadderRung&)>& on_rung) {
  const Limits& limits = bench.LimitsOf(isa);
  std::vector<LadderRung> rungs;
  for (const std::int64_t tokens : kLadderTokens) {
    if (tokens > max_tokens) break;
    BenchCase shape;
    shape.name = fmt::format("stages/T{}", tokens);
    shape.q_len = shape.kv_len = tokens;
    shape.dim = kLadderDim;
    shape.exec = {.isa = isa, .threads = 1};
    const Workload work(shape);
    const TensorView q = work.inputs().q.Select(0, 0).Select(0, 0), k = work.inputs().k.Select(0, 0).Select(0, 0),
                     v = work.inputs().v.Select(0, 0).Select(0, 0);
    const auto measure = [&](const char* way, const char* how, const std::string& target, const std::function<Tensor()>& call) {
      BenchRow row;
      row.name = shape.name + "/" + way;
      row.options = how;
      row.target = target;
      row.verification = VerifyRows(work, call().view().Unsqueeze(0).Unsqueeze(0), {});
      if (!row.verification.passed()) return row;
      row.timing = TimeCalls([&call] { call(); }, timing);
      row.median_seconds = row.quartiles().median;
      row.unit = "GFLOP/s";
      row.rate = work.flops() / row.median_seconds * 1e-9;
      row.percent_of_limit = 100 * work.flops() / row.median_seconds / limits.peak_flops;
      return row;
    };
    LadderRung rung{
        tokens, measure("loops", "1 head, nested loops", "-", [&] { return ByLoops(q, k, v); }),
        measure("product", "1 head, one product a stage", "BLAS", [&] { return ByProducts(q, k, v); }),
        measure("fused", "1 head", limits.target, [&] { return Attention(q, k, v, {}, {.isa = isa, .threads = 1}).context; })};
    rungs.push_back(rung);
    if (on_rung) on_rung(rungs.back());
  }
  return rungs;
}

std::optional<std::int64_t> Crossover(const std::vector<LadderRung>& rungs, const BenchRow LadderRung::*slower,
                                      const BenchRow LadderRung::*faster) {
  std::optional<std::int64_t> from;
  for (auto rung = rungs.rbegin(); rung != rungs.rend(); ++rung) {
    if (!((*rung).*faster).verification.passed() || ((*rung).*faster).median_seconds >= ((*rung).*slower).median_seconds) break;
    from = rung->tokens;
  }
  return from;
}

}  // namespace regard::measure
