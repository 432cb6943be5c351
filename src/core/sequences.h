// The sequences of a problem: queries and keys that are among themselves. A batch entry is one; where segments pack several texts into an
// entry, each of them is. Positions start anew in each, and nothing that is computed of one depends on what lies beside it.
//
//     Sequence s;
//     for (SequenceWalk walk(problem, b); walk.Next(&s);) …
#pragma once

#include <cstdint>

#include "core/internal_api.h"
#include "core/problem.h"

namespace regard::internal {

/// Queries [first_query, first_query + q_len) and keys [first_key, first_key + kv_len) of a batch entry.
struct Sequence {
  std::int64_t batch;
  std::int64_t first_query, q_len;
  std::int64_t first_key, kv_len;
};

/// Those of batch entry b, queries ascending, then those without queries. Every query and every key is in exactly one: padding, and what
/// finds no segment of its number on the other side, is in one without keys or without queries. Takes O(tokens) in all where the segments of
/// queries and keys come in the same order.
class REGARD_INTERNAL_API SequenceWalk {
 public:
  SequenceWalk(const Problem& problem, std::int64_t b) : p_(problem), b_(b) {}

  /// False behind the last.
  bool Next(Sequence* sequence);

 private:
  bool NextSegment(Sequence* sequence);

  const Problem& p_;
  const std::int64_t b_;
  std::int64_t query_ = 0, key_ = 0;              // where the next runs begin
  std::int64_t found_query_ = 0, found_key_ = 0;  // where the last runs that were looked for end
  bool done_ = false;
};

/// The first, of any batch entry, that has queries and keys, but not as many of both; without segments the first entry. False if there is
/// none.
bool FindUnequal(const Problem& problem, Sequence* sequence);

/// How many there are at most, of all batch entries; 0 without queries.
std::int64_t MostSequences(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len, bool packed);

}  // namespace regard::internal
