#include "core/row_keys.h"

#include <algorithm>

#include "core/sequences.h"

namespace regard::internal {
namespace {

// Keys that have forgotten neighbours: the same bounds as positions, looked up among those of the keys that are left.
RowKeys CachedInterval(const Problem& p, std::int64_t kv_len, std::int64_t position, const std::int64_t* positions) {
  const auto index = [&](std::int64_t from) { return std::lower_bound(positions, positions + kv_len, from) - positions; };
  RowKeys row{0, kv_len, position, 0};
  if (p.causal) row.end = std::min(row.end, index(position + 1));
  if (p.window_right) row.end = std::min(row.end, index(position + *p.window_right + 1));
  if (p.window_left) row.begin = index(position - *p.window_left);
  if (row.begin >= row.end) row.begin = row.end = 0;
  return row;
}

RowKeys Interval(const Problem& p, std::int64_t kv_len, std::int64_t position, const Sequence& s) {
  RowKeys row{s.first_key, std::min(s.first_key + s.kv_len, kv_len), position, s.first_key};
  if (p.causal) row.end = std::min(row.end, position + 1);
  if (p.window_right) row.end = std::min(row.end, position + *p.window_right + 1);
  if (p.window_left) row.begin = std::max(row.begin, position - *p.window_left);
  if (row.begin >= row.end) row.begin = row.end = 0;  // sees nothing
  return row;
}

}  // namespace

void ComputeRowKeys(const Problem& p, RowKeys* rows) {
  if (p.q_len == 0) return;  // of however many sequences a file claims
  for (std::int64_t b = 0; b < p.batch; ++b, rows += p.q_len) {
    const std::int64_t kv_len = p.KvLen(b), q_offset = p.QOffset(b);
    const std::int64_t* const positions = p.KeyPositions(b);
    Sequence s;
    for (SequenceWalk walk(p, b); walk.Next(&s);) {
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        // Positions restart in each sequence; `position` counts on the entry's axis of keys, so the sequence's first key is added back.
        rows[s.first_query + i] = positions != nullptr ? CachedInterval(p, kv_len, i + q_offset, positions)
                                                       : Interval(p, kv_len, s.first_key + i + q_offset, s);
      }
    }
  }
}

}  // namespace regard::internal
