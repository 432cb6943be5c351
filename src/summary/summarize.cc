// Summarize: the context by the fused path, then one pass over the weights for everything that was asked for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "attention/fused.h"
#include "core/bind.h"
#include "core/parallel_for.h"
#include "core/stop.h"
#include "regard/summary.h"
#include "summary/head_kind.h"
#include "summary/ordered_tasks.h"
#include "summary/summary_request.h"
#include "summary/weight_source.h"

namespace regard::internal {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Rows of one task: enough that merging what it knows of every key costs little against its rows, and few enough tasks a head for
// several threads to find work in one. Set by the sequence's own length alone: the sums per task are part of the result's bits.
constexpr std::int64_t kMinRowsPerTask = 256;
std::int64_t RowsPerTask(std::int64_t q_len) { return std::max<std::int64_t>(kMinRowsPerTask, (q_len / 8 + 63) / 64 * 64); }

// Rows of one call of the kernel, a multiple of its blocks, so that bits do not depend on it: a task of 131,072 tokens takes seconds, and a
// run that is to stop looks up between calls.
constexpr std::int64_t kRowsPerCall = 384;

// One task of a head: some rows of a sequence, or all of several short ones.
struct RowsTask {
  std::span<const Sequence> sequences;
  std::int64_t first_row, num_rows;  // of its sequence, or of each of them
  std::int64_t num_keys;             // of all its sequences
};

// The tasks of a batch entry, rows ascending. Short sequences share one, whose sums are of other keys each.
std::vector<RowsTask> TasksOf(std::span<const Sequence> all, std::int64_t b) {
  std::vector<RowsTask> tasks;
  std::int64_t shared_rows = kMinRowsPerTask;  // of the last task, if it can take more
  for (const Sequence& s : all) {
    if (s.batch != b || s.q_len == 0) continue;
    if (shared_rows + s.q_len <= kMinRowsPerTask) {
      RowsTask& task = tasks.back();
      task.sequences = {task.sequences.data(), task.sequences.size() + 1};
      task.num_keys += s.kv_len;
      shared_rows += s.q_len;
      continue;
    }
    const std::int64_t per_task = RowsPerTask(s.q_len);
    for (std::int64_t first = 0; first < s.q_len; first += per_task) {
      tasks.push_back({{&s, 1}, first, std::min(per_task, s.q_len - first), s.kv_len});
    }
    shared_rows = s.q_len;
  }
  return tasks;
}

// What a task knows of its keys, one sequence after the other, or all tasks of a head so far of the head's; and of bins and distances.
struct HeadSums {
  void Reset(const Request& request, std::int64_t num_keys, const HeadEvidence& range) {
    const auto assign = [](auto& to, bool wanted, std::int64_t count, auto value) {
      to.assign(wanted ? static_cast<std::size_t>(count) : 0, value);
    };
    assign(key_mass, request.key_mass, num_keys, 0.0);
    assign(key_count, request.key_count, num_keys, std::int64_t{0});
    assign(key_topk_weight, request.key_top_k > 0, num_keys * request.key_top_k, 0.0f);
    assign(key_topk_row, request.key_top_k > 0, num_keys * request.key_top_k, std::int64_t{-1});
    assign(pooled, request.pooled, request.rows * request.cols, 0.0);
    assign(pooled_max, request.pooled_max, request.rows * request.cols, 0.0f);
    assign(pooled_queries, request.pooled, request.rows, std::int64_t{0});
    evidence = range;
  }

  void Add(const HeadSums& part, const RowsTask& task, std::int64_t key_top_k) {
    std::int64_t key = 0;  // of the part
    for (const Sequence& s : task.sequences) {
      const auto add = [&](auto& to, const auto& from) {
        for (std::int64_t n = 0; !to.empty() && n < s.kv_len; ++n) {
          to[static_cast<std::size_t>(s.first_key + n)] += from[static_cast<std::size_t>(key + n)];
        }
      };
      add(key_mass, part.key_mass);
      add(key_count, part.key_count);
      for (std::int64_t n = 0; key_top_k > 0 && n < s.kv_len; ++n) MergeList(s.first_key + n, part, key + n, key_top_k);
      key += s.kv_len;
    }
    const auto add = [](auto& to, const auto& from) {
      for (std::size_t n = 0; n < to.size(); ++n) to[n] += from[n];
    };
    add(pooled, part.pooled);
    add(pooled_queries, part.pooled_queries);
    add(evidence.distances, part.evidence.distances);
    for (std::size_t n = 0; n < pooled_max.size(); ++n) {
      if (std::isnan(part.pooled_max[n]) || part.pooled_max[n] > pooled_max[n]) pooled_max[n] = part.pooled_max[n];
    }
    evidence.queries += part.evidence.queries;
    evidence.first_key += part.evidence.first_key;
    evidence.uniformity += part.evidence.uniformity;
  }

