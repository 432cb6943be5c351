// One kv head at a time: scores of all the queries that share it by one product, then row by row cap, bias, mask and softmax in
// place while a row is in cache, then context by one product. The matrix lives in the caller's `weights` when that is f32 with
// unit stride along keys, else in the workspace; other stages are copied out of each row as it passes.
#include "staged/staged.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/copy.h"
#include "core/parallel_for.h"
#include "core/row_keys.h"
#include "core/scratch.h"
#include "kernels/kernels.h"
#include "staged/masked_row.h"
#include "staged/matrix_product.h"

namespace regard::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A task is worth handing to a thread when it lasts some 10 µs: 4096 cells at about 2 to 5 ns each.
constexpr std::int64_t kCellsPerTask = 4096;

// ----------------------------------------------------------------------------------------------------------- workspace

// Offsets of the arrays of a run, in bytes.
struct Layout {
  std::size_t rows, scores, q, k, v, context, bad_keys, bias;
  std::size_t total;  // 2⁶³−1 for a capacity beyond any memory, which is refused when the workspace is made

  Layout(std::int64_t batch, std::int64_t group_size, std::int64_t q_len, std::int64_t kv_len, std::int64_t head_dim,
         std::int64_t v_dim, bool has_bias, int threads) {
    ScratchLayout scratch;
    rows = scratch.Add<RowKeys>(SaturatingProduct(batch, q_len));
    scores = scratch.Add<float>(SaturatingProduct(group_size, q_len, kv_len));
    q = scratch.Add<float>(SaturatingProduct(group_size, q_len, head_dim));
    k = scratch.Add<float>(SaturatingProduct(kv_len, head_dim));
    v = scratch.Add<float>(SaturatingProduct(kv_len, v_dim));
    context = scratch.Add<float>(SaturatingProduct(group_size, q_len, v_dim));
    bad_keys = scratch.Add<std::int64_t>(kv_len);
    bias = scratch.Add<float>(SaturatingProduct(has_bias ? threads : 0, kv_len));
    total = scratch.too_large() ? std::numeric_limits<std::int64_t>::max() : scratch.total();
  }
};

// ------------------------------------------------------------------------------------------------------------ operands

// Matrices of some heads, [heads][rows, columns], unit stride along columns.
template <typename T>
struct Stack {
  T* data;
  std::int64_t head_stride;
  std::int64_t row_stride;

  T* Row(std::int64_t head, std::int64_t row) const { return data + head * head_stride + row * row_stride; }
};

// Whether all heads together are one matrix [heads·rows, columns], and its row stride.
template <typename T>
bool IsOneMatrix(const Stack<T>& stack, std::int64_t heads, std::int64_t rows, std::int64_t columns, std::int64_t* row_stride) {
  *row_stride = rows == 1 && heads > 1 ? stack.head_stride : stack.row_stride;
  return IsProductStride(*row_stride, columns) && (heads == 1 || rows == 1 || stack.head_stride == rows * stack.row_stride);
}

template <typename View>
bool IsProductOperand(const View& view, std::int64_t rows, std::int64_t columns) {
  return view.data != nullptr && view.dtype == DType::kF32 && (view.stride[3] == 1 || columns == 1) &&
         (rows == 1 || IsProductStride(view.stride[2], columns));
}

// The view's memory as a stack; a single row may have any row stride, so it gets a valid one.
template <typename T, typename View>
Stack<T> StackOf(const View& view, std::int64_t b, std::int64_t head, std::int64_t rows, std::int64_t columns) {
  return {static_cast<T*>(view.data) + view.Offset(b, head, 0, 0), view.stride[1],
          rows == 1 ? std::max<std::int64_t>(columns, 1) : view.stride[2]};
}

