#include "report/map_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "report/run_report.h"
#include "report/text.h"
#include "summary/summary_request.h"

namespace regard::report {
namespace {

constexpr std::size_t kMaxLinks = 8;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kPictureRows = 40;
constexpr int kLabelWidth = 12;

SummaryOptions EverySummary(const MapRequest& request, bool has_positions) {
  SummaryOptions options;
  options.row_max = options.row_argmax = options.entropy = options.first_key_share = true;
  options.key_mass = options.key_mass_mean = true;
  options.top_k = options.key_top_k = request.top_k;
  options.pooled_rows = request.bin_rows;
  options.pooled_cols = request.bin_cols;
  options.pooled_max = true;
  options.batch = request.batches;
  if (has_positions) {
    options.distance = options.head_kind = true;
    options.window_share = kMapWindow;
  }
  return options;
}

// ------------------------------------------------------------------------------------------------------ facts of a head

bool IsStronger(const MapLink& a, const MapLink& b) {
  return std::tuple(-a.weight, a.query, a.key) < std::tuple(-b.weight, b.query, b.key);
}

std::vector<MapLink> StrongestLinks(const Summary& s, std::size_t head, std::int64_t q_len, std::int64_t top_k) {
  std::vector<MapLink> links;  // the strongest so far, in order
  if (top_k == 0) return links;
  const float* weights = s.topk_weight.As<float>() + static_cast<std::int64_t>(head) * q_len * top_k;
  const std::int64_t* keys = s.topk_index.As<std::int64_t>() + static_cast<std::int64_t>(head) * q_len * top_k;
  for (std::int64_t n = 0; n < q_len * top_k; ++n) {
    if (!(weights[n] > 0) || keys[n] < 0) continue;
    const MapLink link{n / top_k, keys[n], weights[n]};
    if (links.size() == kMaxLinks && !IsStronger(link, links.back())) continue;
    links.insert(std::upper_bound(links.begin(), links.end(), link, IsStronger), link);
    if (links.size() > kMaxLinks) links.pop_back();
  }
  return links;
}

class Mean {
 public:
  void Add(double value) {
    sum_ += value;
    ++count_;
  }
  double value() const { return count_ == 0 ? kNaN : sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0;
  std::int64_t count_ = 0;
};

// `head` counts batch by heads.
HeadFacts FactsOf(const Summary& s, std::size_t head, std::int64_t q_len, std::int64_t top_k) {
  Mean entropy, first_key, distance;
  const std::int64_t begin = static_cast<std::int64_t>(head) * q_len;
  for (std::int64_t i = begin; i < begin + q_len; ++i) {
    if (s.row_max.As<float>()[i] == -std::numeric_limits<float>::infinity()) continue;
    entropy.Add(s.entropy.As<float>()[i]);
    first_key.Add(s.first_key_share.As<float>()[i]);
    // Not defined either where a sink takes everything.
    const bool is_nan_row = std::isnan(s.entropy.As<float>()[i]);
    if (s.distance_mean && (is_nan_row || !std::isnan(s.distance_mean.As<float>()[i])))
      distance.Add(s.distance_mean.As<float>()[i]);
  }
  HeadFacts facts;
  if (!s.head_kind.empty()) {
    facts.score = s.head_score.As<float>()[head];
    if (!std::isnan(facts.score)) facts.kind = s.head_kind[head];
  }
  facts.entropy = entropy.value();
  facts.first_key_share = first_key.value();
  facts.distance = distance.value();
  facts.links = StrongestLinks(s, head, q_len, top_k);
  return facts;
}

// How wide a label of a picture's rows is.
int LabelWidth(const io::Problem& problem) {
  const int digits = static_cast<int>(std::to_string(std::max<std::int64_t>(0, problem.shape.q_len - 1)).size());
  return digits + (problem.q_tokens ? 1 + kLabelWidth : 0);
}

// How many keys precede query 0 of a sequence.
std::int64_t OffsetOf(const io::Problem& problem, std::int64_t batch) {
  const AttentionParams& p = problem.params;
  const auto of_sequence = [batch](const TensorView& numbers) {
    return static_cast<std::int64_t>(numbers(numbers.dim(0) == 1 ? 0 : batch));
  };
  if (p.q_offset.value()) return *p.q_offset.value();
  if (p.q_offset.per_sequence()) return of_sequence(p.q_offset.per_sequence());
  return p.kv_lens ? of_sequence(p.kv_lens) - problem.shape.q_len : 0;
}

Tensor Pictures(const io::Problem& problem, const MapRequest& request, const ExecOptions& exec) {
  SummaryOptions options;
  options.batch = request.batches;
  options.heads = request.heads;
  options.pooled_cols = std::max(1, (request.width - 4 - LabelWidth(problem)) / 2);
  options.pooled_rows = std::min<std::int64_t>(kPictureRows, options.pooled_cols);
  const Call call = CallOf(problem);
  return Summarize(call.q, call.k, call.v, call.params, options, exec).pooled;
}

// Whether queries and keys are in the same segments, token by token.
bool HaveSameSegments(const TensorView& q, const TensorView& kv) {
  if (!(q.shape() == kv.shape()) || q.rank() < 1 || q.rank() > 2) return false;
  const TensorView queries = q.rank() == 2 ? q : q.Unsqueeze(0), keys = q.rank() == 2 ? kv : kv.Unsqueeze(0);
  for (std::int64_t b = 0; b < queries.dim(0); ++b) {
    for (std::int64_t t = 0; t < queries.dim(1); ++t) {
      if (queries(b, t) != keys(b, t)) return false;
    }
  }
  return true;
}

}  // namespace

bool HasPositions(const PlanShape& shape, const AttentionParams& params) {
  if (params.q_offset.is_stated() || params.kv_lens) return true;
  if (shape.q_len != shape.kv_len) return false;
  return !params.q_segments || HaveSameSegments(params.q_segments, params.kv_segments);
}

std::int64_t KeepLastQueries(io::Problem* problem, std::int64_t count, Tensor* offsets) {
  const std::int64_t q_len = problem->shape.q_len, cut = q_len - count;
  if (count < 1) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("--last-queries: {} leaves nothing; give 1 or more", count));
  }
  if (cut <= 0) return 0;
  AttentionParams& p = problem->params;
  if (p.q_segments) {
    throw Error(ErrorCode::kInvalidArgument, "--last-queries: not for packed sequences, whose positions restart; leave it out");
  }
  // As many queries as keys would look as if they stood beside each other.
  const bool needs_places = p.causal || p.window_left || p.window_right || p.alibi_slopes || count == problem->shape.kv_len;
  if (needs_places && !HasPositions(problem->shape, p)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--last-queries: where the {} queries stand on the {} keys is not stated; state q_offset, top-left 0 or "
                    "bottom-right {}",
                    q_len, problem->shape.kv_len, problem->shape.kv_len - q_len));
  }
  if (p.q_offset.value() || (!p.q_offset.is_stated() && !p.kv_lens && q_len == problem->shape.kv_len)) {
    p.q_offset = p.q_offset.value().value_or(0) + cut;
  } else if (const TensorView stated = p.q_offset.per_sequence()) {
    *offsets = Tensor(DType::kI64, stated.shape());
    for (std::int64_t b = 0; b < stated.dim(0); ++b) {
      offsets->MutableAs<std::int64_t>()[b] = static_cast<std::int64_t>(stated(b)) + cut;
    }
    p.q_offset = *offsets;
  }  // else kv_lens: kv_len − q_len moves by itself
  for (TensorView* broadcast : {&p.mask, &p.bias}) {
    if (*broadcast && broadcast->rank() >= 2 && broadcast->dim(-2) == q_len) *broadcast = broadcast->Slice(-2, cut, q_len);
  }
  problem->q = problem->q.Slice(2, cut, q_len);
  problem->shape.q_len = count;
  if (io::Tokens& tokens = problem->q_tokens) {
    io::Tokens last{count};
    for (std::int64_t begin = 0; begin < static_cast<std::int64_t>(tokens.values.size()); begin += q_len) {
      last.values.insert(last.values.end(), tokens.values.begin() + begin + cut, tokens.values.begin() + begin + q_len);
    }
    tokens = std::move(last);
  }
  return cut;
}

