#include "attention/fused.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "attention/kernel_inputs.h"
#include "core/attention_state.h"
#include "core/parallel_for.h"
#include "core/scratch.h"

namespace regard::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// From here on the lanes of a 16-wide vector are full, and the prefill kernel runs at 90 % of its speed; below, the decode kernel
// reads each key once for all rows. At 8 rows both are equal (measured).
constexpr std::int64_t kMinPrefillRows = 16;
static_assert(kMinPrefillRows - 1 <= kMaxDecodeRows);

// Rows of one prefill task: enough that a block of keys is read from L2 for four query tiles, few enough that four threads find work in
// one head of 1,024 tokens. Heads of a group share a task only when a head alone would leave most lanes of a tile empty.
constexpr std::int64_t kRowsPerTask = 256;
constexpr std::int64_t kMinRowsOfOneHead = 64;

// Keys of one decode task. Below 1,024 a split costs 4–15 % (measured), at 2,048 nothing, and one head of 8,192 keys feeds four threads.
// The grid is absolute, so that what a row computes depends on its own keys alone.
constexpr std::int64_t kKeysPerSplit = 2048;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How the rows of one (sequence, kv head) are cut into prefill tasks.
struct RowBlocks {
  bool mixes_heads;
  std::int64_t rows_per_unit;  // rows that may share a task: one head's, or the group's
  std::int64_t units;          // per kv head
  std::int64_t blocks;         // per unit

  RowBlocks(std::int64_t q_len, std::int64_t group_size)
      : mixes_heads(q_len < kMinRowsOfOneHead),
        rows_per_unit(mixes_heads ? q_len * group_size : q_len),
        units(mixes_heads ? 1 : group_size),
        blocks(CeilDiv(rows_per_unit, kRowsPerTask)) {}
};

// Where everything lies in the workspace; see ScratchLayout.
struct FusedLayout {
  KernelInputsLayout inputs;                               // shared, written before the tasks start
  std::size_t state_ref, state_sum, state_acc, state_saw;  // decode: [batch, kv_heads, splits, kMinPrefillRows]
  std::size_t rows, row_context, row_lse, kernel;          // per thread
  std::int64_t kernel_bytes = 0;                           // of one thread

  FusedLayout(const PlanShape& s, std::int64_t bias_count, const KernelTable& kernels, int threads, std::int64_t tracked_top_k,
              ScratchLayout& layout)
      : inputs(s, bias_count, layout) {
    const std::int64_t group_size = s.heads / s.kv_heads;
    // A run may be shorter than the capacity, so the decode kernel needs room whenever one query a head would use it.
    const bool may_decode = s.q_len > 0 && !UsesPrefill(1, group_size);
    const std::int64_t states = may_decode ? SaturatingProduct(s.batch, s.kv_heads, CeilDiv(s.kv_len, kKeysPerSplit),
                                                               std::min(kMinPrefillRows, SaturatingProduct(s.q_len, group_size)))
                                           : 0;
    state_ref = layout.Add<float>(states);
    state_sum = layout.Add<float>(states);
    state_acc = layout.Add<float>(SaturatingProduct(states, s.v_dim));
    state_saw = layout.Add<std::uint8_t>(states);
    const std::int64_t rows_per_thread = std::min(kRowsPerTask, SaturatingProduct(s.q_len, group_size));
    rows = layout.Add<QueryRow>(SaturatingProduct(threads, rows_per_thread));
    row_context = layout.Add<float>(SaturatingProduct(threads, rows_per_thread, s.v_dim));
    row_lse = layout.Add<float>(SaturatingProduct(threads, rows_per_thread));
    kernel_bytes = static_cast<std::int64_t>(
        std::max(kernels.prefill_scratch_bytes(s.head_dim, s.v_dim), kernels.decode_scratch_bytes(s.head_dim, s.v_dim)));
    if (tracked_top_k >= 0) {
      kernel_bytes = std::max(
          kernel_bytes, static_cast<std::int64_t>(kernels.tracked_scratch_bytes(s.kv_len, s.head_dim, s.v_dim, tracked_top_k)));
    }
    kernel_bytes = CeilDiv(kernel_bytes, ScratchLayout::kAlignment) * static_cast<std::int64_t>(ScratchLayout::kAlignment);
    kernel = layout.Add<std::byte>(SaturatingProduct(threads, kernel_bytes));
  }
};