// Keys or values of a cache as f32, copied; rows beyond the sequence's own are zeros.
template <typename RowAt>
Stack<const float> CachedOperand(std::int64_t length, std::int64_t rows, std::int64_t columns, const RowAt& row_at,
                                 float* buffer) {
  for (std::int64_t r = 0; r < length; ++r) LoadStored(row_at(r), columns, buffer + r * columns);
  std::fill(buffer + length * columns, buffer + rows * columns, 0.0f);
  return {buffer, 0, columns};
}

// An input as f32: where it lies when a product can read it there, else a copy in `buffer`.
Stack<const float> Operand(const View4& view, std::int64_t b, std::int64_t first_head, std::int64_t heads, std::int64_t rows,
                           std::int64_t columns, float* buffer) {
  if (IsProductOperand(view, rows, columns)) return StackOf<const float>(view, b, first_head, rows, columns);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t r = 0; r < rows; ++r) {
      LoadRow(ElementAt(view, view.Offset(b, first_head + h, r, 0)), view.dtype, view.stride[3], columns,
              buffer + (h * rows + r) * columns);
    }
  }
  return {buffer, rows * columns, columns};
}

void StoreRow(const MutableView4& view, std::int64_t offset, const float* row, std::int64_t count) {
  if (view.data == nullptr) return;
  if (view.dtype == DType::kF32 && view.stride[3] == 1) {
    if (count > 0) std::memcpy(static_cast<float*>(view.data) + offset, row, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  for (std::int64_t j = 0; j < count; ++j) StoreDouble(view.data, view.dtype, offset + j * view.stride[3], row[j]);
}

bool HasNonFinite(const float* row, std::int64_t count) {
  std::uint32_t sign = 0;  // an exponent of all ones, plus one, carries into the sign bit
  for (std::int64_t d = 0; d < count; ++d) sign |= (std::bit_cast<std::uint32_t>(row[d]) & 0x7F800000u) + 0x00800000u;
  return (sign & 0x80000000u) != 0;
}

// ----------------------------------------------------------------------------------------------------------------- run

class StagedRun {
 public:
  StagedRun(const Problem& problem, const KernelTable& kernels, int threads, std::byte* workspace, const Results& results,
            const RunControl& control)
      : p_(problem), kernels_(kernels), results_(results), control_(control), threads_(threads) {
    const Layout layout(p_.batch, p_.group_size, p_.q_len, p_.kv_len, p_.head_dim, p_.v_dim, p_.bias.data != nullptr, threads);
    const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(workspace + offset); };
    rows_ = reinterpret_cast<RowKeys*>(workspace + layout.rows);
    scores_buffer_ = floats(layout.scores);
    q_buffer_ = floats(layout.q);
    k_buffer_ = floats(layout.k);
    v_buffer_ = floats(layout.v);
    context_buffer_ = floats(layout.context);
    bad_keys_ = reinterpret_cast<std::int64_t*>(workspace + layout.bad_keys);
    bias_buffer_ = floats(layout.bias);
    ComputeRowKeys(p_, rows_);
  }

  // All queries of the heads that read kv_head of sequence b.
  void RunGroup(std::int64_t b, std::int64_t kv_head) {
    const std::int64_t first_head = kv_head * p_.group_size;
    const Stack<float> matrix = WorksInPlace() ? StackOf<float>(results_.weights, b, first_head, p_.q_len, p_.kv_len)
                                               : Stack<float>{scores_buffer_, p_.q_len * p_.kv_len, p_.kv_len};
    ComputeScores(b, kv_head, matrix);
    FinishRows(b, first_head, matrix);
    if (results_.context.data != nullptr) ComputeContext(b, kv_head, matrix);
  }

  std::int64_t empty_rows() const { return empty_rows_; }

 private:
  // The matrix becomes the weights, and then with dropout what they are multiplied by, which nobody asked for.
  bool WorksInPlace() const { return IsProductOperand(results_.weights, p_.q_len, p_.kv_len) && !p_.dropout.is_on(); }
  void ComputeScores(std::int64_t b, std::int64_t kv_head, const Stack<float>& matrix);
  void FinishRows(std::int64_t b, std::int64_t first_head, const Stack<float>& matrix);
  void FinishRow(std::int64_t b, std::int64_t h, std::int64_t i, float* row, float* bias);
  void ComputeContext(std::int64_t b, std::int64_t kv_head, const Stack<float>& matrix);
  Stack<const float> Keys(std::int64_t b, std::int64_t kv_head) const;
  Stack<const float> Values(std::int64_t b, std::int64_t kv_head) const;
  Stack<const float> FiniteValues(std::int64_t b, std::int64_t kv_head, std::int64_t* num_bad_keys);
  void AddNonFinite(std::int64_t b, std::int64_t kv_head, std::int64_t j, const Stack<float>& matrix,
                    const Stack<float>& context);
  bool IsVisible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;

  const Problem& p_;
  const KernelTable& kernels_;
  const Results& results_;
  const RunControl& control_;
  const int threads_;
  RowKeys* rows_;           // [batch, q_len]
  float* scores_buffer_;    // [group_size, q_len, kv_len]
  float* q_buffer_;         // [group_size, q_len, head_dim]
  float* k_buffer_;         // [kv_len, head_dim]
  float* v_buffer_;         // [kv_len, v_dim]
  float* context_buffer_;   // [group_size, q_len, v_dim]
  std::int64_t* bad_keys_;  // [kv_len]: keys whose value holds a NaN or infinity
  float* bias_buffer_;      // [threads, kv_len]
  std::atomic<std::int64_t> empty_rows_ = 0;
};

Stack<const float> StagedRun::Keys(std::int64_t b, std::int64_t kv_head) const {
  if (!p_.is_cached()) return Operand(p_.k, b, kv_head, 1, p_.kv_len, p_.head_dim, k_buffer_);
  const auto row_at = [&](std::int64_t j) { return p_.Key(b, kv_head, j); };
  return CachedOperand(p_.KvLen(b), p_.kv_len, p_.head_dim, row_at, k_buffer_);
}

Stack<const float> StagedRun::Values(std::int64_t b, std::int64_t kv_head) const {
  if (!p_.is_cached()) return Operand(p_.v, b, kv_head, 1, p_.kv_len, p_.v_dim, v_buffer_);
  const auto row_at = [&](std::int64_t j) { return p_.Value(b, kv_head, j); };
  return CachedOperand(p_.KvLen(b), p_.kv_len, p_.v_dim, row_at, v_buffer_);
}

void StagedRun::ComputeScores(std::int64_t b, std::int64_t kv_head, const Stack<float>& matrix) {
  const std::int64_t heads = p_.group_size;
  const Stack<const float> q = Operand(p_.q, b, kv_head * heads, heads, p_.q_len, p_.head_dim, q_buffer_);
  const Stack<const float> k = Keys(b, kv_head);
  std::int64_t q_stride, matrix_stride;
  if (IsOneMatrix(q, heads, p_.q_len, p_.head_dim, &q_stride) &&
      IsOneMatrix(matrix, heads, p_.q_len, p_.kv_len, &matrix_stride)) {
    MultiplyByTransposed(heads * p_.q_len, p_.kv_len, p_.head_dim, p_.scale, q.data, q_stride, k.data, k.row_stride, matrix.data,
                         matrix_stride);
    return;
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    MultiplyByTransposed(p_.q_len, p_.kv_len, p_.head_dim, p_.scale, q.Row(h, 0), q.row_stride, k.data, k.row_stride,
                         matrix.Row(h, 0), matrix.row_stride);
  }
}

void StagedRun::FinishRows(std::int64_t b, std::int64_t first_head, const Stack<float>& matrix) {
  const std::int64_t num_rows = p_.group_size * p_.q_len;
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, kCellsPerTask / std::max<std::int64_t>(p_.kv_len, 1));
  ParallelFor(threads_, (num_rows + rows_per_task - 1) / rows_per_task, [&](std::int64_t task, int thread) {
    if (control_.ShouldStop()) return;
    for (std::int64_t r = task * rows_per_task; r < std::min(num_rows, (task + 1) * rows_per_task); ++r) {
      const std::int64_t g = r / p_.q_len, i = r % p_.q_len;
      FinishRow(b, first_head + g, i, matrix.Row(g, i), bias_buffer_ + thread * p_.kv_len);
    }
  });
}

