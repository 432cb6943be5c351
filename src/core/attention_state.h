// The online-softmax state of one query row: one type for tiles, split keys, threads, cache chunks and ranks.
//
//     weights so far = exp2(masked_scores·log2e − row_ref), which sum to row_sum; acc = Σ weights·v
//
// row_ref is the running reference, not the maximum, since rescaling is lazy. The identity is (−inf, 0, 0). A sink is never in the
// state: Finish adds it once. Milakov and Gimelshein 2018, algorithm 3, is the pair (row_ref, row_sum); docs/numerics.md has the rest.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace regard::internal {

struct AttentionState {
  float row_ref = -std::numeric_limits<float>::infinity();  // log2 units
  float row_sum = 0;
  float* acc = nullptr;  // [v_dim], owned by the caller
};

inline bool IsIdentity(const AttentionState& state) {
  return state.row_ref == -std::numeric_limits<float>::infinity() && state.row_sum == 0;
}

/// into = into ⊕ from: as if both had been one run over the keys of both. from may be the identity, and so may into.
inline void Merge(AttentionState& into, const AttentionState& from, std::int64_t v_dim) {
  if (IsIdentity(from)) return;
  if (IsIdentity(into)) {
    into.row_ref = from.row_ref;
    into.row_sum = from.row_sum;
    for (std::int64_t d = 0; d < v_dim; ++d) into.acc[d] = from.acc[d];
    return;
  }
  const float reference = into.row_ref > from.row_ref ? into.row_ref : from.row_ref;
  const float factor_into = std::exp2(into.row_ref - reference);
  const float factor_from = std::exp2(from.row_ref - reference);
  into.row_ref = reference;
  into.row_sum = into.row_sum * factor_into + from.row_sum * factor_from;
  for (std::int64_t d = 0; d < v_dim; ++d) into.acc[d] = into.acc[d] * factor_into + from.acc[d] * factor_from;
}

/// The natural-log lse with the sink (−inf: none) in it, and the factor that turns acc into the context. An empty row gives −inf (or the
/// sink) and factor 0.
struct Finished {
  float lse;
  float factor;
};
inline Finished Finish(const AttentionState& state, float sink) {
  constexpr float kLn2 = std::numbers::ln2_v<float>, kLog2e = std::numbers::log2e_v<float>;
  const float infinity = std::numeric_limits<float>::infinity();
  if (state.row_sum == 0) return {sink, 0.0f};
  if (sink == -infinity) return {(state.row_ref + std::log2(state.row_sum)) * kLn2, 1.0f / state.row_sum};
  const float sink2 = sink * kLog2e;
  // The larger of the two references keeps both terms in range.
  const float reference = sink2 > state.row_ref ? sink2 : state.row_ref;
  const float keys = std::exp2(state.row_ref - reference);
  const float total = state.row_sum * keys + std::exp2(sink2 - reference);
  return {(reference + std::log2(total)) * kLn2, keys / total};
}

}  // namespace regard::internal
