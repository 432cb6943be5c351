// The tasks of a run: each sequence has so many, by its own lengths alone, and those of a sequence follow each other.
//
// Sequences that share something between tasks come first, then those with the longest tasks, so that what is left at the end of the queue
// is short.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "core/sequences.h"

namespace regard::internal {

class TaskList {
 public:
  /// What a sequence asks for.
  struct Demand {
    std::int64_t tasks;
    std::int64_t work;    // of one task, in any unit
    std::int64_t shared;  // places in memory that its tasks share; 0 where they share nothing
  };
  struct Entry {
    const Sequence* sequence;
    std::int64_t first_task, first_shared;
    std::int64_t work;
  };

  /// memory [sequences]; demand_of(sequence) gives a Demand.
  template <class DemandOf>
  TaskList(std::span<const Sequence> sequences, Entry* memory, const DemandOf& demand_of) : entries_(memory) {
    for (const Sequence& s : sequences) {
      const Demand demand = demand_of(s);
      if (demand.tasks > 0) memory[size_++] = {&s, demand.tasks, demand.shared, demand.work};
    }
    std::sort(memory, memory + size_, [](const Entry& a, const Entry& b) {
      if ((a.first_shared > 0) != (b.first_shared > 0)) return a.first_shared > 0;
      return a.work != b.work ? a.work > b.work : a.sequence < b.sequence;
    });
    std::int64_t num_shared = 0;
    for (Entry* entry = memory; entry != memory + size_; ++entry) {  // counts become places
      num_sharing_ += entry->first_shared > 0 ? 1 : 0;
      num_tasks_ += std::exchange(entry->first_task, num_tasks_);
      num_shared += std::exchange(entry->first_shared, num_shared);
    }
  }

  std::int64_t num_tasks() const { return num_tasks_; }
  /// The sequence that a task is of.
  const Entry& Of(std::int64_t task) const {
    return *(std::upper_bound(entries_, entries_ + size_, task, [](std::int64_t t, const Entry& e) { return t < e.first_task; }) -
             1);
  }
  /// The sequences whose tasks share something.
  std::span<const Entry> sharing() const { return {entries_, static_cast<std::size_t>(num_sharing_)}; }

 private:
  const Entry* entries_;
  std::int64_t size_ = 0, num_tasks_ = 0, num_sharing_ = 0;
};

}  // namespace regard::internal
