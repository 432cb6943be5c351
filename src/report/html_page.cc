#include "report/html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/bind.h"
#include "regard/error.h"
#include "report/page/page_template.h"
#include "report/page_data.h"
#include "report/text.h"

namespace regard::report {
namespace {

using nlohmann::json;

// Masks and biases of exact heads are embedded up to this many bytes each: 4,096 × 4,096 bits, 1,024 × 1,024 numbers.
constexpr std::int64_t kMaxPairTableBytes = std::int64_t{1} << 22;
// The bytes of page text that a byte of an array takes: base64.
constexpr double kBase64Growth = 4.0 / 3.0;
// A bound on what the page says about one array besides its content: its element and its description.
constexpr double kArrayOverhead = 200;

void CheckShape(const std::string& name, const TensorView& view, std::initializer_list<std::int64_t> wanted,
                bool is_index = false) {
  if (!view) return;
  const Dims expected(wanted);
  bool fits = view.rank() == expected.size();
  for (int axis = 0; fits && axis < expected.size(); ++axis) fits = expected[axis] < 0 || view.dim(axis) == expected[axis];
  if (!fits) {
    std::string shape;
    for (const std::int64_t length : expected)
      shape += (shape.empty() ? "" : "×") + (length < 0 ? std::string("n") : fmt::format("{}", length));
    throw Error(ErrorCode::kShapeMismatch,
                fmt::format("{}: shape {} where the page has {}", name, ToString(view.shape()), shape));
  }
  const bool is_right_type = is_index ? view.dtype() == DType::kI32 || view.dtype() == DType::kI64 : IsFloat(view.dtype());
  if (!is_right_type) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: element type {}; use {}", name, Name(view.dtype()), is_index ? "i32 or i64" : "a float type"));
  }
}

void CheckLinks(const std::string& name, const TensorView& index, const TensorView& weight, std::int64_t tokens) {
  if (static_cast<bool>(index) != static_cast<bool>(weight)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: index without weight or the reverse; give both or neither", name));
  }
  if (!index) return;
  CheckShape(name + "_index", index, {tokens, -1}, true);
  CheckShape(name + "_weight", weight, {tokens, index.dim(1)});
}

void CheckTokens(const char* name, const std::vector<std::string>& tokens, std::int64_t length) {
  if (tokens.empty() || static_cast<std::int64_t>(tokens.size()) == length) return;
  throw Error(ErrorCode::kShapeMismatch, fmt::format("{}: {} tokens for {} positions", name, tokens.size(), length));
}

void CheckExact(const HtmlPage& page, const ExactHead& exact) {
  if (!exact.q || !exact.k || !exact.lse)
    throw Error(ErrorCode::kInvalidArgument, "exact: q, k or lse is missing; give all three");
  CheckShape("exact.q", exact.q, {page.q_len, -1});
  CheckShape("exact.k", exact.k, {page.kv_len, exact.q.dim(1)});
  CheckShape("exact.lse", exact.lse, {page.q_len});
  CheckShape("exact.bias", exact.bias, {page.q_len, page.kv_len});
  if (exact.mask && (exact.mask.dtype() != DType::kBool || exact.mask.shape() != Dims{page.q_len, page.kv_len})) {
    throw Error(ErrorCode::kShapeMismatch, fmt::format("exact.mask: {} {}; expected bool {}×{}", Name(exact.mask.dtype()),
                                                       ToString(exact.mask.shape()), page.q_len, page.kv_len));
  }
  if (exact.visible != nullptr && static_cast<std::int64_t>(exact.visible->size()) != page.q_len) {
    throw Error(ErrorCode::kShapeMismatch,
                fmt::format("exact.visible: {} rows for {} queries; give one of each", exact.visible->size(), page.q_len));
  }
}

void Check(const HtmlPage& page) {
  CheckTokens("q_tokens", page.q_tokens, page.q_len);
  CheckTokens("k_tokens", page.k_tokens, page.kv_len);
  if (page.same_text && (page.q_offset < 0 || page.q_offset > page.kv_len - page.q_len)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("q_offset: {} puts queries of the same text outside the keys; expected 0 to {}", page.q_offset,
                            page.kv_len - page.q_len));
  }
  for (const PageHead& head : page.heads) {
    if (head.reading > 0 && head.reading >= page.readings.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("reading: {} of {}; give its index in readings", head.reading, page.readings.size()));
    }
    CheckShape("pooled", head.pooled, {-1, -1});
    CheckShape("entropy", head.entropy, {page.q_len});
    CheckShape("key_mass", head.key_mass, {page.kv_len});
    CheckLinks("topk", head.topk_index, head.topk_weight, page.q_len);
    CheckLinks("key_topk", head.key_topk_index, head.key_topk_weight, page.kv_len);
    if (head.exact) CheckExact(page, *head.exact);
  }
}

