#include "diagnose/case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "core/bind.h"
#include "core/parallel_for.h"
#include "core/stop.h"
#include "diagnose/observed_shape.h"
#include "diagnose/problem_shape.h"

namespace regard::internal {
namespace {

// Comparing a row costs about head_dim + 2·v_dim multiplications a key; this many are done in about half a second.
constexpr double kWholeBudget = 1.5e9;
constexpr std::int64_t kSampledRows = 192;
constexpr std::size_t kWrongProbes = 20, kRightProbes = 8;

bool FitsGrid(double x, DType type) {
  if (std::isnan(x)) return true;
  if (type == DType::kBF16) return static_cast<double>(ToFloat(ToBF16(x))) == x;
  if (type == DType::kF16) return static_cast<double>(ToFloat(ToF16(x))) == x;
  return static_cast<double>(static_cast<float>(x)) == x;
}

// The indices asked for, or all of 0 … size − 1.
std::vector<std::int64_t> Chosen(const char* name, std::vector<std::int64_t> asked, std::int64_t size) {
  if (asked.empty()) {
    asked.resize(static_cast<std::size_t>(size));
    std::iota(asked.begin(), asked.end(), 0);
  }
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  for (const std::int64_t n : asked) {
    if (n >= 0 && n < size) continue;
    throw Error(ErrorCode::kInvalidArgument, std::string("options.") + name + ": " + std::to_string(n) + " is not among the " +
                                                 std::to_string(size) + "; give 0 or more, below that");
  }
  return asked;
}

TensorView WithLeadingAxes(TensorView view, int rank) {
  while (view.rank() < rank) view = view.Unsqueeze(0);
  return view;
}

View4 ToView4(const TensorView& view) {
  View4 v{view.data(), view.dtype(), {}};
  for (int axis = 0; axis < 4; ++axis) v.stride[axis] = view.strides()[axis];
  return v;
}

std::vector<double> LoadAll(const TensorView& view) {
  const Tensor copy = Tensor::CopyOf(view);
  std::vector<double> values;
  for (std::int64_t n = 0; n < copy.num_elements(); ++n) values.push_back(LoadDouble(copy.view().data(), copy.dtype(), n));
  return values;
}

}  // namespace

const char* Name(Stage stage) {
  constexpr const char* kNames[] = {"inputs", "scores", "capped", "masked_scores", "weights", "lse", "context", "projected"};
  return kNames[static_cast<int>(stage)];
}

Problem BindProblem(const DiagnosisProblem& given) {
  const PlanShape shape = PlanShape::Of(given.q, given.k, given.v);
  CheckPlan(shape, given.params, {}).ThrowIfFailed();
  if (given.params.dropout > 0) {
    throw Error(ErrorCode::kUnsupported, "dropout: " + std::to_string(given.params.dropout) +
                                             "; diagnosis compares outputs of evaluation, where nothing is dropped; leave it 0");
  }
  Problem problem;
  Results none;
  Inputs inputs;
  inputs.q = given.q, inputs.k = given.k, inputs.v = given.v;
  Bind(shape, given.params, ResolveScale(shape, given.params), inputs, {}, &problem, &none).ThrowIfFailed();
  return problem;
}

// Where weights are given, q and k of one dimension, zeros, so that everything else can be as it always is.
DiagnosisProblem Case::WithStandIns(const DiagnosisProblem& given, std::vector<Tensor>* stand_ins) {
  if (!given.weights) return given;
  if (given.q || given.k)
    throw Error(ErrorCode::kInvalidArgument, "weights: given besides q or k; give them as observed instead");
  if (given.weights.rank() > 4 || given.v.rank() > 4 || !given.v || !IsFloat(given.weights.dtype())) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("weights: ") + std::string(regard::Name(given.weights.dtype())) + " " +
                    ToString(given.weights.shape()) + ", v " + (given.v ? ToString(given.v.shape()) : "missing") +
                    "; give float weights [batch, heads, q_len, kv_len] and v [batch, kv_heads, kv_len, v_dim]");
  }
  DiagnosisProblem whole = given;
  whole.weights = WithLeadingAxes(given.weights, 4);
  whole.v = WithLeadingAxes(given.v, 4);
  const Dims &w = whole.weights.shape(), &v = whole.v.shape();
  if (w[0] != v[0] || v[1] == 0 || w[1] % v[1] != 0 || w[3] != v[2]) {
    throw Error(ErrorCode::kShapeMismatch,
                "weights: shape " + ToString(w) + " does not fit v " + ToString(v) + "; batch, heads and keys must agree");
  }
  stand_ins->push_back(Tensor(DType::kF32, {w[0], w[1], w[2], 1}));
  stand_ins->push_back(Tensor(DType::kF32, {v[0], v[1], v[2], 1}));
  whole.q = stand_ins->front(), whole.k = stand_ins->back();
  whole.params = {};
  return whole;
}

