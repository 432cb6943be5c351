#include "staged/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/copy.h"
#include "core/parallel_for.h"
#include "core/row_keys.h"
#include "core/scratch.h"
#include "core/sink_gradient.h"
#include "staged/masked_row.h"
#include "staged/matrix_product.h"

namespace regard::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A task is worth handing to a thread when it lasts some 10 µs.
constexpr std::int64_t kCellsPerTask = 1024;

// What the options ask for besides.
struct OptionShape {
  bool has_bias = false, has_cap = false, has_alibi = false;
  std::int64_t bias_elements = 0;
};

struct Layout {
  Layout(const PlanShape& s, const OptionShape& options, int threads, ScratchLayout& layout) {
    const std::int64_t rows = SaturatingProduct(s.heads / s.kv_heads, s.q_len), cells = SaturatingProduct(rows, s.kv_len);
    row_keys = layout.Add<RowKeys>(SaturatingProduct(s.batch, s.q_len));
    weights = layout.Add<float>(cells);
    d_scores = layout.Add<float>(cells);
    slopes = layout.Add<float>(options.has_cap ? cells : 0);
    q = layout.Add<float>(SaturatingProduct(rows, s.head_dim));
    d_q = layout.Add<float>(SaturatingProduct(rows, s.head_dim));
    d_context = layout.Add<float>(SaturatingProduct(rows, s.v_dim));
    delta = layout.Add<float>(rows);
    bad_rows = layout.Add<std::uint8_t>(rows);
    k = layout.Add<float>(SaturatingProduct(s.kv_len, s.head_dim));
    d_k = layout.Add<float>(SaturatingProduct(s.kv_len, s.head_dim));
    v = layout.Add<float>(SaturatingProduct(s.kv_len, s.v_dim));
    d_v = layout.Add<float>(SaturatingProduct(s.kv_len, s.v_dim));
    bad_keys = layout.Add<std::uint8_t>(s.kv_len);
    bias = layout.Add<float>(SaturatingProduct(options.has_bias ? threads : 0, s.kv_len));
    d_bias = layout.Add<double>(options.bias_elements);
    d_slopes = layout.Add<double>(options.has_alibi ? s.heads : 0);
  }

  std::size_t row_keys, weights, d_scores, slopes, q, d_q, d_context, delta, bad_rows, k, d_k, v, d_v, bad_keys, bias, d_bias,
      d_slopes;
};

void StoreRow(const MutableView4& view, std::int64_t offset, const float* row, std::int64_t count) {
  for (std::int64_t d = 0; d < count; ++d) StoreDouble(view.data, view.dtype, offset + d * view.stride[3], row[d]);
}