  std::vector<double> key_mass;
  std::vector<std::int64_t> key_count, key_topk_row;
  std::vector<float> key_topk_weight;
  std::vector<double> pooled;
  std::vector<float> pooled_max;
  std::vector<std::int64_t> pooled_queries;  // non-empty queries of each row bin
  HeadEvidence evidence;

 private:
  // The part's rows are all later ones: equal weights stay behind.
  void MergeList(std::int64_t key, const HeadSums& part, std::int64_t part_key, std::int64_t top) {
    float* const weights = key_topk_weight.data() + key * top;
    std::int64_t* const rows = key_topk_row.data() + key * top;
    for (auto i = static_cast<std::size_t>(part_key * top); i < static_cast<std::size_t>((part_key + 1) * top); ++i) {
      const float weight = part.key_topk_weight[i];
      if (!(weight > weights[top - 1])) break;
      std::int64_t at = top - 1;
      for (; at > 0 && weights[at - 1] < weight; --at) {
        weights[at] = weights[at - 1];
        rows[at] = rows[at - 1];
      }
      weights[at] = weight;
      rows[at] = part.key_topk_row[i];
    }
  }
};

// What is found out about each row, [chosen heads, q_len], where the caller did not ask but something else needs it.
struct SpareRows {
  std::vector<float> entropy, first_key_share, topk_weight;
  std::vector<std::int64_t> num_visible, topk_key;
};

// Where the first pass puts what it knows of each row. top_k is at least 1 when the largest score is wanted.
RowTracking TrackRows(const Request& request, const Problem& p, Summary* s, SpareRows* spare) {
  const std::size_t rows = request.heads.size() * request.batch.size() * static_cast<std::size_t>(p.q_len);
  const auto floats = [](Tensor& tensor) { return tensor ? tensor.MutableAs<float>() : nullptr; };
  const auto of = [](auto& vector, std::size_t count) {
    vector.resize(count);
    return vector.data();
  };
  RowTracking out;
  out.entropy = floats(s->entropy);
  out.first_key_share = floats(s->first_key_share);
  out.row_max = floats(s->row_max);
  out.topk_tail = floats(s->topk_tail);
  out.top_k = std::max<std::int64_t>(request.top_k, request.row_max ? 1 : 0);
  if (request.top_k > 0) {
    out.topk_key = s->topk_index.MutableAs<std::int64_t>();
    out.topk_weight = s->topk_weight.MutableAs<float>();
  } else if (out.top_k > 0) {
    out.topk_key = s->row_argmax ? s->row_argmax.MutableAs<std::int64_t>() : of(spare->topk_key, rows);
    out.topk_weight = of(spare->topk_weight, rows);
  }
  if (request.head_kind) {
    if (out.entropy == nullptr) out.entropy = of(spare->entropy, rows);
    if (out.first_key_share == nullptr) out.first_key_share = of(spare->first_key_share, rows);
    out.num_visible = of(spare->num_visible, rows);
  }
  return out;
}

// One thread's memory for one task.
struct TaskMemory {
  std::vector<QueryRow> rows;
  std::vector<std::uint8_t> sees_key;
  HeadSums sums;
  Workspace scratch;
};

class SummaryRun {
 public:
  SummaryRun(const Problem& problem, const KernelInputs& inputs, const KernelTable& kernels, const ExecOptions& exec, int threads,
             const Request& request, const RowTracking& rows, Summary* summary)
      : p_(problem),
        inputs_(inputs),
        kernels_(kernels),
        exec_(exec),
        threads_(threads),
        request_(request),
        rows_(rows),
        s_(*summary) {}