Case::Case(const DiagnosisProblem& problem, const ObservedTensors& observed, const DiagnoseOptions& options)
    : given_(WithStandIns(problem, &stand_ins_)),
      evaluator_(BindProblem(given_), given_.weights ? ToView4(given_.weights) : View4{}),
      threads_(ResolveThreads(options.threads)),
      on_progress_(options.on_progress),
      stop_token_(options.stop_token),
      batches_(Chosen("batches", options.batches, evaluator_.problem().batch)),
      heads_(Chosen("heads", options.heads, evaluator_.problem().heads)) {
  const Operands& o = evaluator_.operands();
  largest_value_.assign(static_cast<std::size_t>(o.v_dim), 0);
  for (std::size_t n = 0; n < o.v->size(); ++n) {
    double& largest = largest_value_[n % static_cast<std::size_t>(o.v_dim)];
    if (std::isfinite((*o.v)[n])) largest = std::max(largest, std::fabs((*o.v)[n]));
  }
  CheckSources(given_, evaluator_.problem());
  BindObserved(observed);
  ChooseRows();
  const Variant unedited = evaluator_.Unedited();
  unedited_by_stage_.assign(observed_.size(), std::vector<Fit>(rows_.size()));
  unedited_.resize(rows_.size());
  ParallelFor(threads_, static_cast<std::int64_t>(rows_.size()), [&](std::int64_t r, int) {
    if (stopped()) return;
    const RowId row = rows_[static_cast<std::size_t>(r)];
    RowState state;
    evaluator_.Evaluate(unedited, row, &state);
    for (std::size_t o_index = 0; o_index < observed_.size(); ++o_index) {
      Fit& fit = unedited_by_stage_[o_index][static_cast<std::size_t>(r)];
      CompareRow(unedited, state, row, observed_[o_index], &fit);
      unedited_[static_cast<std::size_t>(r)].Add(fit);
    }
    unedited_[static_cast<std::size_t>(r)].shared = IsShared(state);
  });
  ThrowIfStopped(stop_token_);
  ChooseProbes();
}

void Case::BeginPhase(double from, double to) const {
  const std::lock_guard<std::mutex> lock(progress_mutex_);
  phase_from_ = from, phase_to_ = to, tasks_done_ = 0;
}

void Case::CountTask(std::int64_t total) const {
  if (!on_progress_) return;
  const std::lock_guard<std::mutex> lock(progress_mutex_);
  const double part = static_cast<double>(++tasks_done_) / static_cast<double>(std::max<std::int64_t>(total, 1));
  on_progress_(phase_from_ + (phase_to_ - phase_from_) * std::min(part, 1.0));
}

void Case::BindObserved(const ObservedTensors& given) {
  if (given_.weights && (given.scores || given.capped || given.masked_scores || given.lse)) {
    throw Error(ErrorCode::kInvalidArgument,
                "observed: scores or lse, but weights and v alone are the third stage; observe the context, or give q and k");
  }
  const Problem& p = problem();
  const auto add = [&](Stage stage, const TensorView& four) {
    if (!IsFloat(four.dtype()))
      throw Error(ErrorCode::kInvalidArgument, std::string("observed ") + Name(stage) + ": element type " +
                                                   std::string(regard::Name(four.dtype())) + "; give a float type");
    observed_.push_back({stage, ToView4(four), four.dim(3), RoundoffOf(four.dtype()), four.dtype()});
  };
  const std::pair<Stage, const TensorView*> stages[] = {{Stage::kScores, &given.scores},
                                                        {Stage::kCapped, &given.capped},
                                                        {Stage::kMaskedScores, &given.masked_scores},
                                                        {Stage::kWeights, &given.weights}};
  for (const auto& [stage, view] : stages) {
    if (*view) add(stage, StageInFullShape(Name(stage), *view, p));
  }
  if (given.lse) add(Stage::kLse, LseInFullShape(given.lse, p));
  if (given.context) add(Stage::kContext, ContextInFullShape(given.context, p));
  if (given_.projections.w_out) {
    w_out_ = LoadAll(given_.projections.w_out);
    const std::size_t out_dim = static_cast<std::size_t>(given_.projections.w_out.dim(0));
    b_out_ = given_.projections.b_out ? LoadAll(given_.projections.b_out) : std::vector<double>(out_dim, 0);
  }
  if (given.projected) {
    const std::int64_t out_dim = w_out_.empty() ? p.heads * p.v_dim : static_cast<std::int64_t>(b_out_.size());
    add(Stage::kProjected, ProjectedInFullShape(given.projected, p, out_dim));
  }
  if (observed_.empty())
    throw Error(ErrorCode::kInvalidArgument, "observed: nothing given; give context, weights, or another stage");
}

