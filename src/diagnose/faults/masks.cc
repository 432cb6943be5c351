// Faults of masks: F20, F21, F35–F54, F103.
//
// A rule bent is an edit of Rules. A key that is dropped in another way than with −inf is an edit of the masking step; each comes in
// two widths: for what the mask tensor hides, and for what anything hides (an implementation may fold causal and padding into one mask).
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

bool HasMask(const Case& c) { return c.problem().mask.data != nullptr || c.problem().bias.data != nullptr; }
bool HasSegments(const Case& c) { return c.problem().q_segments.data != nullptr; }
bool HasWindow(const Case& c) { return c.problem().window_left.has_value() || c.problem().window_right.has_value(); }
bool HasRules(const Case& c) {
  return c.problem().causal || HasWindow(c) || HasSegments(c) || c.problem().kv_lens.data != nullptr;
}

// Whether one of these is the q_offset of every sequence.
bool EveryOffset(const Problem& x, std::initializer_list<std::int64_t> offsets) {
  return std::any_of(offsets.begin(), offsets.end(), [&](std::int64_t offset) {
    for (std::int64_t b = 0; b < x.batch; ++b) {
      if (x.QOffset(b) != offset) return false;
    }
    return true;
  });
}

void EmptyToNaN(RowState& s) { std::fill(s.weights.begin(), s.weights.end(), kNaN); }
void EmptyToMean(RowState& s) {
  std::fill(s.weights.begin(), s.weights.end(), 1 / Number(static_cast<std::int64_t>(s.weights.size())));
}

// A bent rule may leave rows without keys; what becomes of those depends on how the implementation hides a key.
void AddRuleEdit(Proposals& p, Slots slots, const std::function<void(Variant&)>& edit,
                 const std::vector<ExplanationParam>& params = {}, int complexity = 0) {
  p.AddWithSlots(slots, edit, params, complexity);
  const std::pair<const char*, void (*)(RowState&)> fates[] = {{"NaN", EmptyToNaN}, {"mean of v", EmptyToMean}};
  for (const auto& [name, fate] : fates) {
    std::vector<ExplanationParam> with = params;
    with.push_back({"rows_without_keys", 0, name});
    p.AddWithSlots(
        slots | slot::kEmpty, [edit, fate](Variant& v) { edit(v), v.empty_row = fate; }, with, complexity + 1);
  }
}

// ------------------------------------------------------------------------------------------------------- causal rule

void CausalMissing(const Case& c, Proposals& p) {
  if (c.problem().causal) p.Add([](Variant& v) { v.rules.causal = false; });
}

void CausalNotWanted(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.causal) return;
  AddRuleEdit(p, slot::kCausal, [](Variant& v) { v.rules.causal = true, v.rules.absolute_offset = 0; }, {{"q_offset", 0}});
  if (x.q_len == x.kv_len) return;
  const std::int64_t bottom_right = x.kv_len - x.q_len;
  AddRuleEdit(p, slot::kCausal, [bottom_right](Variant& v) { v.rules.causal = true, v.rules.absolute_offset = bottom_right; },
              {{"q_offset", Number(bottom_right)}});
}

void OtherAlignment(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (!x.causal && !HasWindow(c)) return;
  const std::pair<const char*, std::int64_t> alignments[] = {{"top-left", 0}, {"bottom-right", x.kv_len - x.q_len}};
  for (const auto& [name, offset] : alignments) {
    bool differs = false;
    for (std::int64_t b = 0; b < x.batch; ++b) differs = differs || x.QOffset(b) != offset;
    if (differs)
      AddRuleEdit(p, slot::kCausal | slot::kWindow, [offset](Variant& v) { v.rules.absolute_offset = offset; },
                  {{"q_offset", Number(offset)}, {"rule", 0, name}});
  }
}

void CausalOffByOne(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (!x.causal) return;
  for (const std::int64_t shift : {1, -1})
    AddRuleEdit(p, slot::kCausal, [shift](Variant& v) { v.rules.causal_shift = shift; }, {{"diagonal", Number(shift)}});
}

