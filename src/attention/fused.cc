#include "attention/fused.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "attention/kernel_inputs.h"
#include "attention/task_list.h"
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
// one head of 1,024 tokens; and as many as fill the lanes of what the kernel takes at once. Heads of a group share a task only when a head
// alone would leave most lanes of a tile empty.
constexpr std::int64_t kMinRowsPerTask = 256;
constexpr std::int64_t kMinRowsOfOneHead = 64;

// Keys of one decode task. Below 1,024 a split costs 4–15 % (measured), at 2,048 nothing, and one head of 8,192 keys feeds four threads.
// The grid is absolute, so that what a row computes depends on its own keys alone.
constexpr std::int64_t kKeysPerSplit = 2048;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t RowsPerTask(const KernelTable& kernels) {
  return CeilDiv(kMinRowsPerTask, kernels.prefill_rows) * kernels.prefill_rows;
}

// How the rows of one (sequence, kv head) are cut into prefill tasks.
struct RowBlocks {
  std::int64_t rows_per_unit;  // rows that may share a task: one head's, or the group's
  std::int64_t units;          // per kv head
  std::int64_t blocks;         // per unit

  RowBlocks(std::int64_t q_len, std::int64_t group_size, bool may_mix_heads, std::int64_t rows_per_task) {
    const bool mixes_heads = may_mix_heads && q_len < kMinRowsOfOneHead;
    rows_per_unit = mixes_heads ? q_len * group_size : q_len;
    units = mixes_heads ? 1 : group_size;
    blocks = CeilDiv(rows_per_unit, rows_per_task);
  }
};

// Splits of a sequence's keys. One without keys has one as well, which finishes its rows.
std::int64_t Splits(std::int64_t kv_len) { return std::max<std::int64_t>(1, CeilDiv(kv_len, kKeysPerSplit)); }

// Where everything lies in the workspace; see ScratchLayout.
struct FusedLayout {
  KernelInputsLayout inputs;  // shared, written before the tasks start
  std::size_t tasks;          // likewise
  // Decode over several splits: of each sequence [kv_heads, splits, rows].
  std::size_t state_ref, state_sum, state_acc, state_saw;
  std::size_t rows, row_context, row_lse, kernel;  // per thread
  std::int64_t rows_per_thread;
  std::int64_t kernel_bytes = 0;  // of one thread

