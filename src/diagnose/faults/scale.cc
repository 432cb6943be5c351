// Faults of the scale and of the size of q and k: F01–F08, F110.
#include <algorithm>
#include <cmath>
#include <set>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

double Scale(const Case& c) { return static_cast<double>(c.problem().scale); }
double Size(std::int64_t n) { return static_cast<double>(n); }

// Whether two multipliers are the same up to the rounding of a float.
bool Same(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

std::function<void(Variant&)> UseScale(double scale) {
  return [scale](Variant& v) { v.scale = scale; };
}

void ScaleMissing(const Case& c, Proposals& p) {
  if (!Same(Scale(c), 1)) p.Add(UseScale(1));
}

void ScaleTwice(const Case& c, Proposals& p) {
  if (!Same(Scale(c), 1)) p.Add(UseScale(Scale(c) * Scale(c)));
}

void ScaleInverted(const Case& c, Proposals& p) {
  if (!Same(Scale(c), 1)) p.Add(UseScale(1 / Scale(c)));
}

// 1/√d′ for sizes that lie around; the rest is F05's solver.
void WrongSize(const Case& c, Proposals& p) {
  const Problem& problem = c.problem();
  const std::pair<const char*, std::int64_t> sizes[] = {{"heads·head_dim", problem.heads * problem.head_dim},
                                                        {"kv_heads·head_dim", problem.kv_heads * problem.head_dim},
                                                        {"heads", problem.heads},
                                                        {"v_dim", problem.v_dim},
                                                        {"head_dim padded to 8", (problem.head_dim + 7) / 8 * 8},
                                                        {"head_dim padded to 16", (problem.head_dim + 15) / 16 * 16},
                                                        {"head_dim padded to 32", (problem.head_dim + 31) / 32 * 32},
                                                        {"head_dim padded to 64", (problem.head_dim + 63) / 64 * 64},
                                                        {"head_dim padded to 128", (problem.head_dim + 127) / 128 * 128},
                                                        {"head_dim padded to 256", (problem.head_dim + 255) / 256 * 256},
                                                        {"head_dim/2", problem.head_dim / 2},
                                                        {"2·head_dim", 2 * problem.head_dim},
                                                        {"q_len", problem.q_len},
                                                        {"kv_len", problem.kv_len}};
  std::set<std::int64_t> tried = {1};  // 1/√1 is F01
  for (const auto& [name, size] : sizes) {
    if (size < 1 || Same(Scale(c), 1 / std::sqrt(Size(size))) || !tried.insert(size).second) continue;
    p.Add(UseScale(1 / std::sqrt(Size(size))), {{"size", Size(size)}, {"from", 0, name}});
  }
}

void LiteralScale(const Case& c, Proposals& p) {
  for (const double literal : {0.0, 0.5, 0.125}) {
    if (!Same(Scale(c), literal)) p.Add(UseScale(literal), {{"scale", literal}});
  }
  const double scale = Scale(c);
  const auto describe = [scale](double ratio) -> std::vector<ExplanationParam> {
    if (Same(ratio, 1)) return {};
    std::vector<ExplanationParam> params = {{"scale", ratio * scale}, {"ratio", ratio}};
    if (ratio > 0) params.push_back({"as_if_size", 1 / (ratio * ratio * scale * scale)});
    return params;
  };
  p.AddFamily([scale](Variant& v, double ratio) { v.scale = ratio * scale; }, LogSpaced(1.0 / 256, 256, 49), describe);
  p.AddFamily([scale](Variant& v, double ratio) { v.scale = -ratio * scale; }, LogSpaced(1.0 / 16, 16, 13),
              [describe](double ratio) { return describe(-ratio); });
}

// Each block of keys multiplies the scale once more, the first one not.
std::function<void(Variant&)> CompoundingScale(std::int64_t block, double factor) {
  return [block, factor](Variant& v) {
    v.score = [block, factor](RowState& s) {
      for (std::size_t j = 0; j < s.scores.size(); ++j) {
        s.scores[j] *= std::pow(factor, static_cast<double>(static_cast<std::int64_t>(j) / block));
      }
    };
  };
}

void ScaleCompounds(const Case& c, Proposals& p) {
  for (const std::int64_t block : BlockSizes(c.problem().kv_len)) {
    for (const double factor : {1.4426950408889634, Scale(c)}) {
      p.Add(CompoundingScale(block, factor), {{"block", Size(block)}, {"factor", factor}}, 1);
    }
    if (block < 4 || (block & (block - 1)) != 0) continue;
    p.AddFamily([block](Variant& v, double factor) { CompoundingScale(block, factor)(v); }, LogSpaced(0.25, 4, 9),
                [block](double factor) -> std::vector<ExplanationParam> {
                  if (std::fabs(factor - 1) < 1e-4) return {};
                  return {{"block", Size(block)}, {"factor", factor}};
                });
  }
}

void ScaleAfterSoftmax(const Case& c, Proposals& p) {
  const double scale = Scale(c);
  if (Same(scale, 1)) return;
  p.Add([scale](Variant& v) {
    v.scale = 1;
    v.reweigh = [scale](RowState& s) {
      for (double& w : s.weights) w *= scale;
    };
  });
}

std::function<void(Variant&)> ScaleContext(double factor) {
  return [factor](Variant& v) {
    v.product = [factor](RowState& s) {
      Evaluator::MultiplyByValues(s);
      for (double& x : s.context) x *= factor;
      for (double& x : s.magnitude) x *= std::fabs(factor);
    };
  };
}

void ValueScale(const Case& c, Proposals& p) {
  if (c.Find(Stage::kContext) == nullptr) return;
  p.Add(ScaleContext(Scale(c)), {{"ratio", Scale(c)}}, 1);
  const auto describe = [](double ratio) -> std::vector<ExplanationParam> {
    if (Same(ratio, 1)) return {};
    return {{"ratio", ratio}};
  };
  p.AddFamily([](Variant& v, double ratio) { ScaleContext(ratio)(v); }, LogSpaced(1.0 / 64, 64, 13), describe);
  p.AddFamily([](Variant& v, double ratio) { ScaleContext(-ratio)(v); }, LogSpaced(1.0 / 64, 64, 7),
              [describe](double ratio) { return describe(-ratio); });
}

enum class Norm { kLength, kRootMeanSquare, kLayer };  // ‖row‖; √(mean square + ε); the same after subtracting the mean

// Rows divided by their size, each by its own, or all heads of a token by that of all together.
std::shared_ptr<const std::vector<double>> Normalised(const std::vector<double>& rows, std::int64_t heads, std::int64_t len,
                                                      std::int64_t dim, bool of_all_heads, Norm norm, double epsilon) {
  auto normalised = std::make_shared<std::vector<double>>(rows);
  const std::int64_t parts = of_all_heads ? heads : 1,
                     all_heads = static_cast<std::int64_t>(rows.size()) / std::max<std::int64_t>(len * dim, 1);
  for (std::int64_t first = 0; first < all_heads; first += parts) {  // of all sequences
    for (std::int64_t t = 0; t < len; ++t) {
      const auto for_each = [&](const auto& action) {
        for (std::int64_t part = 0; part < parts; ++part) {
          double* const row = normalised->data() + ((first + part) * len + t) * dim;
          for (std::int64_t d = 0; d < dim; ++d) action(row[d]);
        }
      };
      double sum = 0, squares = 0;
      for_each([&](double x) { sum += x; });
      const double mean = norm == Norm::kLayer ? sum / Size(parts * dim) : 0;
      for_each([&](double x) { squares += (x - mean) * (x - mean); });
      const double size = std::sqrt(norm == Norm::kLength ? squares : squares / Size(parts * dim) + epsilon);
      for_each([&](double& x) { x = size > 0 ? (x - mean) / size : 0; });
    }
  }
  return normalised;
}

void QueriesAndKeysNormalised(const Case& c, Proposals& p) {
  constexpr std::size_t kMostCopied = 20'000'000;  // numbers, each time: so that all of these take some seconds at most
  if (c.evaluator().operands().q->size() + c.evaluator().operands().k->size() > kMostCopied) return;
  const auto add = [&](const char* divisor, bool of_all_heads, Norm norm, double epsilon) {
    for (const auto& [of, of_q, of_k] : kQueriesOrKeys) {
      p.Add(
          [=, &c](Variant& v) {
            const Operands& o = c.evaluator().operands();
            const auto q = of_q ? Normalised(*o.q, o.heads, o.q_len, o.head_dim, of_all_heads, norm, epsilon) : nullptr;
            const auto k = of_k ? Normalised(*o.k, o.kv_heads, o.kv_len, o.head_dim, of_all_heads, norm, epsilon) : nullptr;
            v.operands = ReplaceOperands(c, q, k, {});
          },
          {{"of", 0, of}, {"divided_by", 0, divisor}, {"epsilon", epsilon}}, of_q && of_k ? 0 : 2);
    }
  };
  add("the norm of each row", false, Norm::kLength, 0);
  for (const double epsilon : {0.0, 1e-6, 1e-5}) {
    add("the root mean square of each row", false, Norm::kRootMeanSquare, epsilon);
    add("the standard deviation of each row, less its mean", false, Norm::kLayer, epsilon);
    if (c.problem().heads > 1) add("the root mean square over all heads", true, Norm::kRootMeanSquare, epsilon);
  }
}

constexpr Fault kFaults[] = {
    {"F01", "scale missing", Stage::kScores, slot::kScale, "softmax(q·kᵀ)",
     "scores are 1/scale times too large everywhere; entropies too low",
     "multiply q·k by the scale (1/√head_dim by default) before the softmax", ScaleMissing},
    {"F02", "scale applied twice", Stage::kScores, slot::kScale, "softmax(scale²·q·kᵀ): by default 1/head_dim for 1/√head_dim",
     "scores are `scale` times too small", "scale once: either q before the product or the scores after it", ScaleTwice},
    {"F03", "scale inverted", Stage::kScores, slot::kScale, "softmax(q·kᵀ / scale)",
     "scores are 1/scale² times too large; rows are one-hot", "multiply by 1/√head_dim, or divide by √head_dim", ScaleInverted},
    {"F04", "scale from the wrong size", Stage::kScores, slot::kScale, "softmax(q·kᵀ / √size)",
     "scores in a constant ratio r; the size used is head_dim/r²",
     "take the scale from the size of one head, not padded, not of all heads", WrongSize},
    {"F05", "scale is another constant", Stage::kScores, slot::kScale, "softmax(constant·q·kᵀ)",
     "scores in a constant ratio; with 0 every row is uniform",
     "pass the scale to the kernel; if the model was trained with this one, state it with --scale", LiteralScale},
    {"F06", "scale compounds from block to block", Stage::kScores, slot::kScore, "scale·factor^block·q·kᵀ",
     "the first block of keys is right, the error grows with the block",
     "scale inside the loop from the unscaled value; do not assign back to the scale", ScaleCompounds},
    {"F07", "scale after the softmax", Stage::kScores, slot::kScale | slot::kReweigh, "softmax(q·kᵀ)·scale",
     "every row of the weights sums to the scale", "scale the scores, before the softmax", ScaleAfterSoftmax},
    {"F08", "factor on the values", Stage::kContext, slot::kValues, "factor·weights·v",
     "weights are right, the context is off by one constant ratio", "apply the model's factor on v exactly once", ValueScale},
    {"F110", "q and k normalised", Stage::kInputs, slot::kOperands, "softmax(scale·q̂·k̂ᵀ), or only one of them",
     "scores are bounded by the scale, or by scale·head_dim",
     "normalise here too (QK norm) and give q and k after it, or leave it out there", QueriesAndKeysNormalised},
};

}  // namespace

std::span<const Fault> ScaleFaults() { return kFaults; }

}  // namespace regard::internal