// Diagonals that have no name: not off by one, not the other alignment where only the causal rule depends on it, and not without any key.
void OtherDiagonal(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (!x.causal) return;
  const std::int64_t furthest = x.kv_len <= 2048 ? x.kv_len : 64;
  for (std::int64_t distance = 2; distance <= furthest; ++distance) {
    for (const std::int64_t shift : {distance, -distance}) {
      bool sees_any = false;
      for (std::int64_t b = 0; b < x.batch; ++b) sees_any = sees_any || x.q_len - 1 + x.QOffset(b) + shift >= 0;
      const bool is_alignment = !HasWindow(c) && EveryOffset(x, {-shift, x.kv_len - x.q_len - shift});
      if (is_alignment || !sees_any) continue;
      AddRuleEdit(
          p, slot::kCausal, [shift](Variant& v) { v.rules.causal_shift = shift; }, {{"diagonal", Number(shift)}}, 1);
    }
  }
}

// ------------------------------------------------------------------------------------------------- windows and others

void OtherWindow(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.window_left) {
    for (const std::int64_t by : {1, -1}) {
      if (*x.window_left + by < 0) continue;
      AddRuleEdit(p, slot::kWindow, [by](Variant& v) { *v.rules.window_left += by; },
                  {{"window_left", Number(*x.window_left + by)}});
      if (x.window_right && *x.window_right + by >= 0) {
        AddRuleEdit(p, slot::kWindow, [by](Variant& v) { *v.rules.window_left += by, *v.rules.window_right += by; },
                    {{"window_left", Number(*x.window_left + by)}, {"window_right", Number(*x.window_right + by)}});
      }
    }
  }
  if (x.window_right) {
    for (const std::int64_t by : {1, -1}) {
      if (*x.window_right + by >= 0)
        AddRuleEdit(p, slot::kWindow, [by](Variant& v) { *v.rules.window_right += by; },
                    {{"window_right", Number(*x.window_right + by)}});
    }
  }
  if (HasWindow(c) && !x.causal && x.window_left != x.window_right) {
    const auto side = [](const char* name, std::optional<std::int64_t> width) -> ExplanationParam {
      return width ? ExplanationParam{name, Number(*width)} : ExplanationParam{name, 0, "unlimited"};
    };
    AddRuleEdit(p, slot::kWindow, [](Variant& v) { std::swap(v.rules.window_left, v.rules.window_right); },
                {side("window_left", x.window_right), side("window_right", x.window_left)});
  }
  const std::int64_t widest = std::min<std::int64_t>(x.kv_len, 1024);
  for (std::int64_t window = 0; window < widest; ++window) {
    p.Add([window](Variant& v) { v.rules.window_left = window; }, {{"window_left", Number(window)}}, 1);
    // Where nothing else bounds a row, this is a causal mask (F36).
    const bool is_causal = !x.window_right && !x.window_left && EveryOffset(x, {-window, x.kv_len - x.q_len - window});
    if ((x.window_right || !x.causal) && window > 0 && !is_causal)
      p.Add([window](Variant& v) { v.rules.window_right = window; }, {{"window_right", Number(window)}}, 1);
    if (x.window_right && x.window_left)
      p.Add([window](Variant& v) { v.rules.window_left = v.rules.window_right = window; },
            {{"window_left", Number(window)}, {"window_right", Number(window)}}, 1);
  }
}

void WindowIgnored(const Case& c, Proposals& p) {
  if (HasWindow(c)) p.Add([](Variant& v) { v.rules.window_left.reset(), v.rules.window_right.reset(); });
  if (c.problem().window_left && c.problem().window_right) {
    p.Add([](Variant& v) { v.rules.window_left.reset(); }, {{"side", 0, "left"}});
    p.Add([](Variant& v) { v.rules.window_right.reset(); }, {{"side", 0, "right"}});
  }
}

void PaddingNotMasked(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.kv_lens.data != nullptr) {
    p.Add([](Variant& v) { v.rules.kv_lens = false; });
    if (x.q_offset_from_kv_lens && (x.causal || HasWindow(c))) {
      const std::int64_t offset = x.kv_len - x.q_len;
      p.AddWithSlots(slot::kRules, [offset](Variant& v) { v.rules.kv_lens = false, v.rules.absolute_offset = offset; },
                     {{"q_offset", Number(offset)}});
    }
  }
  if (x.mask.data != nullptr && x.mask.stride[2] == 0)
    p.AddWithSlots(slot::kMask, [](Variant& v) { v.rules.mask = Rules::Mask::kIgnored; });
  if (HasSegments(c)) {
    p.AddWithSlots(
        slot::kSegments, [](Variant& v) { v.rules.segments = v.rules.padding_segments = false; }, {{"segments", 0, "all one"}},
        1);
  }
}

