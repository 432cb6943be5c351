// What changes the rows of a sequence: appending, truncating, evicting, and copying pages that are shared.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/kv_cache.h"
#include "regard/error.h"

namespace regard {

using internal::PagePool;
using internal::RunLayout;
using internal::View4;
using enum ErrorCode;

namespace {

std::string Number(std::int64_t n) { return std::to_string(n); }

// [sequences, kv_heads, tokens, dim], or [tokens, dim] for one of each.
View4 BindRows(const char* name, const TensorView& view, std::int64_t sequences, std::int64_t kv_heads, std::int64_t dim,
               std::int64_t* tokens) {
  const auto shape = [&] { return std::string(name) + ": " + (view ? "shape " + ToString(view.shape()) : "missing"); };
  if (!view || (view.rank() != 4 && view.rank() != 2)) {
    throw Error(kShapeMismatch, shape() + "; give [sequences, kv_heads, tokens, dim] or [tokens, dim]");
  }
  if (!IsFloat(view.dtype())) {
    throw Error(kInvalidArgument, std::string(name) + ": element type " + std::string(Name(view.dtype())) +
                                      " is not a float type; give f32, f16, bf16 or f64");
  }
  const int missing = 4 - view.rank();
  std::int64_t dims[4];
  View4 rows{view.data(), view.dtype(), {}};
  for (int axis = 0; axis < 4; ++axis) {
    dims[axis] = axis < missing ? 1 : view.shape()[axis - missing];
    rows.stride[axis] = axis < missing ? 0 : view.strides()[axis - missing];
  }
  if (dims[0] != sequences || dims[1] != kv_heads || dims[3] != dim) {
    throw Error(kShapeMismatch, shape() + ", expected [" + Number(sequences) + " sequences, " + Number(kv_heads) +
                                    " kv heads, tokens, dim " + Number(dim) + "]; check the axis order");
  }
  *tokens = dims[2];
  return rows;
}

void CheckDistinct(std::span<const SequenceId> sequences) {
  std::vector<SequenceId> sorted(sequences.begin(), sequences.end());
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) == sorted.end()) return;
  throw Error(kInvalidArgument,
              "sequences: one stands in the list twice, so which of its tokens comes first is unclear; "
              "append to it once");
}

}  // namespace

// ----------------------------------------------------------------------------------------------------------------- pages

void KvCache::Impl::ReserveTables(CachedSequence& s, std::int64_t tokens) const {
  const auto reserve = [](auto& table, std::int64_t count) {  // doubling, since little by little is the usual case
    const auto wanted = static_cast<std::size_t>(count);
    if (table.capacity() < wanted) table.reserve(std::max(wanted, 2 * table.capacity()));
  };
  const std::int64_t num_pages = PagesFor(s.length + tokens);
  reserve(s.pages, num_pages);
  for (auto* runs : {&s.k_runs, &s.v_runs}) {
    for (auto& table : *runs) reserve(table, num_pages);
  }
  if (s.length != s.next_position) reserve(s.positions, s.length + tokens);
}

void KvCache::Impl::SetRuns(CachedSequence& s, std::int64_t index) noexcept {
  const auto i = static_cast<std::size_t>(index);
  for (std::size_t h = 0; h < s.k_runs.size(); ++h) {
    s.k_runs[h][i] = pool.KRun(s.pages[i], static_cast<std::int64_t>(h));
    s.v_runs[h][i] = pool.VRun(s.pages[i], static_cast<std::int64_t>(h));
  }
}

void KvCache::Impl::AddPage(CachedSequence& s) noexcept {
  s.pages.push_back(pool.Take(s.pages.empty() ? -1 : s.pages.back()));
  for (auto* runs : {&s.k_runs, &s.v_runs}) {
    for (auto& table : *runs) table.push_back(nullptr);
  }
  SetRuns(s, static_cast<std::int64_t>(s.pages.size()) - 1);
}

void KvCache::Impl::Own(CachedSequence& s, std::int64_t index, std::int64_t begin, std::int64_t end) noexcept {
  if (!IsShared(s, index)) return;
  const PagePool::PageNumber shared = s.pages[static_cast<std::size_t>(index)];
  const PagePool::PageNumber own = pool.Take(index == 0 ? -1 : s.pages[static_cast<std::size_t>(index - 1)]);
  for (std::int64_t h = 0; h < options.kv_heads; ++h) {
    pool.k().MoveRows(pool.KRun(shared, h), begin, pool.KRun(own, h), begin, end - begin);
    pool.v().MoveRows(pool.VRun(shared, h), begin, pool.VRun(own, h), begin, end - begin);
  }
  s.pages[static_cast<std::size_t>(index)] = own;
  pool.Release(shared);
  SetRuns(s, index);
}

