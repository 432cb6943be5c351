#include "reference/definition.h"

#include <cmath>
#include <limits>

namespace regard::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// p counts on the axis of the keys of the query's own segment, and so does j.
bool IsVisible(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, std::int64_t distance,
               const Place& query, const Place& key) {
  if (j >= p.KvLen(b)) return false;
  if (query.segment != key.segment || query.segment == -1) return false;
  if (p.causal && distance < 0) return false;
  if (p.window_left && distance > *p.window_left) return false;
  if (p.window_right && -distance > *p.window_right) return false;
  if (p.mask.data != nullptr && LoadDouble(p.mask.data, p.mask.dtype, p.mask.Offset(b, h, i, j)) == 0) return false;
  if (p.bias.data != nullptr && LoadDouble(p.bias.data, p.bias.dtype, p.bias.Offset(b, h, i, j)) == -kInfinity) return false;
  return true;
}

}  // namespace

void LoadVector(const View4& view, std::int64_t offset, std::int64_t count, double* to) {
  for (std::int64_t d = 0; d < count; ++d) to[d] = LoadDouble(view.data, view.dtype, offset + d * view.stride[3]);
}

Place PlaceOf(const View4& segments, std::int64_t b, std::int64_t token) {
  if (segments.data == nullptr) return {0, token};
  const auto segment_of = [&](std::int64_t t) { return LoadInt(segments, segments.Offset(b, 0, 0, t)); };
  std::int64_t first = token;
  while (first > 0 && segment_of(first - 1) == segment_of(token)) --first;
  return {segment_of(token), token - first};
}

Place NextPlace(const View4& segments, std::int64_t b, std::int64_t next_token, const Place& place) {
  if (segments.data == nullptr) return {0, next_token};
  const std::int64_t segment = LoadInt(segments, segments.Offset(b, 0, 0, next_token));
  return {segment, segment == place.segment ? place.position + 1 : 0};
}

PairScore ScorePair(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, const Place& query_place,
                    const Place& key_place, const double* q, const double* k) {
  const std::int64_t distance = query_place.position + p.QOffset(b) - key_place.position;  // p − j
  double dot = 0;
  for (std::int64_t d = 0; d < p.head_dim; ++d) dot += q[d] * k[d];
  PairScore pair;
  pair.visible = IsVisible(p, b, h, i, j, distance, query_place, key_place);
  pair.distance = static_cast<double>(distance);
  pair.score = p.scale * dot;
  pair.capped = p.soft_cap > 0 ? p.soft_cap * std::tanh(pair.score / p.soft_cap) : pair.score;
  pair.masked = pair.capped;
  if (!pair.visible) {
    pair.masked = -kInfinity;
    return pair;
  }
  if (p.bias.data != nullptr) pair.masked += LoadDouble(p.bias.data, p.bias.dtype, p.bias.Offset(b, h, i, j));
  if (p.alibi_slopes.data != nullptr) {
    const double slope = LoadDouble(p.alibi_slopes.data, p.alibi_slopes.dtype, p.alibi_slopes.Offset(0, h, 0, 0));
    pair.masked -= slope * std::fabs(pair.distance);
  }
  return pair;
}

double SinkOf(const Problem& p, std::int64_t h) {
  return p.sinks.data == nullptr ? -kInfinity : LoadDouble(p.sinks.data, p.sinks.dtype, p.sinks.Offset(0, h, 0, 0));
}

}  // namespace regard::internal
