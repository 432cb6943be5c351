#include "report/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "report/text.h"

namespace regard::report {
namespace {

// Rows that a whole call hands to the kernel for many rows at a time; fewer queries are repeated no more often than the call has
// queries.
constexpr std::int64_t kManyRows = 16;

// [begin, end) of an axis counted from the right of a tensor that broadcasts to [batch, heads, q_len, kv_len].
TensorView SliceBroadcast(const TensorView& view, int axis_from_right, std::int64_t begin, std::int64_t end) {
  if (!view || view.rank() < axis_from_right || view.dim(-axis_from_right) == 1) return view;
  return view.Slice(-axis_from_right, begin, end);
}

TensorView RowOfBroadcast(const TensorView& view, const RowIndex& row, std::int64_t first_head, std::int64_t last_head) {
  TensorView part = SliceBroadcast(view, 2, row.query, row.query + 1);
  part = SliceBroadcast(part, 3, first_head, last_head);
  return SliceBroadcast(part, 4, row.batch, row.batch + 1);
}

// One sequence's segments, rank 1.
TensorView SegmentsOf(const TensorView& segments, std::int64_t batch) {
  return segments.rank() == 2 ? segments.Select(0, segments.dim(0) == 1 ? 0 : batch) : segments;
}

std::int64_t IntegerAt(const TensorView& view, std::int64_t i) { return static_cast<std::int64_t>(view(i)); }

// The keys that precede query 0 of a sequence.
std::int64_t OffsetOf(const Call& call, std::int64_t batch) {
  const AttentionParams& params = call.params;
  if (params.q_offset.value()) return *params.q_offset.value();
  if (params.q_offset.per_sequence()) {
    const TensorView& offsets = params.q_offset.per_sequence();
    return offsets.rank() == 0 ? static_cast<std::int64_t>(offsets()) : IntegerAt(offsets, offsets.dim(0) == 1 ? 0 : batch);
  }
  if (params.kv_lens) return IntegerAt(params.kv_lens, params.kv_lens.dim(0) == 1 ? 0 : batch) - call.q.dim(2);
  return 0;
}

TensorView Repeated(const TensorView& row, std::int64_t copies) {
  Dims shape = row.shape(), strides = row.strides();
  shape[2] = copies;
  strides[2] = 0;
  return {row.data(), row.dtype(), shape, strides};
}

std::int64_t CopiesFor(const Call& call, Path path) { return path == Path::kReference ? 1 : std::min(call.q.dim(2), kManyRows); }

// [batch, heads, q_len(, n)] as f64 [rows(, n)].
Tensor Flattened(const Tensor& whole) {
  Dims shape = {whole.dim(0) * whole.dim(1) * whole.dim(2)};
  if (whole.rank() == 4) shape.push_back(whole.dim(3));
  return Tensor::CopyOf(whole.view().Reshape(shape), DType::kF64);
}

// The fused path's results in f32, whatever v's type: what is compared should not be rounded more than once.
AttentionResult RunFused(const Call& call, const ExecOptions& exec) {
  const Plan plan(PlanShape::Of(call.q, call.k, call.v), call.params, exec);
  const Dims rows = {call.q.dim(0), call.q.dim(1), call.q.dim(2)};
  AttentionResult result{Tensor(DType::kF32, {rows[0], rows[1], rows[2], call.v.dim(3)}), Tensor(DType::kF32, rows), 0};
  Workspace workspace = plan.MakeWorkspace();
  const Outputs outputs{
      .context = result.context.mutable_view(), .lse = result.lse.mutable_view(), .empty_rows = &result.empty_rows};
  plan.Run({call.q, call.k, call.v}, outputs, workspace).ThrowIfFailed();
  return result;
}

RowStages ComputeWhole(const Call& call, const ExecOptions& exec) {
  if (exec.path == Path::kFused) {
    const AttentionResult r = RunFused(call, exec);
    return {{}, {}, {}, {}, Flattened(r.context), Flattened(r.lse), r.empty_rows};
  }
  const Stages s = ComputeStages(call.q, call.k, call.v, call.params, exec);
  return {Flattened(s.scores), Flattened(s.capped), Flattened(s.masked_scores), Flattened(s.weights), Flattened(s.context),
          Flattened(s.lse),    s.empty_rows};
}

// The elements of one row of a result [batch, heads, q_len(, n)].
void CopyRow(const TensorView& from, const RowIndex& row, double* to) {
  const TensorView line = from.Select(0, row.batch).Select(0, row.head).Select(0, row.query);
  if (line.rank() == 0) {
    *to = line();
  } else {
    for (std::int64_t i = 0; i < line.dim(0); ++i) to[i] = line(i);
  }
}

}  // namespace

RowCall::RowCall(const Call& whole, const RowIndex& row, std::int64_t copies) {
  const std::int64_t group_size = whole.q.dim(1) / whole.k.dim(1), kv_head = row.head / group_size;
  const std::int64_t first_head = kv_head * group_size, last_head = first_head + group_size;
  head_in_group = row.head - first_head;
  call.k = whole.k.Slice(0, row.batch, row.batch + 1).Slice(1, kv_head, kv_head + 1);
  call.v = whole.v.Slice(0, row.batch, row.batch + 1).Slice(1, kv_head, kv_head + 1);

  const AttentionParams& p = whole.params;
  call.params = p;
  call.params.mask = RowOfBroadcast(p.mask, row, first_head, last_head);
  call.params.bias = RowOfBroadcast(p.bias, row, first_head, last_head);
  if (p.kv_lens && p.kv_lens.dim(0) > 1) call.params.kv_lens = p.kv_lens.Slice(0, row.batch, row.batch + 1);
  if (p.alibi_slopes) call.params.alibi_slopes = p.alibi_slopes.Slice(0, first_head, last_head);
  if (p.sinks) call.params.sinks = p.sinks.Slice(0, first_head, last_head);
  // Without segments the query's position counts from 0; with them, from the start of its own run, whose length decides on the kernel.
  std::int64_t position = row.query;
  if (p.q_segments) {
    const TensorView segments = SegmentsOf(p.q_segments, row.batch);
    const std::int64_t number = IntegerAt(segments, row.query);
    std::int64_t begin = row.query, end = row.query + 1;
    while (begin > 0 && IntegerAt(segments, begin - 1) == number) --begin;
    while (end < std::min(whole.q.dim(2), begin + copies) && IntegerAt(segments, end) == number) ++end;
    position = row.query - begin;
    copies = std::min(copies, end - begin);
    q_segments_.assign(static_cast<std::size_t>(copies), number);
    call.params.q_segments = View(q_segments_.data(), {copies});
    call.params.kv_segments = SegmentsOf(p.kv_segments, row.batch);
  }
  call.params.q_offset = OffsetOf(whole, row.batch) + position;
  const TensorView queries = whole.q.Slice(0, row.batch, row.batch + 1).Slice(1, first_head, last_head);
  call.q = Repeated(queries.Slice(2, row.query, row.query + 1), copies);
}

RowSample SampleRows(const PlanShape& shape, std::int64_t max_work) {
  const std::int64_t pairs_of_heads = shape.batch * shape.heads;
  RowSample sample;
  sample.total = pairs_of_heads * shape.q_len;
  if (sample.total == 0) {
    sample.everything = true;
    return sample;
  }
  // At least 16 a pair, whatever the dims: the stages themselves cost time and memory.
  const std::int64_t work_per_row =
      std::max<std::int64_t>(16, shape.kv_len * std::max<std::int64_t>(16, shape.head_dim + shape.v_dim));
  const std::int64_t affordable = std::max(max_work / work_per_row, kMinSampledRows);
  if (sample.total <= affordable) {
    sample.everything = true;
    for (std::int64_t r = 0; r < sample.total; ++r) {
      sample.rows.push_back({r / (shape.heads * shape.q_len), r / shape.q_len % shape.heads, r % shape.q_len});
    }
    return sample;
  }

  // Places worth a look in a sequence, the most telling first: its ends, then the edges of the kernels' tiles and tasks.
  std::vector<std::int64_t> places;
  for (const std::int64_t place :
       {std::int64_t{0}, shape.q_len - 1, std::int64_t{256}, std::int64_t{255}, std::int64_t{16}, std::int64_t{15}}) {
    if (place >= 0 && place < shape.q_len) places.push_back(place);
  }
  const std::int64_t wanted = std::min(affordable, std::max<std::int64_t>(kMinSampledRows, 64));
  const std::int64_t evenly = std::min<std::int64_t>(shape.q_len, 32);
  for (std::int64_t e = 0; e < evenly; ++e) places.push_back(e * (shape.q_len - 1) / std::max<std::int64_t>(1, evenly - 1));

  // Place n goes to head n·step, so that neighbouring places meet different heads and every head is met when there are rows
  // enough.
  std::set<std::array<std::int64_t, 3>> chosen;
  const std::int64_t step = std::max<std::int64_t>(1, pairs_of_heads / wanted);
  const std::int64_t tries = wanted * 4;  // places may coincide
  for (std::int64_t n = 0; n < tries && static_cast<std::int64_t>(chosen.size()) < wanted; ++n) {
    const std::int64_t head = n * step % pairs_of_heads;
    const std::int64_t turn = n / static_cast<std::int64_t>(places.size());
    const std::int64_t place = (places[static_cast<std::size_t>(n) % places.size()] + turn) % shape.q_len;
    chosen.insert({head / shape.heads, head % shape.heads, place});
  }
  for (const auto& [b, h, i] : chosen) sample.rows.push_back({b, h, i});
  return sample;
}

RowSample ChosenRows(const PlanShape& shape, const std::vector<std::int64_t>& batches, const std::vector<std::int64_t>& heads,
                     const std::vector<std::int64_t>& queries) {
  RowSample sample;
  for (const std::int64_t b : batches) {
    for (const std::int64_t h : heads) {
      for (const std::int64_t i : queries) sample.rows.push_back({b, h, i});
    }
  }
  sample.total = shape.batch * shape.heads * shape.q_len;
  return sample;
}

RowStages ComputeRows(const Call& call, const RowSample& sample, const ExecOptions& exec) {
  if (sample.everything) return ComputeWhole(call, exec);
  const std::int64_t rows = static_cast<std::int64_t>(sample.rows.size()), kv_len = call.k.dim(2), v_dim = call.v.dim(3);
  const auto stage = [&] { return exec.path == Path::kFused ? Tensor() : Tensor(DType::kF64, {rows, kv_len}); };
  RowStages result{stage(), stage(), stage(), stage(), Tensor(DType::kF64, {rows, v_dim}), Tensor(DType::kF64, {rows}), 0};
  for (std::int64_t r = 0; r < rows; ++r) {
    const RowCall row(call, sample.rows[static_cast<std::size_t>(r)], CopiesFor(call, exec.path));
    const auto copy = [&](const Tensor& from, Tensor& to) {
      CopyRow(from, {0, row.head_in_group, 0}, to.MutableAs<double>() + r * (to.rank() == 2 ? to.dim(1) : 1));
    };
    if (exec.path == Path::kFused) {
      const AttentionResult one = RunFused(row.call, exec);
      copy(one.context, result.context);
      copy(one.lse, result.lse);
      continue;
    }
    const Stages one = ComputeStages(row.call.q, row.call.k, row.call.v, row.call.params, exec);
    copy(one.scores, result.scores);
    copy(one.capped, result.capped);
    copy(one.masked_scores, result.masked_scores);
    copy(one.weights, result.weights);
    copy(one.context, result.context);
    copy(one.lse, result.lse);
  }
  return result;
}

Tensor GatherRows(const TensorView& result, const RowSample& sample) {
  const std::int64_t rows = static_cast<std::int64_t>(sample.rows.size()), columns = result.rank() == 4 ? result.dim(3) : 1;
  Tensor gathered(DType::kF64, result.rank() == 4 ? Dims{rows, columns} : Dims{rows});
  double* to = gathered.MutableAs<double>();
  for (const RowIndex& row : sample.rows) {
    CopyRow(result, row, to);
    to += columns;
  }
  return gathered;
}

std::string Describe(const RowSample& sample) {
  if (sample.everything) return sample.total == 1 ? "the one row" : fmt::format("all {} rows", ShowCount(sample.total));
  return fmt::format("{} of {} rows: first, last, block edges, evenly spaced",
                     ShowCount(static_cast<std::int64_t>(sample.rows.size())), ShowCount(sample.total));
}

}  // namespace regard::report
