#include "report/stage_words.h"

#include <fmt/format.h>

#include <vector>

#include "report/text.h"

namespace regard::report {
namespace {

bool IsSimplified(const io::Problem& problem) {
  return problem.kind == io::Problem::Kind::kSelfAttention && !problem.HasProjections();
}

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// ", in each of 2×12 heads"; `shared` are the heads of k and v.
std::string InEachHead(const PlanShape& s) {
  if (s.batch * s.heads == 1) return {};
  const std::string count = s.batch == 1 ? fmt::format("{}", s.heads) : fmt::format("{}×{}", s.batch, s.heads);
  const std::string shared =
      s.kv_heads < s.heads ? fmt::format(" ({} of k and v, each read by {})", s.kv_heads, s.heads / s.kv_heads) : "";
  return fmt::format(" in each of {} heads{}", count, shared);
}

std::string MaskedFrom(const io::Problem& problem) { return problem.params.soft_cap > 0 ? "capped" : "scores"; }

std::vector<std::string> VisibilityRules(const AttentionParams& p) {
  std::vector<std::string> rules;
  if (p.causal) rules.push_back("causal");
  if (p.window_left || p.window_right) rules.push_back("window");
  if (p.mask) rules.push_back("mask");
  if (p.kv_lens) rules.push_back("kv_lens");
  if (p.q_segments) rules.push_back("segments");
  return rules;
}

}  // namespace

std::string QueryName(const io::Problem& problem) { return IsSimplified(problem) ? "inputs" : "q"; }
std::string KeyName(const io::Problem& problem) { return IsSimplified(problem) ? "inputs" : "k"; }
std::string ValueName(const io::Problem& problem) { return IsSimplified(problem) ? "inputs" : "v"; }

std::string HowProjected(const io::Problem& problem, char name) {
  const Projections& p = problem.projections;
  struct Matrix {
    TensorView w, b;
    const char* suffix;
    std::int64_t heads;
  };
  const Matrix matrix = name == 'q'   ? Matrix{p.w_query, p.b_query, "query", problem.shape.heads}
                        : name == 'k' ? Matrix{p.w_key, p.b_key, "key", problem.shape.kv_heads}
                                      : Matrix{p.w_value, p.b_value, "value", problem.shape.kv_heads};
  if (!matrix.w) return "the inputs";
  std::string how = fmt::format("inputs {}×{} · w_{}ᵀ {}×{}", problem.inputs.dim(-2), problem.inputs.dim(-1), matrix.suffix,
                                matrix.w.dim(1), matrix.w.dim(0));
  if (matrix.b) how += fmt::format(" + b_{}", matrix.suffix);
  if (matrix.heads > 1) how += fmt::format(", cut into {} heads", matrix.heads);
  return how;
}

std::string HowScores(const io::Problem& problem) {
  const PlanShape& s = problem.shape;
  std::string how =
      fmt::format("{} {}×{} · {}ᵀ {}×{}", QueryName(problem), s.q_len, s.head_dim, KeyName(problem), s.head_dim, s.kv_len);
  how += InEachHead(s);
  how += fmt::format(": {} pairs, {} summed away", ShowCount(s.batch * s.heads * s.q_len * s.kv_len), s.head_dim);
  if (problem.scale != 1) how += fmt::format(", × {:.4g}", problem.scale);
  return how;
}

std::string HowCapped(const io::Problem& problem) {
  return fmt::format("{0:.6g} · tanh(scores / {0:.6g})", problem.params.soft_cap);
}

bool HasMaskingRules(const io::Problem& problem) {
  return problem.params.bias || problem.params.alibi_slopes || !VisibilityRules(problem.params).empty();
}

std::string HowMasked(const io::Problem& problem) {
  std::string how = MaskedFrom(problem);
  if (problem.params.bias) how += " + bias";
  if (problem.params.alibi_slopes) how += " − slope × distance";
  const std::vector<std::string> rules = VisibilityRules(problem.params);
  if (!rules.empty()) how += "; -inf where not visible: " + Join(rules);
  return how;
}

std::string HowWeights(const io::Problem& problem) {
  std::string how = "softmax of " + (HasMaskingRules(problem) ? "masked_scores" : MaskedFrom(problem)) + " over keys";
  if (problem.params.sinks) how += ", a sink in each denominator";
  return how;
}

std::string HowContext(const io::Problem& problem) {
  const PlanShape& s = problem.shape;
  return fmt::format("weights {}×{} · {} {}×{}{}", s.q_len, s.kv_len, ValueName(problem), s.kv_len, s.v_dim, InEachHead(s));
}

}  // namespace regard::report