void KvCache::Impl::ErasePages(CachedSequence& s, std::int64_t begin, std::int64_t end) noexcept {
  for (std::int64_t i = begin; i < end; ++i) pool.Release(s.pages[static_cast<std::size_t>(i)]);
  s.pages.erase(s.pages.begin() + begin, s.pages.begin() + end);
  for (auto* runs : {&s.k_runs, &s.v_runs}) {
    for (auto& table : *runs) table.erase(table.begin() + begin, table.begin() + end);
  }
}

void KvCache::Impl::MoveRows(CachedSequence& s, std::int64_t from, std::int64_t to, std::int64_t count) noexcept {
  const std::int64_t page_len = options.page_len;
  while (count > 0) {
    const std::int64_t step = std::min({count, page_len - from % page_len, page_len - to % page_len});
    const PagePool::PageNumber source = s.pages[static_cast<std::size_t>(from / page_len)],
                               target = s.pages[static_cast<std::size_t>(to / page_len)];
    for (std::int64_t h = 0; h < options.kv_heads; ++h) {
      pool.k().MoveRows(pool.KRun(source, h), from % page_len, pool.KRun(target, h), to % page_len, step);
      pool.v().MoveRows(pool.VRun(source, h), from % page_len, pool.VRun(target, h), to % page_len, step);
    }
    from += step;
    to += step;
    count -= step;
  }
}

void KvCache::Impl::WriteRows(CachedSequence& s, std::int64_t count, const View4& k, const View4& v, std::int64_t b) noexcept {
  const auto write = [&](const View4& from, std::int64_t t, std::int64_t h, const RunLayout& layout, std::byte* run,
                         std::int64_t row) {
    const void* const data =
        static_cast<const std::byte*>(from.data) + from.Offset(b, h, t, 0) * static_cast<std::int64_t>(ItemSize(from.dtype));
    internal::StoreRow(data, from.dtype, from.stride[3], layout.dim, layout.dtype, layout.Row(run, row),
                       layout.dtype == DType::kI8 ? layout.Scale(run, row) : nullptr);
  };
  for (std::int64_t h = 0; h < options.kv_heads; ++h) {
    for (std::int64_t t = 0; t < count; ++t) {
      const PagePool::PageNumber page = s.pages[static_cast<std::size_t>((s.length + t) / options.page_len)];
      const std::int64_t row = (s.length + t) % options.page_len;
      write(k, t, h, pool.k(), pool.KRun(page, h), row);
      write(v, t, h, pool.v(), pool.VRun(page, h), row);
    }
  }
}

// Whole pages leave the table, once the page in which the gap begins and the one in which it then ends have become one. The other rows behind
// move up by less than a page.
KvCache::Impl::Gap::Gap(std::int64_t length, std::int64_t first_row, std::int64_t count, std::int64_t page_len)
    : first(first_row),
      new_length(length - count),
      begin(first_row / page_len),
      end(begin + count / page_len),
      cut(first_row % page_len),
      rest(count % page_len) {
  if (first == new_length) {  // nothing lies behind
    end = begin;
    rest = 0;
  }
  joins = end > begin && cut > 0;
  if (!joins) return;
  end_rows = std::min(page_len, length - end * page_len);
  keeps_end = cut <= end_rows - cut;
}

std::int64_t KvCache::Impl::CopiesToClose(const CachedSequence& s, const Gap& gap) const noexcept {
  std::int64_t copies = gap.joins && IsShared(s, gap.keeps_end ? gap.end : gap.begin) ? 1 : 0;
  if (gap.rest == 0) return copies;
  const std::int64_t moved_end = PagesFor(gap.new_length) + (gap.end - gap.begin);  // in the table as it is
  for (std::int64_t i = gap.end + (gap.joins ? 1 : 0); i < moved_end; ++i) copies += IsShared(s, i) ? 1 : 0;
  return copies;
}

void KvCache::Impl::Close(CachedSequence& s, const Gap& gap) noexcept {
  const std::int64_t page_len = options.page_len;
  if (gap.joins && gap.keeps_end) {
    Own(s, gap.end, gap.cut, gap.end_rows);
    MoveRows(s, gap.begin * page_len, gap.end * page_len, gap.cut);
  } else if (gap.joins) {
    Own(s, gap.begin, 0, gap.cut);
    MoveRows(s, gap.end * page_len + gap.cut, gap.first, gap.end_rows - gap.cut);
  }
  const std::int64_t kept = gap.joins && !gap.keeps_end ? 1 : 0;
  const std::int64_t length = s.length - (gap.end - gap.begin) * page_len;
  ErasePages(s, gap.begin + kept, gap.end + kept);
  if (gap.rest == 0) return;
  for (std::int64_t i = gap.begin; i < PagesFor(gap.new_length); ++i) Own(s, i, 0, std::min(page_len, length - i * page_len));
  MoveRows(s, gap.first + gap.rest, gap.first, gap.new_length - gap.first);
}

