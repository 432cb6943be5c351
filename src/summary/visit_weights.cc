// The tile stream, and exact weights on demand: two readers of the same second pass.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "regard/kv_cache.h"
#include "regard/summary.h"
#include "summary/ordered_tasks.h"
#include "summary/weight_source.h"

namespace regard {
namespace {

using internal::QueryRow;
using internal::WeightBlock;
using internal::WeightSource;

// Rows of one task: enough that forking a visitor is nothing against its tiles.
constexpr std::int64_t kRowsPerTask = 256;

// Rows handed to the kernel at a time, with the scratch it needs.
struct ThreadMemory {
  ThreadMemory(const WeightSource& source, std::int64_t num_rows)
      : rows(static_cast<std::size_t>(num_rows)), scratch(source.kernels().stream_scratch_bytes(source.problem().head_dim)) {}

  std::vector<QueryRow> rows;
  Workspace scratch;
  std::unique_ptr<TileVisitor> fork;
};

// Hands the blocks of one task to a visitor. Nothing may be thrown through the kernel, so an exception waits here until it is done.
struct TileAdapter {
  TileVisitor* visitor;
  std::int64_t batch, head, first_query;
  std::exception_ptr failure = nullptr;

  static void Visit(void* self, const WeightBlock& block) {
    TileAdapter& to = *static_cast<TileAdapter*>(self);
    if (to.failure != nullptr) return;
    try {
      to.visitor->Visit({to.batch, to.head, to.first_query + block.first_row, block.first_key, block.num_rows, block.num_keys,
                         block.weights, 1, block.key_stride, block.fully_visible});
    } catch (...) {
      to.failure = std::current_exception();
    }
  }
};

void Visit(const WeightSource& source, TileVisitor& visitor, const ExecOptions& exec) {
  const internal::Problem& p = source.problem();
  const std::int64_t blocks = (p.q_len + kRowsPerTask - 1) / kRowsPerTask;
  const std::int64_t tasks = p.batch * p.heads * blocks;
  std::vector<ThreadMemory> memory;
  for (std::int64_t t = 0; t < std::min<std::int64_t>(source.threads(), tasks); ++t) {
    memory.emplace_back(source, std::min(kRowsPerTask, p.q_len));
  }
  internal::RunControl control(exec, tasks);
  const auto memory_of = [&](int thread) -> ThreadMemory& { return memory[static_cast<std::size_t>(thread)]; };
  internal::ForEachInOrder(
      source.threads(), tasks, [&](std::int64_t, int thread) { memory_of(thread).fork = visitor.Fork(); },
      [&](std::int64_t task, int thread) {
        if (control.ShouldStop()) return;
        ThreadMemory& own = memory_of(thread);
        const std::int64_t b = task / blocks / p.heads, h = task / blocks % p.heads, first = task % blocks * kRowsPerTask;
        const std::int64_t num_rows = std::min(kRowsPerTask, p.q_len - first);
        const internal::Sequence entry = source.inputs().Entry(b);
        for (std::int64_t r = 0; r < num_rows; ++r) {
          own.rows[static_cast<std::size_t>(r)] =
              source.Row(entry, h, first + r, 0, p.kv_len);  // of a cache's sequence, those it has
        }
        TileAdapter adapter{own.fork.get(), b, h, first};
        source.kernels().stream_weights(source.inputs().Head(entry, h / p.group_size), source.inputs().options(), own.rows.data(),
                                        num_rows, TileAdapter::Visit, &adapter, own.scratch.data());
        if (adapter.failure != nullptr) std::rethrow_exception(adapter.failure);
        control.TaskDone();
      },
      [&](std::int64_t, int thread) {
        visitor.Merge(*memory_of(thread).fork);
        memory_of(thread).fork.reset();
      });
  if (control.ShouldStop()) throw Error(ErrorCode::kCancelled, "stopped on request; the visitor has seen a part of the weights");
}

void ExpectInRange(const char* name, std::int64_t value, std::int64_t first, std::int64_t last) {
  if (value >= first && value <= last) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(name) + ": " + std::to_string(value) + "; give " + std::to_string(first) + "…" + std::to_string(last));
}

Tensor Rows(const WeightSource& source, const WeightWindow& window) {
  const internal::Problem& p = source.problem();
  ExpectInRange("window.batch", window.batch, 0, p.batch - 1);
  ExpectInRange("window.head", window.head, 0, p.heads - 1);
  for (const std::int64_t row : window.rows) ExpectInRange("window.rows", row, 0, p.q_len - 1);
  const std::int64_t key_end = window.key_end == -1 ? p.kv_len : window.key_end;
  ExpectInRange("window.key_end", key_end, 0, p.kv_len);
  ExpectInRange("window.key_begin", window.key_begin, 0, key_end);
  std::vector<std::int64_t> queries = window.rows;
  if (queries.empty()) {
    queries.resize(static_cast<std::size_t>(p.q_len));
    std::iota(queries.begin(), queries.end(), 0);
  }
  const auto num_rows = static_cast<std::int64_t>(queries.size());
  const std::int64_t num_keys = key_end - window.key_begin;
  Tensor weights(DType::kF32, {num_rows, num_keys});

  struct Destination {
    float* data;
    std::int64_t first_key, num_keys;
    static void Visit(void* self, const WeightBlock& block) {
      const Destination& to = *static_cast<const Destination*>(self);
      const std::int64_t begin = std::max(block.first_key, to.first_key);
      const std::int64_t end = std::min(block.first_key + block.num_keys, to.first_key + to.num_keys);
      for (std::int64_t r = 0; r < block.num_rows; ++r) {
        float* const row = to.data + (block.first_row + r) * to.num_keys - to.first_key;
        for (std::int64_t j = begin; j < end; ++j) row[j] = block.weights[(j - block.first_key) * block.key_stride + r];
      }
    }
  } destination{weights.MutableAs<float>(), window.key_begin, num_keys};
  const internal::Sequence entry = source.inputs().Entry(window.batch);
  std::vector<QueryRow> rows;
  for (const std::int64_t i : queries) rows.push_back(source.Row(entry, window.head, i, window.key_begin, key_end));
  Workspace scratch(source.kernels().stream_scratch_bytes(p.head_dim));
  source.kernels().stream_weights(source.inputs().Head(entry, window.head / p.group_size), source.inputs().options(), rows.data(),
                                  num_rows, Destination::Visit, &destination, scratch.data());
  return weights;
}

}  // namespace

void VisitWeights(const TensorView& q, const TensorView& k, const TensorView& lse, const AttentionParams& params,
                  TileVisitor& visitor, const ExecOptions& exec) {
  Visit(WeightSource(q, k, lse, params, exec), visitor, exec);
}

void VisitWeights(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences, const TensorView& lse,
                  const AttentionParams& params, TileVisitor& visitor, const ExecOptions& exec) {
  Visit(WeightSource(q, cache, sequences, lse, params, exec), visitor, exec);
}

Tensor WeightRows(const TensorView& q, const TensorView& k, const TensorView& lse, const AttentionParams& params,
                  const WeightWindow& window) {
  return Rows(WeightSource(q, k, lse, params, {.threads = 1}), window);
}

Tensor WeightRows(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences, const TensorView& lse,
                  const AttentionParams& params, const WeightWindow& window) {
  return Rows(WeightSource(q, cache, sequences, lse, params, {.threads = 1}), window);
}

}  // namespace regard
