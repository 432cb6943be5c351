#include "attention/option_gradients.h"

#include <algorithm>
#include <cmath>

#include "core/parallel_for.h"
#include "core/sink_gradient.h"

namespace regard::internal {
namespace {

// Elements of d_bias of one task: along axes that the bias has, so many queries by so many keys (whole blocks of the kernel's).
constexpr std::int64_t kBiasRows = 128;
constexpr std::int64_t kBiasKeys = 512;
static_assert(kBiasRows <= kGradientRows);

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// A run of indices along one axis.
struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// How one axis of d_bias is cut: its own elements in chunks, or where the bias is broadcast the whole axis, which is summed over.
struct Axis {
  Axis(std::int64_t dim, std::int64_t full_length, std::int64_t chunk_size)
      : repeats(dim == 1), full(full_length), chunk(chunk_size), count(repeats ? 1 : CeilDiv(dim, chunk_size)) {}

  Range At(std::int64_t n) const { return repeats ? Range{0, full} : Range{n * chunk, std::min(full, (n + 1) * chunk)}; }

  bool repeats;
  std::int64_t full, chunk, count;
};

struct BiasCut {
  explicit BiasCut(const Problem& p, const std::int64_t dim[4])
      : b(dim[0], p.batch, 1), h(dim[1], p.heads, 1), i(dim[2], p.q_len, kBiasRows), j(dim[3], p.kv_len, kBiasKeys) {}

  std::int64_t count() const { return b.count * h.count * i.count * j.count; }

  Axis b, h, i, j;
};

// Sums of one task: element (i, j) of d_bias at [i · row_step + j · key_step], counted from the task's first.
struct BiasSums {
  static void Visit(void* visitor, const WeightBlock& block) {
    const BiasSums& s = *static_cast<BiasSums*>(visitor);
    for (std::int64_t r = 0; r < block.num_rows; ++r) {
      double* const row = s.sums + (s.first_row + block.first_row + r) * s.row_step;
      for (std::int64_t j = 0; j < block.num_keys; ++j) {
        const std::int64_t key = block.first_key + j - s.first_key;
        if (key < 0 || key >= s.num_keys) continue;
        row[key * s.key_step] += static_cast<double>(block.weights[j * block.key_stride + r]);
      }
    }
  }

  double* sums;
  std::int64_t row_step, key_step;
  std::int64_t first_row;  // of the call, in the task
  std::int64_t first_key, num_keys;
};

// Σ d_masked · |p − j| over what is visited.
struct SlopeSum {
  static void Visit(void* visitor, const WeightBlock& block) {
    SlopeSum& s = *static_cast<SlopeSum*>(visitor);
    for (std::int64_t r = 0; r < block.num_rows; ++r) {
      const std::int64_t position = s.rows[block.first_row + r].position;
      for (std::int64_t j = 0; j < block.num_keys; ++j) {
        const float gradient = block.weights[j * block.key_stride + r];
        const std::int64_t key = block.first_key + j, stands = s.key_positions == nullptr ? key : s.key_positions[key];
        if (gradient != 0) s.sum += std::fabs(static_cast<double>(position - stands)) * static_cast<double>(gradient);
      }
    }
  }

