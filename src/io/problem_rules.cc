// The rules of a problem (scale, visibility, bias …) and the labels of its tokens.
#include <algorithm>
#include <utility>

#include "io/file_error.h"
#include "io/problem_loader.h"
#include "io/problem_values.h"

namespace regard::io {
namespace {

using enum ErrorCode;

// One token a line, or a JSON list.
StringArray TokensOfText(const std::string& path, const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '[') return ParseStringList(path, text);
  StringArray tokens;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    tokens.values.push_back(std::move(line));
    begin = end + 1;
  }
  tokens.shape = {static_cast<std::int64_t>(tokens.values.size())};
  return tokens;
}

std::string ToText(const QOffsetChoice& choice) {
  switch (choice.rule) {
    case QOffsetChoice::Rule::kTopLeft:
      return "top-left";
    case QOffsetChoice::Rule::kBottomRight:
      return "bottom-right";
    case QOffsetChoice::Rule::kNumber:
      break;
  }
  return fmt::format("{}", choice.number);
}

}  // namespace

void ProblemLoader::LoadRules() {
  if (problem_.kind == Problem::Kind::kThirdStage) return NoteUnusedRules();
  AttentionParams& params = problem_.params;
  std::vector<std::string>* notes = &problem_.notes;
  params.scale = Override("scale", options_.scale, ReadFloat(sources_, "scale"), notes);
  const bool simplified = problem_.kind == Problem::Kind::kSelfAttention && !problem_.HasProjections();
  if (!params.scale && simplified) params.scale = 1.0f;
  params.soft_cap = Override("soft_cap", options_.soft_cap, ReadFloat(sources_, "soft_cap"), notes).value_or(0.0f);
  params.causal = Override("causal", options_.causal, ReadBool(sources_, "causal"), notes).value_or(false);
  params.window_left = Override("window_left", options_.window_left, ReadInteger(sources_, "window_left"), notes);
  params.window_right = Override("window_right", options_.window_right, ReadInteger(sources_, "window_right"), notes);
  LoadMask();
  params.kv_lens = Take("kv_lens");
  LoadSegments();
  params.alibi_slopes = TakeFloat("alibi_slopes");
  params.sinks = TakeFloat("sinks");
  LoadQOffset();
  // The plan checks every rule by itself: the scale, the windows, the element types.
  problem_.scale = Plan(problem_.shape, params, {.path = Path::kReference, .threads = 1}).scale();
}

void ProblemLoader::NoteUnusedRules() {
  std::string names;
  for (const std::string_view name :
       {"scale", "soft_cap", "causal", "window_left", "window_right", "q_offset", "mask", "bias", "attn_mask", "kv_lens",
        "q_segments", "kv_segments", "segments", "alibi_slopes", "sinks", "past_key", "past_value"}) {
    if (sources_.Has(name)) names.append(names.empty() ? "" : ", ").append(name);
  }
  const std::pair<const char*, bool> flags[] = {{"--scale", options_.scale.has_value()},
                                                {"--soft-cap", options_.soft_cap.has_value()},
                                                {"--causal", options_.causal.has_value()},
                                                {"--window-left", options_.window_left.has_value()},
                                                {"--window-right", options_.window_right.has_value()},
                                                {"--q-offset", options_.q_offset.has_value()}};
  for (const auto& [flag, given] : flags) {
    if (given) names.append(names.empty() ? "" : ", ").append(flag);
  }
  if (!names.empty()) problem_.notes.push_back(names + ": not used, since the weights are given");
}

