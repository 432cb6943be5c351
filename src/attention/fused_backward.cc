#include "attention/fused_backward.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "attention/gradient_rows.h"
#include "attention/kernel_inputs.h"
#include "attention/option_gradients.h"
#include "attention/task_list.h"
#include "core/parallel_for.h"
#include "core/scratch.h"

namespace regard::internal {
namespace {

// Heads of a group share a kernel call only when a head alone would leave most lanes of a block of queries empty.
constexpr std::int64_t kMinRowsOfOneHead = 64;

// With fewer kv heads than this a sequence is cut into so many tasks, of two calls at least. Clearing and handing in what a task has added
// up costs some 1 % of one such task.
constexpr std::int64_t kTasksPerSequence = 16;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How the rows of one (sequence, kv head) are cut into calls, and these into tasks: by the sequence's own lengths and head counts.
struct RowCut {
  std::int64_t rows_per_unit;   // rows that may share a call: one head's, or the group's
  std::int64_t calls_per_unit;  // of kGradientRows rows
  std::int64_t calls;           // per kv head
  std::int64_t tasks;           // per kv head
  bool in_runs;                 // whether the calls of a task follow each other

  // `local`: queries see keys near them only. Then calls that follow each other share their keys, and a task has few to clear and to hand in.
  RowCut(std::int64_t q_len, std::int64_t group_size, std::int64_t kv_heads, bool local) : in_runs(local) {
    const bool mixes_heads = q_len < kMinRowsOfOneHead;
    rows_per_unit = mixes_heads ? q_len * group_size : q_len;
    calls_per_unit = CeilDiv(rows_per_unit, kGradientRows);
    calls = calls_per_unit * (mixes_heads ? 1 : group_size);
    tasks = std::clamp<std::int64_t>(calls / 2, 1, CeilDiv(kTasksPerSequence, kv_heads));
  }

  // The n-th call of a task, or −1 behind the last. Unless in runs, calls are dealt to and fro: with causal attention, where later queries see
  // more keys, all tasks then come to about the same work.
  std::int64_t Call(std::int64_t task, std::int64_t n) const {
    if (in_runs) {
      const std::int64_t call = task * calls / tasks + n;
      return call < (task + 1) * calls / tasks ? call : -1;
    }
    const std::int64_t call = n * tasks + (n % 2 == 0 ? task : tasks - 1 - task);
    return call < calls ? call : -1;
  }
};

// Keys [begin, end) that some row of a task may see; all of them where a task has its head to itself.
struct TaskKeys {
  std::int64_t begin, end;
};

// Where everything lies in the workspace; see ScratchLayout.
struct Layout {
  KernelInputsLayout inputs;              // shared, written before the tasks start
  std::size_t tasks;                      // likewise
  GradientRowsLayout rows;                // per thread
  OptionGradientsLayout options;          // per thread
  std::size_t turns, d_k_sums, d_v_sums;  // shared
  std::size_t d_k_own, d_v_own, kernel;   // per thread
  std::int64_t kernel_bytes;              // of one thread

