// What is wrong with somebody else's attention. Part of regard::tools.
//
//     regard::Diagnosis d = regard::Diagnose({.q = q, .k = k, .v = v, .params = {.causal = true}}, {.context = theirs});
//     std::puts(d.summary.c_str());   // fault: scale missing (F01), from the scores on
//     for (const regard::Explanation& e : d.explanations) …   // best first
//
// The problem says what was to be computed, `observed` what somebody got: any of the stages, of any float type. Diagnose compares every
// stage with the definition, in double precision; what differs by more than rounding is then computed again with one known mistake in it,
// or with two, until a mistake reproduces what was observed. docs/diagnosis.md tells how it decides, and lists the faults by number.
//
// Five verdicts:
//     match        as close as f32 arithmetic and the observed element type allow, by a bound derived for each element
//     rounding     explained by computing or storing in tf32, f16 or bf16: `precision` says which
//     variant      another legal convention, for example the other alignment of a causal mask: the explanation says which rule
//     fault        a mistake reproduces it: see `explanations`
//     unexplained  it differs and no known mistake fits: see `evidence` and `next_step`
//
// Small problems are compared whole, large ones by sampled rows; `coverage_note` says which. Thread-safe. Throws Error when the problem is
// not valid, or when an observed tensor cannot be a stage of it.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/projections.h"
#include "regard/tensor.h"

namespace regard {

/// What was to be computed. Tensors are borrowed.
///     regard::DiagnosisProblem{.v = v, .weights = weights}      the third stage alone: context = weights·v, without q and k
struct DiagnosisProblem {
  TensorView q = {}, k = {}, v = {};  // as Attention takes them: rank 4, or rank 2 [tokens, dim]
  AttentionParams params = {};        // without dropout: outputs of evaluation are compared
  /// [batch, heads, q_len, kv_len], float: given instead of q and k. Then params are not looked at, and only the context can be observed.
  TensorView weights = {};

  /// Where q, k and v come from, when they are projections: mistakes in the projections can then be found.
  TensorView inputs = {};
  Projections projections = {};
  /// q and k before rotary embedding, and positions [tokens] or [batch, tokens]: mistakes in the rotation can then be found.
  TensorView q_pre_rope = {}, k_pre_rope = {}, positions = {};
};

/// What somebody got: any of these, float types. Stages [batch, heads, q_len, kv_len], lse [batch, heads, q_len], context
/// [batch, heads, q_len, v_dim] or [batch, q_len, heads, v_dim] or packed [batch, q_len, heads·v_dim], projected [batch, q_len, out_dim];
/// axes of length 1 in front may be missing.
struct ObservedTensors {
  TensorView scores = {}, capped = {}, masked_scores = {}, weights = {}, lse = {}, context = {}, projected = {};
};

struct DiagnoseOptions {
  bool pairs = true;  // try two mistakes at once when no single one fits
  int threads = 0;    // 0: all that OpenMP offers
  /// Rows of these sequences and query heads are compared; empty: of all. Mistakes are still looked for with all of them at hand.
  std::vector<std::int64_t> batches = {}, heads = {};
  /// As in ExecOptions: the fraction done, now and then, from one thread at a time; and what ends Diagnose soon, with ErrorCode::kCancelled.
  std::function<void(double)> on_progress = {};
  std::stop_token stop_token = {};
};

enum class Verdict : std::uint8_t { kMatch, kRounding, kVariant, kFault, kUnexplained };
REGARD_API const char* Name(Verdict verdict) noexcept;  // "match", "rounding", …

/// A constant of a mistake, tried or solved for. `text` is set when it is no number.
struct ExplanationParam {
  std::string name;
  double value = 0;
  std::string text = {};
};

/// One mistake, or two, that reproduces what was observed.
struct Explanation {
  std::string id;    // "F01"; two at once: "F01+F16"
  std::string name;  // "scale missing"
  std::vector<ExplanationParam> params;
  std::string formula;  // what was computed instead
  std::string advice;   // what to change
  std::string stage;    // the first stage that it changes
  double residual = 0;  // the largest difference that remains with it
  double coverage = 0;  // fraction of the compared rows that it reproduces within rounding
  /// Where it applies when that is not everywhere: "only heads 4–7"; else empty.
  std::string scope = {};
};

/// One cell of a tensor.
struct WorstCell {
  std::string tensor;  // "context", …
  std::int64_t batch = 0, head = 0, row = 0, column = 0;
  double expected = 0, observed = 0;
};

/// Where the observation differs from the definition.
struct Difference {
  std::string text;                                      // "only heads 4–7, rows ≥ 1024"; empty when nothing differs
  std::vector<std::int64_t> batches, heads, rows, keys;  // indices that differ; keys only when a stage over keys was observed
  std::int64_t rows_compared = 0, rows_wrong = 0;
  double largest = 0;  // the largest difference; +inf when one side is not finite and the other is
  WorstCell worst;
};

struct Diagnosis {
  Verdict verdict = Verdict::kMatch;
  std::string summary;            // one line
  std::string first_wrong_stage;  // "inputs", "scores", …, "context"; empty when nothing is wrong
  std::string precision;          // kRounding: "tf32", "f16" or "bf16"
  Difference where;
  std::vector<Explanation> explanations;  // best first
  /// How many of the first explanations fit equally well: within each other's rounding. 0 or 1: no tie.
  int ties = 0;
  std::string tie_breaker;            // the tensor that would decide between the ties
  std::vector<std::string> evidence;  // sentences, cheapest first
  std::string next_step;              // what to dump next, and the command for it; for kUnexplained
  std::string coverage_note;          // "all 6,144 rows", or which ones were sampled
  /// The largest difference over bound by head (rows) and stretch of queries (columns); empty when nothing differs. For pictures.
  std::vector<std::vector<double>> picture;
};

/// `again` is a second run of the same program on the same input: it shows races, dropout and other things that change from run to run.
REGARD_API Diagnosis Diagnose(const DiagnosisProblem& problem, const ObservedTensors& observed, const ObservedTensors& again = {},
                              const DiagnoseOptions& options = {});

/// The catalogue, for lists: id, name and what gives the fault away, in order.
struct CatalogueEntry {
  std::string id, name, stage, formula, tell_tale, advice;
};
REGARD_API std::vector<CatalogueEntry> FaultCatalogue();

}  // namespace regard
