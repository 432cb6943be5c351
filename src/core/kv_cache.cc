#include "core/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/scratch.h"
#include "regard/error.h"

namespace regard {

using internal::PagePool;
using internal::RunLayout;
using internal::StoredRow;

namespace {

using enum ErrorCode;

constexpr std::int64_t kPageGrid = 16;  // the kernels' smallest step over keys (kernels.h)

// In disorder, runs of 64 KB lose up to a third of the read bandwidth and runs of 16 KB more than half (measured); most are in order.
constexpr std::int64_t kMinRunBytes = 65536;

std::string Number(std::int64_t n) { return std::to_string(n); }

std::int64_t DefaultPageLen(const KvCacheOptions& o) {
  const std::int64_t row = std::min(RunLayout(o.head_dim, o.k_dtype, 1).row_bytes, RunLayout(o.v_dim, o.v_dtype, 1).row_bytes);
  std::int64_t page_len = kPageGrid;
  while (internal::SaturatingProduct(page_len, row) < kMinRunBytes) page_len *= 2;
  return page_len;
}

void CheckStoredType(const char* name, DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kI8) return;
  throw Error(kUnsupported, std::string(name) + ": a cache stores no " + std::string(Name(dtype)) + "; use f32, f16, bf16 or i8");
}

KvCacheOptions Resolve(KvCacheOptions o) {
  const auto check = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least) return;
    throw Error(kInvalidArgument, std::string(name) + ": " + Number(value) + "; give " + Number(least) + " or more");
  };
  check("kv_heads", o.kv_heads, 1);
  check("head_dim", o.head_dim, 1);
  check("v_dim", o.v_dim, 0);
  check("page_len", o.page_len, 0);
  CheckStoredType("k_dtype", o.k_dtype);
  CheckStoredType("v_dtype", o.v_dtype);
  if (o.v_dim == 0) o.v_dim = o.head_dim;
  constexpr std::int64_t kLongest = std::int64_t{1} << 48;  // rounded up below; the pool refuses what is too large together
  o.page_len = o.page_len == 0 ? DefaultPageLen(o) : (std::min(o.page_len, kLongest) + kPageGrid - 1) / kPageGrid * kPageGrid;
  return o;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------- inside

KvCache::Impl::Impl(const KvCacheOptions& o)
    : options(o),
      pool(o.kv_heads, RunLayout(o.head_dim, o.k_dtype, o.page_len), RunLayout(o.v_dim, o.v_dtype, o.page_len), o.max_bytes) {}

const CachedSequence* KvCache::Impl::Find(SequenceId id) const noexcept {
  const auto bits = static_cast<std::uint64_t>(id);
  const std::uint64_t slot = bits >> 32;
  if (slot >= slots.size() || !slots[slot].live || slots[slot].generation != (bits & 0xFFFFFFFF)) return nullptr;
  return &slots[slot].sequence;
}

CachedSequence& KvCache::Impl::Get(SequenceId id) {
  if (const CachedSequence* found = Find(id)) return const_cast<CachedSequence&>(*found);
  throw Error(kInvalidArgument,
              "sequence: not in this cache; give an id that NewSequence or Fork returned and Drop has not ended");
}

SequenceId KvCache::Impl::TakeSlot(CachedSequence&& sequence) {
  if (free_slots.empty()) {
    if (slots.size() == slots.capacity()) slots.reserve(std::max<std::size_t>(8, 2 * slots.capacity()));
    free_slots.reserve(slots.capacity());
    free_slots.push_back(static_cast<std::uint32_t>(slots.size()));
    slots.emplace_back();
  }
  const std::uint32_t index = free_slots.back();
  free_slots.pop_back();
  Slot& slot = slots[index];
  slot.sequence = std::move(sequence);
  slot.live = true;
  if (++slot.generation == 0) slot.generation = 1;
  return SequenceId{std::uint64_t{index} << 32 | slot.generation};
}

StoredRow KvCache::Impl::Key(const CachedSequence& s, std::int64_t kv_head, std::int64_t row) const noexcept {
  const auto* run = static_cast<const std::byte*>(
      s.k_runs[static_cast<std::size_t>(kv_head)][static_cast<std::size_t>(row / options.page_len)]);
  const std::int64_t at = row % options.page_len;
  return {pool.k().Row(run, at), pool.k().dtype, 1, pool.k().Scale(run, at)};
}

