#include "core/row_keys.h"

#include <algorithm>

namespace regard::internal {
namespace {

// A run of equal segment numbers: [begin, end).
struct Run {
  std::int64_t begin = 0, end = 0;
};

std::int64_t RunEnd(const View4& segments, std::int64_t row, std::int64_t length, std::int64_t begin) {
  const std::int64_t number = LoadInt(segments, row + begin * segments.stride[3]);
  std::int64_t end = begin + 1;
  while (end < length && LoadInt(segments, row + end * segments.stride[3]) == number) ++end;
  return end;
}

// The run of keys numbered `number`, searched from where the last one was found: packed sequences usually come in the same order.
Run FindKeys(const View4& segments, std::int64_t row, std::int64_t kv_len, std::int64_t number, std::int64_t start) {
  for (std::int64_t pass = 0; pass < 2; ++pass) {
    std::int64_t j = pass == 0 ? start : 0;
    const std::int64_t stop = pass == 0 ? kv_len : start;
    while (j < stop) {
      const std::int64_t end = RunEnd(segments, row, kv_len, j);
      if (LoadInt(segments, row + j * segments.stride[3]) == number) return {j, end};
      j = end;
    }
  }
  return {};
}

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

RowKeys Interval(const Problem& p, std::int64_t kv_len, std::int64_t position, Run keys) {
  RowKeys row{keys.begin, std::min(keys.end, kv_len), position, keys.begin};
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
    if (const std::int64_t* const positions = p.KeyPositions(b)) {
      for (std::int64_t i = 0; i < p.q_len; ++i) rows[i] = CachedInterval(p, kv_len, i + q_offset, positions);
      continue;
    }
    if (p.q_segments.data == nullptr) {
      for (std::int64_t i = 0; i < p.q_len; ++i) rows[i] = Interval(p, kv_len, i + q_offset, {0, kv_len});
      continue;
    }
    const std::int64_t q_row = b * p.q_segments.stride[0], kv_row = b * p.kv_segments.stride[0];
    Run keys;
    for (std::int64_t begin = 0, end; begin < p.q_len; begin = end) {
      end = RunEnd(p.q_segments, q_row, p.q_len, begin);
      const std::int64_t number = LoadInt(p.q_segments, q_row + begin * p.q_segments.stride[3]);
      const Run found = number == -1 ? Run{} : FindKeys(p.kv_segments, kv_row, p.kv_len, number, keys.end);
      if (found.end > 0) keys = found;
      // Positions restart in each segment; `position` counts on the absolute key axis, so the segment's first key is added back.
      for (std::int64_t i = begin; i < end; ++i) rows[i] = Interval(p, kv_len, found.begin + (i - begin) + q_offset, found);
    }
  }
}

}  // namespace regard::internal
