// Random calls of attention over a cache, and the same calls without one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/integer_rounding.h"
#include "tests/cache/cache_model.h"
#include "tests/support/random_problem.h"

namespace regard::test {

/// One call: some sequences of a cache, queries, options.
struct CachedCall {
  KvCacheOptions options;
  std::vector<ModelSequence> sequences;
  std::vector<SequenceId> ids;
  std::int64_t heads, q_len, kv_len = 0;
  Tensor q, mask, bias, slopes, sinks, offsets;
  AttentionParams params;
  int threads;
  std::string description;

  std::int64_t QOffset(std::size_t b) const {
    if (params.q_offset.value()) return *params.q_offset.value();
    return offsets ? static_cast<std::int64_t>(offsets(static_cast<std::int64_t>(b))) : sequences[b].next_position - q_len;
  }
};

/// A cache whose sequences have been appended to, forked, and perhaps have forgotten some tokens.
ModelledCache RandomCache(Random& random, bool forget);

/// Of any sequences of it, with any options that a cache allows.
CachedCall RandomCall(Random& random, const ModelledCache& modelled);

/// Sequence b as a call of its own on tensors of the stored values: i8 as f64, which holds element · scale exactly. Where tokens were forgotten,
/// a mask and a bias say the rules of position.
TestProblem ProblemOf(const KvCache& cache, const CachedCall& call, std::size_t b);

/// How the path rounds the call's queries and weights to integers, where it does.
internal::IntegerRounding IntegerRoundingOf(const KvCache& cache, const CachedCall& call, const std::string& isa);

}  // namespace regard::test