// One run with everything its tasks need at hand.
class FusedRun {
 public:
  FusedRun(const KernelInputs& inputs, const KernelTable& kernels, const ExecOptions& exec, int threads,
           const FusedLayout& layout, std::byte* workspace, Results* results)
      : p_(inputs.problem()),
        inputs_(inputs),
        kernels_(kernels),
        exec_(exec),
        threads_(threads),
        results_(*results),
        layout_(layout),
        workspace_(workspace) {}

  void Run(const FusedPart& part) {
    if (p_.batch == 0 || p_.q_len == 0) return;
    tracking_ = part.tracking;
    if (part.prefill) {
      Prefill();
    } else {
      Decode();
    }
  }

 private:
  template <typename T>
  T* At(std::size_t offset) const {
    return reinterpret_cast<T*>(workspace_ + offset);
  }
  void* KernelScratch(int thread) const {
    return workspace_ + layout_.kernel + static_cast<std::size_t>(thread * layout_.kernel_bytes);
  }

  // The kernels write f32 rows; results of another type or stride go through a row of scratch.
  bool WritesContextInPlace() const {
    return results_.context.data != nullptr && results_.context.dtype == DType::kF32 &&
           (results_.context.stride[3] == 1 || p_.v_dim == 1);
  }
  bool WritesLseInPlace() const { return results_.lse.data != nullptr && results_.lse.dtype == DType::kF32; }
  void Aim(QueryRow* row, std::int64_t b, std::int64_t h, std::int64_t i, float* context, float* lse) const {
    row->context =
        WritesContextInPlace() ? static_cast<float*>(results_.context.data) + results_.context.Offset(b, h, i, 0) : context;
    row->lse = WritesLseInPlace() ? static_cast<float*>(results_.lse.data) + results_.lse.Offset(b, h, i, 0) : lse;
  }
  void Store(const QueryRow& row, std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (results_.context.data != nullptr && !WritesContextInPlace()) {
      const MutableView4& to = results_.context;
      StoreRow(row.context, p_.v_dim,
               static_cast<char*>(to.data) + to.Offset(b, h, i, 0) * static_cast<std::int64_t>(ItemSize(to.dtype)), to.dtype,
               to.stride[3]);
    }
    if (results_.lse.data != nullptr && !WritesLseInPlace()) {
      StoreDouble(results_.lse.data, results_.lse.dtype, results_.lse.Offset(b, h, i, 0), *row.lse);
    }
  }

  void Prefill() {
    const RowBlocks cut(p_.q_len, p_.group_size);
    const std::int64_t tasks_per_kv_head = cut.units * cut.blocks;
    const std::int64_t tasks = p_.batch * p_.kv_heads * tasks_per_kv_head;
    RunControl control(exec_, tasks);
    std::atomic<std::int64_t> empty_rows = 0;
    ParallelFor(threads_, tasks, [&](std::int64_t task, int thread) {
      if (control.ShouldStop()) return;
      // Tasks of one kv head follow each other, so that its keys stay in cache; within a head the last queries, which see most keys when
      // causal, come first, so that what is left at the end of the queue is short.
      const std::int64_t kv_head = task / tasks_per_kv_head % p_.kv_heads, b = task / tasks_per_kv_head / p_.kv_heads;
      const std::int64_t unit = task % tasks_per_kv_head / cut.blocks, block = cut.blocks - 1 - task % cut.blocks;
      const std::int64_t found = PrefillBlock(b, kv_head, unit * cut.rows_per_unit + block * kRowsPerTask,
                                              std::min(kRowsPerTask, cut.rows_per_unit - block * kRowsPerTask), thread);
      empty_rows.fetch_add(found, std::memory_order_relaxed);
      control.TaskDone();
    });
    results_.empty_rows = empty_rows;
  }

  // visit(r, head, query) for rows first_row + r of a kv head's group, counted head by head. Divides once, not for every row.
  template <class Visit>
  void ForEachRow(std::int64_t kv_head, std::int64_t first_row, std::int64_t num_rows, const Visit& visit) const {
    std::int64_t h = kv_head * p_.group_size + first_row / p_.q_len, i = first_row % p_.q_len;
    for (std::int64_t r = 0; r < num_rows; ++r) {
      visit(r, h, i);
      if (++i == p_.q_len) {
        i = 0;
        ++h;
      }
    }
  }

