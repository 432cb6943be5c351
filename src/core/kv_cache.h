// The inside of a KvCache: its sequences and what a run reads of them. include/regard/kv_cache.h is the manual.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/page_pool.h"
#include "core/problem.h"
#include "core/stored_row.h"
#include "regard/kv_cache.h"

namespace regard {

/// One sequence: kept row j lies in page j / page_len. Pages are exactly those that its rows need.
struct CachedSequence {
  std::int64_t length = 0;
  std::int64_t next_position = 0;
  std::vector<internal::PagePool::PageNumber> pages;
  /// Where the pages' runs lie, for each kv head: what the kernels follow.
  std::vector<std::vector<const void*>> k_runs, v_runs;  // [kv_heads][pages]
  /// Of the rows, when some have been forgotten, which shows in length < next_position; else row j stands at j and this is empty.
  std::vector<std::int64_t> positions;

  const std::int64_t* KeyPositions() const noexcept { return length == next_position ? nullptr : positions.data(); }
  std::int64_t KeyPosition(std::int64_t row) const noexcept {
    return length == next_position ? row : positions[static_cast<std::size_t>(row)];
  }
};

struct KvCache::Impl {
  explicit Impl(const KvCacheOptions& resolved);

  /// Null when there is none.
  const CachedSequence* Find(SequenceId id) const noexcept;
  /// Of a sequence that is there.
  internal::StoredRow Key(const CachedSequence& sequence, std::int64_t kv_head, std::int64_t row) const noexcept;
  internal::StoredRow Value(const CachedSequence& sequence, std::int64_t kv_head, std::int64_t row) const noexcept;

  // ------------------------------------------------------------------------------------------- what changes sequences

  CachedSequence& Get(SequenceId id);  // throws when there is none
  const CachedSequence& Get(SequenceId id) const { return const_cast<Impl*>(this)->Get(id); }
  std::int64_t PagesFor(std::int64_t length) const noexcept { return (length + options.page_len - 1) / options.page_len; }
  bool IsShared(const CachedSequence& s, std::int64_t index) const noexcept {
    return pool.Holders(s.pages[static_cast<std::size_t>(index)]) > 1;
  }
  /// Room in the tables for so many tokens more, so that adding them cannot fail.
  void ReserveTables(CachedSequence& s, std::int64_t tokens) const;
  void AddPage(CachedSequence& s) noexcept;
  /// Makes page `index` its own: a copy of rows [begin, end) if it is shared. A page has been prepared for it.
  void Own(CachedSequence& s, std::int64_t index, std::int64_t begin, std::int64_t end) noexcept;
  /// Lets go of pages [begin, end); later ones move up.
  void ErasePages(CachedSequence& s, std::int64_t begin, std::int64_t end) noexcept;
  /// Copies rows within the sequence, ascending; their pages are its own.
  void MoveRows(CachedSequence& s, std::int64_t from, std::int64_t to, std::int64_t count) noexcept;
  /// Stores `count` tokens of sequence b of a chunk behind the kept ones; pages are there, length stays.
  void WriteRows(CachedSequence& s, std::int64_t count, const internal::View4& k, const internal::View4& v,
                 std::int64_t b) noexcept;
  void SetRuns(CachedSequence& s, std::int64_t index) noexcept;

  /// Rows that are to go, and how the others close up.
  struct Gap {
    Gap(std::int64_t length, std::int64_t first_row, std::int64_t count, std::int64_t page_len);

    std::int64_t first, new_length;
    std::int64_t begin, end;  // pages: the one of the first row, and the one as many whole pages on as the gap holds
    std::int64_t cut;         // rows before the gap in page `begin`
    std::int64_t rest;        // rows that the gap holds beyond whole pages
    bool joins = false;       // rows before the gap come together with those from `cut` on of page `end`:
    bool keeps_end = false;   // there, else in page `begin`
    std::int64_t end_rows = 0;
  };
  /// Pages that Close copies because they are shared.
  std::int64_t CopiesToClose(const CachedSequence& s, const Gap& gap) const noexcept;
  /// Leaves the rows behind the gap in its place, and perhaps pages without rows at the end.
  void Close(CachedSequence& s, const Gap& gap) noexcept;

  struct Slot {
    CachedSequence sequence;
    std::uint32_t generation = 0;
    bool live = false;
  };
  SequenceId TakeSlot(CachedSequence&& sequence);

  KvCacheOptions options;
  internal::PagePool pool;
  std::vector<Slot> slots;                // a SequenceId is slot · 2³² + generation
  std::vector<std::uint32_t> free_slots;  // has room for all
};

}  // namespace regard