  FusedLayout(const PlanShape& s, const KernelInputsLayout::Options& options, const KernelTable& kernels, int threads,
              std::int64_t tracked_top_k, ScratchLayout& layout)
      : inputs(s, options, layout),
        tasks(layout.Add<TaskList::Entry>(MostSequences(s.batch, s.q_len, s.kv_len, options.packed))) {
    const std::int64_t group_size = s.heads / s.kv_heads;
    // A run may be shorter than the capacity, so the decode kernel needs room whenever one query a head would use it. Of packed sequences,
    // those of more than one split have less than twice as many as their keys would in one sequence.
    const bool may_split = s.q_len > 0 && !UsesPrefill(1, group_size) && s.kv_len > kKeysPerSplit;
    const std::int64_t states =
        may_split ? SaturatingProduct(s.batch, s.kv_heads, CeilDiv(s.kv_len, kKeysPerSplit), options.packed ? 2 : 1,
                                      std::min(kMinPrefillRows, SaturatingProduct(s.q_len, group_size)))
                  : 0;
    state_ref = layout.Add<float>(states);
    state_sum = layout.Add<float>(states);
    state_acc = layout.Add<float>(SaturatingProduct(states, s.v_dim));
    state_saw = layout.Add<std::uint8_t>(states);
    rows_per_thread = std::min(RowsPerTask(kernels), SaturatingProduct(s.q_len, group_size));
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
  FusedRun(const KernelInputs& inputs, const KernelTable& kernels, const ExecOptions& exec, int threads, const FusedPart& part,
           const FusedLayout& layout, std::byte* workspace, Results* results)
      : p_(inputs.problem()),
        inputs_(inputs),
        kernels_(kernels),
        exec_(exec),
        threads_(threads),
        rows_per_task_(RowsPerTask(kernels)),
        part_(part),
        results_(*results),
        layout_(layout),
        workspace_(workspace),
        tasks_(inputs.sequences(), At<TaskList::Entry>(layout.tasks), [this](const Sequence& s) { return DemandOf(s); }) {}

  // The tasks, and where a sequence's keys were split, each row's splits merged.
  void Run() {
    RunControl control(exec_, tasks_.num_tasks());
    ParallelFor(threads_, tasks_.num_tasks(), [&](std::int64_t task, int thread) {
      if (control.ShouldStop()) return;
      const TaskList::Entry& entry = tasks_.Of(task);
      if (Prefills(*entry.sequence)) {
        PrefillTask(*entry.sequence, task - entry.first_task, thread);
      } else {
        DecodeTask(entry, task - entry.first_task, thread);
      }
      control.TaskDone();
    });
    const auto sharing = static_cast<std::int64_t>(tasks_.sharing().size());
    ParallelFor(threads_, control.ShouldStop() ? 0 : sharing * p_.kv_heads, [&](std::int64_t n, int thread) {
      MergeSplits(tasks_.sharing()[static_cast<std::size_t>(n / p_.kv_heads)], n % p_.kv_heads, thread);
    });
    results_.empty_rows = empty_rows_;
  }

 private:
  template <typename T>
  T* At(std::size_t offset) const {
    return reinterpret_cast<T*>(workspace_ + offset);
  }
  void* KernelScratch(int thread) const {
    return workspace_ + layout_.kernel + static_cast<std::size_t>(thread * layout_.kernel_bytes);
  }
  float* RowContext(int thread) const { return At<float>(layout_.row_context) + thread * layout_.rows_per_thread * p_.v_dim; }

  bool Prefills(const Sequence& s) const { return UsesPrefill(s.q_len, part_.group_size); }
  // Results of tracking lie head by head, so that rows of several heads follow each other in an entry of one sequence only.
  RowBlocks BlocksOf(const Sequence& s) const {
    return {s.q_len, p_.group_size, part_.tracking == nullptr || s.q_len == p_.q_len, rows_per_task_};
  }
  TaskList::Demand DemandOf(const Sequence& s) const {
    if (s.q_len == 0) return {0, 0, 0};
    if (Prefills(s)) {
      const RowBlocks cut = BlocksOf(s);
      return {p_.kv_heads * cut.units * cut.blocks, std::min(rows_per_task_, cut.rows_per_unit) * s.kv_len, 0};
    }
    const std::int64_t rows = p_.group_size * s.q_len, splits = Splits(s.kv_len);
    return {p_.kv_heads * splits, rows * std::min(kKeysPerSplit, s.kv_len), splits > 1 ? p_.kv_heads * splits * rows : 0};
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
  void StoreContext(const float* context, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const MutableView4& to = results_.context;
    char* const at = static_cast<char*>(to.data) + to.Offset(b, h, i, 0) * static_cast<std::int64_t>(ItemSize(to.dtype));
    if ((to.dtype == DType::kF16 || to.dtype == DType::kBF16) && to.stride[3] == 1) {
      kernels_.store_row(to.dtype, context, p_.v_dim, at);
    } else {
      StoreRow(context, p_.v_dim, at, to.dtype, to.stride[3]);
    }
  }
  // A row that was not written in place.
  void Store(const QueryRow& row, std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (results_.context.data != nullptr && !WritesContextInPlace()) StoreContext(row.context, b, h, i);
    if (results_.lse.data != nullptr && !WritesLseInPlace()) {
      StoreDouble(results_.lse.data, results_.lse.dtype, results_.lse.Offset(b, h, i, 0), *row.lse);
    }
  }

  void PrefillTask(const Sequence& s, std::int64_t task, int thread) {
    // Tasks of one kv head follow each other, so that its keys stay in cache; within a head the last queries, which see most keys when
    // causal, come first.
    const RowBlocks cut = BlocksOf(s);
    const std::int64_t kv_head = task / (cut.units * cut.blocks), unit = task / cut.blocks % cut.units;
    const std::int64_t block = cut.blocks - 1 - task % cut.blocks;
    PrefillBlock(s, kv_head, unit * cut.rows_per_unit + block * rows_per_task_,
                 std::min(rows_per_task_, cut.rows_per_unit - block * rows_per_task_), thread);
  }

  // visit(r, head, query, n) for the n rows first_row + r … of a kv head's group that are queries `query` … of one head.
  template <class Visit>
  void ForEachHead(const Sequence& s, std::int64_t kv_head, std::int64_t first_row, std::int64_t num_rows,
                   const Visit& visit) const {
    std::int64_t h = kv_head * p_.group_size + first_row / s.q_len, i = first_row % s.q_len;
    for (std::int64_t r = 0; r < num_rows; ++h, i = 0) {
      const std::int64_t n = std::min(s.q_len - i, num_rows - r);
      visit(r, h, i, n);
      r += n;
    }
  }

  // Rows first_row … of a kv head's group, counted head by head.
  void PrefillBlock(const Sequence& s, std::int64_t kv_head, std::int64_t first_row, std::int64_t num_rows, int thread) {
    QueryRow* const rows = At<QueryRow>(layout_.rows) + thread * layout_.rows_per_thread;
    float* const context = RowContext(thread);
    float* const lse = At<float>(layout_.row_lse) + thread * layout_.rows_per_thread;
    ForEachHead(s, kv_head, first_row, num_rows, [&](std::int64_t r, std::int64_t h, std::int64_t first, std::int64_t n) {
      const HeadRows queries = inputs_.Rows(s, h);
      for (std::int64_t i = first; i < first + n; ++i, ++r) {
        new (rows + r) QueryRow(queries.Row(i));  // in place: a copy of what was just written waits for it
        Aim(&rows[r], s.batch, h, s.first_query + i, context + r * p_.v_dim, lse + r);
      }
    });
    const KvHead head = inputs_.Head(s, kv_head);
    std::int64_t empty;
    if (part_.tracking == nullptr) {
      empty = kernels_.prefill(head, inputs_.options(), rows, num_rows, KernelScratch(thread));
    } else {
      const RowTracking tracking = TrackingOf(s, kv_head * p_.group_size + first_row / s.q_len, first_row % s.q_len);
      empty = kernels_.tracked_prefill(head, inputs_.options(), rows, num_rows, tracking, KernelScratch(thread));
      CountFromEntry(s, tracking, num_rows);
    }
    empty_rows_.fetch_add(empty, std::memory_order_relaxed);
    ForEachHead(s, kv_head, first_row, num_rows, [&](std::int64_t r, std::int64_t h, std::int64_t first, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) Store(rows[r + i], s.batch, h, s.first_query + first + i);
    });
  }

  RowTracking TrackingOf(const Sequence& s, std::int64_t h, std::int64_t i) const {
    return part_.tracking->From((s.batch * p_.heads + h) * p_.q_len + s.first_query + i);
  }

  // The kernel counts keys from the sequence's first.
  static void CountFromEntry(const Sequence& s, const RowTracking& tracking, std::int64_t num_rows) {
    for (std::int64_t n = 0; s.first_key > 0 && tracking.topk_key != nullptr && n < num_rows * tracking.top_k; ++n) {
      if (tracking.topk_key[n] >= 0) tracking.topk_key[n] += s.first_key;
    }
  }

  // One split of a kv head's keys: a state of each row, which is finished where there is no other.
  void DecodeTask(const TaskList::Entry& entry, std::int64_t task, int thread) {
    const Sequence& s = *entry.sequence;
    const std::int64_t splits = Splits(s.kv_len), kv_head = task / splits, split = task % splits;
    const std::int64_t num_rows = p_.group_size * s.q_len, first_head = kv_head * p_.group_size;
    QueryRow rows[kMinPrefillRows];
    for (std::int64_t r = 0; r < num_rows; ++r) rows[r] = inputs_.Row(s, first_head + r / s.q_len, r % s.q_len);
    if (split == 0 && part_.tracking != nullptr) TrackRows(s, kv_head, rows, thread);
    float ref[kMinPrefillRows], sum[kMinPrefillRows];
    std::uint8_t saw[kMinPrefillRows];
    States to = splits == 1 ? States{ref, sum, RowContext(thread), saw} : StatesFrom(entry.first_shared + task * num_rows);
    kernels_.decode(inputs_.Head(s, kv_head), inputs_.options(), rows, num_rows, split * kKeysPerSplit,
                    std::min(s.kv_len, (split + 1) * kKeysPerSplit), to.ref, to.sum, to.acc, p_.v_dim, to.saw,
                    KernelScratch(thread));
    if (splits > 1) return;
    for (std::int64_t r = 0; r < num_rows; ++r) {
      AttentionState state{ref[r], sum[r], to.acc + r * p_.v_dim};
      if (IsIdentity(state)) std::fill_n(state.acc, p_.v_dim, 0.0f);
      FinishRow(state, saw[r] != 0, s, first_head + r / s.q_len, r % s.q_len);
    }
  }

  // The decode kernel tracks nothing: rows are followed by the prefill kernel without values, which writes no result.
  void TrackRows(const Sequence& s, std::int64_t kv_head, const QueryRow* rows, int thread) const {
    KvHead kv = inputs_.Head(s, kv_head);
    kv.v = kv.k;
    kv.v_dim = 0;
    for (std::int64_t g = 0; g < p_.group_size; ++g) {
      const RowTracking tracking = TrackingOf(s, kv_head * p_.group_size + g, 0);
      kernels_.tracked_prefill(kv, inputs_.options(), rows + g * s.q_len, s.q_len, tracking, KernelScratch(thread));
      CountFromEntry(s, tracking, s.q_len);
    }
  }

  // Of rows that follow each other.
  struct States {
    float *ref, *sum, *acc;
    std::uint8_t* saw;
  };
  States StatesFrom(std::int64_t row) const {
    return {At<float>(layout_.state_ref) + row, At<float>(layout_.state_sum) + row, At<float>(layout_.state_acc) + row * p_.v_dim,
            At<std::uint8_t>(layout_.state_saw) + row};
  }

  // The splits of each row of a kv head, in ascending order.
  void MergeSplits(const TaskList::Entry& entry, std::int64_t kv_head, int thread) {
    const Sequence& s = *entry.sequence;
    const std::int64_t splits = Splits(s.kv_len), num_rows = p_.group_size * s.q_len;
    for (std::int64_t r = 0; r < num_rows; ++r) {
      AttentionState whole{-kInfinity, 0, RowContext(thread)};
      std::fill_n(whole.acc, p_.v_dim, 0.0f);
      bool saw = false;
      for (std::int64_t split = 0; split < splits; ++split) {
        const States state = StatesFrom(entry.first_shared + (kv_head * splits + split) * num_rows + r);
        Merge(whole, {*state.ref, *state.sum, state.acc}, p_.v_dim);
        saw = saw || *state.saw != 0;
      }
      FinishRow(whole, saw, s, kv_head * p_.group_size + r / s.q_len, r % s.q_len);
    }
  }

  void FinishRow(const AttentionState& state, bool saw_key, const Sequence& s, std::int64_t h, std::int64_t i) {
    if (!saw_key) empty_rows_.fetch_add(1, std::memory_order_relaxed);
    Finished finished = Finish(state, inputs_.Sink(h));
    finished.factor *= p_.dropout.multiplier;
    const std::int64_t query = s.first_query + i;
    if (results_.context.data != nullptr) {
      for (std::int64_t d = 0; d < p_.v_dim; ++d) state.acc[d] *= finished.factor;
      StoreContext(state.acc, s.batch, h, query);
    }
    if (results_.lse.data != nullptr)
      StoreDouble(results_.lse.data, results_.lse.dtype, results_.lse.Offset(s.batch, h, query, 0), finished.lse);
  }

  const Problem& p_;
  const KernelInputs& inputs_;
  const KernelTable& kernels_;
  const ExecOptions& exec_;
  const int threads_;
  const std::int64_t rows_per_task_;
  const FusedPart part_;
  Results& results_;
  const FusedLayout& layout_;
  std::byte* const workspace_;
  const TaskList tasks_;
  std::atomic<std::int64_t> empty_rows_ = 0;
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

std::string KernelChoice(std::int64_t q_len, std::int64_t group_size, bool packed) {
  const bool prefill = UsesPrefill(q_len, group_size);
  if (prefill && packed)
    return "prefill kernel for segments of q_len·group_size ≥ " + std::to_string(kMinPrefillRows) + ", else decode";
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
  const FusedLayout fused(capacity, KernelInputsLayout::Options::Of(capacity, params), kernels, threads, tracked_top_k, layout);
  return layout.too_large() ? std::numeric_limits<std::size_t>::max() : layout.total();
}

void RunFused(const Problem& problem, const KernelTable& kernels, const ExecOptions& exec, int threads, std::byte* workspace,
              Results* results) noexcept {
  RunFused(problem, kernels, exec, threads, {problem.group_size}, workspace, results);
}

void RunFused(const Problem& problem, const KernelTable& kernels, const ExecOptions& exec, int threads, const FusedPart& part,
              std::byte* workspace, Results* results) noexcept {
  ScratchLayout layout;
  const FusedLayout fused(KernelInputsLayout::ShapeOf(problem), KernelInputsLayout::Options::Of(problem), kernels, threads,
                          part.tracking == nullptr ? -1 : part.tracking->top_k, layout);
  const KernelInputs inputs(problem, fused.inputs, workspace, threads);
  FusedRun(inputs, kernels, exec, threads, part, fused, workspace, results).Run();
}

}  // namespace regard::internal
