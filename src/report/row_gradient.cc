#include "report/row_gradient.h"

#include <cmath>
#include <utility>

#include "report/explanation.h"

namespace regard::report {
namespace {

double Norm(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

// d_weights and their mean; d_v needs no more than the weights.
void OfWeights(const Explanation& e, RowGradient* g) {
  const double norm = Norm(g->d_context);
  for (const KeyTerm& key : e.keys) {
    KeyGradient gradient;
    if (key.visible) {
      for (std::size_t d = 0; d < g->d_context.size(); ++d)
        gradient.d_weight += g->d_context[d] * e.v(key.key, static_cast<std::int64_t>(d));
      gradient.d_v_norm = std::fabs(key.weight) * norm;
      g->delta += key.weight * gradient.d_weight;
    }
    g->keys.push_back(gradient);
  }
}

// Through the softmax, the cap and the product.
void OfScores(const Explanation& e, RowGradient* g) {
  const double q_norm = Norm(e.q);
  g->d_q.assign(e.q.size(), 0);
  for (std::size_t j = 0; j < e.keys.size(); ++j) {
    const KeyTerm& key = e.keys[j];
    KeyGradient& gradient = g->keys[j];
    if (!key.visible) continue;
    const double tanh = e.soft_cap > 0 ? key.capped / e.soft_cap : 0;
    gradient.d_masked = key.weight * (gradient.d_weight - g->delta);
    gradient.d_score = gradient.d_masked * (1 - tanh * tanh);
    gradient.d_k_norm = std::fabs(e.scale * gradient.d_score) * q_norm;
    for (std::size_t d = 0; d < g->d_q.size(); ++d)
      g->d_q[d] += e.scale * gradient.d_score * e.k(key.key, static_cast<std::int64_t>(d));
  }
  if (e.has_sink) g->d_sink = -e.sink_exp / e.total * g->delta;
}

}  // namespace

RowGradient Differentiate(const Explanation& explanation, std::vector<double> d_context) {
  RowGradient g;
  g.of_sum = d_context.empty();
  g.d_context = g.of_sum ? std::vector<double>(static_cast<std::size_t>(explanation.v.dim(1)), 1.0) : std::move(d_context);
  OfWeights(explanation, &g);
  if (!explanation.third_stage) OfScores(explanation, &g);
  return g;
}

}  // namespace regard::report