void MaskIgnored(const Case& c, Proposals& p) {
  if (HasMask(c)) {
    p.Add([](Variant& v) { v.rules.mask = Rules::Mask::kIgnored; }, {{"ignored", 0, "mask"}});
    if (c.problem().bias.data != nullptr) {
      p.AddWithSlots(slot::kMask | slot::kBias,
                     [](Variant& v) { v.rules.mask = Rules::Mask::kIgnored, v.bias = [](RowState&) {}; },
                     {{"ignored", 0, "bias"}});
    }
  }
  if (HasMask(c) || HasRules(c)) {
    p.AddWithSlots(slot::kRules | slot::kMasking | slot::kBias,
                   [](Variant& v) { v.masking = [](RowState&) {}, v.bias = [](RowState&) {}; }, {{"ignored", 0, "every mask"}});
    p.AddWithSlots(slot::kRules | slot::kMasking, [](Variant& v) { v.masking = [](RowState&) {}; },
                   {{"ignored", 0, "every mask but a bias"}});
  }
}

void DocumentsNotIsolated(const Case& c, Proposals& p) {
  if (!HasSegments(c)) return;
  p.Add([](Variant& v) { v.rules.segments = false; });
  p.Add([](Variant& v) { v.rules.segments = v.rules.padding_segments = false; }, {{"padding", 0, "seen too"}});
}

void PadsSeePads(const Case& c, Proposals& p) {
  if (HasSegments(c)) p.Add([](Variant& v) { v.rules.pads_see_pads = true; });
}

// ------------------------------------------------------------------------------------------------- the mask tensor read wrongly

void PolarityInverted(const Case& c, Proposals& p) {
  if (HasMask(c))
    AddRuleEdit(p, slot::kMask, [](Variant& v) { v.rules.mask = Rules::Mask::kInverted; }, {{"inverted", 0, "mask"}});
  if (HasMask(c) || HasRules(c))
    AddRuleEdit(p, slot::kRules, [](Variant& v) { v.rules.all_inverted = true; }, {{"inverted", 0, "every rule"}});
}

void MaskOfOtherBatch(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (!HasMask(c) || x.batch == 1) return;
  const std::int64_t batch = x.batch, heads = x.heads;
  AddRuleEdit(p, slot::kMask, [batch, heads](Variant& v) {
    v.rules.mask_row = [batch, heads](RowId r) { return RowId{(r.b * heads + r.h) % batch, r.h, r.i}; };
  });
}

void MaskAsSquare(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (!HasMask(c) || x.q_len == x.kv_len) return;
  const std::int64_t q_len = x.q_len;
  AddRuleEdit(p, slot::kMask, [q_len](Variant& v) { v.rules.mask_row_stride = q_len; }, {{"row_stride", Number(q_len)}});
}

// Without a zero in it, every number of the bias means kept, or masked: it is ignored (F52), or hides everything.
bool BiasHasZeros(const Case& c) {
  const Problem& x = c.problem();
  RowId row;
  for (row.b = 0; row.b < (x.bias.stride[0] == 0 ? 1 : x.batch); ++row.b) {
    for (row.h = 0; row.h < (x.bias.stride[1] == 0 ? 1 : x.heads); ++row.h) {
      for (std::int64_t n = 0; n < x.q_len * x.kv_len; ++n) {
        if (c.evaluator().Bias(row, n / x.kv_len, n % x.kv_len) == 0) return true;
      }
    }
  }
  return false;
}

void FloatMaskAsBool(const Case& c, Proposals& p) {
  if (c.problem().bias.data == nullptr) return;
  const bool has_zeros = BiasHasZeros(c);
  for (const bool nonzero_is_masked : {true, false}) {
    if (!nonzero_is_masked && !has_zeros) continue;
    AddRuleEdit(p, slot::kMask | slot::kBias | slot::kMasking,
                [nonzero_is_masked](Variant& v) {
                  v.bias = [](RowState&) {};
                  v.masking = [nonzero_is_masked](RowState& s) {
                    s.num_visible = 0;
                    for (std::size_t j = 0; j < s.masked.size(); ++j) {
                      const bool zero = s.evaluator->Bias(s.id, s.id.i, static_cast<std::int64_t>(j)) == 0;
                      s.visible[j] = s.in_rules[j] && zero == nonzero_is_masked;
                      s.num_visible += s.visible[j];
                    }
                    Evaluator::MaskByRules(s);
                  };
                },
                {{"nonzero_means", 0, nonzero_is_masked ? "masked" : "kept"}});
  }
}