// ---------------------------------------------------------------------------------------------------------------- append

void KvCache::Append(std::span<const SequenceId> sequences, const TensorView& k, const TensorView& v) {
  Impl& impl = *impl_;
  const auto batch = static_cast<std::int64_t>(sequences.size());
  std::int64_t tokens = 0, v_tokens = 0;
  const View4 k_rows = BindRows("k", k, batch, impl.options.kv_heads, impl.options.head_dim, &tokens);
  const View4 v_rows = BindRows("v", v, batch, impl.options.kv_heads, impl.options.v_dim, &v_tokens);
  if (tokens != v_tokens) {
    throw Error(kShapeMismatch, "v: " + Number(v_tokens) + " tokens, but k has " + Number(tokens) + "; give both alike");
  }
  CheckDistinct(sequences);
  std::int64_t needed = 0;
  std::vector<PagePool::PageNumber> written;  // shared pages with room that gets rows
  for (const SequenceId id : sequences) {
    const CachedSequence& s = impl.Get(id);
    needed += impl.PagesFor(s.length + tokens) - impl.PagesFor(s.length);
    if (tokens > 0 && s.length % impl.options.page_len != 0 && impl.IsShared(s, s.length / impl.options.page_len)) {
      written.push_back(s.pages.back());
    }
  }
  // Each that writes to a shared page copies it, but for the last of all its holders.
  std::ranges::sort(written);
  for (std::size_t i = 0, end; i < written.size(); i = end) {
    end = static_cast<std::size_t>(std::ranges::upper_bound(written, written[i]) - written.begin());
    needed += std::min<std::int64_t>(static_cast<std::int64_t>(end - i), impl.pool.Holders(written[i]) - 1);
  }
  impl.pool.Prepare(needed, "append: " + Number(tokens) + " tokens to " + Number(batch) + " sequences");
  for (const SequenceId id : sequences) impl.ReserveTables(impl.Get(id), tokens);
  // From here on nothing fails.
  for (std::int64_t b = 0; b < batch; ++b) {
    CachedSequence& s = impl.Get(sequences[static_cast<std::size_t>(b)]);
    const std::int64_t used = s.length % impl.options.page_len;
    if (tokens > 0 && used != 0) impl.Own(s, s.length / impl.options.page_len, 0, used);
    while (static_cast<std::int64_t>(s.pages.size()) < impl.PagesFor(s.length + tokens)) impl.AddPage(s);
    impl.WriteRows(s, tokens, k_rows, v_rows, b);
    if (s.length != s.next_position) {
      for (std::int64_t t = 0; t < tokens; ++t) s.positions.push_back(s.next_position + t);
    }
    s.length += tokens;
    s.next_position += tokens;
  }
}

// -------------------------------------------------------------------------------------------------------- truncate, evict

void KvCache::Truncate(SequenceId sequence, std::int64_t length) {
  CachedSequence& s = impl_->Get(sequence);
  if (length < 0 || length > s.length) {
    throw Error(kInvalidArgument, "length: " + Number(length) + " is outside 0…" + Number(s.length) +
                                      ", the tokens that are kept; give how many of them to keep");
  }
  if (length == s.length) return;
  s.next_position = s.KeyPosition(length);
  s.length = length;
  s.positions.resize(length == s.next_position ? 0 : static_cast<std::size_t>(length));
  impl_->ErasePages(s, impl_->PagesFor(length), static_cast<std::int64_t>(s.pages.size()));
}

void KvCache::Evict(SequenceId sequence, std::int64_t first, std::int64_t count) {
  Impl& impl = *impl_;
  CachedSequence& s = impl.Get(sequence);
  if (first < 0 || count < 0 || first > s.length || count > s.length - first) {
    throw Error(kInvalidArgument, "evict: " + Number(count) + " tokens from " + Number(first) + " on are not among the " +
                                      Number(s.length) + " that are kept; give first and count within them");
  }
  if (count == 0) return;
  const Impl::Gap gap(s.length, first, count, impl.options.page_len);
  impl.pool.Prepare(impl.CopiesToClose(s, gap), "evict: copying what other sequences share");
  if (s.length == s.next_position) {
    s.positions.resize(static_cast<std::size_t>(s.length));
    std::iota(s.positions.begin(), s.positions.end(), 0);
  }
  // From here on nothing fails.
  s.positions.erase(s.positions.begin() + first, s.positions.begin() + first + count);
  impl.Close(s, gap);
  s.length -= count;
  impl.ErasePages(s, impl.PagesFor(s.length), static_cast<std::int64_t>(s.pages.size()));
}

}  // namespace regard
