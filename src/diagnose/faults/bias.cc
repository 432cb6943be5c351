// Faults of the bias: F106, F107. One added in other units than the scores', and one whose queries and keys are exchanged, as those of a
// mask may be.
#include <cmath>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

std::function<void(Variant&)> MultiplyBias(double factor) {
  return [factor](Variant& v) {
    v.bias = [factor](RowState& s) {
      s.evaluator->AddBias(s, [factor](const RowState& row, std::int64_t j) {
        const double own = row.evaluator->Bias(row.id, row.id.i, j);
        return own == -kInfinity ? own : factor * own;
      });
    };
  };
}

void BiasInOtherUnits(const Case& c, Proposals& p) {
  if (c.problem().bias.data == nullptr) return;
  const double scale = static_cast<double>(c.problem().scale);
  if (scale != 1 && scale != 0) {
    p.Add(MultiplyBias(scale), {{"factor", scale}, {"bias", 0, "added before the scale"}});
    p.Add(MultiplyBias(1 / scale), {{"factor", 1 / scale}, {"bias", 0, "divided by the scale"}});
  }
  p.Add(MultiplyBias(-1), {{"factor", -1}, {"bias", 0, "subtracted"}});
  p.Add(MultiplyBias(kLn2), {{"factor", kLn2}, {"bias", 0, "added to scores · log2(e) as it is"}});
  p.Add(MultiplyBias(kLog2E), {{"factor", kLog2E}, {"bias", 0, "multiplied by log2(e), the scores not"}});
  const auto describe = [](double factor) -> std::vector<ExplanationParam> {
    if (std::fabs(factor - 1) < 1e-4) return {};
    return {{"factor", factor}};
  };
  p.AddFamily([](Variant& v, double factor) { MultiplyBias(factor)(v); }, LogSpaced(1.0 / 64, 64, 13), describe);
}

void MaskOrBiasTransposed(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.causal && !x.window_left) {
    p.AddWithSlots(slot::kCausal | slot::kWindow, [](Variant& v) { v.rules.causal = false, v.rules.window_left = 0; },
                   {{"of", 0, "causal mask: triu for tril"}});
  }
  if (x.q_len != x.kv_len || x.q_len == 1 || (x.mask.data == nullptr && x.bias.data == nullptr)) return;
  p.Add([](Variant& v) {
    v.rules.mask_transposed = true;
    v.bias = [](RowState& s) {
      s.evaluator->AddBias(s, [](const RowState& row, std::int64_t j) { return row.evaluator->Bias(row.id, j, row.id.i); });
    };
  });
}

constexpr Fault kFaults[] = {
    {"F106", "bias in other units", Stage::kMaskedScores, slot::kBias, "scores + factor·bias",
     "masked_scores − capped is the bias times one constant",
     "add the bias after the scale, in the units of the scores; where scores are multiplied by log2(e), multiply the bias too",
     BiasInOtherUnits},
    {"F107", "mask or bias transposed", Stage::kMaskedScores, slot::kBias | slot::kMask, "maskᵀ or biasᵀ",
     "the support is the transpose; as many queries as keys", "rows of a mask and a bias are queries, columns are keys",
     MaskOrBiasTransposed},
};

}  // namespace

std::span<const Fault> BiasFaults() { return kFaults; }

}  // namespace regard::internal