void TildeOnIntegers(const Case& c, Proposals& p) {
  if (c.problem().mask.data == nullptr) return;
  p.Add([](Variant& v) { v.rules.mask = Rules::Mask::kIgnored; }, {{"effect", 0, "everything kept"}}, 1);
  AddRuleEdit(
      p, slot::kMask | slot::kMasking,
      [](Variant& v) {
        v.masking = [](RowState& s) {
          std::fill(s.visible.begin(), s.visible.end(), 0);
          s.num_visible = 0;
          Evaluator::MaskByRules(s);
        };
      },
      {{"effect", 0, "everything masked"}}, 1);
}

// ---------------------------------------------------------------------------------------- keys dropped otherwise than by −inf

// Treats every hidden key of the two widths: those that only the mask hides, or all. The rest of the hidden ones get −inf.
using KeyTreatment = std::function<double(double score)>;
void AddTreatment(const Case& c, Proposals& p, const KeyTreatment& hidden, const KeyTreatment& kept,
                  const std::vector<ExplanationParam>& params = {}, int complexity = 0) {
  for (const bool all : {false, true}) {
    if (all ? !HasMask(c) && !HasRules(c) : !HasMask(c)) continue;
    if (all && !HasRules(c) && HasMask(c)) continue;  // the same as the mask alone
    std::vector<ExplanationParam> with = params;
    if (HasMask(c) && HasRules(c)) with.push_back({"of", 0, all ? "every rule" : "the mask"});
    p.Add(
        [hidden, kept, all](Variant& v) {
          v.masking = [hidden, kept, all](RowState& s) {
            for (std::size_t j = 0; j < s.masked.size(); ++j) {
              if (s.visible[j]) {
                if (kept) s.masked[j] = kept(s.masked[j]);
              } else {
                s.masked[j] = all || s.in_rules[j] ? hidden(s.masked[j]) : -kInfinity;
              }
            }
          };
        },
        with, complexity);
  }
}

void MaskAsBias(const Case& c, Proposals& p) {
  AddTreatment(
      c, p, [](double s) { return s; }, [](double s) { return s + 1; }, {{"added", 0, "1 where kept"}});
  AddTreatment(c, p, [](double s) { return s + 1; }, {}, {{"added", 0, "1 where dropped"}});
}

void FillTooWeak(const Case& c, Proposals& p) {
  for (const double fill : {-1e-9, -1.0, -1e1, -1e2, -1e3, -1e4, 1e-9}) {
    const int complexity = std::fabs(fill) < 1 ? 1 : 0;  // like 0: a mask multiplied in (F50), or none (F52)
    AddTreatment(c, p, [fill](double) { return fill; }, {}, {{"fill", fill}}, complexity);
    AddTreatment(c, p, [fill](double s) { return s + fill; }, {}, {{"added", fill}}, complexity);
  }
  if (!HasMask(c) && !HasRules(c)) return;
  const auto family = [&](bool added, bool all) {
    p.AddFamily(
        [added, all](Variant& v, double fill) {
          v.masking = [added, all, fill](RowState& s) {
            for (std::size_t j = 0; j < s.masked.size(); ++j) {
              if (!s.visible[j]) s.masked[j] = !(all || s.in_rules[j]) ? -kInfinity : added ? s.masked[j] + fill : fill;
            }
          };
        },
        Spaced(-40, 4, 23),
        [added, all](double fill) -> std::vector<ExplanationParam> {
          std::vector<ExplanationParam> params = {{added ? "added" : "fill", fill}};
          if (all) params.push_back({"of", 0, "every rule"});
          return params;
        });
  };
  for (const bool added : {false, true}) {
    if (HasMask(c)) family(added, false);
    if (HasRules(c)) family(added, true);
  }
}

void MaskTimesScores(const Case& c, Proposals& p) {
  AddTreatment(c, p, [](double) { return 0.0; }, {});
}

