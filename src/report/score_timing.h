// What one matrix product saves over three nested loops, measured on the problem at hand.
#pragma once

#include <cstdint>
#include <string>

#include "regard/tensor.h"

namespace regard::report {

struct ScoreTiming {
  double loops_seconds = 0, product_seconds = 0;  // per call: the fastest of several warm repetitions
  std::int64_t queries = 0, keys = 0, dim = 0;    // of one head, as timed
  std::int64_t all_queries = 0, all_keys = 0;     // of that head; more when timing everything would take too long
  double ratio() const { return product_seconds > 0 ? loops_seconds / product_seconds : 0; }
};

/// Times regard::ScoresByLoops and regard::Scores on one head, q [q_len, dim] and k [kv_len, dim], both on the same f32 copies,
/// in this thread. The caller keeps the BLAS to one thread. Takes some milliseconds, whatever the size: long inputs are cut.
ScoreTiming TimeScores(const TensorView& q, const TensorView& k, float scale);

/// "scores of one head 6×6, f32, one thread: by loops 1.2 µs, by one product 2.0 µs: the loops are 1.7 times as fast".
std::string Show(const ScoreTiming& timing);

}  // namespace regard::report