  struct Options {
    KernelInputsLayout::Options inputs;
    bool has_bias, has_alibi;
  };
  Layout(const PlanShape& s, const Options& given, const KernelTable& kernels, int threads, ScratchLayout& layout)
      : inputs(s, given.inputs, layout),
        rows(s, threads, layout),
        options(s, given.has_bias, given.has_alibi, kernels, threads, layout) {
    const std::int64_t heads = SaturatingProduct(s.batch, s.kv_heads), group_size = s.heads / s.kv_heads;
    // Only what several tasks add to needs sums beside the results, which may be of any type. A capacity's tasks are the most. A packed
    // sequence of several has four calls, and so kGradientRows rows, at least.
    const bool shares = RowCut(s.q_len, group_size, s.kv_heads, false).tasks > 1;
    const std::int64_t sharing = given.inputs.packed ? CeilDiv(SaturatingProduct(s.q_len, group_size), kGradientRows) : 1;
    tasks = layout.Add<TaskList::Entry>(MostSequences(s.batch, s.q_len, s.kv_len, given.inputs.packed));
    turns = layout.Add<std::int64_t>(shares ? SaturatingProduct(heads, sharing) : 0);
    d_k_sums = layout.Add<float>(shares ? SaturatingProduct(heads, s.kv_len, s.head_dim) : 0);
    d_v_sums = layout.Add<float>(shares ? SaturatingProduct(heads, s.kv_len, s.v_dim) : 0);
    d_k_own = layout.Add<float>(SaturatingProduct(threads, GradientRows(s.kv_len), GradientStride(s.head_dim)));
    d_v_own = layout.Add<float>(SaturatingProduct(threads, GradientRows(s.kv_len), GradientStride(s.v_dim)));
    kernel_bytes = static_cast<std::int64_t>(kernels.backward_scratch_bytes(s.head_dim, s.v_dim));
    kernel_bytes = CeilDiv(kernel_bytes, ScratchLayout::kAlignment) * static_cast<std::int64_t>(ScratchLayout::kAlignment);
    kernel = layout.Add<std::byte>(SaturatingProduct(threads, kernel_bytes));
  }
};

// One run with everything its tasks need at hand.
class FusedBackwardRun {
 public:
  FusedBackwardRun(const KernelInputs& inputs, const Gradients& gradients, const KernelTable& kernels, const ExecOptions& exec,
                   int threads, const Layout& layout, std::byte* workspace)
      : p_(inputs.problem()),
        g_(gradients),
        inputs_(inputs),
        kernels_(kernels),
        exec_(exec),
        threads_(threads),
        layout_(layout),
        workspace_(workspace),
        tasks_(inputs.sequences(), At<TaskList::Entry>(layout.tasks), [this](const Sequence& s) { return DemandOf(s); }),
        turns_(At<std::int64_t>(layout.turns)) {}

  void Run() {
    for (const TaskList::Entry& entry : tasks_.sharing()) std::fill_n(turns_ + entry.first_shared, p_.kv_heads, 0);
    const OptionGradients options(inputs_, g_, kernels_, threads_, layout_.rows, layout_.options, workspace_);
    RunControl control(exec_, tasks_.num_tasks() + options.num_tasks());
    ParallelFor(threads_, tasks_.num_tasks(), [&](std::int64_t n, int thread) {
      const TaskList::Entry& entry = tasks_.Of(n);
      const RowCut cut = CutOf(*entry.sequence);
      const std::int64_t kv_head = (n - entry.first_task) / cut.tasks;
      std::int64_t* const turn = cut.tasks > 1 ? turns_ + entry.first_shared + kv_head : nullptr;
      const Task task{*entry.sequence, cut, kv_head, (n - entry.first_task) % cut.tasks, turn};
      const TaskKeys keys = KeysOf(task);
      if (!control.ShouldStop()) AddUp(task, keys, thread);
      HandIn(task, keys, thread, control);
      control.TaskDone();
    });
    options.Run(control);
  }

 private:
  struct Task {
    const Sequence& s;
    const RowCut cut;
    const std::int64_t kv_head, number;
    std::int64_t* const turn;  // of the kv head: the task that may hand in; null where there is one
  };

  RowCut CutOf(const Sequence& s) const {
    const bool holds_segments = p_.q_segments.data != nullptr && p_.dropout.is_on();
    return {s.q_len, p_.group_size, p_.kv_heads, p_.window_left.has_value() || holds_segments};
  }
  // Also of keys without queries, whose gradients are 0.
  TaskList::Demand DemandOf(const Sequence& s) const {
    const std::int64_t tasks = CutOf(s).tasks;
    return {p_.kv_heads * tasks, s.q_len * s.kv_len / tasks, tasks > 1 ? p_.kv_heads : 0};
  }

  // What thread `thread` has of an area of `each` items.
  template <typename T>
  T* At(std::size_t offset, int thread = 0, std::int64_t each = 0) const {
    return reinterpret_cast<T*>(workspace_ + offset) + thread * each;
  }
  float* OwnK(int thread) const {
    return At<float>(layout_.d_k_own, thread, GradientRows(p_.kv_len) * GradientStride(p_.head_dim));
  }
  float* OwnV(int thread) const { return At<float>(layout_.d_v_own, thread, GradientRows(p_.kv_len) * GradientStride(p_.v_dim)); }