const ObservedStage* Case::Find(Stage stage) const {
  for (const ObservedStage& o : observed_) {
    if (o.stage == stage) return &o;
  }
  return nullptr;
}

// All rows while that is cheap; else first and last ones of every head, edges of blocks, and evenly spaced ones between.
void Case::ChooseRows() {
  const Problem& p = problem();
  const double row_cost = static_cast<double>(p.kv_len) * static_cast<double>(p.head_dim + 2 * p.v_dim + 40);
  const std::int64_t columns = static_cast<std::int64_t>(batches_.size() * heads_.size()), all = columns * p.q_len;
  const std::int64_t affordable =
      std::max<std::int64_t>(kSampledRows, static_cast<std::int64_t>(kWholeBudget / std::max(row_cost, 1.0)));
  sampled_ = all > affordable;
  all_rows_ = all;
  const std::int64_t per_head = sampled_ ? std::min(std::max<std::int64_t>(affordable / columns, 4), p.q_len) : p.q_len;
  for (const std::int64_t b : batches_) {
    for (const std::int64_t h : heads_) {
      for (std::int64_t r = 0; r < per_head; ++r) {
        // Evenly spaced, ends included; when sampled, every second one pulled back to the start of its block of 64.
        std::int64_t i = per_head > 1 ? r * (p.q_len - 1) / (per_head - 1) : 0;
        if (sampled_ && r % 2 == 1) i -= i % 64;
        rows_.push_back({b, h, i});
      }
    }
  }
  std::sort(rows_.begin(), rows_.end());
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
  if (std::all_of(observed_.begin(), observed_.end(), [](const ObservedStage& o) { return o.stage == Stage::kProjected; })) {
    if (heads_.front() != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "options.heads: only `projected` is observed, which mixes all heads; leave them out, or observe the context");
    }
    std::erase_if(rows_, [](const RowId& row) { return row.h != 0; });  // those of a token are one
    all_rows_ = static_cast<std::int64_t>(batches_.size()) * p.q_len;
  }
  for (ObservedStage& o : observed_) {
    if (o.view.dtype != DType::kF32 && o.view.dtype != DType::kF64) continue;
    bool f16 = true, bf16 = true;
    std::int64_t telling = 0;
    for (std::size_t r = 0; r < rows_.size() && (f16 || bf16); ++r) {
      if (o.stage == Stage::kProjected && rows_[r].h != 0) continue;
      for (std::int64_t c = 0; c < o.columns && (f16 || bf16); ++c) {
        const double x = o.At(rows_[r], c);
        f16 = f16 && FitsGrid(x, DType::kF16);
        bf16 = bf16 && FitsGrid(x, DType::kBF16);
        telling += std::isfinite(x) && x != 0 && std::fabs(x) != 1;
      }
    }
    if (telling >= 8 && f16) o.grid = DType::kF16;
    if (telling >= 8 && bf16) o.grid = DType::kBF16;  // which f16 holds too, where they are not small
    o.storage = RoundoffOf(o.grid);
  }
}

// Wrong rows spread over heads and positions, the worst one among them; right rows likewise.
void Case::ChooseProbes() {
  std::vector<std::size_t> wrong, right;
  for (std::size_t r = 0; r < rows_.size(); ++r) (unedited_[r].Matches() ? right : wrong).push_back(r);
  // Steps of the golden ratio visit a list evenly, however few are taken, and in an order that mixes heads and positions.
  const auto spread = [&](const std::vector<std::size_t>& from, std::size_t count, std::vector<RowId>* to) {
    std::vector<char> taken(from.size(), 0);
    double at = 0.5;
    while (to->size() < std::min(count, from.size())) {
      std::size_t n = static_cast<std::size_t>(at * static_cast<double>(from.size())) % from.size();
      while (taken[n]) n = (n + 1) % from.size();
      taken[n] = 1;
      to->push_back(rows_[from[n]]);
      at = std::fmod(at + 0.6180339887498949, 1.0);
    }
  };
  spread(wrong, kWrongProbes, &wrong_rows_);
  spread(right, kRightProbes, &right_rows_);
  if (!wrong.empty()) {
    const std::size_t worst = *std::max_element(
        wrong.begin(), wrong.end(), [&](std::size_t a, std::size_t b) { return unedited_[a].worst[0] < unedited_[b].worst[0]; });
    if (std::find(wrong_rows_.begin(), wrong_rows_.end(), rows_[worst]) == wrong_rows_.end())
      wrong_rows_.insert(wrong_rows_.begin() + 1, rows_[worst]);
  }
  std::vector<RowId> probes = wrong_rows_;
  probes.insert(probes.end(), right_rows_.begin(), right_rows_.end());
  evaluator_.KeepDots(probes);
}

}  // namespace regard::internal
