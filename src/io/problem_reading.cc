// The one line that says how a problem was read and what was assumed.
#include <fmt/format.h>

#include "io/problem_loader.h"
#include "io/problem_values.h"

namespace regard::io {
namespace {

// "batch 2, heads 8 (kv_heads 2), q_len 4, kv_len 9, dim 64, v_dim 32", without the axes that the inputs lack.
std::string Sizes(const Problem& p) {
  const PlanShape& s = p.shape;
  std::string text;
  if (p.axes.batch) text += fmt::format("batch {}, ", s.batch);
  if (p.axes.heads)
    text += fmt::format("heads {}{}, ", s.heads, s.kv_heads == s.heads ? "" : fmt::format(" (kv_heads {})", s.kv_heads));
  text += s.q_len == s.kv_len ? fmt::format("tokens {}", s.q_len) : fmt::format("q_len {}, kv_len {}", s.q_len, s.kv_len);
  if (p.past_len > 0) text += fmt::format(" ({} of past_key)", p.past_len);
  if (p.kind == Problem::Kind::kThirdStage) return text + fmt::format(", v_dim {}", s.v_dim);
  return text + fmt::format(", dim {}{}", s.head_dim, s.v_dim == s.head_dim ? "" : fmt::format(", v_dim {}", s.v_dim));
}

std::string Source(const Problem& p) {
  switch (p.kind) {
    case Problem::Kind::kAttention:
      return "";
    case Problem::Kind::kThirdStage:
      return "; third stage only: weights and v";
    case Problem::Kind::kSelfAttention:
      break;
  }
  return p.HasProjections() ? fmt::format("; q, k, v projected from inputs {}", ToString(p.inputs.shape()))
                            : "; q = k = v = inputs";
}

std::string Offset(const Problem& p) {
  const QOffset& offset = p.params.q_offset;
  if (offset.value()) return fmt::format(", q_offset {}", *offset.value());
  if (offset.per_sequence()) return ", q_offset of each sequence";
  if (p.params.kv_lens) return ", q_offset kv_lens − q_len";
  return "";
}

std::string Rules(const Problem& p) {
  const AttentionParams& a = p.params;
  std::string text = a.causal ? "; causal" : "; not causal";
  if (a.window_left) text += fmt::format(", window_left {}", *a.window_left);
  if (a.window_right) text += fmt::format(", window_right {}", *a.window_right);
  text += Offset(p);
  text += a.scale ? "; scale " + ValueText(p.scale) : fmt::format("; scale 1/√{}", p.shape.head_dim);
  if (a.soft_cap > 0) text += "; soft_cap " + ValueText(a.soft_cap);
  const std::pair<const char*, const TensorView*> tensors[] = {{"mask", &a.mask}, {"bias", &a.bias}};
  for (const auto& [name, view] : tensors) {
    if (*view) text += fmt::format("; {} {}", name, ToString(view->shape()));
  }
  const std::pair<const char*, bool> others[] = {{"kv_lens", static_cast<bool>(a.kv_lens)},
                                                 {"segments", a.q_segments || a.kv_segments},
                                                 {"alibi_slopes", static_cast<bool>(a.alibi_slopes)},
                                                 {"sinks", static_cast<bool>(a.sinks)}};
  for (const auto& [name, given] : others) {
    if (given) text += fmt::format("; {}", name);
  }
  return text;
}

}  // namespace

std::string ReadingOf(const Problem& p, const ProblemOptions& options) {
  std::string text = "read as ";
  if (p.layer) text += fmt::format("layer {}, ", *p.layer);
  text += Sizes(p);
  if (options.layout) text += fmt::format(" (layout {})", Name(*options.layout));
  text += Source(p);
  if (p.kind != Problem::Kind::kThirdStage) text += Rules(p);
  return text;
}

}  // namespace regard::io