  // The keys of the results that are a sequence's: in a cache, whose results are as long as the longest, also those behind its last.
  std::int64_t ResultKeys(const Sequence& s) const { return p_.is_cached() ? p_.kv_len : s.kv_len; }

  // Which rows of a kv head's group a call has, counted head by head.
  static std::int64_t FirstRow(const RowCut& cut, std::int64_t call) {
    return call / cut.calls_per_unit * cut.rows_per_unit + call % cut.calls_per_unit * kGradientRows;
  }
  static std::int64_t NumRows(const RowCut& cut, std::int64_t call) {
    return std::min(kGradientRows, cut.rows_per_unit - call % cut.calls_per_unit * kGradientRows);
  }

  TaskKeys KeysOf(const Task& task) const {
    const Sequence& s = task.s;
    if (task.cut.tasks == 1) return {0, ResultKeys(s)};
    TaskKeys keys{s.kv_len, 0};
    for (std::int64_t n = 0; task.cut.Call(task.number, n) >= 0; ++n) {
      const std::int64_t call = task.cut.Call(task.number, n);
      const std::int64_t first = FirstRow(task.cut, call), end = first + NumRows(task.cut, call);
      for (std::int64_t row = first; row < end; ++row) {
        const RowKeys& of_row = inputs_.Keys(s.batch, s.first_query + row % s.q_len);
        if (of_row.begin == of_row.end) continue;
        keys.begin = std::min(keys.begin, of_row.begin - s.first_key);
        keys.end = std::max(keys.end, of_row.end - s.first_key);
      }
    }
    return keys.begin < keys.end ? keys : TaskKeys{0, 0};
  }

  // All calls of a task: d_q of its rows, and what the keys get of them.
  void AddUp(const Task& task, const TaskKeys& keys, int thread) const {
    // The kernel adds to whole tiles of keys.
    const std::int64_t begin = keys.begin / 4 * 4, end = GradientRows(keys.end);
    const std::int64_t k_stride = GradientStride(p_.head_dim), v_stride = GradientStride(p_.v_dim);
    std::fill(OwnK(thread) + begin * k_stride, OwnK(thread) + end * k_stride, 0.0f);
    std::fill(OwnV(thread) + begin * v_stride, OwnV(thread) + end * v_stride, 0.0f);
    for (std::int64_t n = 0; task.cut.Call(task.number, n) >= 0; ++n) CallKernel(task, task.cut.Call(task.number, n), thread);
  }

  void CallKernel(const Task& task, std::int64_t call, int thread) const {
    const std::int64_t first_row = FirstRow(task.cut, call), num_rows = NumRows(task.cut, call), q_len = task.s.q_len;
    GradientRowsOfThread rows(inputs_, g_, layout_.rows, workspace_, thread);
    const auto for_each = [&](const auto& body) {
      for (std::int64_t n = 0; n < num_rows; ++n) {
        body(n, task.kv_head * p_.group_size + (first_row + n) / q_len, (first_row + n) % q_len);
      }
    };
    for_each([&](std::int64_t n, std::int64_t h, std::int64_t i) { rows.Load(n, task.s, h, i); });
    kernels_.backward(inputs_.Head(task.s, task.kv_head), inputs_.options(), rows.rows(), rows.gradients(), num_rows,
                      OwnK(thread), OwnV(thread), At<std::byte>(layout_.kernel, thread, layout_.kernel_bytes));
    for_each([&](std::int64_t n, std::int64_t h, std::int64_t i) { rows.StoreQueryGradient(n, task.s, h, i); });
  }

