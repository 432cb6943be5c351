// How a loss moves one query's weights: the gradient of an explained row, link by link, in double.
//
//     const RowGradient g = Differentiate(explanation, d_context);   // the loss's gradient by the row's context
//     g.keys[j].d_weight   // what the loss gains as the weight of key j grows, the other weights held
//     g.keys[j].d_score    // what it gains as the score grows, and with it the weight, at the cost of all others
//
// Everything is of this row alone: d_k and d_v of a key are this query's share of sums over all queries.
#pragma once

#include <vector>

namespace regard::report {

struct Explanation;

struct KeyGradient {
  double d_weight = 0;  // d_context · v_j
  double d_masked = 0;  // weight · (d_weight − delta)
  double d_score = 0;   // d_masked · (1 − (capped / soft_cap)²)
  double d_k_norm = 0;  // ‖scale · d_score · q‖
  double d_v_norm = 0;  // ‖weight · d_context‖
};

struct RowGradient {
  bool of_sum = false;            // the loss is the sum of the row's context: d_context is 1 everywhere
  std::vector<double> d_context;  // [v_dim]
  double delta = 0;               // d_context · context: the mean of d_weight under the weights
  double d_sink = 0;              // −(the sink's share of the weights) · delta; 0 without a sink
  std::vector<KeyGradient> keys;  // every key, in order; zeros where it is not visible
  std::vector<double> d_q;        // scale · Σ_j d_score · k_j; empty in the third stage, which has d_weight and d_v only
};

/// `d_context` of v_dim numbers; empty stands for ones.
RowGradient Differentiate(const Explanation& explanation, std::vector<double> d_context);

}  // namespace regard::report
