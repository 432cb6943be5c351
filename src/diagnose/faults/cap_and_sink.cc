// Faults of the soft cap, the sink and of overflow before the scale: F70–F73.
#include <algorithm>
#include <cmath>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

void CapAfterMask(const Case& c, Proposals& p) {
  const double cap = static_cast<double>(c.problem().soft_cap);
  if (cap <= 0) return;
  for (const bool bias_inside : {true, false}) {
    p.Add(
        [cap, bias_inside](Variant& v) {
          v.masking = [cap, bias_inside](RowState& s) {
            for (std::size_t j = 0; j < s.masked.size(); ++j) {
              const double added = s.bias.empty() || !bias_inside ? 0 : s.bias[j];
              if (bias_inside) s.masked[j] = cap * std::tanh((s.scores[j] + added) / cap);
              if (!s.visible[j]) s.masked[j] = -cap;
            }
          };
        },
        {}, bias_inside ? 0 : 1);
  }
}

void WrongCap(const Case& c, Proposals& p) {
  const double cap = static_cast<double>(c.problem().soft_cap);
  if (cap > 0) {
    p.Add([](Variant& v) { v.soft_cap = 0; }, {{"cap", 0, "missing"}});
    p.Add(
        [cap](Variant& v) {
          v.cap = [cap](RowState& s) {
            for (double& x : s.capped) x *= std::tanh(x / cap);
          };
        },
        {{"formula", 0, "scores·tanh(scores/cap)"}});
    if (cap != 1) {
      p.Add(
          [cap](Variant& v) {
            v.cap = [cap](RowState& s) {
              for (double& x : s.capped) x = std::tanh(x / cap);
            };
          },
          {{"formula", 0, "tanh(scores/cap)"}});
    }
    p.Add(
        [cap](Variant& v) {
          v.cap = [cap](RowState& s) {
            for (double& x : s.capped) x = std::clamp(x, -cap, cap);
          };
        },
        {{"formula", 0, "clamp(scores, ±cap)"}}, 1);  // in f16 the tanh of large scores is a clamp
    p.Add(
        [cap](Variant& v) {  // cap before the scale
          v.cap = [cap](RowState& s) {
            for (std::size_t j = 0; j < s.capped.size(); ++j) s.capped[j] = s.variant->scale * cap * std::tanh(s.dots[j] / cap);
          };
        },
        {{"formula", 0, "cap before the scale"}});
  }
  p.AddFamily([](Variant& v, double other) { v.soft_cap = other; }, LogSpaced(0.5, 128, 17),
              [cap](double other) -> std::vector<ExplanationParam> {
                if (std::fabs(other - cap) < 1e-4 * other || other > 1000) return {};
                return {{"cap", other}};
              });
}

void WrongSink(const Case& c, Proposals& p) {
  if (c.problem().sinks.data == nullptr) return;
  const double log2 = std::log(2.0);
  p.Add([](Variant& v) { v.sink = [](const RowState&) { return -kInfinity; }; }, {{"sink", 0, "missing"}});
  p.Add([log2](Variant& v) { v.sink = [log2](const RowState& s) { return s.sink + log2; }; }, {{"sink", 0, "counted twice"}});
  p.Add([](Variant& v) { v.sink = [](const RowState& s) { return s.sink * s.variant->scale; }; }, {{"sink", 0, "scaled"}});
  p.Add([](Variant& v) { v.sink = [](const RowState& s) { return s.sink / s.variant->scale; }; },
        {{"sink", 0, "divided by the scale"}});
  p.Add([log2](Variant& v) { v.sink = [log2](const RowState& s) { return s.sink * log2; }; }, {{"sink", 0, "in base 2"}});
  p.Add([log2](Variant& v) { v.sink = [log2](const RowState& s) { return s.sink / log2; }; }, {{"sink", 0, "times log2 e"}});
  p.Add(
      [](Variant& v) {
        v.sink = [](const RowState& s) { return s.sink == -kInfinity ? s.sink : std::log(std::max(s.sink, 1e-300)); };
      },
      {{"sink", 0, "its value added without exp"}}, 1);
  p.Add(
      [](Variant& v) {
        v.sink = [](const RowState& s) {
          const View4& sinks = s.evaluator->problem().sinks;
          return LoadDouble(sinks.data, sinks.dtype, sinks.Offset(0, 0, 0, 0));
        };
      },
      {{"sink", 0, "that of head 0"}}, 1);
}

// ----------------------------------------------------------------------------------------------------------- low precision

void OverflowBeforeScale(const Case& c, Proposals& p) {
  const double scale = static_cast<double>(c.problem().scale);
  p.Add([scale](Variant& v) {
    v.score = [scale](RowState& s) {
      for (std::size_t j = 0; j < s.scores.size(); ++j) {
        if (std::fabs(s.dots[j]) >= 65520) s.scores[j] = (s.dots[j] > 0) == (scale > 0) ? kInfinity : -kInfinity;
      }
    };
  });
}

constexpr Fault kFaults[] = {
    {"F70", "soft cap after the mask", Stage::kCapped, slot::kMasking, "cap·tanh((scores + mask)/cap)",
     "dropped keys keep exp(−cap)", "cap first, then mask", CapAfterMask},
    {"F71", "soft cap", Stage::kCapped, slot::kCap, "another formula, or none", "scores exceed the cap",
     "cap·tanh(scores/cap), after the scale", WrongCap},
    {"F72", "sink", Stage::kWeights, slot::kSink, "sink missing, doubled or in another domain",
     "row sums are 1 (missing), or the implied sink is off by ln 2 or a factor",
     "add exp(sink − max) to the denominator once, unscaled, in the same base", WrongSink},
    {"F73", "overflow before scaling", Stage::kScores, slot::kScore, "(q·kᵀ)·scale in f16", "inf or NaN where |q·k| > 65504",
     "scale q before the product, or accumulate in f32", OverflowBeforeScale},
};

}  // namespace

std::span<const Fault> CapAndSinkFaults() { return kFaults; }

}  // namespace regard::internal