// scores -> capped -> masked_scores -> weights of one query, in place.
void StagedRun::FinishRow(std::int64_t b, std::int64_t h, std::int64_t i, float* row, float* bias) {
  const RowKeys& keys = rows_[b * p_.q_len + i];
  StoreRow(results_.scores, results_.scores.Offset(b, h, i, 0), row, p_.kv_len);
  if (p_.soft_cap > 0) {
    const bool whole_row = results_.capped.data != nullptr;
    const std::int64_t begin = whole_row ? 0 : keys.begin, end = whole_row ? p_.kv_len : keys.end;
    kernels_.soft_cap_row(row + begin, end - begin, p_.soft_cap);
  }
  StoreRow(results_.capped, results_.capped.Offset(b, h, i, 0), row, p_.kv_len);
  if (MaskRow(p_, b, h, i, keys, row, bias) == 0) ++empty_rows_;
  if (results_.masked_scores.data != nullptr) {
    std::fill(row, row + keys.begin, -kInfinity);
    std::fill(row + keys.end, row + p_.kv_len, -kInfinity);
    StoreRow(results_.masked_scores, results_.masked_scores.Offset(b, h, i, 0), row, p_.kv_len);
  }
  const float lse = kernels_.softmax_row(row + keys.begin, keys.end - keys.begin, LoadPerHead(p_.sinks, h, -kInfinity));
  std::fill(row, row + keys.begin, 0.0f);
  std::fill(row + keys.end, row + p_.kv_len, 0.0f);
  if (results_.lse.data != nullptr) StoreDouble(results_.lse.data, results_.lse.dtype, results_.lse.Offset(b, h, i, 0), lse);
  if (!WorksInPlace()) StoreRow(results_.weights, results_.weights.Offset(b, h, i, 0), row, p_.kv_len);
  p_.dropout.Apply(b, h, i, keys.begin, keys.end, row + keys.begin);
}

