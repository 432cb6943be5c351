#include "io/problem_loader.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/shape_text.h"
#include "io/elements.h"
#include "io/file_error.h"
#include "io/fused_qkv.h"
#include "io/problem_layout.h"
#include "io/problem_values.h"

namespace regard::io {
namespace {

using enum ErrorCode;

// a [batch, heads, a_len, dim] followed by b [batch, heads, b_len, dim].
Tensor JoinTokens(const TensorView& a, const TensorView& b) {
  const Tensor parts[] = {Tensor::CopyOf(a), Tensor::CopyOf(b)};
  Tensor joined = Tensor::Uninitialized(b.dtype(), {b.dim(0), b.dim(1), a.dim(2) + b.dim(2), b.dim(3)});
  auto* to = static_cast<std::byte*>(joined.mutable_view().mutable_data());
  for (std::int64_t row = 0; row < b.dim(0) * b.dim(1); ++row) {
    for (const Tensor& part : parts) {
      const auto bytes = static_cast<std::size_t>(part.dim(2) * part.dim(3)) * ItemSize(part.dtype());
      if (bytes > 0)
        std::memcpy(to, static_cast<const std::byte*>(part.view().data()) + static_cast<std::size_t>(row) * bytes, bytes);
      to += bytes;
    }
  }
  return joined;
}

Dims WithoutTokens(const TensorView& x) { return {x.dim(0), x.dim(1), x.dim(3)}; }

// Whether three rank-4 tensors belong together, so far as axis orders are concerned.
bool Fit(const TensorView& q, const TensorView& k, const TensorView& v) {
  return q.dim(0) == k.dim(0) && q.dim(0) == v.dim(0) && k.dim(1) == v.dim(1) && k.dim(2) == v.dim(2) && q.dim(3) == k.dim(3) &&
         k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0;
}

}  // namespace

ProblemLoader::ProblemLoader(const ProblemSources& sources, const ProblemOptions& options)
    : storage_(std::make_shared<Problem::Storage>(sources)), sources_(storage_->sources), options_(options) {}

Problem ProblemLoader::Load() && {
  ChooseLayer();
  ChooseKind();
  ReadHeadCounts();
  switch (problem_.kind) {
    case Problem::Kind::kAttention:
      LoadAttention();
      break;
    case Problem::Kind::kSelfAttention:
      LoadSelfAttention();
      break;
    case Problem::Kind::kThirdStage:
      LoadThirdStage();
      break;
  }
  LoadRules();
  LoadTokens();
  NotePrecision();
  for (const Entry& entry : sources_.entries()) {
    const bool used = problem_.kind == Problem::Kind::kThirdStage && entry.key->name == "weights";
    if (entry.key->kind != KeyKind::kObserved || used) continue;
    problem_.observed.emplace_back(entry.key->name);
    if (entry.info != nullptr && entry.info->unreadable)
      problem_.notes.push_back(fmt::format("not read: {}", entry.info->unreadable->what()));
  }
  std::ranges::move(sources_.Notes(), std::back_inserter(problem_.notes));
  problem_.reading = ReadingOf(problem_, options_);
  problem_.storage = std::move(storage_);
  return std::move(problem_);
}

// ------------------------------------------------------------------------------------------------ which problem it is

void ProblemLoader::ChooseLayer() {
  const std::vector<std::int64_t>& layers = sources_.layers();
  if (options_.layer && !std::ranges::binary_search(layers, *options_.layer)) FailAbsentLayer("--layer", *options_.layer, layers);
  problem_.layers = layers;
  if (!layers.empty()) problem_.layer = options_.layer.value_or(layers.front());
  if (layers.size() > 1 && !options_.layer) {
    problem_.notes.push_back(fmt::format("layer {} of {} is read; --layer chooses another", *problem_.layer, layers.size()));
  }
  storage_->sources.ChooseLayer(problem_.layer);
}

void ProblemLoader::ChooseKind() {
  const auto has = [&](std::string_view name) { return sources_.Has(name); };
  if (has("qkv") && !has("q") && !has("k") && !has("v")) {
    problem_.kind = Problem::Kind::kAttention;
    return;
  }
  if (has("qkv")) problem_.notes.push_back("qkv: not used, since q, k or v are given");
  if (has("q") || has("k") || (has("v") && !has("weights"))) {
    for (const std::string_view name : {"q", "k", "v"}) {
      if (!has(name)) FailMissing(name);
    }
    problem_.kind = Problem::Kind::kAttention;
    for (const std::string_view name : {"inputs", "w_query", "w_key", "w_value", "b_query", "b_key", "b_value"}) {
      if (has(name)) problem_.notes.push_back(fmt::format("{}: not used, since q, k and v are given", name));
    }
    return;
  }
  const bool only_weights =
      !has("w_query") && !has("w_key") && !has("w_value") && !has("scores") && !has("capped") && !has("masked_scores");
  if (has("weights") && (has("v") || (has("inputs") && only_weights))) {
    problem_.kind = Problem::Kind::kThirdStage;
    if (has("v") && has("inputs")) problem_.notes.push_back("inputs: not used, since weights and v are given");
    return;
  }
  if (has("inputs")) {
    problem_.kind = Problem::Kind::kSelfAttention;
    return;
  }
  if (has("weights")) FailMissing("v");
  FailNothingToCompute();
}

void ProblemLoader::FailMissing(std::string_view name) const {
  const std::string misspelt = sources_.LikelyMisspelling(name);
  Fail(kInvalidArgument, name, "missing; {}; name it {}{}", sources_.Found(), Spellings(*FindKey(name)),
       misspelt.empty() ? "" : fmt::format("; is {} meant?", Quoted(misspelt)));
}

void ProblemLoader::FailNothingToCompute() const {
  std::string meant;
  for (const std::string_view name : {"q", "k", "v", "inputs"}) {
    const std::string misspelt = sources_.LikelyMisspelling(name);
    if (!misspelt.empty()) meant += fmt::format("; is {} meant to be {}?", Quoted(misspelt), name);
  }
  throw Error(kInvalidArgument,
              fmt::format("q, k, v: missing; {}; give q, k and v, or inputs, or weights and v{}", sources_.Found(), meant));
}

void ProblemLoader::ReadHeadCounts() {
  num_heads_ = Override("num_heads", options_.num_heads, ReadInteger(sources_, "num_heads"), &problem_.notes);
  num_kv_heads_ = Override("num_kv_heads", options_.num_kv_heads, ReadInteger(sources_, "num_kv_heads"), &problem_.notes);
  const std::pair<std::string_view, std::optional<std::int64_t>> counts[] = {{"num_heads", num_heads_},
                                                                             {"num_kv_heads", num_kv_heads_}};
  for (const auto& [name, count] : counts) {
    if (count && *count < 1) Fail(kInvalidArgument, name, "{} is not positive; give 1 or more", *count);
  }
  if (num_heads_ && num_kv_heads_ && *num_heads_ % *num_kv_heads_ != 0) {
    Fail(kInvalidArgument, "num_kv_heads", "{} does not divide num_heads {}; give a divisor of it", *num_kv_heads_, *num_heads_);
  }
}

TensorView ProblemLoader::Take(std::string_view name) {
  const Entry* entry = sources_.Find(name);
  if (entry == nullptr) return {};
  if (entry->info == nullptr || entry->info->is_strings) {
    Fail(kInvalidArgument, name, "{} holds strings; give numbers", sources_.Where(*entry));
  }
  storage_->tensors.push_back(sources_.Read(*entry));
  return storage_->tensors.back();
}

TensorView ProblemLoader::TakeFloat(std::string_view name) {
  const Entry* entry = sources_.Find(name);
  if (entry != nullptr && entry->info != nullptr && !entry->info->is_strings && !IsFloat(entry->info->dtype)) {
    Fail(kInvalidArgument, name, "element type {} is not a float type; convert it to f32, f16, bf16 or f64",
         Name(entry->info->dtype));
  }
  return Take(name);
}

TensorView ProblemLoader::TakeOperand(std::string_view name) {
  const TensorView view = TakeFloat(name);
  if (!view) return view;
  const NotFinite found = FindNotFinite(view);
  if (found.count == 0) return view;
  std::string index;
  std::int64_t rest = found.first;
  for (const std::int64_t stride : view.strides()) {
    index += fmt::format("{}{}", index.empty() ? "" : ", ", rest / stride);
    rest %= stride;
  }
  problem_.notes.push_back(fmt::format("{} holds {} not finite (first at [{}])", sources_.Find(name)->spelling,
                                       found.count == 1 ? "a value that is" : fmt::format("{} values that are", found.count),
                                       index));
  return view;
}

// -------------------------------------------------------------------------------------------------------- q, k and v

// How many heads lie side by side in a bsd tensor; otherwise those of its own axis, which must be as many as stated.
std::int64_t ProblemLoader::HeadsIn(std::string_view name, const TensorView& view, Layout layout) const {
  const bool is_q = name == "q";
  const std::optional<std::int64_t> stated = is_q ? num_heads_ : num_kv_heads_;
  const std::string_view count_name = is_q ? "num_heads" : "num_kv_heads";
  if (view.rank() == 3 && layout == Layout::kBsd) {
    if (!num_heads_) {
      Fail(kInvalidArgument, "num_heads", "not stated, and --layout bsd needs it to split {} of {}; give --num-heads N",
           view.dim(2), name);
    }
    const std::int64_t heads = stated.value_or(*num_heads_);
    if (view.dim(2) % heads != 0) {
      Fail(kShapeMismatch, name, "shape {}, whose last axis {} does not divide into {} heads; check {}", ToString(view.shape()),
           view.dim(2), heads, FlagOf(count_name));
    }
    return heads;
  }
  const std::int64_t heads = ToRank4(view, layout, 1).dim(1);
  if (stated && *stated != heads) {
    Fail(kShapeMismatch, count_name, "{}, but {} has {}; check the layout, or leave it out", *stated, name,
         Labelled(view, layout));
  }
  return heads;
}

// q, k and v side by side in one tensor.
void ProblemLoader::LoadFusedAttention() {
  const TensorView qkv = TakeOperand("qkv");
  if (!num_heads_) Fail(kInvalidArgument, "num_heads", "not stated, and qkv needs it to be split; give --num-heads N");
  if (options_.layout && !(qkv.rank() == 3 && *options_.layout == Layout::kBsd)) {
    Fail(kInvalidArgument, "--layout", "{}, but qkv is [tokens, width] or [batch, tokens, width]; leave it out",
         Name(*options_.layout));
  }
  const auto [q, k, v] = SplitFusedQkv(qkv, *num_heads_, num_kv_heads_.value_or(*num_heads_));
  problem_.q = q, problem_.k = k, problem_.v = v;
  problem_.axes = AxesOf(3, qkv.rank() == 3 ? Layout::kBsd : Layout::kHsd);
}

void ProblemLoader::LoadAttention() {
  if (sources_.Has("qkv") && !sources_.Has("q")) {
    LoadFusedAttention();
  } else {
    LoadOperands();
  }
  JoinPast();
  CheckShapes();
  NoteOtherLayout();
  problem_.shape = PlanShape::Of(problem_.q, problem_.k, problem_.v);
  problem_.projections.num_heads = problem_.shape.heads;
  problem_.projections.num_kv_heads = problem_.shape.kv_heads;
  problem_.projections.w_out = TakeOperand("w_out");
  problem_.projections.b_out = TakeOperand("b_out");
}

void ProblemLoader::LoadOperands() {
  const std::pair<std::string_view, TensorView*> operands[] = {{"q", &problem_.q}, {"k", &problem_.k}, {"v", &problem_.v}};
  int rank = 0;
  for (const auto& [name, view] : operands) {
    const TensorView read = TakeOperand(name);
    const Layout layout = ChooseLayout(name, read, options_.layout);
    if (name == "q") {
      rank = read.rank();
      problem_.axes = AxesOf(rank, layout);
    }
    if (read.rank() != rank)
      Fail(kShapeMismatch, name, "shape {}, but q has {} axes; give q, k and v alike", ToString(read.shape()), rank);
    *view = ToRank4(read, layout, HeadsIn(name, read, layout));
  }
}

void ProblemLoader::CheckShapes() const {
  const TensorView &q = problem_.q, &k = problem_.k, &v = problem_.v;
  if (Fit(q, k, v)) return;
  std::string hint = "check the axis order";
  const bool both_ways =
      problem_.kind == Problem::Kind::kAttention && problem_.axes.heads && problem_.axes.layout != Layout::kBsd;
  if (both_ways && Fit(q.Transpose(1, 2), k.Transpose(1, 2), v.Transpose(1, 2))) {
    const bool heads_first = problem_.axes.layout == Layout::kBhsd || problem_.axes.layout == Layout::kHsd;
    hint = fmt::format("--layout {} would fit",
                       problem_.axes.batch ? (heads_first ? "bshd" : "bhsd") : (heads_first ? "shd" : "hsd"));
  }
  const auto fail = [&](std::string_view name, std::string_view axis, std::int64_t value, std::string_view other,
                        std::int64_t expected) {
    Fail(kShapeMismatch, name, "{}={}, expected {} {}; {}", axis, value, other, expected, hint);
  };
  if (k.dim(0) != q.dim(0)) fail("k", "batch", k.dim(0), "q's", q.dim(0));
  if (v.dim(0) != q.dim(0)) fail("v", "batch", v.dim(0), "q's", q.dim(0));
  if (v.dim(1) != k.dim(1)) fail("v", "heads", v.dim(1), "k's", k.dim(1));
  if (v.dim(2) != k.dim(2)) fail("v", "tokens", v.dim(2), "k's", k.dim(2));
  if (k.dim(3) != q.dim(3)) {
    const bool fewer_heads_fit =
        problem_.axes.layout == Layout::kBsd && k.dim(1) * k.dim(3) % std::max<std::int64_t>(q.dim(3), 1) == 0;
    if (fewer_heads_fit && k.dim(3) < q.dim(3)) hint = fmt::format("--num-kv-heads {} would fit", k.dim(1) * k.dim(3) / q.dim(3));
    fail("k", "dim", k.dim(3), "q's", q.dim(3));
  }
  Fail(kShapeMismatch, "k", "heads={} does not divide q's heads={}; {}", k.dim(1), q.dim(1), hint);
}

// Tokens taken for heads: nothing states the layout, and the other order fits, too. That there are more heads than tokens says little, since a
// text may be short and decoding starts from one key. But few models have more than 64 heads of k, and texts of fewer tokens are short for these.
void ProblemLoader::NoteOtherLayout() {
  constexpr std::int64_t kMostKeyHeads = 64;
  const TensorView &q = problem_.q, &k = problem_.k, &v = problem_.v;
  const Problem::Axes& axes = problem_.axes;
  const bool stated =
      options_.layout || num_heads_ || num_kv_heads_ || !axes.batch || !axes.heads || axes.layout != Layout::kBhsd;
  if (stated || k.dim(1) <= std::max(kMostKeyHeads, k.dim(2)) || q.dim(1) <= q.dim(2)) return;
  if (!Fit(q.Transpose(1, 2), k.Transpose(1, 2), v.Transpose(1, 2))) return;
  problem_.notes.push_back(fmt::format("q has {} heads of {} {}; if it is stored [batch, tokens, heads, dim], pass --layout bshd",
                                       q.dim(1), q.dim(2), q.dim(2) == 1 ? "token" : "tokens"));
}

void ProblemLoader::LoadProjections() {
  Projections& p = problem_.projections;
  const std::pair<std::string_view, TensorView*> matrices[] = {
      {"w_query", &p.w_query}, {"w_key", &p.w_key}, {"w_value", &p.w_value}, {"w_out", &p.w_out},
      {"b_query", &p.b_query}, {"b_key", &p.b_key}, {"b_value", &p.b_value}, {"b_out", &p.b_out}};
  for (const auto& [name, view] : matrices) *view = TakeOperand(name);
  p.num_heads = num_heads_.value_or(1);
  p.num_kv_heads = num_kv_heads_.value_or(p.num_heads);
  if (!problem_.HasProjections()) return;
  for (const auto& [name, view] : {matrices[0], matrices[1], matrices[2]}) {
    if (!*view) problem_.notes.push_back(fmt::format("{}: not given; inputs are used as they are in its place", name));
  }
}

void ProblemLoader::LoadSelfAttention() {
  problem_.inputs = TakeOperand("inputs");
  const TensorView& inputs = problem_.inputs;
  if (inputs.rank() != 2 && inputs.rank() != 3) {
    Fail(kShapeMismatch, "inputs", "shape {} has {} {}; give [tokens, dim] or [batch, tokens, dim]", ToString(inputs.shape()),
         inputs.rank(), internal::AxisWord(inputs.rank()));
  }
  if (options_.layout && !(inputs.rank() == 3 && *options_.layout == Layout::kBsd)) {
    Fail(kInvalidArgument, "--layout", "{}, but inputs are [tokens, dim] or [batch, tokens, dim]; leave it out",
         Name(*options_.layout));
  }
  LoadProjections();
  const Projections& p = problem_.projections;
  if (problem_.HasProjections() || p.b_query || p.b_key || p.b_value) {
    Projected projected = Project(inputs, p);
    const std::pair<TensorView*, Tensor*> results[] = {
        {&problem_.q, &projected.q}, {&problem_.k, &projected.k}, {&problem_.v, &projected.v}};
    for (const auto& [view, tensor] : results) {
      storage_->tensors.push_back(std::move(*tensor));
      *view = storage_->tensors.back();
    }
  } else {
    if (p.num_kv_heads != p.num_heads) {
      Fail(kInvalidArgument, "num_kv_heads", "{}, but without w_key and w_value the inputs have num_heads {}; leave it out",
           p.num_kv_heads, p.num_heads);
    }
    const TensorView batched = inputs.rank() == 3 ? inputs : inputs.Unsqueeze(0);
    if (batched.dim(2) % p.num_heads != 0) {
      Fail(kShapeMismatch, "inputs", "dim {} does not divide into num_heads {}; give a divisor of it", batched.dim(2),
           p.num_heads);
    }
    problem_.q = problem_.k = problem_.v = ToRank4(batched, Layout::kBsd, p.num_heads);
  }
  problem_.axes = {
      .batch = inputs.rank() == 3, .heads = p.num_heads > 1, .layout = inputs.rank() == 3 ? Layout::kBhsd : Layout::kHsd};
  JoinPast();
  CheckShapes();
  problem_.shape = PlanShape::Of(problem_.q, problem_.k, problem_.v);
}

// Keys and values of earlier calls, [batch, kv_heads, past_len, dim] or in the layout of k, go before k and v.
void ProblemLoader::JoinPast() {
  const TensorView past[] = {TakeOperand("past_key"), TakeOperand("past_value")};
  if (!past[0] && !past[1]) return;
  if (!past[0]) FailMissing("past_key");
  if (!past[1]) FailMissing("past_value");
  const std::string_view names[] = {"past_key", "past_value"}, present_names[] = {"k", "v"};
  TensorView* present[] = {&problem_.k, &problem_.v};
  for (int i = 0; i < 2; ++i) {
    const bool four = past[i].rank() == 4;
    const bool bshd = four && problem_.axes.layout == Layout::kBshd;
    const bool like_k = !four && problem_.kind == Problem::Kind::kAttention && past[i].rank() == (problem_.axes.heads ? 3 : 2);
    const bool two = past[i].rank() == 2 && present[i]->dim(0) == 1 && present[i]->dim(1) == 1;
    if (!four && !like_k && !two) {
      Fail(kShapeMismatch, names[i], "shape {} has {} {}; give [batch, kv_heads, tokens, dim]", ToString(past[i].shape()),
           past[i].rank(), internal::AxisWord(past[i].rank()));
    }
    const Layout layout = four ? (bshd ? Layout::kBshd : Layout::kBhsd) : problem_.axes.layout;
    if (layout == Layout::kBsd && past[i].rank() == 3 && past[i].dim(2) % present[i]->dim(1) != 0) {
      Fail(kShapeMismatch, names[i], "last axis {} does not divide into {} heads; check --num-kv-heads", past[i].dim(2),
           present[i]->dim(1));
    }
    const TensorView before = ToRank4(past[i], layout, present[i]->dim(1));
    if (!(WithoutTokens(before) == WithoutTokens(*present[i]))) {
      Fail(kShapeMismatch, names[i], "[batch, heads, dim] = {}, but {} has {}; give both alike", ToString(WithoutTokens(before)),
           present_names[i], ToString(WithoutTokens(*present[i])));
    }
    if (before.dtype() != present[i]->dtype()) {
      Fail(kInvalidArgument, names[i], "element type {}, but {} is {}; give both alike", Name(before.dtype()), present_names[i],
           Name(present[i]->dtype()));
    }
    if (i == 0) problem_.past_len = before.dim(2);
    if (before.dim(2) != problem_.past_len) {
      Fail(kShapeMismatch, names[i], "{} tokens, but past_key has {}; give both alike", before.dim(2), problem_.past_len);
    }
    storage_->tensors.push_back(JoinTokens(before, *present[i]));
    *present[i] = storage_->tensors.back();
  }
}

// ------------------------------------------------------------------------------------------------------- third stage

// weights [.., q_len, kv_len] with as many leading axes as v has or, where v serves all heads, one more.
void ProblemLoader::LoadThirdStage() {
  const bool from_inputs = !sources_.Has("v");
  const std::string_view name = from_inputs ? "inputs" : "v";
  const TensorView weights = TakeOperand("weights"), values = TakeOperand(name);
  if (from_inputs && values.rank() == 3) {
    problem_.axes = {.batch = true, .heads = false, .layout = Layout::kBhsd};
    problem_.v = values.Unsqueeze(1);
  } else {
    const Layout layout = ChooseLayout(name, values, options_.layout);
    problem_.axes = AxesOf(values.rank(), layout);
    problem_.v = ToRank4(values, layout, HeadsIn(name, values, layout));
  }
  const int axes_of_v = 2 + (problem_.axes.batch ? 1 : 0) + (problem_.axes.heads ? 1 : 0);
  const bool heads_of_their_own = !problem_.axes.heads && weights.rank() == axes_of_v + 1;
  if (weights.rank() != axes_of_v && !heads_of_their_own) {
    Fail(kShapeMismatch, "weights", "shape {} has {} {}, expected {} to go with {} {}; give [.., heads, q_len, kv_len]",
         ToString(weights.shape()), weights.rank(), internal::AxisWord(weights.rank()), axes_of_v, name,
         ToString(values.shape()));
  }
  if (heads_of_their_own) {
    problem_.axes.heads = true;
    problem_.axes.layout = problem_.axes.batch ? Layout::kBhsd : Layout::kHsd;
  }
  problem_.weights = problem_.axes.heads ? weights : weights.Unsqueeze(problem_.axes.batch ? 1 : 0);
  if (!problem_.axes.batch) problem_.weights = problem_.weights.Unsqueeze(0);
  const TensorView &w = problem_.weights, &v = problem_.v;
  if (w.dim(3) != v.dim(2)) {
    Fail(kShapeMismatch, "weights", "kv_len={}, but {} has {} tokens; give one column a key", w.dim(3), name, v.dim(2));
  }
  if (w.dim(0) != v.dim(0)) Fail(kShapeMismatch, "weights", "batch={}, but {} has {}; give both alike", w.dim(0), name, v.dim(0));
  if (v.dim(1) == 0 || w.dim(1) % v.dim(1) != 0) {
    Fail(kShapeMismatch, "weights", "heads={} is no multiple of {}'s heads={}; check the axis order", w.dim(1), name, v.dim(1));
  }
  problem_.shape = {.batch = w.dim(0),
                    .heads = w.dim(1),
                    .kv_heads = v.dim(1),
                    .q_len = w.dim(2),
                    .kv_len = w.dim(3),
                    .head_dim = 0,
                    .v_dim = v.dim(3),
                    .q_dtype = w.dtype(),
                    .k_dtype = w.dtype(),
                    .v_dtype = v.dtype()};
  problem_.projections.num_heads = w.dim(1);
  problem_.projections.num_kv_heads = v.dim(1);
  problem_.projections.w_out = TakeOperand("w_out");
  problem_.projections.b_out = TakeOperand("b_out");
}

ProblemFiles::ProblemFiles(const std::vector<std::string>& sources) : sources_(std::make_shared<const ProblemSources>(sources)) {}

const std::vector<std::int64_t>& ProblemFiles::layers() const noexcept { return sources_->layers(); }

bool ProblemFiles::HaveSameShapes(std::int64_t layer_a, std::int64_t layer_b) const {
  return sources_->HaveSameShapes(layer_a, layer_b);
}

Problem ProblemFiles::Load(const ProblemOptions& options) const { return ProblemLoader(*sources_, options).Load(); }

Problem LoadProblem(const std::vector<std::string>& sources, const ProblemOptions& options) {
  return ProblemFiles(sources).Load(options);
}

Tensor Problem::ReadObserved(std::string_view name) const {
  if (std::ranges::find(observed, name) == observed.end()) {
    Fail(kInvalidArgument, name, "no such result in the files; they hold {}",
         observed.empty() ? "none" : fmt::format("{}", fmt::join(observed, ", ")));
  }
  return storage->sources.Read(*storage->sources.Find(name));
}

}  // namespace regard::io