  void Run() {
    const auto heads = static_cast<std::int64_t>(request_.heads.size() * request_.batch.size());
    if (p_.q_len == 0) {  // no task would say so
      for (std::int64_t head = 0; head < heads; ++head) {
        sums_.Reset(request_, p_.kv_len, {});
        FinishHead(head);
      }
      return;
    }
    for (const std::int64_t b : request_.batch) entries_.push_back({TasksOf(inputs_.sequences(), b), DistanceRange(b)});
    struct HeadTask {
      std::int64_t head, number;
    };
    std::vector<HeadTask> tasks;
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::size_t n = 0; n < EntryOf(head).tasks.size(); ++n) tasks.push_back({head, static_cast<std::int64_t>(n)});
    }
    const auto num_tasks = static_cast<std::int64_t>(tasks.size());
    std::vector<TaskMemory> memory(static_cast<std::size_t>(std::min<std::int64_t>(threads_, num_tasks)));
    RunControl control(exec_, num_tasks);
    ForEachInOrder(
        threads_, num_tasks, [](std::int64_t, int) {},
        [&](std::int64_t task, int thread) {
          if (control.ShouldStop()) return;
          const auto [head, number] = tasks[static_cast<std::size_t>(task)];
          RunTask(head, EntryOf(head).tasks[static_cast<std::size_t>(number)], control, memory[static_cast<std::size_t>(thread)]);
          control.TaskDone();
        },
        [&](std::int64_t task, int thread) {
          if (control.ShouldStop()) return;
          const auto [head, number] = tasks[static_cast<std::size_t>(task)];
          const Entry& entry = EntryOf(head);
          if (number == 0) sums_.Reset(request_, p_.kv_len, entry.range);
          sums_.Add(memory[static_cast<std::size_t>(thread)].sums, entry.tasks[static_cast<std::size_t>(number)],
                    request_.key_top_k);
          if (number == static_cast<std::int64_t>(entry.tasks.size()) - 1) FinishHead(head);
        });
  }

 private:
  // What is the same for all heads of a batch entry.
  struct Entry {
    std::vector<RowsTask> tasks;
    HeadEvidence range;
  };

  // head counts the chosen ones, batch by heads.
  std::int64_t Head(std::int64_t head) const { return request_.heads[static_cast<std::size_t>(head) % request_.heads.size()]; }
  const Entry& EntryOf(std::int64_t head) const { return entries_[static_cast<std::size_t>(head) / request_.heads.size()]; }

  // The distances that occur, all 0.
  HeadEvidence DistanceRange(std::int64_t b) const {
    HeadEvidence evidence;
    if (!request_.head_kind) return evidence;
    std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = std::numeric_limits<std::int64_t>::min();
    for (std::int64_t i = 0; i < p_.q_len; ++i) {
      const RowKeys& keys = inputs_.Keys(b, i);
      if (keys.begin == keys.end) continue;
      first = std::min(first, keys.position - p_.KeyPosition(b, keys.end - 1));
      last = std::max(last, keys.position - p_.KeyPosition(b, keys.begin));
    }
    if (first > last) return evidence;
    evidence.first_distance = first;
    evidence.distances.assign(static_cast<std::size_t>(last - first + 1), 0.0);
    return evidence;
  }

  void RunTask(std::int64_t head, const RowsTask& task, const RunControl& control, TaskMemory& own) const {
    own.sums.Reset(request_, task.num_keys, EntryOf(head).range);
    std::int64_t key = 0;
    for (const Sequence& s : task.sequences) {
      ReduceRows(head, s, task.first_row, task.sequences.size() == 1 ? task.num_rows : s.q_len, key, control, own);
      key += s.kv_len;
    }
  }

  // num_rows rows of a sequence from `first` on, whose keys stand in the task's sums from `key` on.
  void ReduceRows(std::int64_t head, const Sequence& s, std::int64_t first, std::int64_t num_rows, std::int64_t key,
                  const RunControl& control, TaskMemory& own) const {
    const std::int64_t h = Head(head), at = head * p_.q_len + s.first_query + first;
    const auto count = static_cast<std::size_t>(num_rows);
    own.rows.resize(count);
    for (std::int64_t r = 0; r < num_rows; ++r) {
      QueryRow& row = own.rows[static_cast<std::size_t>(r)];
      row = inputs_.Row(s, h, first + r);
      row.lse = s_.lse.MutableAs<float>() + at + r;
    }
    WeightReductions out;
    const auto row_floats = [&](Tensor& tensor) { return tensor ? tensor.MutableAs<float>() + at : nullptr; };
    out.distance_mean = row_floats(s_.distance_mean);
    out.distance_std = row_floats(s_.distance_std);
    out.window_share = row_floats(s_.window_share);
    out.window = request_.window;
    const auto data = [](auto& vector, std::int64_t from) { return vector.empty() ? nullptr : vector.data() + from; };
    out.key_mass = data(own.sums.key_mass, key);
    out.key_count = data(own.sums.key_count, key);
    out.key_top_k = s.kv_len > 0 ? request_.key_top_k : 0;
    out.key_topk_weight = data(own.sums.key_topk_weight, key * request_.key_top_k);
    out.key_topk_row = data(own.sums.key_topk_row, key * request_.key_top_k);
    out.pooled = data(own.sums.pooled, 0);
    out.pooled_max = data(own.sums.pooled_max, 0);
    out.pooled_rows = request_.rows;
    out.pooled_cols = request_.cols;
    out.row_origin = s.first_query + first;
    out.q_len = p_.q_len;
    out.key_origin = s.first_key;
    out.kv_len = inputs_.Entry(s.batch).kv_len;
    if (request_.pooled) {
      own.sees_key.resize(count);
      out.sees_key = own.sees_key.data();
    }
    out.distances = data(own.sums.evidence.distances, 0);
    out.first_distance = own.sums.evidence.first_distance;
    const std::size_t bytes = kernels_.reduce_scratch_bytes(p_.head_dim, out);
    if (own.scratch.size() < bytes) own.scratch = Workspace(bytes);
    for (std::int64_t r = 0; r < num_rows && !control.ShouldStop(); r += kRowsPerCall) {
      kernels_.reduce_weights(inputs_.Head(s, h / p_.group_size), inputs_.options(), own.rows.data() + r,
                              std::min(kRowsPerCall, num_rows - r), FromRow(out, r), own.scratch.data());
    }
    TakeRows(out, at, num_rows, own);
  }

  // The same for the rows of a task from r on.
  static WeightReductions FromRow(WeightReductions out, std::int64_t r) {
    for (float** rows : {&out.distance_mean, &out.distance_std, &out.window_share}) *rows += *rows == nullptr ? 0 : r;
    if (out.sees_key != nullptr) out.sees_key += r;
    out.row_origin += r;
    return out;
  }

  // What follows from the rows that were reduced.
  void TakeRows(const WeightReductions& out, std::int64_t at, std::int64_t num_rows, TaskMemory& own) const {
    for (std::int64_t r = 0; r < num_rows; ++r) {
      if (out.sees_key != nullptr && out.sees_key[r] != 0) {
        ++own.sums.pooled_queries[static_cast<std::size_t>(((out.row_origin + r + 1) * request_.rows - 1) / p_.q_len)];
      }
      if (!request_.head_kind || rows_.num_visible[at + r] == 0) continue;
      HeadEvidence& evidence = own.sums.evidence;
      const auto num_visible = static_cast<double>(rows_.num_visible[at + r]);
      ++evidence.queries;
      evidence.first_key += rows_.first_key_share[at + r];
      const double entropy = rows_.entropy[at + r];  // NaN of an undefined row, whose only key says nothing either
      evidence.uniformity += num_visible == 1 && !std::isnan(entropy) ? 1 : entropy / std::log(num_visible);
    }
  }

  void FinishHead(std::int64_t head) const {
    const std::int64_t kv_len = p_.kv_len;
    const auto of_head = [head](Tensor& tensor, std::int64_t size) {
      return tensor ? tensor.MutableAs<float>() + head * size : nullptr;
    };
    float* const key_mass = of_head(s_.key_mass, kv_len);
    float* const key_mass_mean = of_head(s_.key_mass_mean, kv_len);
    for (std::int64_t j = 0; j < kv_len; ++j) {
      const auto n = static_cast<std::size_t>(j);
      if (key_mass != nullptr) key_mass[j] = static_cast<float>(sums_.key_mass[n]);
      if (key_mass_mean == nullptr) continue;
      const auto queries = static_cast<double>(sums_.key_count[n]);
      key_mass_mean[j] = static_cast<float>(queries == 0 ? kNaN : sums_.key_mass[n] / queries);
    }
    if (request_.key_top_k > 0) {
      const std::int64_t at = head * kv_len * request_.key_top_k;
      std::copy(sums_.key_topk_weight.begin(), sums_.key_topk_weight.end(), s_.key_topk_weight.MutableAs<float>() + at);
      std::copy(sums_.key_topk_row.begin(), sums_.key_topk_row.end(), s_.key_topk_index.MutableAs<std::int64_t>() + at);
    }
    float* const pooled = of_head(s_.pooled, request_.rows * request_.cols);
    float* const pooled_max = of_head(s_.pooled_max, request_.rows * request_.cols);
    for (std::int64_t row = 0; request_.pooled && row < request_.rows; ++row) {
      const auto queries = static_cast<double>(sums_.pooled_queries[static_cast<std::size_t>(row)]);
      for (std::int64_t bin = row * request_.cols; bin < (row + 1) * request_.cols; ++bin) {
        const auto n = static_cast<std::size_t>(bin);
        pooled[bin] = static_cast<float>(queries == 0 ? kNaN : sums_.pooled[n] / queries);
        if (pooled_max != nullptr) pooled_max[bin] = static_cast<float>(queries == 0 ? kNaN : sums_.pooled_max[n]);
      }
    }
    if (request_.head_kind) {
      const HeadVerdict verdict = JudgeHead(sums_.evidence);
      s_.head_kind[static_cast<std::size_t>(head)] = verdict.kind;
      *of_head(s_.head_score, 1) = static_cast<float>(verdict.score);
    }
  }

  const Problem& p_;
  const KernelInputs& inputs_;
  const KernelTable& kernels_;
  const ExecOptions& exec_;
  const int threads_;
  const Request& request_;
  const RowTracking& rows_;  // what the first pass knows
  Summary& s_;
  std::vector<Entry> entries_;  // of each chosen batch entry
  HeadSums sums_;               // of the head whose tasks are being merged
};