bool StagedRun::IsVisible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const RowKeys& keys = rows_[b * p_.q_len + i];
  if (j < keys.begin || j >= keys.end) return false;
  if (p_.mask.data != nullptr && static_cast<const std::uint8_t*>(p_.mask.data)[p_.mask.Offset(b, h, i, j)] == 0) return false;
  return p_.bias.data == nullptr ||
         LoadDouble(p_.bias.data, p_.bias.dtype, p_.bias.Offset(b, h, i, j)) != -static_cast<double>(kInfinity);
}

// The values of a kv head with 0 in place of NaN and infinity, since an invisible one would spoil the product: 0·NaN = NaN. The
// keys that have one are listed in bad_keys_. Values without one, the usual case, are used where they lie.
Stack<const float> StagedRun::FiniteValues(std::int64_t b, std::int64_t kv_head, std::int64_t* num_bad_keys) {
  const Stack<const float> v = Values(b, kv_head);
  *num_bad_keys = 0;
  for (std::int64_t j = 0; j < p_.kv_len; ++j) {
    if (HasNonFinite(v.Row(0, j), p_.v_dim)) bad_keys_[(*num_bad_keys)++] = j;
  }
  if (*num_bad_keys == 0) return v;
  for (std::int64_t j = 0; j < p_.kv_len; ++j) {
    for (std::int64_t d = 0; d < p_.v_dim; ++d) {
      const float value = v.Row(0, j)[d];
      v_buffer_[j * p_.v_dim + d] = std::isfinite(value) ? value : 0;
    }
  }
  return {v_buffer_, 0, p_.v_dim};
}

