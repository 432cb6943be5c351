#include "core/problem.h"

#include "core/kv_cache.h"

namespace regard::internal {

const CachedSequence& CachedKv::Sequence(std::int64_t b) const { return *cache->Find(sequences[b]); }

std::int64_t Problem::KvLen(std::int64_t b) const {
  if (is_cached()) return cached.Sequence(b).length;
  return kv_lens.data != nullptr ? LoadInt(kv_lens, b * kv_lens.stride[0]) : kv_len;
}

std::int64_t Problem::QOffset(std::int64_t b) const {
  if (q_offset.data != nullptr) return LoadInt(q_offset, b * q_offset.stride[0]);
  if (q_offset_from_cache) return cached.Sequence(b).next_position - q_len;
  return q_offset_from_kv_lens ? KvLen(b) - q_len : scalar_q_offset;
}

namespace {

StoredRow RowOf(const View4& view, std::int64_t b, std::int64_t kv_head, std::int64_t j) {
  const std::int64_t item = static_cast<std::int64_t>(ItemSize(view.dtype));
  return {static_cast<const char*>(view.data) + view.Offset(b, kv_head, j, 0) * item, view.dtype, view.stride[3]};
}

}  // namespace

StoredRow Problem::Key(std::int64_t b, std::int64_t kv_head, std::int64_t j) const {
  return is_cached() ? cached.cache->Key(cached.Sequence(b), cached.first_kv_head + kv_head, j) : RowOf(k, b, kv_head, j);
}

StoredRow Problem::Value(std::int64_t b, std::int64_t kv_head, std::int64_t j) const {
  return is_cached() ? cached.cache->Value(cached.Sequence(b), cached.first_kv_head + kv_head, j) : RowOf(v, b, kv_head, j);
}

std::int64_t Problem::KeyPosition(std::int64_t b, std::int64_t j) const {
  return is_cached() ? cached.Sequence(b).KeyPosition(j) : j;
}

const std::int64_t* Problem::KeyPositions(std::int64_t b) const {
  return is_cached() ? cached.Sequence(b).KeyPositions() : nullptr;
}

void RunControl::TaskDone() {
  if (!exec_.on_progress) return;
  std::lock_guard lock(mutex_);
  ++done_;
  // At most a thousand calls a run: tasks may be as short as one query.
  if (done_ * 1000 / total_tasks_ == (done_ - 1) * 1000 / total_tasks_) return;
  exec_.on_progress(static_cast<double>(done_) / static_cast<double>(total_tasks_));
}

}  // namespace regard::internal