// ------------------------------------------------------------------------------------------------------------ links

std::int64_t Columns(const TensorView& view) { return view ? view.dim(1) : 0; }
std::int64_t IndexBytes(std::int64_t limit) { return limit < 0xFFFF ? 2 : 4; }

// What one kept link of every token of this head takes, in bytes of the page.
double LinkBytes(const HtmlPage& page, const PageHead& head) {
  double bytes = 0;
  if (head.topk_index) bytes += static_cast<double>(page.q_len * (IndexBytes(page.kv_len) + 2));
  if (head.key_topk_index) bytes += static_cast<double>(page.kv_len * (IndexBytes(page.q_len) + 2));
  return bytes * kBase64Growth;
}

// How many links of each token fit beside `used` bytes: the same number for all heads, queries and keys.
std::int64_t LinksKept(const HtmlPage& page, std::size_t used) {
  std::int64_t most = 0;
  double bytes = 0, overhead = 0;
  for (const PageHead& head : page.heads) {
    most = std::max({most, Columns(head.topk_index), Columns(head.key_topk_index)});
    bytes += LinkBytes(page, head);
    overhead += 4 * kArrayOverhead;
  }
  if (bytes == 0) return most;
  const double left = std::max(0.0, static_cast<double>(page.max_bytes) - static_cast<double>(used) - overhead);
  return std::min(most, static_cast<std::int64_t>(left / bytes));
}

json Links(PageData* data, const TensorView& index, const TensorView& weight, std::int64_t limit, std::int64_t kept) {
  const std::int64_t columns = std::min(kept, Columns(index));
  if (columns == 0) return nullptr;
  return {{"index", data->AddIndex(index.Slice(1, 0, columns), limit)}, {"weight", data->AddF16(weight.Slice(1, 0, columns))}};
}

// ------------------------------------------------------------------------------------------------------- exact heads

// Axes along which nothing changes (stride 0) become one element long.
TensorView Collapsed(TensorView view) {
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.stride(axis) == 0 && view.dim(axis) > 1) view = view.Slice(axis, 0, 1);
  }
  return view;
}

class ExactWriter {
 public:
  explicit ExactWriter(PageData* data) : data_(data) {}

  // Null when a mask or bias is too large; `reason` then says so.
  json Add(const ExactHead& exact, std::string* reason) {
    const TensorView mask = exact.mask ? Collapsed(exact.mask) : TensorView();
    const TensorView bias = exact.bias ? Collapsed(exact.bias) : TensorView();
    const std::int64_t mask_bytes = mask ? mask.num_elements() / 8 : 0, bias_bytes = bias ? bias.num_elements() * 4 : 0;
    if (std::max(mask_bytes, bias_bytes) > kMaxPairTableBytes) {
      *reason =
          fmt::format("its {} takes {}, more than {}", mask_bytes > kMaxPairTableBytes ? "mask" : "bias",
                      ShowBytes(static_cast<double>(std::max(mask_bytes, bias_bytes))), ShowBytes(double{kMaxPairTableBytes}));
      return nullptr;
    }
    json entry = {{"scale", exact.scale}, {"softCap", exact.soft_cap}, {"alibiSlope", exact.alibi_slope}};
    entry["q"] = Once(exact.q, [this](const TensorView& view) { return data_->AddF16(view); });
    entry["k"] = Once(exact.k, [this](const TensorView& view) { return data_->AddF16(view); });
    entry["lse"] = data_->AddF32(exact.lse);
    if (mask) entry["mask"] = Once(mask, [this](const TensorView& view) { return data_->AddBits(view); });
    if (bias) entry["bias"] = Once(bias, [this](const TensorView& view) { return data_->AddF32(view); });
    if (exact.visible != nullptr) entry["visible"] = Visible(*exact.visible);
    return entry;
  }

