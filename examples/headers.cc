// One small program a header of regard::regard; docs/headers.md shows them.
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "regard/backward.h"
#include "regard/nn.h"
#include "regard/regard.h"

namespace {

// Numbers that look like data.
regard::Tensor MakeUp(const regard::Dims& shape, double seed) {
  regard::Tensor x(regard::DType::kF32, shape);
  for (std::int64_t n = 0; n < x.num_elements(); ++n)
    x.MutableAs<float>()[n] = static_cast<float>(std::sin(seed * static_cast<double>(n + 1)));
  return x;
}

void ShowTensor() {
  // 2 sequences, 3 tokens, 4 heads side by side of 8 numbers each, as a program of yours has them; nothing is copied.
  std::vector<float> memory(2 * 3 * 4 * 8, 0.5f);
  const regard::TensorView bshd = regard::View(memory.data(), {2, 3, 4, 8});
  const regard::TensorView bhsd = bshd.Transpose(1, 2);
  const regard::Tensor copy = regard::Tensor::CopyOf(bhsd, regard::DType::kBF16);
  std::printf("tensor: %s, element %g\n", regard::ToString(copy.shape()).c_str(), copy(1, 3, 2, 7));
}

void ShowAttention() {
  // 4 query heads read 2 kv heads; one plan, run as often as one likes, allocates nothing.
  const regard::Tensor q = MakeUp({1, 4, 1, 8}, 0.3), k = MakeUp({1, 2, 9, 8}, 0.5), v = MakeUp({1, 2, 9, 8}, 0.7);
  const regard::Plan plan(regard::PlanShape::Of(q, k, v), {.causal = true, .q_offset = 8});
  regard::Workspace workspace = plan.MakeWorkspace();
  regard::Tensor context(regard::DType::kF32, {1, 4, 1, 8});
  regard::Outputs outputs;
  outputs.context = context.mutable_view();
  plan.Run({.q = q, .k = k, .v = v}, outputs, workspace).ThrowIfFailed();
  std::printf("attention: %.4f\n", context(0, 3, 0, 7));
}

void ShowResult() {
  const regard::Tensor q = MakeUp({1, 4, 5, 8}, 0.3), k = MakeUp({1, 4, 5, 8}, 0.5), v = MakeUp({1, 4, 5, 8}, 0.7);
  // q, k and v are views of memory: regard::View(pointer, {batch, heads, tokens, dim})
  const regard::AttentionResult r = regard::Attention(q, k, v, {.causal = true});
  const double number = r.context(0, 3, 2, 7);         // sequence 0, head 3, query 2, dim 7; r.lse(0, 3, 2) alike
  const float* const numbers = r.context.As<float>();  // all of [batch, heads, q_len, v_dim], in C order
  std::printf("result: %g is %g\n", number, static_cast<double>(numbers[(3 * 5 + 2) * 8 + 7]));
}

void ShowDropout() {
  const regard::Tensor x = MakeUp({1, 1, 4, 8}, 0.3);
  const regard::AttentionParams params{.causal = true, .dropout = 0.25f, .dropout_seed = 7};
  const regard::Tensor mask = regard::DropoutMask({1, 1, 4, 4}, params.dropout, params.dropout_seed);  // 0 or 4/3
  const regard::Tensor weights = regard::ComputeStages(x, x, x, params).weights;  // of the softmax, none dropped
  double first = 0;
  for (int j = 0; j < 4; ++j) first += mask(0, 0, 3, j) * weights(0, 0, 3, j) * x(0, 0, j, 0);
  std::printf("dropout: %.4f is %.4f\n", first, regard::Attention(x, x, x, params).context(0, 0, 3, 0));
}

void ShowBackward() {
  const regard::Tensor q = MakeUp({5, 8}, 0.3), k = MakeUp({5, 8}, 0.5), v = MakeUp({5, 8}, 0.7);
  const regard::AttentionResult r = regard::Attention(q, k, v, {.causal = true});
  const regard::Tensor d_context = MakeUp({5, 8}, 0.9);  // the gradient of some loss by the context
  const regard::AttentionGrads g = regard::AttentionBackward(q, k, v, r.context, r.lse, d_context, {.causal = true});
  std::printf("backward: %s, d_q of the first query %g\n", regard::ToString(g.d_k.shape()).c_str(), g.d_q(0, 0));
}

void ShowStages() {
  const regard::Tensor x = MakeUp({6, 3}, 0.4);
  const regard::Tensor scores = regard::Scores(x, x, {.scale = 1});
  const regard::Tensor weights = regard::Softmax(scores, -1);
  const regard::Tensor context = regard::Context(weights, x);
  const regard::Tensor one = regard::ContextForToken(weights, x, 1);
  std::printf("stages: they differ by %.0e\n", std::fabs(context(1, 2) - one(2)) < 1e-6 ? 0.0 : 1.0);
}

void ShowProjections() {
  const regard::Tensor x = MakeUp({5, 12}, 0.2), w_query = MakeUp({8, 12}, 0.3), w_key = MakeUp({4, 12}, 0.5),
                       w_value = MakeUp({4, 12}, 0.7);
  const regard::Projected p =
      regard::Project(x, {.w_query = w_query, .w_key = w_key, .w_value = w_value, .num_heads = 4, .num_kv_heads = 2});
  const regard::AttentionResult r = regard::Attention(p.q, p.k, p.v, {.causal = true});
  std::printf("projections: %s\n", regard::ToString(r.context.shape()).c_str());
}

void ShowNn() {
  regard::nn::MultiheadAttention attention({.embed_dim = 8, .num_heads = 4, .num_kv_heads = 2});
  attention.params.causal = true;
  regard::nn::ParameterList parameters;
  attention.AppendParameters("attention.", &parameters);
  regard::nn::InitNormal(parameters, 0.3, /*seed=*/1);
  // One step towards other numbers: the loss is half the sum of squares of the difference.
  const regard::Tensor x = MakeUp({2, 5, 8}, 0.3), wanted = MakeUp({2, 5, 8}, 0.5);
  regard::nn::MultiheadAttention::Cache cache;
  regard::Tensor d_y = attention.Forward(x, &cache);
  for (std::int64_t n = 0; n < d_y.num_elements(); ++n) d_y.MutableAs<float>()[n] -= wanted.As<float>()[n];
  attention.Backward(x, cache, d_y);
  regard::nn::AdamW optimizer{.learning_rate = 0.01};
  optimizer.Step(parameters);
  std::printf("nn: %zu parameters, gradient norm %.1f\n", parameters.size(), regard::nn::GradNorm(parameters));
}

void ShowSummary() {
  const regard::Tensor q = MakeUp({1, 2, 64, 16}, 0.3), k = MakeUp({1, 2, 64, 16}, 0.5), v = MakeUp({1, 2, 64, 16}, 0.7);
  const regard::Summary s = regard::Summarize(q, k, v, {.causal = true}, {.entropy = true, .top_k = 3, .key_mass = true});
  const regard::Tensor row = regard::WeightRows(q, k, s.lse, {.causal = true}, {.head = 1, .rows = {63}});
  std::printf("summary: key %g has weight %.3f, and %.3f of the exact row\n", s.topk_index(0, 1, 63, 0),
              s.topk_weight(0, 1, 63, 0), row(0, static_cast<std::int64_t>(s.topk_index(0, 1, 63, 0))));
}

void ShowError() {
  const regard::Tensor q = MakeUp({1, 8, 4, 16}, 0.3), k = MakeUp({1, 3, 4, 16}, 0.5);
  try {
    regard::Attention(q, k, k);
  } catch (const regard::Error& error) {
    std::printf("error: %s: %s\n", regard::Name(error.code()), error.what());
  }
}

void ShowInfo() {
  std::printf("info: regard %s, best target %s\n", regard::Version(), regard::BestTarget().c_str());
  for (const regard::Target& target : regard::Targets()) {
    if (!target.supported) std::printf("  %s is not on this CPU\n", target.name.c_str());
  }
}

}  // namespace

int main() {
  try {
    ShowTensor();
    ShowAttention();
    ShowResult();
    ShowDropout();
    ShowBackward();
    ShowStages();
    ShowProjections();
    ShowNn();
    ShowSummary();
    ShowError();
    ShowInfo();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
