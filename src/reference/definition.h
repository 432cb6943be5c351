// What the forward and the backward reference share: which key a query sees, and what the two make of their score.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace regard::internal {

/// One vector as doubles.
void LoadVector(const View4& view, std::int64_t offset, std::int64_t count, double* to);

/// Where a token stands: its segment (0 for all when there are none, −1 = padding) and how many tokens of that segment precede it.
struct Place {
  std::int64_t segment = 0;
  std::int64_t position = 0;
};
Place PlaceOf(const View4& segments, std::int64_t b, std::int64_t token);
/// The place of the token after the one at `place`.
Place NextPlace(const View4& segments, std::int64_t b, std::int64_t next_token, const Place& place);

/// One query and one key. masked is −inf where the key is not visible.
struct PairScore {
  bool visible;
  double score, capped, masked;
  double distance;  // p − j, both counted on the axis of the keys of the query's own segment
};
PairScore ScorePair(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                    const Place& query_place, const Place& key_place, const double* q, const double* k);

/// −inf without one.
double SinkOf(const Problem& problem, std::int64_t h);

}  // namespace regard::internal