 private:
  using Key = std::tuple<const void*, DType, std::vector<std::int64_t>, std::vector<std::int64_t>>;

  // Heads share keys (grouped heads), masks and biases: the same memory is written once.
  template <typename Write>
  json Once(const TensorView& view, const Write& write) {
    const auto list = [](const Dims& dims) { return std::vector<std::int64_t>(dims.begin(), dims.end()); };
    const Key key{view.data(), view.dtype(), list(view.shape()), list(view.strides())};
    auto found = written_.find(key);
    if (found == written_.end()) found = written_.emplace(key, write(view)).first;
    return found->second;
  }

  // [begin, end, position] of each query, in turn.
  json Visible(const std::vector<internal::RowKeys>& rows) {
    auto found = visible_.find(&rows);
    if (found != visible_.end()) return found->second;
    std::vector<std::int32_t> numbers;
    numbers.reserve(rows.size() * 3);
    for (const internal::RowKeys& row : rows) {
      for (const std::int64_t number : {row.begin, row.end, row.position}) {
        numbers.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(number, INT32_MIN, INT32_MAX)));
      }
    }
    return visible_[&rows] = data_->AddI32(numbers);
  }

  PageData* data_;
  std::map<Key, json> written_;
  std::map<const void*, json> visible_;
};

// ----------------------------------------------------------------------------------------------------------- the text

std::string EscapeText(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else
      escaped += c;
  }
  return escaped;
}

// JSON for a <script> element: "<" could end it or begin a comment, and stands in strings only.
std::string ScriptJson(const json& value) {
  std::string escaped;
  for (const char c : value.dump(-1, ' ', false, json::error_handler_t::replace)) {
    if (c == '<')
      escaped += "\\u003c";
    else
      escaped += c;
  }
  return escaped;
}

std::string HeadName(const PageHead& head) {
  return head.layer ? fmt::format("layer {} head {}", *head.layer, head.head) : fmt::format("head {}", head.head);
}

// Everything of a head but its links and exact weights.
json Describe(PageData* data, const PageHead& head) {
  json entry = {{"layer", nullptr}, {"head", head.head}, {"reading", head.reading}, {"kind", head.kind}, {"score", head.score}};
  if (head.layer) entry["layer"] = *head.layer;
  if (head.pooled && head.pooled.num_elements() > 0) entry["pooled"] = data->AddRoot8(head.pooled);
  if (head.entropy) entry["entropy"] = data->AddF16(head.entropy);
  if (head.key_mass) entry["keyMass"] = data->AddF16(head.key_mass);
  return entry;
}

std::string LinksNote(std::int64_t kept, std::int64_t given) {
  const std::string fits = fmt::format("{} of {} strongest links of each token", kept, given);
  return kept == 0 ? "no links of tokens: they would make the page too large; choose fewer heads"
                   : fits + " kept, to bound the size of the page";
}

}  // namespace

