// One query in numbers: its context row, and backward what made it, so that a person can redo it by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/problem.h"
#include "report/row_gradient.h"
#include "report/rows.h"

namespace regard::report {

/// What one key does to the query. Without meaning where not visible, but for the score.
struct KeyTerm {
  std::int64_t key = 0;
  bool visible = true;
  double product = 0;  // q·k
  double score = 0;    // scale · product
  double capped = 0;   // after the soft cap
  double bias = 0;
  double alibi = 0;  // what ALiBi takes away
  double masked_score = 0;
  double exp = 0;     // exp(masked_score − largest)
  double weight = 0;  // exp / total
};

struct Explanation {
  RowIndex row;
  bool third_stage = false;  // weights were given: no scores, no softmax
  std::vector<double> q;
  double scale = 1, soft_cap = 0;
  bool has_bias = false, has_alibi = false, has_sink = false;
  std::vector<KeyTerm> keys;  // every key, in order
  double largest = 0;         // of the visible masked scores and the sink
  double sink = 0, sink_exp = 0;
  double total = 0;  // Σ exp, the sink's included
  double lse = 0;
  std::int64_t visible = 0;  // how many keys
  TensorView k, v;           // [kv_len, head_dim], [kv_len, v_dim]: of the row's kv head; borrowed
  Path path = Path::kFused;
  std::vector<double> context;          // by `path`, as one row of the batched run
  std::vector<double> per_token;        // by the reference, one token at a time
  double difference = 0;                // largest |context − per_token|
  double bound_used = 0;                // see agreement.h; beyond 1 the paths disagree
  std::optional<RowGradient> gradient;  // not computed here; shown when it is set
};

/// Computes the row alone: one query against the keys, memory O(kv_len). `context` has the bits of the same row in a run of the
/// whole call with f32 results.
Explanation Explain(const Call& call, const RowIndex& row, const ExecOptions& exec);
/// The third stage: weights [batch, heads, q_len, kv_len] times v.
Explanation ExplainThirdStage(const TensorView& weights, const TensorView& v, const RowIndex& row);

/// Words for the reader.
struct ExplanationLabels {
  std::string q = "q", k = "k", v = "v";  // "inputs" where they are the inputs themselves
  std::string query_label;                // "1 journey"
  std::vector<std::string> key_labels;    // one a key
  bool name_head = false;                 // whether there are several heads or sequences
  std::string q_origin;                   // "inputs[1] · w_queryᵀ"; may be empty
  int max_width = 0;                      // tables are cut to it; 0: they are not
};

/// At most `max_keys` keys are shown line by line, those that weigh most; the rest is one line.
std::string Show(const Explanation& explanation, const ExplanationLabels& labels, std::int64_t max_keys = 16);

/// One JSON object, without the newline; docs/cli.md has the schema.
std::string ExplanationsJson(const io::Problem& problem, const std::vector<Explanation>& explanations);

}  // namespace regard::report