void MaskAfterSoftmax(const Case& c, Proposals& p) {
  for (const bool all : {false, true}) {
    if (all ? !HasRules(c) : !HasMask(c)) continue;
    p.Add([all](Variant& v) {
      v.masking = [all](RowState& s) {
        for (std::size_t j = 0; j < s.masked.size(); ++j) {
          if (!all && !s.in_rules[j]) s.masked[j] = -kInfinity;
        }
      };
      v.reweigh = [](RowState& s) {
        for (std::size_t j = 0; j < s.weights.size(); ++j) {
          if (!s.visible[j]) s.weights[j] = 0;
        }
      };
    });
  }
}

// Two masks, each filled with the lowest finite number: keys hidden by both sum to −inf. That shows in rows without keys only: the
// keys hidden once share the row, and where there are none it is NaN.
void TwoMinima(const Case& c, Proposals& p) {
  if (!HasMask(c) || !HasRules(c)) return;
  p.Add([](Variant& v) {
    v.empty_row = [](RowState& s) {
      Variant without_rules = *s.variant;
      without_rules.rules.causal = false;
      without_rules.rules.window_left.reset(), without_rules.rules.window_right.reset();
      without_rules.rules.kv_lens = without_rules.rules.segments = without_rules.rules.padding_segments = false;
      without_rules.empty_row = nullptr;
      RowState alone;
      s.evaluator->EvaluateMasked(without_rules, s.id, &alone);
      std::int64_t once = 0;
      for (std::size_t j = 0; j < s.weights.size(); ++j) once += s.in_rules[j] != 0 || alone.visible[j] != 0;
      for (std::size_t j = 0; j < s.weights.size(); ++j) {
        const bool hidden_once = s.in_rules[j] != 0 || alone.visible[j] != 0;
        s.weights[j] = once == 0 ? kNaN : hidden_once ? 1 / Number(once) : 0;
      }
    };
  });
}

// --------------------------------------------------------------------------------------------------------- empty rows

void EmptyRowsNaN(const Case&, Proposals& p) {
  p.Add([](Variant& v) { v.empty_row = EmptyToNaN; });
}

void EmptyRowsMean(const Case&, Proposals& p) {
  p.Add([](Variant& v) { v.empty_row = EmptyToMean; }, {{"over", 0, "all keys"}});
  p.Add(
      [](Variant& v) {
        v.empty_row = [](RowState& s) {
          const std::int64_t n = std::count(s.in_rules.begin(), s.in_rules.end(), 1);
          for (std::size_t j = 0; j < s.weights.size(); ++j) s.weights[j] = s.in_rules[j] ? 1 / Number(n) : 0;
        };
      },
      {{"over", 0, "the keys that other rules keep"}});
  for (const bool all : {true, false}) {
    p.Add(
        [all](Variant& v) {
          v.empty_row = [all](RowState& s) {
            s.masked = s.capped;
            for (std::size_t j = 0; j < s.masked.size(); ++j) {
              s.masked[j] += s.bias.empty() ? 0 : s.bias[j];
              if (!all && !s.in_rules[j]) s.masked[j] = -kInfinity;
            }
            Evaluator::SoftmaxOverKeys(s);
          };
        },
        {{"over", 0, all ? "all keys, by their scores" : "the keys that other rules keep, by their scores"}}, 1);
  }
}