std::vector<ExactHead> ExactHeads(const TensorView& q, const TensorView& k, const AttentionParams& params, std::int64_t batch,
                                  const std::vector<std::int64_t>& heads) {
  // v takes no part in the weights; any will do that fits k.
  const PlanShape shape = PlanShape::Of(q, k, k);
  internal::CheckPlan(shape, params, {}).ThrowIfFailed();
  internal::Problem p;
  internal::Results none;
  internal::Bind(shape, params, internal::ResolveScale(shape, params), {.q = q, .k = k, .v = k}, {}, &p, &none).ThrowIfFailed();
  if (batch < 0 || batch >= p.batch) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("batch: {} of {}; use 0 to {}", batch, p.batch, p.batch - 1));
  }

  std::vector<internal::RowKeys> rows(static_cast<std::size_t>(p.batch * p.q_len));
  internal::ComputeRowKeys(p, rows.data());
  const auto first = rows.begin() + batch * p.q_len;
  const auto visible = std::make_shared<const std::vector<internal::RowKeys>>(first, first + p.q_len);

  // One sequence and head of a bound view as a matrix.
  const auto matrix = [batch](const internal::View4& view, std::int64_t head, std::int64_t length, std::int64_t width) {
    if (view.data == nullptr) return TensorView();
    const char* data =
        static_cast<const char*>(view.data) + view.Offset(batch, head, 0, 0) * static_cast<std::int64_t>(ItemSize(view.dtype));
    return TensorView(data, view.dtype, {length, width}, {view.stride[2], view.stride[3]});
  };
  std::vector<ExactHead> exact;
  for (const std::int64_t head : heads) {
    if (head < 0 || head >= p.heads) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("head: {} of {}; use 0 to {}", head, p.heads, p.heads - 1));
    }
    ExactHead entry{.q = matrix(p.q, head, p.q_len, p.head_dim), .k = matrix(p.k, head / p.group_size, p.kv_len, p.head_dim)};
    entry.scale = p.scale;
    entry.soft_cap = p.soft_cap;
    const internal::View4& slopes = p.alibi_slopes;
    if (slopes.data != nullptr) {
      entry.alibi_slope = static_cast<float>(internal::LoadDouble(slopes.data, slopes.dtype, slopes.Offset(0, head, 0, 0)));
    }
    entry.mask = matrix(p.mask, head, p.q_len, p.kv_len);
    entry.bias = matrix(p.bias, head, p.q_len, p.kv_len);
    entry.visible = visible;
    exact.push_back(entry);
  }
  return exact;
}

BuiltPage BuildHtmlPage(const HtmlPage& page) {
  Check(page);
  BuiltPage built;
  PageData data;
  json heads = json::array();
  for (const PageHead& head : page.heads) heads.push_back(Describe(&data, head));

  json facts = {{"title", page.title},        {"readings", page.readings}, {"queries", page.q_len},    {"keys", page.kv_len},
                {"sameText", page.same_text}, {"qOffset", page.q_offset},  {"qTokens", page.q_tokens}, {"kTokens", page.k_tokens},
                {"heads", std::move(heads)},  {"notes", page.notes}};

  const std::size_t fixed = kPageBegin.size() + page.title.size() + kPageMiddle.size() + kPageEnd.size();
  const std::int64_t kept = LinksKept(page, fixed + ScriptJson(facts).size() + data.html().size());
  std::int64_t given = 0;
  for (std::size_t i = 0; i < page.heads.size(); ++i) {
    const PageHead& head = page.heads[i];
    given = std::max({given, Columns(head.topk_index), Columns(head.key_topk_index)});
    facts["heads"][i]["topk"] = Links(&data, head.topk_index, head.topk_weight, page.kv_len, kept);
    facts["heads"][i]["keyTopk"] = Links(&data, head.key_topk_index, head.key_topk_weight, page.q_len, kept);
  }
  if (kept < given) built.notes.push_back(LinksNote(kept, given));

  ExactWriter exact(&data);
  for (std::size_t i = 0; i < page.heads.size(); ++i) {
    if (!page.heads[i].exact) continue;
    std::string reason;
    facts["heads"][i]["exact"] = exact.Add(*page.heads[i].exact, &reason);
    if (!reason.empty()) built.notes.push_back(fmt::format("{}: no exact weights, since {}", HeadName(page.heads[i]), reason));
  }
  for (const std::string& note : built.notes) facts["notes"].push_back(note);

  std::string& html = built.html;
  html.reserve(data.html().size() + fixed);
  html += kPageBegin;
  html += EscapeText(page.title);
  html += kPageMiddle;
  html += "<script type=\"application/json\" id=\"page-facts\">" + ScriptJson(facts) + "</script>\n";
  html += data.html();
  html += kPageEnd;
  return built;
}

}  // namespace regard::report