class StagedBackwardRun {
 public:
  StagedBackwardRun(const Problem& problem, const Gradients& gradients, int threads, const Layout& layout, std::byte* workspace)
      : p_(problem), g_(gradients), threads_(threads), rows_(problem.group_size * problem.q_len) {
    const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(workspace + offset); };
    row_keys_ = reinterpret_cast<RowKeys*>(workspace + layout.row_keys);
    weights_ = floats(layout.weights);
    d_scores_ = floats(layout.d_scores);
    slopes_ = floats(layout.slopes);
    q_ = floats(layout.q);
    d_q_ = floats(layout.d_q);
    d_context_ = floats(layout.d_context);
    delta_ = floats(layout.delta);
    bad_rows_ = reinterpret_cast<std::uint8_t*>(workspace + layout.bad_rows);
    k_ = floats(layout.k);
    d_k_ = floats(layout.d_k);
    v_ = floats(layout.v);
    d_v_ = floats(layout.d_v);
    bad_keys_ = reinterpret_cast<std::uint8_t*>(workspace + layout.bad_keys);
    bias_ = floats(layout.bias);
    d_bias_ = reinterpret_cast<double*>(workspace + layout.d_bias);
    d_slopes_ = reinterpret_cast<double*>(workspace + layout.d_slopes);
    ComputeRowKeys(p_, row_keys_);
    if (g_.d_bias.data != nullptr) std::fill_n(d_bias_, BiasElements(), 0.0);
    if (g_.d_alibi_slopes.data != nullptr) std::fill_n(d_slopes_, p_.heads, 0.0);
  }

  // All queries of the heads that read kv_head of sequence b.
  void RunGroup(std::int64_t b, std::int64_t kv_head) {
    LoadOperands(b, kv_head);
    MultiplyByTransposed(rows_, p_.kv_len, p_.head_dim, p_.scale, q_, p_.head_dim, k_, p_.head_dim, weights_, Columns());
    MultiplyByTransposed(rows_, p_.kv_len, p_.v_dim, 1.0f, d_context_, p_.v_dim, v_, p_.v_dim, d_scores_, Columns());
    DeriveRows(b, kv_head);
    AddOptionGradients(b, kv_head);
    ApplyScaleAndSlopes();
    if (g_.d_q.data != nullptr) {
      Multiply(rows_, p_.head_dim, p_.kv_len, d_scores_, Columns(), k_, p_.head_dim, d_q_, p_.head_dim);
      for (std::int64_t r = 0; r < rows_; ++r) {
        StoreRow(g_.d_q, g_.d_q.Offset(b, Head(kv_head, r), r % p_.q_len, 0), d_q_ + r * p_.head_dim, p_.head_dim);
      }
    }
    MultiplyTransposed(p_.kv_len, p_.head_dim, rows_, d_scores_, Columns(), q_, p_.head_dim, d_k_, p_.head_dim);
    MultiplyTransposed(p_.kv_len, p_.v_dim, rows_, weights_, Columns(), d_context_, p_.v_dim, d_v_, p_.v_dim);
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      if (g_.d_k.data != nullptr) StoreRow(g_.d_k, g_.d_k.Offset(b, kv_head, j, 0), d_k_ + j * p_.head_dim, p_.head_dim);
      if (g_.d_v.data != nullptr) StoreRow(g_.d_v, g_.d_v.Offset(b, kv_head, j, 0), d_v_ + j * p_.v_dim, p_.v_dim);
    }
  }

  void StoreOptionGradients() const {
    if (g_.d_bias.data != nullptr) {
      const std::int64_t* const dim = g_.d_bias_dim;
      for (std::int64_t n = 0; n < BiasElements(); ++n) {
        const std::int64_t offset =
            g_.d_bias.Offset(n / dim[3] / dim[2] / dim[1], n / dim[3] / dim[2] % dim[1], n / dim[3] % dim[2], n % dim[3]);
        StoreDouble(g_.d_bias.data, g_.d_bias.dtype, offset, d_bias_[n]);
      }
    }
    for (std::int64_t h = 0; h < p_.heads; ++h) {
      const auto store = [h](const MutableView4& view, double value) {
        StoreDouble(view.data, view.dtype, view.Offset(0, h, 0, 0), value);
      };
      if (g_.d_alibi_slopes.data != nullptr) store(g_.d_alibi_slopes, d_slopes_[h]);
      if (g_.d_sinks.data != nullptr) store(g_.d_sinks, SinkGradient(p_, g_, h, LoadPerHead(p_.sinks, h, -kInfinity)));
    }
  }

 private:
  std::int64_t Columns() const { return std::max<std::int64_t>(p_.kv_len, 1); }
  std::int64_t Head(std::int64_t kv_head, std::int64_t row) const { return kv_head * p_.group_size + row / p_.q_len; }
  std::int64_t BiasElements() const { return g_.d_bias_dim[0] * g_.d_bias_dim[1] * g_.d_bias_dim[2] * g_.d_bias_dim[3]; }

  // A row with 0 in place of what is not finite, which would spoil what does not see it: 0·NaN = NaN. Returns whether there was any.
  static bool LoadFinite(const View4& view, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t dim, float* to) {
    LoadRow(ElementAt(view, view.Offset(b, h, t, 0)), view.dtype, view.stride[3], dim, to);
    return MakeFinite(dim, to);
  }
  static bool MakeFinite(std::int64_t dim, float* to) {
    bool bad = false;
    for (std::int64_t d = 0; d < dim; ++d) {
      if (std::isfinite(to[d])) continue;
      to[d] = 0;
      bad = true;
    }
    return bad;
  }

  void LoadOperands(std::int64_t b, std::int64_t kv_head) const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      const std::int64_t h = Head(kv_head, r), i = r % p_.q_len;
      float* const d_context = d_context_ + r * p_.v_dim;
      const bool bad_q = LoadFinite(p_.q, b, h, i, p_.head_dim, q_ + r * p_.head_dim);
      bad_rows_[r] = LoadFinite(g_.d_context, b, h, i, p_.v_dim, d_context) || bad_q;
      double delta = 0;
      for (std::int64_t d = 0; d < p_.v_dim; ++d) {
        delta += static_cast<double>(d_context[d]) * LoadDouble(g_.context.data, g_.context.dtype, g_.context.Offset(b, h, i, d));
      }
      delta_[r] = static_cast<float>(delta);
    }
    const std::int64_t own_keys = p_.is_cached() ? p_.KvLen(b) : p_.kv_len;  // behind them, zeros
    std::fill(k_ + own_keys * p_.head_dim, k_ + p_.kv_len * p_.head_dim, 0.0f);
    std::fill(v_ + own_keys * p_.v_dim, v_ + p_.kv_len * p_.v_dim, 0.0f);
    std::fill(bad_keys_ + own_keys, bad_keys_ + p_.kv_len, std::uint8_t{0});
    for (std::int64_t j = 0; j < own_keys; ++j) {
      LoadStored(p_.Key(b, kv_head, j), p_.head_dim, k_ + j * p_.head_dim);
      LoadStored(p_.Value(b, kv_head, j), p_.v_dim, v_ + j * p_.v_dim);
      const bool bad_k = MakeFinite(p_.head_dim, k_ + j * p_.head_dim);
      bad_keys_[j] = MakeFinite(p_.v_dim, v_ + j * p_.v_dim) || bad_k;
    }
  }

  void DeriveRows(std::int64_t b, std::int64_t kv_head) const {
    const std::int64_t rows_per_task = std::max<std::int64_t>(1, kCellsPerTask / Columns());
    ParallelFor(threads_, (rows_ + rows_per_task - 1) / rows_per_task, [&](std::int64_t task, int thread) {
      for (std::int64_t r = task * rows_per_task; r < std::min(rows_, (task + 1) * rows_per_task); ++r) {
        DeriveRow(b, Head(kv_head, r), r, bias_ + thread * p_.kv_len);
      }
    });
  }

  // scores become weights; d_context · v becomes the gradient by the masked scores.
  void DeriveRow(std::int64_t b, std::int64_t h, std::int64_t r, float* bias) const {
    const RowKeys& keys = row_keys_[b * p_.q_len + r % p_.q_len];
    float* const row = weights_ + r * p_.kv_len;
    float* const gradient = d_scores_ + r * p_.kv_len;
    float* const slope = slopes_ + r * p_.kv_len;
    if (p_.soft_cap > 0) {
      for (std::int64_t j = keys.begin; j < keys.end; ++j) {
        const float tanh = std::tanh(row[j] / p_.soft_cap);
        slope[j] = 1 - tanh * tanh;
        row[j] = p_.soft_cap * tanh;
      }
    }
    MaskRow(p_, b, h, r % p_.q_len, keys, row, bias);
    const float lse = static_cast<float>(LoadDouble(g_.lse.data, g_.lse.dtype, g_.lse.Offset(b, h, r % p_.q_len, 0)));
    std::fill(row, row + keys.begin, 0.0f);
    std::fill(row + keys.end, row + p_.kv_len, 0.0f);
    std::fill(gradient, gradient + keys.begin, 0.0f);
    std::fill(gradient + keys.end, gradient + p_.kv_len, 0.0f);
    // From here on the gradient by a dropped weight, which d_context · v is, is 0.
    p_.dropout.Apply(b, h, r % p_.q_len, keys.begin, keys.end, gradient + keys.begin);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      if (row[j] == -kInfinity) {
        row[j] = gradient[j] = 0;
      } else if (bad_rows_[r] != 0 || bad_keys_[j] != 0) {
        row[j] = gradient[j] = std::numeric_limits<float>::quiet_NaN();
      } else {
        row[j] = std::exp(std::min(row[j] - lse, 0.0f));  // at most 1, whatever the roundings of score and lse
        gradient[j] = row[j] * (gradient[j] - delta_[r]);
      }
    }
    p_.dropout.Apply(b, h, r % p_.q_len, keys.begin, keys.end, row + keys.begin);
  }

  // d_bias and d_alibi_slopes from the gradients by the masked scores.
  void AddOptionGradients(std::int64_t b, std::int64_t kv_head) const {
    const bool of_bias = g_.d_bias.data != nullptr, of_slopes = g_.d_alibi_slopes.data != nullptr;
    if (!of_bias && !of_slopes) return;
    const std::int64_t* const dim = g_.d_bias_dim;
    for (std::int64_t r = 0; r < rows_; ++r) {
      const std::int64_t h = Head(kv_head, r), i = r % p_.q_len;
      const RowKeys& keys = row_keys_[b * p_.q_len + i];
      const std::int64_t bias_row = ((dim[0] == 1 ? 0 : b) * dim[1] + (dim[1] == 1 ? 0 : h)) * dim[2] + (dim[2] == 1 ? 0 : i);
      for (std::int64_t j = keys.begin; j < keys.end; ++j) {
        const double gradient = d_scores_[r * p_.kv_len + j];
        if (of_bias) d_bias_[bias_row * dim[3] + (dim[3] == 1 ? 0 : j)] += gradient;
        if (of_slopes) d_slopes_[h] -= gradient * std::fabs(static_cast<double>(keys.position - p_.KeyPosition(b, j)));
      }
    }
  }

  // From gradients by masked scores to gradients by q·k.
  void ApplyScaleAndSlopes() const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* const row = d_scores_ + r * p_.kv_len;
      const float* const slope = slopes_ + r * p_.kv_len;
      for (std::int64_t j = 0; j < p_.kv_len; ++j) {
        if (row[j] != 0) row[j] *= p_.soft_cap > 0 ? p_.scale * slope[j] : p_.scale;
      }
    }
  }

  const Problem& p_;
  const Gradients& g_;
  const int threads_;
  const std::int64_t rows_;               // group_size · q_len: the queries of a kv head, head by head
  RowKeys* row_keys_;                     // [batch, q_len]
  float *weights_, *d_scores_, *slopes_;  // [rows, kv_len]
  float *q_, *d_q_;                       // [rows, head_dim]
  float* d_context_;                      // [rows, v_dim]
  float* delta_;                          // [rows]
  std::uint8_t* bad_rows_;                // [rows]: q or d_context holds a NaN or an infinity
  float *k_, *d_k_;                       // [kv_len, head_dim]
  float *v_, *d_v_;                       // [kv_len, v_dim]
  std::uint8_t* bad_keys_;                // [kv_len]
  float* bias_;                           // [threads, kv_len]
  double* d_bias_;                        // [d_bias_dim]
  double* d_slopes_;                      // [heads]
};

}  // namespace