// Adds what FiniteValues left out of key j, for the queries that see it.
void StagedRun::AddNonFinite(std::int64_t b, std::int64_t kv_head, std::int64_t j, const Stack<float>& matrix,
                             const Stack<float>& context) {
  const StoredRow stored = p_.Value(b, kv_head, j);
  for (std::int64_t r = 0; r < p_.group_size * p_.q_len; ++r) {
    const std::int64_t g = r / p_.q_len, i = r % p_.q_len;
    if (!IsVisible(b, kv_head * p_.group_size + g, i, j)) continue;
    for (std::int64_t d = 0; d < p_.v_dim; ++d) {
      const float value = static_cast<float>(LoadStored(stored, d));
      if (!std::isfinite(value)) context.Row(g, i)[d] += matrix.Row(g, i)[j] * value;
    }
  }
}

void StagedRun::ComputeContext(std::int64_t b, std::int64_t kv_head, const Stack<float>& matrix) {
  const std::int64_t heads = p_.group_size, first_head = kv_head * heads;
  std::int64_t num_bad_keys;
  const Stack<const float> v = FiniteValues(b, kv_head, &num_bad_keys);
  const bool in_place = IsProductOperand(results_.context, p_.q_len, p_.v_dim);
  const Stack<float> context = in_place ? StackOf<float>(results_.context, b, first_head, p_.q_len, p_.v_dim)
                                        : Stack<float>{context_buffer_, p_.q_len * p_.v_dim, p_.v_dim};
  std::int64_t matrix_stride, context_stride;
  if (IsOneMatrix(matrix, heads, p_.q_len, p_.kv_len, &matrix_stride) &&
      IsOneMatrix(context, heads, p_.q_len, p_.v_dim, &context_stride)) {
    Multiply(heads * p_.q_len, p_.v_dim, p_.kv_len, matrix.data, matrix_stride, v.data, v.row_stride, context.data,
             context_stride);
  } else {
    for (std::int64_t h = 0; h < heads; ++h) {
      Multiply(p_.q_len, p_.v_dim, p_.kv_len, matrix.Row(h, 0), matrix.row_stride, v.data, v.row_stride, context.Row(h, 0),
               context.row_stride);
    }
  }
  for (std::int64_t n = 0; n < num_bad_keys; ++n) AddNonFinite(b, kv_head, bad_keys_[n], matrix, context);
  if (in_place) return;
  for (std::int64_t r = 0; r < heads * p_.q_len; ++r) {
    const std::int64_t g = r / p_.q_len, i = r % p_.q_len;
    StoreRow(results_.context, results_.context.Offset(b, first_head + g, i, 0), context.Row(g, i), p_.v_dim);
  }
}

}  // namespace

std::size_t StagedWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, int threads) {
  const std::int64_t group_size = capacity.heads / capacity.kv_heads;
  const std::int64_t longest = std::max({capacity.kv_len, capacity.head_dim, capacity.v_dim, capacity.q_len, group_size});
  if (longest > kLongestProductAxis || capacity.q_len * group_size > kLongestProductAxis)
    return std::numeric_limits<std::int64_t>::max();
  return Layout(capacity.batch, group_size, capacity.q_len, capacity.kv_len, capacity.head_dim, capacity.v_dim,
                static_cast<bool>(params.bias), threads)
      .total;
}

void RunStaged(const Problem& problem, const KernelTable& kernels, const ExecOptions& exec, int threads, std::byte* workspace,
               Results* results) noexcept {
  RunControl control(exec, problem.batch * problem.kv_heads);
  results->empty_rows = 0;
  if (problem.batch == 0 || problem.q_len == 0) return;
  StagedRun run(problem, kernels, threads, workspace, *results, control);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t kv_head = 0; kv_head < problem.kv_heads && !control.ShouldStop(); ++kv_head) {
      run.RunGroup(b, kv_head);
      control.TaskDone();
    }
  }
  results->empty_rows = run.empty_rows();
}

}  // namespace regard::internal