  const QueryRow* rows;
  const std::int64_t* key_positions = nullptr;  // as KvHead has them
  double sum = 0;
};

}  // namespace

OptionGradientsLayout::OptionGradientsLayout(const PlanShape& s, bool has_bias, bool has_alibi, const KernelTable& kernels,
                                             int threads, ScratchLayout& layout) {
  sums = layout.Add<double>(has_bias ? SaturatingProduct(threads, kBiasRows, kBiasKeys) : 0);
  const auto bytes = static_cast<std::int64_t>(kernels.score_gradients_scratch_bytes(s.head_dim, s.v_dim));
  kernel_bytes = CeilDiv(bytes, ScratchLayout::kAlignment) * static_cast<std::int64_t>(ScratchLayout::kAlignment);
  kernel = layout.Add<std::byte>(has_bias || has_alibi ? SaturatingProduct(threads, kernel_bytes) : 0);
}

std::int64_t OptionGradients::num_tasks() const {
  const bool of_heads = g_.d_alibi_slopes.data != nullptr || g_.d_sinks.data != nullptr;
  return (g_.d_bias.data != nullptr ? BiasCut(p_, g_.d_bias_dim).count() : 0) + (of_heads ? p_.heads : 0);
}

void OptionGradients::Run(RunControl& control) const {
  const std::int64_t biases = g_.d_bias.data != nullptr ? BiasCut(p_, g_.d_bias_dim).count() : 0;
  ParallelFor(threads_, num_tasks(), [&](std::int64_t task, int thread) {
    if (control.ShouldStop()) return;
    if (task < biases) {
      OfBias(task, thread);
    } else {
      const std::int64_t h = task - biases;
      const auto store = [h](const MutableView4& view, double value) {
        StoreDouble(view.data, view.dtype, view.Offset(0, h, 0, 0), value);
      };
      if (g_.d_alibi_slopes.data != nullptr) store(g_.d_alibi_slopes, OfSlope(h, thread));
      if (g_.d_sinks.data != nullptr) store(g_.d_sinks, SinkGradient(p_, g_, h, inputs_.Sink(h)));
    }
    control.TaskDone();
  });
}

void OptionGradients::OfBias(std::int64_t task, int thread) const {
  const BiasCut cut(p_, g_.d_bias_dim);
  const Range keys = cut.j.At(task % cut.j.count), queries = cut.i.At(task / cut.j.count % cut.i.count);
  const Range heads = cut.h.At(task / cut.j.count / cut.i.count % cut.h.count);
  const Range batch = cut.b.At(task / cut.j.count / cut.i.count / cut.h.count);
  const std::int64_t sum_rows = cut.i.repeats ? 1 : queries.size(), sum_keys = cut.j.repeats ? 1 : keys.size();
  double* const sums = reinterpret_cast<double*>(workspace_ + layout_.sums) + thread * kBiasRows * kBiasKeys;
  std::fill_n(sums, sum_rows * sum_keys, 0.0);
  GradientRowsOfThread rows(inputs_, g_, rows_layout_, workspace_, thread);
  for (std::int64_t b = batch.begin; b < batch.end; ++b) {
    const Sequence entry = inputs_.Entry(b);
    for (std::int64_t h = heads.begin; h < heads.end; ++h) {
      for (std::int64_t first = queries.begin; first < queries.end; first += kGradientRows) {
        const std::int64_t count = std::min(kGradientRows, queries.end - first);
        for (std::int64_t n = 0; n < count; ++n) {
          rows.Load(n, entry, h, first + n);
          rows.Clip(n, keys.begin, keys.end);
        }
        BiasSums visitor{sums,       cut.i.repeats ? 0 : sum_keys, cut.j.repeats ? 0 : 1, first - queries.begin, keys.begin,
                         keys.size()};
        kernels_.stream_score_gradients(inputs_.Head(entry, h / p_.group_size), inputs_.options(), rows.rows(), rows.gradients(),
                                        count, &BiasSums::Visit, &visitor,
                                        workspace_ + layout_.kernel + thread * layout_.kernel_bytes);
      }
    }
  }
  for (std::int64_t r = 0; r < sum_rows; ++r) {
    for (std::int64_t c = 0; c < sum_keys; ++c) {
      StoreDouble(g_.d_bias.data, g_.d_bias.dtype, g_.d_bias.Offset(batch.begin, heads.begin, queries.begin + r, keys.begin + c),
                  sums[r * sum_keys + c]);
    }
  }
}

double OptionGradients::OfSlope(std::int64_t h, int thread) const {
  GradientRowsOfThread rows(inputs_, g_, rows_layout_, workspace_, thread);
  SlopeSum visitor{rows.rows()};
  for (std::int64_t b = 0; b < p_.batch; ++b) {
    const Sequence entry = inputs_.Entry(b);
    const KvHead kv = inputs_.Head(entry, h / p_.group_size);
    visitor.key_positions = kv.key_positions;
    for (std::int64_t first = 0; first < p_.q_len; first += kGradientRows) {
      const std::int64_t count = std::min(kGradientRows, p_.q_len - first);
      for (std::int64_t n = 0; n < count; ++n) rows.Load(n, entry, h, first + n);
      kernels_.stream_score_gradients(kv, inputs_.options(), rows.rows(), rows.gradients(), count, &SlopeSum::Visit, &visitor,
                                      workspace_ + layout_.kernel + thread * layout_.kernel_bytes);
    }
  }
  return -visitor.sum;
}

}  // namespace regard::internal