double MapBytes(const PlanShape& shape, const MapRequest& request) {
  const double top_k = std::max(0, request.top_k),
               batch =
                   static_cast<double>(request.batches.empty() ? shape.batch : static_cast<std::int64_t>(request.batches.size()));
  const double queries = static_cast<double>(shape.q_len), keys = static_cast<double>(shape.kv_len);
  const double bins =
      std::min(queries, static_cast<double>(request.bin_rows)) * std::min(keys, static_cast<double>(request.bin_cols));
  const double context = static_cast<double>(shape.v_dim) * static_cast<double>(ItemSize(shape.v_dtype));
  constexpr double kHeadBytes = sizeof(HeadFacts) + 512;  // a head, and the line of text or the object that it becomes
  // A query: lse, row_max, row_argmax, entropy, topk_tail, two of distance and two shares; top_k of i64 and f32. A key: two
  // masses.
  return batch * static_cast<double>(shape.heads) *
         (kHeadBytes + queries * (context + 40 + 12 * top_k) + keys * (8 + 12 * top_k) + 8 * bins);
}

double MapScratchBytes(const io::Problem& problem, const MapRequest& request, const ExecOptions& exec) {
  const Call call = CallOf(problem);
  ExecOptions run = exec;
  run.threads = ThreadsFor(problem.shape, exec.threads);
  const Plan plan(problem.shape, call.params, run);
  const SummaryOptions options = EverySummary(request, HasPositions(problem.shape, problem.params));
  return static_cast<double>(plan.WorkspaceBytes()) + internal::StatedScratchBytes(problem.shape, options, plan.threads());
}

