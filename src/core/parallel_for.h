// The one way to use several threads: numbered tasks from a shared queue.
#pragma once

#include <omp.h>

#include <cstdint>

#include "core/internal_api.h"

namespace regard::internal {

/// 0 becomes what OpenMP offers.
REGARD_INTERNAL_API int ResolveThreads(int threads);

/// Calls body(task, thread) for task 0…num_tasks−1, handed out in ascending order to whichever thread is free; `thread` is below
/// `threads` and tells scratch areas apart. With threads = 1, or one task, no parallel region is opened. The body must not throw. What a
/// task computes must depend on its number alone: then results do not depend on the number of threads.
template <typename Body>
void ParallelFor(int threads, std::int64_t num_tasks, const Body& body) {
  if (threads <= 1 || num_tasks <= 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task) body(task, 0);
    return;
  }
  const int team = num_tasks < threads ? static_cast<int>(num_tasks) : threads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (std::int64_t task = 0; task < num_tasks; ++task) body(task, omp_get_thread_num());
}

}  // namespace regard::internal