void ProblemLoader::LoadMask() {
  problem_.params.mask = Take("mask");
  problem_.params.bias = Take("bias");
  const TensorView either = Take("attn_mask");
  if (!either) return;
  if (either.dtype() != DType::kBool && !IsFloat(either.dtype())) {
    Fail(kInvalidArgument, "attn_mask",
         "element type {}, expected bool (true = may attend) or a float type (added to the scores); convert it, minding which "
         "value means attend",
         Name(either.dtype()));
  }
  const bool is_mask = either.dtype() == DType::kBool;
  TensorView& place = is_mask ? problem_.params.mask : problem_.params.bias;
  if (place) {
    const char* name = is_mask ? "mask" : "bias";
    Fail(kInvalidArgument, name, "given twice, as {} and as attn_mask, which is {}; keep one", name, Name(either.dtype()));
  }
  place = either;
}

void ProblemLoader::LoadSegments() {
  AttentionParams& params = problem_.params;
  params.q_segments = Take("q_segments");
  params.kv_segments = Take("kv_segments");
  const TensorView both = Take("segments");
  if (!both) return;
  if (params.q_segments || params.kv_segments) {
    Fail(kInvalidArgument, "segments", "given together with {}; give segments alone, or q_segments and kv_segments",
         params.q_segments ? "q_segments" : "kv_segments");
  }
  params.q_segments = params.kv_segments = both;
}

void ProblemLoader::LoadQOffset() {
  const Entry* entry = sources_.Find("q_offset");
  const bool array = entry != nullptr && entry->info != nullptr && !entry->info->is_strings;
  const bool per_sequence = array && NumElements(entry->info->shape) != 1;
  QOffset in_file;
  if (per_sequence) {
    in_file = QOffset(Take("q_offset"));
  } else if (const std::optional<std::int64_t> number = ReadInteger(sources_, "q_offset")) {
    in_file = QOffset(*number);
  }
  QOffset& q_offset = problem_.params.q_offset;
  q_offset = in_file;
  const std::int64_t bottom_right = problem_.shape.kv_len - problem_.shape.q_len;
  if (const std::optional<QOffsetChoice>& choice = options_.q_offset) {
    const std::int64_t number = choice->rule == QOffsetChoice::Rule::kTopLeft       ? 0
                                : choice->rule == QOffsetChoice::Rule::kBottomRight ? bottom_right
                                                                                    : choice->number;
    q_offset = QOffset(number);
    if (in_file.is_stated() && in_file.value() != number) {
      problem_.notes.push_back(fmt::format("--q-offset {} overrides the file's q_offset {}", ToText(*choice),
                                           per_sequence ? std::string("of each sequence") : fmt::format("{}", *in_file.value())));
    }
    return;
  }
  if (!in_file.is_stated()) NoteNegativeOffset();
  if (in_file.is_stated() || problem_.past_len == 0) return;
  if (problem_.params.kv_lens) {
    Fail(kInvalidArgument, "q_offset",
         "not stated, and past_key (offset {}) and kv_lens (kv_lens − q_len) differ in what it is; give --q-offset N",
         problem_.past_len);
  }
  q_offset = QOffset(problem_.past_len);
}

// kv_lens alone place the last query at a sequence's last key: wrong for a text whose queries are padded behind, as its keys are.
void ProblemLoader::NoteNegativeOffset() {
  const AttentionParams& p = problem_.params;
  const bool has_positions = p.causal || p.window_left || p.window_right || p.alibi_slopes;
  if (!has_positions || problem_.past_len > 0 || p.kv_lens.rank() != 1 || !IsInteger(p.kv_lens.dtype())) return;
  for (std::int64_t b = 0; b < p.kv_lens.dim(0); ++b) {
    const double length = p.kv_lens(b), q_len = static_cast<double>(problem_.shape.q_len);
    if (length <= 0 || length >= q_len) continue;  // an empty sequence has no keys to see
    problem_.notes.push_back(
        fmt::format("q_offset is kv_lens − q_len: query 0 stands at −{} in sequence {}; for padded prefill pass --q-offset 0",
                    q_len - length, b));
    return;
  }
}

// ------------------------------------------------------------------------------------------------------------- labels

