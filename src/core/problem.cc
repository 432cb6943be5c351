#include "core/problem.h"

namespace regard::internal {

std::int64_t Problem::KvLen(std::int64_t b) const {
  return kv_lens.data != nullptr ? LoadInt(kv_lens, b * kv_lens.stride[0]) : kv_len;
}

std::int64_t Problem::QOffset(std::int64_t b) const {
  if (q_offset.data != nullptr) return LoadInt(q_offset, b * q_offset.stride[0]);
  return q_offset_from_kv_lens ? KvLen(b) - q_len : scalar_q_offset;
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