  // Rows first_row … of a kv head's group, counted head by head. Returns how many saw no key.
  std::int64_t PrefillBlock(std::int64_t b, std::int64_t kv_head, std::int64_t first_row, std::int64_t num_rows, int thread) {
    const std::int64_t rows_per_thread = std::min(kRowsPerTask, p_.q_len * p_.group_size);
    QueryRow* const rows = At<QueryRow>(layout_.rows) + thread * rows_per_thread;
    float* const context = At<float>(layout_.row_context) + thread * rows_per_thread * p_.v_dim;
    float* const lse = At<float>(layout_.row_lse) + thread * rows_per_thread;
    ForEachRow(kv_head, first_row, num_rows, [&](std::int64_t r, std::int64_t h, std::int64_t i) {
      new (rows + r) QueryRow(inputs_.Row(b, h, i));  // in place: a copy of what was just written waits for it
      Aim(&rows[r], b, h, i, context + r * p_.v_dim, lse + r);
    });
    const KvHead head = inputs_.Head(b, kv_head);
    std::int64_t empty;
    if (tracking_ == nullptr) {
      empty = kernels_.prefill(head, inputs_.options(), rows, num_rows, KernelScratch(thread));
    } else {
      const RowTracking tracking = tracking_->From((b * p_.heads + kv_head * p_.group_size) * p_.q_len + first_row);
      empty = kernels_.tracked_prefill(head, inputs_.options(), rows, num_rows, tracking, KernelScratch(thread));
    }
    ForEachRow(kv_head, first_row, num_rows, [&](std::int64_t r, std::int64_t h, std::int64_t i) { Store(rows[r], b, h, i); });
    return empty;
  }

  // Two rounds: the state of every (sequence, kv head, split), then each row's splits merged in ascending order.
  void Decode() {
    const std::int64_t num_rows = p_.group_size * p_.q_len;
    const std::int64_t splits = CeilDiv(p_.kv_len, kKeysPerSplit);
    const std::int64_t kv_streams = p_.batch * p_.kv_heads;
    RunControl control(exec_, kv_streams * splits);
    float* const refs = At<float>(layout_.state_ref);
    float* const sums = At<float>(layout_.state_sum);
    float* const accs = At<float>(layout_.state_acc);
    std::uint8_t* const saws = At<std::uint8_t>(layout_.state_saw);
    ParallelFor(threads_, kv_streams * splits, [&](std::int64_t task, int thread) {
      if (control.ShouldStop()) return;
      const std::int64_t stream = task / splits, split = task % splits, b = stream / p_.kv_heads, kv_head = stream % p_.kv_heads;
      const std::int64_t kv_len = inputs_.KvLen(b);
      if (split * kKeysPerSplit >= kv_len) return control.TaskDone();  // a shorter sequence than others of its cache
      QueryRow rows[kMinPrefillRows];
      for (std::int64_t r = 0; r < num_rows; ++r) rows[r] = inputs_.Row(b, kv_head * p_.group_size + r / p_.q_len, r % p_.q_len);
      const std::int64_t state = task * num_rows;
      kernels_.decode(inputs_.Head(b, kv_head), inputs_.options(), rows, num_rows, split * kKeysPerSplit,
                      std::min(kv_len, (split + 1) * kKeysPerSplit), refs + state, sums + state, accs + state * p_.v_dim,
                      p_.v_dim, saws + state, KernelScratch(thread));
      control.TaskDone();
    });
    if (control.ShouldStop()) return;
    std::atomic<std::int64_t> empty_rows = 0;
    ParallelFor(threads_, kv_streams, [&](std::int64_t stream, int thread) {
      for (std::int64_t r = 0; r < num_rows; ++r) {
        const std::int64_t h = stream % p_.kv_heads * p_.group_size + r / p_.q_len;
        AttentionState whole{-kInfinity, 0,
                             At<float>(layout_.row_context) + thread * std::min(kRowsPerTask, num_rows) * p_.v_dim};
        std::fill_n(whole.acc, p_.v_dim, 0.0f);
        bool saw = false;
        const std::int64_t own_splits = CeilDiv(inputs_.KvLen(stream / p_.kv_heads), kKeysPerSplit);
        for (std::int64_t split = 0; split < own_splits; ++split) {
          const std::int64_t state = (stream * splits + split) * num_rows + r;
          Merge(whole, {refs[state], sums[state], accs + state * p_.v_dim}, p_.v_dim);
          saw = saw || saws[state] != 0;
        }
        if (!saw) empty_rows.fetch_add(1, std::memory_order_relaxed);
        FinishRow(whole, stream / p_.kv_heads, h, r % p_.q_len);
      }
    });
    results_.empty_rows = empty_rows;
  }

