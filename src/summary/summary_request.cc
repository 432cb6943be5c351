#include "summary/summary_request.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/bind.h"
#include "regard/error.h"

namespace regard::internal {
namespace {

void ExpectNotNegative(const char* name, std::int64_t value) {
  if (value >= 0) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(name) + ": " + std::to_string(value) + " is negative; give 0 or more");
}

std::vector<std::int64_t> Chosen(const char* name, const std::vector<std::int64_t>& wanted, std::int64_t count) {
  std::vector<std::int64_t> chosen = wanted;
  if (wanted.empty()) {
    chosen.resize(static_cast<std::size_t>(count));
    std::iota(chosen.begin(), chosen.end(), 0);
  }
  for (const std::int64_t index : chosen) {
    if (index >= 0 && index < count) continue;
    throw Error(ErrorCode::kInvalidArgument,
                std::string(name) + ": " + std::to_string(index) + " of " + std::to_string(count) + "; " +
                    (count > 0 ? "give 0…" + std::to_string(count - 1) + ", or none for all" : "leave it out"));
  }
  return chosen;
}

bool Everything(const std::vector<std::int64_t>& chosen, std::int64_t count) {
  if (static_cast<std::int64_t>(chosen.size()) != count) return false;
  for (std::int64_t n = 0; n < count; ++n) {
    if (chosen[static_cast<std::size_t>(n)] != n) return false;
  }
  return true;
}

}  // namespace

double StatedScratchBytes(const PlanShape& shape, const SummaryOptions& o, int threads) {
  const auto of = [](std::int64_t count) { return static_cast<double>(std::max<std::int64_t>(count, 0)); };
  const double queries = of(shape.q_len), keys = of(shape.kv_len), rows = std::min(queries, of(o.pooled_rows)),
               cols = std::min(keys, of(o.pooled_cols));
  double thread = 0.5e6 + 512 * of(shape.head_dim) + (o.pooled_max ? 2 : 1) * 512 * cols, shared = 12 * rows * cols;
  if (o.top_k > 0) thread += 1e6 + 8 * std::max(0.0, keys - 131072);
  if (o.key_mass || o.key_mass_mean || o.key_top_k > 0) shared += keys * (16 + 12 * of(o.key_top_k));
  if (o.head_kind) shared += 8 * (queries + keys);
  return 48 * queries + threads * thread + (threads + 1) * shared;
}

Request::Request(const SummaryOptions& o, const AttentionParams& params, const Problem& p) : options_(o) {
  ExpectNotNegative("top_k", o.top_k);
  ExpectNotNegative("key_top_k", o.key_top_k);
  ExpectNotNegative("pooled_rows", o.pooled_rows);
  ExpectNotNegative("pooled_cols", o.pooled_cols);
  if (o.window_share) ExpectNotNegative("window_share", *o.window_share);
  if ((o.pooled_rows > 0) != (o.pooled_cols > 0)) {
    throw Error(ErrorCode::kInvalidArgument, "pooled_rows, pooled_cols: " + std::to_string(o.pooled_rows) + " and " +
                                                 std::to_string(o.pooled_cols) + "; give both or neither");
  }
  if (o.pooled_max && o.pooled_rows == 0)
    throw Error(ErrorCode::kInvalidArgument, "pooled_max: needs bins; give pooled_rows and pooled_cols");
  if (o.distance) CheckPositions("distance", params.q_offset, p).ThrowIfFailed();
  if (o.window_share) CheckPositions("window_share", params.q_offset, p).ThrowIfFailed();
  if (o.head_kind) CheckPositions("head_kind", params.q_offset, p).ThrowIfFailed();
  heads = Chosen("heads", o.heads, p.heads);
  batch = Chosen("batch", o.batch, p.batch);
  all = Everything(heads, p.heads) && Everything(batch, p.batch);
  row_max = o.row_max || o.row_argmax;
  top_k = o.top_k;
  head_kind = o.head_kind;
  key_mass = o.key_mass || o.key_mass_mean;
  key_count = o.key_mass_mean;
  key_top_k = o.key_top_k;
  rows = std::min(o.pooled_rows, p.q_len);
  cols = std::min(o.pooled_cols, p.kv_len);
  pooled = rows * cols > 0;
  pooled_max = pooled && o.pooled_max;
  window = std::min(o.window_share.value_or(0), std::int64_t{1} << 60);
  tracks_rows = row_max || top_k > 0 || o.entropy || o.first_key_share || head_kind;
  second_pass = o.distance || o.window_share || key_mass || key_top_k > 0 || pooled || head_kind;
}

Summary Request::MakeSummary(const Problem& p, int rank) const {
  Dims leading;
  if (rank == 4) leading = {static_cast<std::int64_t>(batch.size()), static_cast<std::int64_t>(heads.size())};
  const auto shaped = [&](bool wanted, DType dtype, std::initializer_list<std::int64_t> rest) {
    if (!wanted) return Tensor();
    Dims shape = leading;
    for (const std::int64_t n : rest) shape.push_back(n);
    return Tensor::Uninitialized(dtype, shape);
  };
  const SummaryOptions& o = options_;
  constexpr DType kF32 = DType::kF32, kI64 = DType::kI64;
  Summary s;
  s.context = shaped(true, p.v.dtype == DType::kI8 ? kF32 : p.v.dtype, {p.q_len, p.v_dim});
  s.lse = shaped(true, kF32, {p.q_len});
  s.row_max = shaped(o.row_max, kF32, {p.q_len});
  s.row_argmax = shaped(o.row_argmax, kI64, {p.q_len});
  s.entropy = shaped(o.entropy, kF32, {p.q_len});
  s.topk_index = shaped(top_k > 0, kI64, {p.q_len, top_k});
  s.topk_weight = shaped(top_k > 0, kF32, {p.q_len, top_k});
  s.topk_tail = shaped(top_k > 0, kF32, {p.q_len});
  s.distance_mean = shaped(o.distance, kF32, {p.q_len});
  s.distance_std = shaped(o.distance, kF32, {p.q_len});
  s.first_key_share = shaped(o.first_key_share, kF32, {p.q_len});
  s.window_share = shaped(o.window_share.has_value(), kF32, {p.q_len});
  s.key_mass = shaped(o.key_mass, kF32, {p.kv_len});
  s.key_mass_mean = shaped(o.key_mass_mean, kF32, {p.kv_len});
  s.key_topk_index = shaped(key_top_k > 0, kI64, {p.kv_len, key_top_k});
  s.key_topk_weight = shaped(key_top_k > 0, kF32, {p.kv_len, key_top_k});
  s.pooled = shaped(o.pooled_rows > 0, kF32, {rows, cols});
  s.pooled_max = shaped(o.pooled_max, kF32, {rows, cols});
  s.head_score = shaped(head_kind, kF32, {});
  if (head_kind) s.head_kind.resize(batch.size() * heads.size(), HeadKind::kMixed);
  return s;
}

}  // namespace regard::internal