std::size_t StagedBackwardWorkspaceBytes(const PlanShape& s, const AttentionParams& params, int threads) {
  const std::int64_t group_size = s.heads / s.kv_heads;
  const std::int64_t longest = std::max({s.kv_len, s.head_dim, s.v_dim, s.q_len, group_size});
  if (longest > kLongestProductAxis || s.q_len * group_size > kLongestProductAxis)
    return std::numeric_limits<std::int64_t>::max();
  OptionShape options{static_cast<bool>(params.bias), params.soft_cap > 0, static_cast<bool>(params.alibi_slopes),
                      params.bias ? 1 : 0};
  const std::int64_t full[4] = {s.batch, s.heads, s.q_len, s.kv_len};
  for (int axis = 0; axis < params.bias.rank() && axis < 4; ++axis) {
    if (params.bias.dim(-1 - axis) != 1) options.bias_elements = SaturatingProduct(options.bias_elements, full[3 - axis]);
  }
  ScratchLayout layout;
  const Layout sizes(s, options, threads, layout);
  return layout.too_large() ? std::numeric_limits<std::size_t>::max() : layout.total();
}

void RunStagedBackward(const Problem& p, const Gradients& g, const ExecOptions& exec, int threads,
                       std::byte* workspace) noexcept {
  OptionShape options{p.bias.data != nullptr, p.soft_cap > 0, p.alibi_slopes.data != nullptr, 0};
  if (g.d_bias.data != nullptr) options.bias_elements = g.d_bias_dim[0] * g.d_bias_dim[1] * g.d_bias_dim[2] * g.d_bias_dim[3];
  ScratchLayout scratch;
  const Layout layout({.batch = p.batch,
                       .heads = p.heads,
                       .kv_heads = p.kv_heads,
                       .q_len = p.q_len,
                       .kv_len = p.kv_len,
                       .head_dim = p.head_dim,
                       .v_dim = p.v_dim},
                      options, threads, scratch);
  RunControl control(exec, p.batch * p.kv_heads);
  StagedBackwardRun run(p, g, threads, layout, workspace);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t kv_head = 0; kv_head < p.kv_heads && !control.ShouldStop(); ++kv_head) {
      run.RunGroup(b, kv_head);
      control.TaskDone();
    }
  }
  run.StoreOptionGradients();
}

}  // namespace regard::internal