  void FinishRow(const AttentionState& state, std::int64_t b, std::int64_t h, std::int64_t i) const {
    Finished finished = Finish(state, inputs_.Sink(h));
    finished.factor *= p_.dropout.factor;
    if (results_.context.data != nullptr) {
      for (std::int64_t d = 0; d < p_.v_dim; ++d) {
        StoreDouble(results_.context.data, results_.context.dtype, results_.context.Offset(b, h, i, d),
                    state.acc[d] * finished.factor);
      }
    }
    if (results_.lse.data != nullptr)
      StoreDouble(results_.lse.data, results_.lse.dtype, results_.lse.Offset(b, h, i, 0), finished.lse);
  }

  const Problem& p_;
  const KernelInputs& inputs_;
  const KernelTable& kernels_;
  const ExecOptions& exec_;
  int threads_;
  Results& results_;
  const FusedLayout& layout_;
  std::byte* workspace_;
  const RowTracking* tracking_ = nullptr;
};

}  // namespace

bool UsesPrefill(std::int64_t q_len, std::int64_t group_size) { return q_len * group_size >= kMinPrefillRows; }

namespace {

bool HasDotProducts(const std::string& isa) {
  const KernelTable* kernels = FindKernels(isa);
  return kernels != nullptr && kernels->peak_bf16_flops != nullptr;
}

}  // namespace

double WeightRounding(const PlanShape& shape, const std::string& isa) {
  const bool is_bf16 = shape.q_dtype == DType::kBF16 && shape.k_dtype == DType::kBF16 && shape.v_dtype == DType::kBF16;
  if (!is_bf16 || !HasDotProducts(isa)) return 0;
  return UsesPrefill(shape.q_len, shape.heads / shape.kv_heads) ? 0x1p-7 : 0x1p-8;
}

IntegerRounding IntegerRoundingOf(const PlanShape& shape, const std::string& isa) {
  const bool is_i8 = shape.k_dtype == DType::kI8 && shape.v_dtype == DType::kI8 && shape.head_dim <= kLargestIntegerDim;
  if (!is_i8 || UsesPrefill(shape.q_len, shape.heads / shape.kv_heads) || !HasDotProducts(isa)) return {};
  return kI8IntegerRounding;
}

std::string KernelChoice(std::int64_t q_len, std::int64_t group_size) {
  const bool prefill = UsesPrefill(q_len, group_size);
  return std::string(prefill ? "prefill" : "decode") + " kernel (q_len·group_size " + std::to_string(q_len * group_size) +
         (prefill ? " ≥ " : " < ") + std::to_string(kMinPrefillRows) + ")";
}

std::size_t FusedWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, const KernelTable& kernels,
                                int threads) {
  return FusedWorkspaceBytes(capacity, params, kernels, threads, -1);
}

std::size_t FusedWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, const KernelTable& kernels, int threads,
                                std::int64_t tracked_top_k) {
  ScratchLayout layout;
  const FusedLayout fused(capacity, KernelInputsLayout::BiasCount(capacity, params), kernels, threads, tracked_top_k, layout);
  return layout.too_large() ? std::numeric_limits<std::size_t>::max() : layout.total();
}

void RunFused(const Problem& problem, const KernelTable& kernels, const ExecOptions& exec, int threads, std::byte* workspace,
              Results* results) noexcept {
  RunFused(problem, kernels, exec, threads, {UsesPrefill(problem.q_len, problem.group_size)}, workspace, results);
}

void RunFused(const Problem& problem, const KernelTable& kernels, const ExecOptions& exec, int threads, const FusedPart& part,
              std::byte* workspace, Results* results) noexcept {
  ScratchLayout layout;
  const FusedLayout fused(KernelInputsLayout::ShapeOf(problem), KernelInputsLayout::BiasCount(problem), kernels, threads,
                          part.tracking == nullptr ? -1 : part.tracking->top_k, layout);
  const KernelInputs inputs(problem, fused.inputs, workspace, threads);
  FusedRun(inputs, kernels, exec, threads, fused, workspace, results).Run(part);
}

}  // namespace regard::internal