StoredRow KvCache::Impl::Value(const CachedSequence& s, std::int64_t kv_head, std::int64_t row) const noexcept {
  const auto* run = static_cast<const std::byte*>(
      s.v_runs[static_cast<std::size_t>(kv_head)][static_cast<std::size_t>(row / options.page_len)]);
  const std::int64_t at = row % options.page_len;
  return {pool.v().Row(run, at), pool.v().dtype, 1, pool.v().Scale(run, at)};
}

// ---------------------------------------------------------------------------------------------------------------- public

KvCache::KvCache(const KvCacheOptions& options) : impl_(std::make_unique<Impl>(Resolve(options))) {}
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;
KvCache::~KvCache() = default;

SequenceId KvCache::NewSequence() {
  CachedSequence sequence;
  sequence.k_runs.resize(static_cast<std::size_t>(impl_->options.kv_heads));
  sequence.v_runs.resize(static_cast<std::size_t>(impl_->options.kv_heads));
  return impl_->TakeSlot(std::move(sequence));
}

SequenceId KvCache::Fork(SequenceId sequence) {
  CachedSequence copy = impl_->Get(sequence);
  const SequenceId id = impl_->TakeSlot(std::move(copy));
  for (const PagePool::PageNumber page : impl_->Get(id).pages) impl_->pool.Hold(page);
  return id;
}

void KvCache::Drop(SequenceId sequence) {
  CachedSequence& s = impl_->Get(sequence);
  for (const PagePool::PageNumber page : s.pages) impl_->pool.Release(page);
  s = CachedSequence();
  const auto slot = static_cast<std::uint32_t>(static_cast<std::uint64_t>(sequence) >> 32);
  impl_->slots[slot].live = false;
  impl_->free_slots.push_back(slot);
}

std::int64_t KvCache::Length(SequenceId sequence) const { return impl_->Get(sequence).length; }
std::int64_t KvCache::NextPosition(SequenceId sequence) const { return impl_->Get(sequence).next_position; }

std::vector<std::int64_t> KvCache::Positions(SequenceId sequence) const {
  const CachedSequence& s = impl_->Get(sequence);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(s.length));
  for (std::int64_t j = 0; j < s.length; ++j) positions[static_cast<std::size_t>(j)] = s.KeyPosition(j);
  return positions;
}

namespace {

// [1, kv_heads, length, dim] as f32; row_of(kv_head, j) is where a row is stored.
template <typename RowOf>
Tensor LoadRows(std::int64_t kv_heads, std::int64_t length, std::int64_t dim, const RowOf& row_of) {
  Tensor rows = Tensor::Uninitialized(DType::kF32, {1, kv_heads, length, dim});
  float* to = rows.MutableAs<float>();
  for (std::int64_t row = 0; row < kv_heads * length; ++row, to += dim) {
    internal::LoadStored(row_of(row / length, row % length), dim, to);
  }
  return rows;
}

}  // namespace

Tensor KvCache::Keys(SequenceId sequence) const {
  const CachedSequence& s = impl_->Get(sequence);
  const auto key = [&](std::int64_t g, std::int64_t j) { return impl_->Key(s, g, j); };
  return LoadRows(impl_->options.kv_heads, s.length, impl_->options.head_dim, key);
}

Tensor KvCache::Values(SequenceId sequence) const {
  const CachedSequence& s = impl_->Get(sequence);
  const auto value = [&](std::int64_t g, std::int64_t j) { return impl_->Value(s, g, j); };
  return LoadRows(impl_->options.kv_heads, s.length, impl_->options.v_dim, value);
}

const KvCacheOptions& KvCache::options() const noexcept { return impl_->options; }

KvCacheMemory KvCache::Memory() const noexcept {
  const PagePool& pool = impl_->pool;
  return {pool.page_bytes(),
          pool.in_use(),
          pool.reserved(),
          static_cast<std::size_t>(pool.in_use()) * pool.page_bytes(),
          static_cast<std::size_t>(pool.reserved()) * pool.page_bytes(),
          impl_->options.max_bytes};
}

}  // namespace regard
