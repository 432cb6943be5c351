// Pages of a cache: how a page is laid out, where each lies, who holds it.
//
// A page holds page_len tokens of all kv heads: for each head a run of k rows and a run of v rows, i8 rows with one f32 scale each behind
// the rows of their run (StoredRows of kernels.h is the same layout seen from the kernels). Pages are taken from the system in slabs, and a
// slab lays the runs of one head side by side: [k of head 0: page, page, …][k of head 1: …] … [v of head 0: …] …, so that pages taken one
// after the other hold each head's rows in sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard::internal {

/// Rows of one head in one page.
struct RunLayout {
  std::int64_t dim = 0;
  DType dtype = DType::kF32;
  std::int64_t page_len = 0;
  std::int64_t row_bytes = 0, run_bytes = 0;

  RunLayout() = default;
  RunLayout(std::int64_t dim, DType dtype, std::int64_t page_len);

  std::byte* Row(std::byte* run, std::int64_t row) const { return run + row * row_bytes; }
  /// Of a row of i8; only then.
  float* Scale(std::byte* run, std::int64_t row) const { return reinterpret_cast<float*>(run + page_len * row_bytes) + row; }
  const std::byte* Row(const std::byte* run, std::int64_t row) const { return run + row * row_bytes; }
  float Scale(const std::byte* run, std::int64_t row) const {
    return dtype == DType::kI8 ? reinterpret_cast<const float*>(run + page_len * row_bytes)[row] : 1;
  }
  /// Moves rows with their scales; ranges of one run may overlap.
  void MoveRows(const std::byte* from_run, std::int64_t from, std::byte* to_run, std::int64_t to, std::int64_t count) const;
};

class PagePool {
 public:
  using PageNumber = std::int32_t;

  PagePool(std::int64_t kv_heads, const RunLayout& k, const RunLayout& v, std::size_t max_bytes);

  /// Makes `count` pages ready to be taken. Throws Error kOutOfMemory, `purpose` being the beginning of its message; then nothing has
  /// changed but perhaps what is reserved.
  void Prepare(std::int64_t count, const std::string& purpose);
  /// A page that was prepared, held once; its rows hold anything. The one behind `previous` if it is free, so that a sequence lies in
  /// sequence; else, as for the first page (−1), a place to grow from: where most free pages lie together, halfway if another sequence may be
  /// growing into them.
  PageNumber Take(PageNumber previous) noexcept;
  void Hold(PageNumber page) noexcept { ++pages_[Index(page)].holders; }
  void Release(PageNumber page) noexcept;
  std::int32_t Holders(PageNumber page) const noexcept { return pages_[Index(page)].holders; }

  std::byte* KRun(PageNumber page, std::int64_t kv_head) const noexcept {
    const Page& p = pages_[Index(page)];
    return p.k + kv_head * p.slab_pages * k_.run_bytes;
  }
  std::byte* VRun(PageNumber page, std::int64_t kv_head) const noexcept {
    const Page& p = pages_[Index(page)];
    return p.v + kv_head * p.slab_pages * v_.run_bytes;
  }
  const RunLayout& k() const noexcept { return k_; }
  const RunLayout& v() const noexcept { return v_; }

  std::size_t page_bytes() const noexcept { return page_bytes_; }
  std::int64_t reserved() const noexcept { return static_cast<std::int64_t>(pages_.size()); }
  std::int64_t in_use() const noexcept { return in_use_; }

 private:
  struct Page {
    std::byte *k, *v;  // of kv head 0
    std::int64_t slab_pages;
    bool first_of_slab;
    std::int32_t holders = 0;
  };
  static std::size_t Index(PageNumber page) { return static_cast<std::size_t>(page); }
  void AddSlab(std::int64_t count);
  PageNumber PlaceToGrow() const noexcept;

  std::int64_t kv_heads_;
  RunLayout k_, v_;
  std::size_t page_bytes_;
  std::int64_t max_pages_;
  std::vector<Tensor> slabs_;
  std::vector<Page> pages_;
  std::int64_t in_use_ = 0;
};

}  // namespace regard::internal