// The part of a problem that is one head of one sequence; the same for where its results go.
Problem HeadOf(const Problem& whole, std::int64_t b, std::int64_t h) {
  Problem p = whole;
  const auto select = [](View4& view, std::int64_t batch, std::int64_t head) {
    if (view.data == nullptr) return;
    view.data = static_cast<const char*>(view.data) +
                (batch * view.stride[0] + head * view.stride[1]) * static_cast<std::int64_t>(ItemSize(view.dtype));
  };
  for (View4* view : {&p.q, &p.mask, &p.bias, &p.kv_lens, &p.q_offset, &p.q_segments, &p.kv_segments}) select(*view, b, h);
  for (View4* view : {&p.k, &p.v}) select(*view, b, h / whole.group_size);
  for (View4* view : {&p.alibi_slopes, &p.sinks}) select(*view, 0, h);
  if (p.is_cached()) {
    p.cached.sequences += b;
    p.cached.first_kv_head += h / whole.group_size;
  }
  p.dropout.origin.batch += b;
  p.dropout.origin.head += h;
  p.batch = p.heads = p.kv_heads = p.group_size = 1;
  return p;
}

// A fraction of the whole run that one of its parts reports from 0 to 1.
ExecOptions PartOf(const ExecOptions& exec, double begin, double end) {
  ExecOptions part = exec;
  if (exec.on_progress) part.on_progress = [&exec, begin, end](double done) { exec.on_progress(begin + (end - begin) * done); };
  return part;
}

