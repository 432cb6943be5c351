// Tasks that run in parallel and are merged in order: sums then have the same bits whatever the number of threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

#include "core/parallel_for.h"

namespace regard::internal {

/// Calls begin(task, thread), run(task, thread) and merge(task, thread) for every task 0…num_tasks−1. run goes in parallel; begin and
/// merge never overlap each other, and merges come in ascending order. A thread merges its task before it takes the next, so that no more than
/// `threads` tasks wait. The first exception, in the order of tasks, is thrown again at the end; later tasks are then skipped.
template <typename Begin, typename Run, typename Merge>
void ForEachInOrder(int threads, std::int64_t num_tasks, const Begin& begin, const Run& run, const Merge& merge) {
  std::mutex mutex;
  std::condition_variable turn_passed;
  std::int64_t turn = 0;
  std::exception_ptr failure;
  ParallelFor(threads, num_tasks, [&](std::int64_t task, int thread) {
    std::exception_ptr own_failure;
    try {
      bool skip;
      {
        std::lock_guard lock(mutex);
        skip = failure != nullptr;
        if (!skip) begin(task, thread);
      }
      if (!skip) run(task, thread);
    } catch (...) {
      own_failure = std::current_exception();
    }
    std::unique_lock lock(mutex);
    turn_passed.wait(lock, [&] { return turn == task; });  // earlier tasks were handed out before this one
    if (failure == nullptr && own_failure == nullptr) {
      try {
        merge(task, thread);
      } catch (...) {
        own_failure = std::current_exception();
      }
    }
    if (failure == nullptr) failure = own_failure;
    ++turn;
    turn_passed.notify_all();
  });
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace regard::internal