  // Adds what a task has added up to what earlier tasks of its head have. Earlier tasks were handed out before, so that none waits for one
  // that has not begun.
  void HandIn(const Task& task, const TaskKeys& keys, int thread, const RunControl& control) {
    if (task.cut.tasks > 1) {
      std::unique_lock lock(mutex_);
      turn_passed_.wait(lock, [&] { return *task.turn == task.number; });
    }
    if (!control.ShouldStop()) {
      AddTo(g_.d_k, At<float>(layout_.d_k_sums), OwnK(thread), task, keys, p_.head_dim);
      AddTo(g_.d_v, At<float>(layout_.d_v_sums), OwnV(thread), task, keys, p_.v_dim);
    }
    if (task.cut.tasks > 1) {
      std::lock_guard lock(mutex_);
      ++*task.turn;
      turn_passed_.notify_all();
    }
  }

  // own [kv_len, GradientStride(dim)], of which only what lies in `keys` counts, into the result, over sums [batch, kv_heads, kv_len, dim]
  // unless the result can hold them. The first task writes every row.
  void AddTo(const MutableView4& result, float* sums, const float* own, const Task& task, const TaskKeys& keys,
             std::int64_t dim) const {
    if (result.data == nullptr) return;
    const bool in_place = IsFloatResult(result, dim);
    const Sequence& s = task.s;
    const std::int64_t num_keys = ResultKeys(s);
    const auto offset_of = [&](std::int64_t j) { return result.Offset(s.batch, task.kv_head, s.first_key + j, 0); };
    const auto sum_of = [&](std::int64_t j) {
      return in_place ? static_cast<float*>(result.data) + offset_of(j)
                      : sums + ((s.batch * p_.kv_heads + task.kv_head) * p_.kv_len + s.first_key + j) * dim;
    };
    const auto own_of = [&](std::int64_t j) { return own + j * GradientStride(dim); };
    if (task.cut.tasks == 1 && !in_place) {  // there are no sums
      for (std::int64_t j = 0; j < num_keys; ++j) StoreGradientRow(result, offset_of(j), own_of(j), dim);
      return;
    }
    if (task.number == 0) {
      for (std::int64_t j = 0; j < num_keys; ++j) {
        if (j < keys.begin || j >= keys.end) {
          std::fill_n(sum_of(j), dim, 0.0f);
        } else {
          std::copy_n(own_of(j), dim, sum_of(j));
        }
      }
    } else {
      for (std::int64_t j = keys.begin; j < keys.end; ++j) {
        float* const sum = sum_of(j);
        for (std::int64_t d = 0; d < dim; ++d) sum[d] += own_of(j)[d];
      }
    }
    if (task.number != task.cut.tasks - 1 || in_place) return;
    for (std::int64_t j = 0; j < num_keys; ++j) StoreGradientRow(result, offset_of(j), sum_of(j), dim);
  }

  const Problem& p_;
  const Gradients& g_;
  const KernelInputs& inputs_;
  const KernelTable& kernels_;
  const ExecOptions& exec_;
  const int threads_;
  const Layout& layout_;
  std::byte* const workspace_;
  const TaskList tasks_;
  std::int64_t* const turns_;  // of each sequence of several tasks [kv_heads]
  std::mutex mutex_;
  std::condition_variable turn_passed_;
};

}  // namespace

std::size_t FusedBackwardWorkspaceBytes(const PlanShape& capacity, const AttentionParams& params, const KernelTable& kernels,
                                        int threads) {
  ScratchLayout layout;
  const Layout fused(
      capacity,
      {KernelInputsLayout::Options::Of(capacity, params), static_cast<bool>(params.bias), static_cast<bool>(params.alibi_slopes)},
      kernels, threads, layout);
  return layout.too_large() ? std::numeric_limits<std::size_t>::max() : layout.total();
}

void RunFusedBackward(const Problem& problem, const Gradients& gradients, const KernelTable& kernels, const ExecOptions& exec,
                      int threads, std::byte* workspace) noexcept {
  ScratchLayout layout;
  const Layout fused(
      KernelInputsLayout::ShapeOf(problem),
      {KernelInputsLayout::Options::Of(problem), problem.bias.data != nullptr, problem.alibi_slopes.data != nullptr}, kernels,
      threads, layout);
  const KernelInputs inputs(problem, fused.inputs, workspace, threads);
  FusedBackwardRun(inputs, gradients, kernels, exec, threads, fused, workspace).Run();
}

}  // namespace regard::internal