// Context and lse of the chosen heads, and what is tracked of their rows. All at once if all are chosen; else one after the other, by the
// kernels of the whole.
void RunContext(const Problem& p, const KernelTable& kernels, const AttentionParams& params, const ExecOptions& exec, int threads,
                const Request& request, const RowTracking& tracking, const Results& results, Summary* summary) {
  PlanShape shape = KernelInputsLayout::ShapeOf(p);
  const bool tracks = request.tracks_rows;
  if (!request.all) shape.batch = shape.heads = shape.kv_heads = 1;
  Workspace workspace(FusedWorkspaceBytes(shape, params, kernels, threads, tracks ? tracking.top_k : -1));
  if (request.all) {
    Results all = results;
    RunFused(p, kernels, exec, threads, {p.group_size, tracks ? &tracking : nullptr}, workspace.data(), &all);
    summary->empty_rows = all.empty_rows;
    return;
  }
  const double heads = static_cast<double>(request.batch.size() * request.heads.size());
  std::int64_t head = 0;
  for (const std::int64_t b : request.batch) {
    for (const std::int64_t h : request.heads) {
      if (exec.stop_token.stop_requested()) return;
      Results one = results;
      for (MutableView4* view : {&one.context, &one.lse}) {
        view->data = static_cast<char*>(view->data) + head * (view == &one.context ? p.q_len * p.v_dim : p.q_len) *
                                                          static_cast<std::int64_t>(ItemSize(view->dtype));
      }
      const RowTracking of_head = tracking.From(head * p.q_len);
      const double done = static_cast<double>(head);
      RunFused(HeadOf(p, b, h), kernels, PartOf(exec, done / heads, (done + 1) / heads), threads,
               {p.group_size, tracks ? &of_head : nullptr}, workspace.data(), &one);
      summary->empty_rows += one.empty_rows;
      ++head;
    }
  }
}

