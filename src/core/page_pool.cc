#include "core/page_pool.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/scratch.h"
#include "regard/error.h"

namespace regard::internal {
namespace {

// Runs start on a cache line and a vector.
constexpr std::int64_t kRunAlignment = 64;

// Between the keys and the values of a slab, which are read in turn: a key and its value a power of two apart compete for the same places of
// caches and banks of memory, and so do a value and the keys that decode asks for ahead. 32,768 keys of 512 bytes, one core of a Zen 4: 55 % of
// the read bandwidth at 0 bytes between, 83 % at 1 KB; of 256 bytes: 1.05 of the time of separate tensors at 1 KB, 1.02 from 16 KB on.
constexpr std::int64_t kBetween = 65 * 1024;
static_assert(kBetween % kRunAlignment == 0);

// A small slab, which lies in the caches anyway, spends a 64th of itself.
constexpr std::int64_t kPartBetween = 64;

// Slabs double what is there, up to this many bytes: few of them, and seldom more than twice what is used.
constexpr std::int64_t kSlabBytes = std::int64_t{64} << 20;

}  // namespace

RunLayout::RunLayout(std::int64_t d, DType type, std::int64_t len)
    : dim(d), dtype(type), page_len(len), row_bytes(SaturatingProduct(d, ItemSize(type))) {
  const std::int64_t scale_bytes = type == DType::kI8 ? static_cast<std::int64_t>(sizeof(float)) : 0;
  const std::int64_t bytes = SaturatingProduct(
      len, row_bytes <= std::numeric_limits<std::int64_t>::max() - scale_bytes ? row_bytes + scale_bytes : row_bytes);
  run_bytes = bytes > std::numeric_limits<std::int64_t>::max() - kRunAlignment
                  ? bytes
                  : (bytes + kRunAlignment - 1) / kRunAlignment * kRunAlignment;
}

void RunLayout::MoveRows(const std::byte* from_run, std::int64_t from, std::byte* to_run, std::int64_t to,
                         std::int64_t count) const {
  std::memmove(Row(to_run, to), Row(from_run, from), static_cast<std::size_t>(count * row_bytes));
  if (dtype != DType::kI8) return;
  const std::byte* const scales = from_run + page_len * row_bytes;
  std::memmove(Scale(to_run, to), scales + from * static_cast<std::int64_t>(sizeof(float)),
               static_cast<std::size_t>(count) * sizeof(float));
}

PagePool::PagePool(std::int64_t kv_heads, const RunLayout& k, const RunLayout& v, std::size_t max_bytes)
    : kv_heads_(kv_heads), k_(k), v_(v) {
  // No memory holds a page beyond it, and sums of such sizes do not overflow.
  constexpr std::int64_t kLargest = std::int64_t{1} << 48;
  const std::int64_t k_bytes = SaturatingProduct(kv_heads, k.run_bytes), v_bytes = SaturatingProduct(kv_heads, v.run_bytes);
  if (k_bytes > kLargest || v_bytes > kLargest) {
    throw Error(ErrorCode::kOutOfMemory, "page_len: " + std::to_string(k.page_len) + " tokens of " + std::to_string(kv_heads) +
                                             " kv heads, dims " + std::to_string(k.dim) + " and " + std::to_string(v.dim) +
                                             ", need more than 2^48 bytes; give a smaller one");
  }
  page_bytes_ = static_cast<std::size_t>(k_bytes + v_bytes);
  if (max_bytes != 0 && max_bytes < page_bytes_) {
    throw Error(ErrorCode::kInvalidArgument, "max_bytes: " + std::to_string(max_bytes) + " is less than one page of " +
                                                 std::to_string(page_bytes_) + " bytes; give more, or a smaller page_len");
  }
  constexpr std::size_t kMostPages = std::numeric_limits<PageNumber>::max();
  max_pages_ = static_cast<std::int64_t>(max_bytes == 0 ? kMostPages : std::min(kMostPages, max_bytes / page_bytes_));
}

void PagePool::Prepare(std::int64_t count, const std::string& purpose) {
  const std::int64_t missing = count - (reserved() - in_use_);
  if (missing <= 0) return;
  if (missing > max_pages_ - reserved()) {
    throw Error(ErrorCode::kOutOfMemory, purpose + " needs " + std::to_string(count) + " more pages of " +
                                             std::to_string(page_bytes_) + " bytes, but " + std::to_string(in_use()) + " of " +
                                             std::to_string(max_pages_) +
                                             " are in use; evict, truncate or drop sequences, or "
                                             "give a larger max_bytes");
  }
  const std::int64_t doubling = std::min(reserved(), kSlabBytes / static_cast<std::int64_t>(page_bytes_));
  AddSlab(std::clamp(doubling, missing, max_pages_ - reserved()));
}

void PagePool::AddSlab(std::int64_t count) {
  const std::int64_t pages = SaturatingProduct(count, page_bytes_);
  const std::int64_t between = std::min(kBetween, pages / kPartBetween / kRunAlignment * kRunAlignment);
  const std::int64_t bytes = pages > std::numeric_limits<std::int64_t>::max() - between ? pages : pages + between;
  Tensor slab = Tensor::Uninitialized(DType::kU8, {bytes});
  slabs_.reserve(slabs_.size() + 1);
  const auto total = static_cast<std::size_t>(reserved() + count);
  if (pages_.capacity() < total) pages_.reserve(std::max(total, 2 * pages_.capacity()));
  std::byte* const k = static_cast<std::byte*>(slab.mutable_view().mutable_data());
  std::byte* const v = k + kv_heads_ * count * k_.run_bytes + between;
  for (std::int64_t i = 0; i < count; ++i) pages_.push_back({k + i * k_.run_bytes, v + i * v_.run_bytes, count, i == 0});
  slabs_.push_back(std::move(slab));
}

// A look at every page: once for page_len tokens at most, and next to nothing beside writing them.
PagePool::PageNumber PagePool::PlaceToGrow() const noexcept {
  std::size_t begin = 0, best_begin = 0, best_count = 0;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    if (pages_[i].first_of_slab || pages_[i].holders > 0) begin = i;
    if (pages_[i].holders > 0) {
      ++begin;
    } else if (i + 1 - begin > best_count) {
      best_begin = begin;
      best_count = i + 1 - begin;
    }
  }
  const bool others_grow_here = !pages_[best_begin].first_of_slab;  // the page before is in use
  return static_cast<PageNumber>(others_grow_here ? best_begin + best_count / 2 : best_begin);
}

PagePool::PageNumber PagePool::Take(PageNumber previous) noexcept {
  const std::size_t next = Index(previous + 1);
  const bool follows = previous >= 0 && next < pages_.size() && pages_[next].holders == 0 && !pages_[next].first_of_slab;
  const PageNumber page = follows ? previous + 1 : PlaceToGrow();
  pages_[Index(page)].holders = 1;
  ++in_use_;
  return page;
}

void PagePool::Release(PageNumber page) noexcept {
  if (--pages_[Index(page)].holders == 0) --in_use_;
}

}  // namespace regard::internal