std::vector<std::string> RowNotes(const LayerMap& map) {
  const Tensor& lse = map.summary.lse;
  const std::int64_t rows = lse.num_elements(),
                     undefined = std::count_if(lse.As<float>(), lse.As<float>() + rows, [](float x) { return std::isnan(x); });
  const std::string layer = map.problem.layer ? fmt::format("layer {}: ", *map.problem.layer) : "";
  std::vector<std::string> notes;
  if (undefined > 0) {
    notes.push_back(
        fmt::format("{}{} of {} rows have weights that are not numbers; look for NaN, Inf and too large numbers in q and k",
                    layer, ShowCount(undefined), ShowCount(rows)));
  }
  if (map.summary.empty_rows > 0) {
    notes.push_back(fmt::format("{}{} of {} rows see no key, so that their weights are 0", layer,
                                ShowCount(map.summary.empty_rows), ShowCount(rows)));
  }
  const float* row_max = map.summary.row_max.As<float>();
  const std::int64_t without_weight =
      std::count(row_max, row_max + rows, -std::numeric_limits<float>::infinity()) - map.summary.empty_rows;
  if (without_weight > 0) {
    notes.push_back(
        fmt::format("{}{} of {} rows see keys, but only scores of -inf, so that their weights are 0; look for Inf and too large "
                    "numbers in q and k",
                    layer, ShowCount(without_weight), ShowCount(rows)));
  }
  return notes;
}

LayerMap MapLayer(const io::Problem& problem, const MapRequest& request, const ExecOptions& exec) {
  LayerMap map;
  map.problem = problem;
  map.has_positions = HasPositions(problem.shape, problem.params);
  map.batches = request.batches;
  if (map.batches.empty()) {
    for (std::int64_t b = 0; b < problem.shape.batch; ++b) map.batches.push_back(b);
  }
  if (map.has_positions && !map.batches.empty()) map.offset = OffsetOf(problem, map.batches.front());
  ExecOptions run = exec;
  run.threads = ThreadsFor(problem.shape, exec.threads);
  const Call call = CallOf(problem);
  map.summary = Summarize(call.q, call.k, call.v, call.params, EverySummary(request, map.has_positions), run);
  map.summary.context = Tensor();
  for (std::size_t n = 0; n < map.batches.size() * static_cast<std::size_t>(problem.shape.heads); ++n) {
    HeadFacts facts = FactsOf(map.summary, n, problem.shape.q_len, request.top_k);
    facts.batch = map.batches[n / static_cast<std::size_t>(problem.shape.heads)];
    facts.head = static_cast<std::int64_t>(n % static_cast<std::size_t>(problem.shape.heads));
    map.facts.push_back(std::move(facts));
  }
  run.on_progress = {};
  if (!request.heads.empty()) map.pictures = Pictures(problem, request, run);
  return map;
}

std::vector<io::OutputArray> MapArrays(const std::vector<LayerMap>& maps, std::vector<Tensor>* storage) {
  std::vector<io::OutputArray> arrays;
  storage->clear();
  for (const LayerMap& map : maps) {
    const std::string prefix = maps.size() > 1 && map.problem.layer ? fmt::format("layers.{}.", *map.problem.layer) : "";
    const Summary& s = map.summary;
    const std::pair<const char*, const Tensor*> named[] = {{"lse", &s.lse},
                                                           {"row_max", &s.row_max},
                                                           {"row_argmax", &s.row_argmax},
                                                           {"entropy", &s.entropy},
                                                           {"topk_index", &s.topk_index},
                                                           {"topk_weight", &s.topk_weight},
                                                           {"topk_tail", &s.topk_tail},
                                                           {"distance_mean", &s.distance_mean},
                                                           {"distance_std", &s.distance_std},
                                                           {"first_key_share", &s.first_key_share},
                                                           {"window_share", &s.window_share},
                                                           {"key_mass", &s.key_mass},
                                                           {"key_mass_mean", &s.key_mass_mean},
                                                           {"key_topk_index", &s.key_topk_index},
                                                           {"key_topk_weight", &s.key_topk_weight},
                                                           {"pooled", &s.pooled},
                                                           {"pooled_max", &s.pooled_max},
                                                           {"head_score", &s.head_score}};
    for (const auto& [name, tensor] : named) {
      if (!*tensor) continue;
      storage->push_back(map.problem.ToFileShape(name, *tensor));
      arrays.push_back({.name = prefix + name, .tensor = storage->back()});
    }
    if (s.head_kind.empty()) continue;
    io::OutputArray kinds{.name = prefix + "head_kind"};
    for (std::size_t head = 0; head < s.head_kind.size(); ++head) {
      kinds.strings.push_back(std::isnan(s.head_score.As<float>()[head]) ? "unknown" : Name(s.head_kind[head]));
    }
    arrays.push_back(std::move(kinds));
  }
  return arrays;
}

}  // namespace regard::report