// Everything, for k and v as tensors or in a cache.
Summary Run(const PlanShape& shape, const Inputs& run, const AttentionParams& params, const SummaryOptions& options,
            const ExecOptions& exec) {
  const KernelTable& kernels = SummaryKernels(exec);
  CheckPlan(shape, params, exec).ThrowIfFailed();
  Problem problem;
  Results results;
  Bind(shape, params, ResolveScale(shape, params), run, {}, &problem, &results).ThrowIfFailed();
  const Request request(options, params, problem);
  Summary summary = request.MakeSummary(problem, run.q.rank());
  const int threads = ResolveThreads(exec.threads);
  const std::int64_t q_len = problem.q_len, heads = static_cast<std::int64_t>(request.heads.size());
  results.context = {summary.context.mutable_view().mutable_data(),
                     summary.context.dtype(),
                     {heads * q_len * problem.v_dim, q_len * problem.v_dim, problem.v_dim, 1}};
  results.lse = {summary.lse.mutable_view().mutable_data(), DType::kF32, {heads * q_len, q_len, 1, 1}};
  const double context_share = request.second_pass ? 0.6 : 1;
  SpareRows spare;
  const RowTracking tracking = TrackRows(request, problem, &summary, &spare);
  RunContext(problem, kernels, params, PartOf(exec, 0, context_share), threads, request, tracking, results, &summary);
  // A list longer than one key holds the largest score's key as its first.
  for (std::int64_t r = 0; request.top_k > 0 && summary.row_argmax && r < summary.row_argmax.num_elements(); ++r) {
    summary.row_argmax.MutableAs<std::int64_t>()[r] = tracking.topk_key[r * request.top_k];
  }
  if (request.second_pass && !exec.stop_token.stop_requested()) {
    ScratchLayout layout;
    PlanShape without_v = KernelInputsLayout::ShapeOf(problem);
    without_v.v_dim = 0;
    const KernelInputsLayout places(without_v, KernelInputsLayout::Options::Of(problem), layout);
    Workspace workspace(layout.total());
    const KernelInputs inputs(problem, places, workspace.data(), threads, KernelInputs::Values::kUnused);
    const ExecOptions rest = PartOf(exec, context_share, 1);
    SummaryRun(problem, inputs, kernels, rest, threads, request, tracking, &summary).Run();
  }
  ThrowIfStopped(exec.stop_token);
  return summary;
}

}  // namespace
}  // namespace regard::internal

namespace regard {

Summary Summarize(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionParams& params,
                  const SummaryOptions& options, const ExecOptions& exec) {
  return internal::Run(PlanShape::Of(q, k, v), {q, k, v}, params, options, exec);
}

Summary Summarize(const TensorView& q, const KvCache& cache, std::span<const SequenceId> sequences, const AttentionParams& params,
                  const SummaryOptions& options, const ExecOptions& exec) {
  return internal::Run(PlanShape::Of(q, cache, sequences), Inputs::Of(q, cache, sequences), params, options, exec);
}

}  // namespace regard