std::optional<StringArray> ProblemLoader::ReadTokens(std::string_view name) {
  const Entry* entry = sources_.Find(name);
  if (entry == nullptr) return std::nullopt;
  if (entry->info != nullptr && !entry->info->is_strings && !entry->info->unreadable) {
    problem_.notes.push_back(fmt::format("{}: numbers, not used as labels; give strings", name));
    return std::nullopt;
  }
  return sources_.ReadStrings(*entry);
}

Tokens ProblemLoader::LabelsFor(std::string_view name, const StringArray& strings) const {
  const Dims& shape = strings.shape;
  const bool fits = shape.size() == 1 || (shape.size() == 2 && shape[0] == problem_.shape.batch);
  if (!fits) {
    Fail(kShapeMismatch, name, "shape {}; give one a token, [tokens] or [batch, tokens] with batch {}", ToString(shape),
         problem_.shape.batch);
  }
  return {.length = shape[shape.size() - 1], .values = strings.values};
}

// `tokens` that name the keys name the queries too, when it is known where among the keys these stand.
void ProblemLoader::LabelBoth(Tokens tokens) {
  const PlanShape& shape = problem_.shape;
  if (tokens.length != shape.q_len && tokens.length != shape.kv_len) {
    Fail(kShapeMismatch, "tokens", "{}, but there are {}; give one a token", tokens.length,
         shape.q_len == shape.kv_len ? fmt::format("{}", shape.q_len)
                                     : fmt::format("{} queries and {} keys", shape.q_len, shape.kv_len));
  }
  if (tokens.length != shape.kv_len) {
    problem_.q_tokens = std::move(tokens);
    return;
  }
  const std::int64_t offset = shape.q_len == shape.kv_len ? 0 : problem_.params.q_offset.value().value_or(-1);
  if (offset >= 0 && offset <= shape.kv_len - shape.q_len) {
    problem_.q_tokens.length = shape.q_len;
    for (std::size_t row = 0; row < tokens.values.size(); row += static_cast<std::size_t>(tokens.length)) {
      const auto first = tokens.values.begin() + static_cast<std::ptrdiff_t>(row) + offset;
      problem_.q_tokens.values.insert(problem_.q_tokens.values.end(), first, first + shape.q_len);
    }
  }
  problem_.k_tokens = std::move(tokens);
}

void ProblemLoader::LoadTokens() {
  std::optional<StringArray> both = ReadTokens("tokens");
  if (!options_.tokens.empty()) {
    if (both) problem_.notes.push_back(fmt::format("--tokens {} overrides the file's tokens", options_.tokens));
    both = TokensOfText(options_.tokens, ReadAll(options_.tokens));
  }
  if (both) LabelBoth(LabelsFor("tokens", *both));
  const std::pair<std::string_view, std::pair<Tokens*, std::int64_t>> sides[] = {
      {"q_tokens", {&problem_.q_tokens, problem_.shape.q_len}}, {"k_tokens", {&problem_.k_tokens, problem_.shape.kv_len}}};
  for (const auto& [name, side] : sides) {
    const std::optional<StringArray> strings = ReadTokens(name);
    if (!strings) continue;
    *side.first = LabelsFor(name, *strings);
    if (side.first->length != side.second)
      Fail(kShapeMismatch, name, "{}, but there are {}; give one a token", side.first->length, side.second);
  }
}

void ProblemLoader::NotePrecision() {
  std::string names;
  const std::pair<const char*, const TensorView*> tensors[] = {
      {"q", &problem_.q}, {"k", &problem_.k}, {"v", &problem_.v}, {"weights", &problem_.weights}};
  for (const auto& [name, view] : tensors) {
    if (*view && view->dtype() == DType::kF64) names.append(names.empty() ? "" : ", ").append(name);
  }
  if (names.empty() || problem_.kind == Problem::Kind::kThirdStage) return;
  problem_.notes.push_back(names + ": f64; staged and fused compute in f32, the reference path in f64");
}

}  // namespace regard::io