constexpr Fault kFaults[] = {
    {"F20", "mask of another sequence", Stage::kMaskedScores, slot::kMask, "mask of sequence (b·heads + h) mod batch",
     "batch 1 is exact; samples use each other's masks",
     "repeat the mask over heads inside a sequence (repeat_interleave), not the batch over heads", MaskOfOtherBatch},
    {"F21", "mask read as a square", Stage::kMaskedScores, slot::kMask, "mask rows q_len apart instead of kv_len",
     "exact when q_len = kv_len", "the mask is [q_len, kv_len]", MaskAsSquare},
    {"F35", "causal mask missing", Stage::kMaskedScores, slot::kCausal, "no causal mask",
     "weights above the diagonal; the last row is right", "apply the causal mask on this path too (is_causal=True)",
     CausalMissing},
    {"F36", "causal mask not wanted", Stage::kMaskedScores, slot::kCausal, "a causal mask",
     "no weight above the diagonal; row 0 is one-hot", "turn the causal mask off, or state --causal if it is meant",
     CausalNotWanted},
    {"F37", "other causal alignment", Stage::kMaskedScores, slot::kCausal | slot::kWindow, "j ≤ i against j ≤ i + kv_len − q_len",
     "equal when q_len = kv_len; first row one-hot, or last row full",
     "a convention, not a mistake: state which one is meant with --q-offset top-left or bottom-right", OtherAlignment, true},
    {"F38", "causal mask off by one", Stage::kMaskedScores, slot::kCausal, "j ≤ i + shift", "one diagonal too many or too few",
     "a query sees itself: j ≤ i (tril with diagonal 0)", CausalOffByOne},
    {"F103", "causal mask on another diagonal", Stage::kMaskedScores, slot::kCausal, "j ≤ i + shift",
     "several diagonals too many or too few", "let query i see keys up to i + q_offset: pass the length of the cache as q_offset",
     OtherDiagonal},
    {"F39", "window of another size", Stage::kMaskedScores, slot::kWindow, "window W against W+1",
     "every row beyond the window sees some keys more or less",
     "count the query itself or not, as the model does: window_left = W − 1 when W includes it; left is before the query",
     OtherWindow},
    {"F40", "window ignored", Stage::kMaskedScores, slot::kWindow, "the full context",
     "differs only in rows longer than the window", "pass the window on this path and these layers", WindowIgnored},
    {"F41", "mask polarity inverted", Stage::kMaskedScores, slot::kMask, "kept and dropped exchanged",
     "the support is the complement", "here true means: may attend; invert the mask once", PolarityInverted},
    {"F42", "boolean mask added to the scores", Stage::kMaskedScores, slot::kMasking, "scores + {0, 1}",
     "no weight is zero; odds of kept to dropped are off by e",
     "turn the mask into 0 / −inf before adding it, or pass it as bool", MaskAsBias},
    {"F43", "float mask taken as boolean", Stage::kMaskedScores, slot::kMask | slot::kBias, "nonzero = masked",
     "the size of the bias has no effect", "add the bias to the scores", FloatMaskAsBool},
    {"F44", "~ on an integer mask", Stage::kMaskedScores, slot::kMask, "0 → −1, 1 → −2: all true",
     "every position masked or kept alike", "convert the mask to bool before inverting it", TildeOnIntegers},
    {"F45", "fill too weak", Stage::kMaskedScores, slot::kMasking, "hidden scores filled with a small number",
     "dropped keys keep weight", "fill with −inf, or with the lowest finite number", FillTooWeak},
    {"F46", "two lowest numbers summed", Stage::kMaskedScores, slot::kEmpty, "lowest + lowest = −inf",
     "NaN where both masks hide everything", "merge the masks as booleans, then fill once", TwoMinima},
    {"F47", "empty rows become NaN", Stage::kWeights, slot::kEmpty, "0/0", "NaN rows are exactly the fully masked ones",
     "write 0 for rows whose sum is 0", EmptyRowsNaN},
    {"F48", "empty rows become means", Stage::kWeights, slot::kEmpty, "softmax over a finite fill",
     "empty rows are uniform, over dropped keys too", "write 0 for rows without keys", EmptyRowsMean},
    {"F49", "padding not masked", Stage::kMaskedScores, slot::kPadding, "padded keys counted",
     "weight on padded columns; the error grows with their number", "pass kv_lens, or a mask over the padded keys",
     PaddingNotMasked},
    {"F50", "mask multiplied into the scores", Stage::kMaskedScores, slot::kMasking, "softmax(scores·mask)",
     "dropped keys act like score 0", "fill with −inf instead of multiplying", MaskTimesScores},
    {"F51", "mask after the softmax", Stage::kWeights, slot::kMasking | slot::kReweigh, "softmax(scores)·mask",
     "row sums below 1; ratios of kept weights right", "mask before the softmax, or divide by the sum again", MaskAfterSoftmax},
    {"F52", "mask ignored", Stage::kMaskedScores, slot::kMask, "no mask", "equals the unmasked result",
     "this path takes no mask: choose one that does", MaskIgnored},
    {"F53", "documents not isolated", Stage::kMaskedScores, slot::kSegments, "one causal row over all documents",
     "weights across boundaries; the first document is right", "pass segments (cumulative lengths) to the kernel",
     DocumentsNotIsolated},
    {"F54", "padding attends padding", Stage::kMaskedScores, slot::kSegments, "padding as a segment of its own",
     "padded rows are not 0; real rows are right", "harmless: padded rows are not used; ignore them when comparing", PadsSeePads,
     true},
};

}  // namespace

std::span<const Fault> MaskFaults() { return kFaults; }

}  // namespace regard::internal
