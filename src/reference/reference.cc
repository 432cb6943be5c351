// The contract of include/regard/attention.h, word by word. Every pair (query, key) is tested on its own, so that a mistake in the
// intervals of core/row_keys.h, which the other paths read, shows up as a difference.
#include "reference/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/parallel_for.h"
#include "reference/definition.h"

namespace regard::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What one thread needs for one query at a time.
struct Scratch {
  Scratch(const Problem& p, std::byte* memory)
      : q(reinterpret_cast<double*>(memory)),
        row(q + p.head_dim),
        context(row + std::max(p.head_dim, p.v_dim)),
        weights(context + p.v_dim),
        visible(reinterpret_cast<bool*>(weights + p.kv_len)) {}

  static std::size_t Bytes(std::int64_t kv_len, std::int64_t head_dim, std::int64_t v_dim) {
    const std::size_t numbers = static_cast<std::size_t>(head_dim + std::max(head_dim, v_dim) + v_dim + kv_len);
    const std::size_t flags = (static_cast<std::size_t>(kv_len) + sizeof(double) - 1) / sizeof(double);
    return (numbers + flags) * sizeof(double);
  }

  double* q;        // [head_dim]
  double* row;      // [max(head_dim, v_dim)]: one key or value
  double* context;  // [v_dim]
  double* weights;  // [kv_len]: masked scores first
  bool* visible;    // [kv_len]
};

void Store(const MutableView4& view, std::int64_t offset, double value) {
  if (view.data != nullptr) StoreDouble(view.data, view.dtype, offset, value);
}

// A column beyond the sequence's own in a cache, where no key is.
void StoreMissingKey(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, const Results& results, Scratch& s) {
  s.visible[j] = false;
  s.weights[j] = -kInfinity;
  Store(results.scores, results.scores.Offset(b, h, i, j), 0);
  Store(results.capped, results.capped.Offset(b, h, i, j), 0);
  Store(results.masked_scores, results.masked_scores.Offset(b, h, i, j), -kInfinity);
}

// scores -> capped -> masked_scores of one query, each stored on the way where it is wanted. Returns how many keys it sees.
std::int64_t MaskedScores(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, const Results& results, Scratch& s) {
  const std::int64_t kv_head = h / p.group_size;
  const Place query = PlaceOf(p.q_segments, b, i);
  LoadVector(p.q, p.q.Offset(b, h, i, 0), p.head_dim, s.q);
  std::int64_t num_visible = 0;
  Place key;
  for (std::int64_t j = 0; j < p.kv_len; ++j) {
    if (p.is_cached() && j >= p.KvLen(b)) {
      StoreMissingKey(b, h, i, j, results, s);
      continue;
    }
    key = p.is_cached() ? Place{0, p.KeyPosition(b, j)}
          : j == 0      ? PlaceOf(p.kv_segments, b, 0)
                        : NextPlace(p.kv_segments, b, j, key);
    LoadStored(p.Key(b, kv_head, j), p.head_dim, s.row);
    const PairScore pair = ScorePair(p, b, h, i, j, query, key, s.q, s.row);
    s.visible[j] = pair.visible;
    s.weights[j] = pair.masked;
    if (pair.visible) ++num_visible;
    Store(results.scores, results.scores.Offset(b, h, i, j), pair.score);
    Store(results.capped, results.capped.Offset(b, h, i, j), pair.capped);
    Store(results.masked_scores, results.masked_scores.Offset(b, h, i, j), pair.masked);
  }
  return num_visible;
}

// Turns masked scores into weights in place and returns the lse. A NaN or +inf among the scores makes every weight NaN, but for
// the keys with score −inf, which weigh 0 in any row.
double Softmax(double* row, std::int64_t count, double sink) {
  double largest = sink;
  bool undefined = false;
  for (std::int64_t j = 0; j < count; ++j) {
    undefined = undefined || std::isnan(row[j]) || row[j] == kInfinity;
    if (row[j] > largest) largest = row[j];
  }
  if (undefined) {
    for (std::int64_t j = 0; j < count; ++j) row[j] = row[j] == -kInfinity ? 0 : kNaN;
    return kNaN;
  }
  if (largest == -kInfinity) {  // nothing to see, and no sink: exp(−inf − (−inf)) would be NaN
    for (std::int64_t j = 0; j < count; ++j) row[j] = 0;
    return -kInfinity;
  }
  double sum = std::exp(sink - largest);
  for (std::int64_t j = 0; j < count; ++j) sum += std::exp(row[j] - largest);
  for (std::int64_t j = 0; j < count; ++j) row[j] = std::exp(row[j] - largest) / sum;
  return largest + std::log(sum);
}

// context = Σ weights·v over visible keys: an invisible value is not even read.
void Context(const Problem& p, std::int64_t b, std::int64_t h, Scratch& s) {
  std::fill_n(s.context, p.v_dim, 0.0);
  for (std::int64_t j = 0; j < p.kv_len; ++j) {
    if (!s.visible[j]) continue;
    LoadStored(p.Value(b, h / p.group_size, j), p.v_dim, s.row);
    for (std::int64_t d = 0; d < p.v_dim; ++d) s.context[d] += s.weights[j] * s.row[d];
  }
}

}  // namespace

std::size_t ReferenceWorkspaceBytes(const PlanShape& capacity, int threads) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 40;  // longer axes fit no memory; the sizes below must not wrap around
  if (std::max({capacity.kv_len, capacity.head_dim, capacity.v_dim}) > kLongest) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::size_t>(threads) * Scratch::Bytes(capacity.kv_len, capacity.head_dim, capacity.v_dim);
}

void RunReference(const Problem& p, const ExecOptions& exec, int threads, std::byte* workspace, Results* results) noexcept {
  const std::size_t scratch_bytes = Scratch::Bytes(p.kv_len, p.head_dim, p.v_dim);
  const std::int64_t rows = p.batch * p.heads * p.q_len;
  RunControl control(exec, rows);
  std::atomic<std::int64_t> empty_rows = 0;
  ParallelFor(threads, rows, [&](std::int64_t task, int thread) {
    if (control.ShouldStop()) return;
    const std::int64_t b = task / (p.heads * p.q_len), h = task / p.q_len % p.heads, i = task % p.q_len;
    Scratch scratch(p, workspace + static_cast<std::size_t>(thread) * scratch_bytes);
    if (MaskedScores(p, b, h, i, *results, scratch) == 0) ++empty_rows;
    const double lse = Softmax(scratch.weights, p.kv_len, SinkOf(p, h));
    Store(results->lse, results->lse.Offset(b, h, i, 0), lse);
    for (std::int64_t j = 0; j < p.kv_len; ++j) Store(results->weights, results->weights.Offset(b, h, i, j), scratch.weights[j]);
    if (results->context.data != nullptr) {
      p.dropout.Apply(b, h, i, 0, p.kv_len, scratch.weights);
      Context(p, b, h, scratch);
      for (std::int64_t d = 0; d < p.v_dim; ++d) Store(results->context, results->context.Offset(b, h, i, d), scratch.context[d]);
    }
    control.TaskDone();
  });
  results->empty_rows = empty_rows;
}

}  // namespace regard::internal
