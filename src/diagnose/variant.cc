#include "diagnose/variant.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace regard::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::shared_ptr<const std::vector<double>> Convert(const View4& view, std::int64_t batch, std::int64_t heads, std::int64_t len,
                                                   std::int64_t dim) {
  auto values = std::make_shared<std::vector<double>>();
  values->reserve(static_cast<std::size_t>(batch * heads * len * dim));
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t t = 0; t < len; ++t) {
        for (std::int64_t d = 0; d < dim; ++d) values->push_back(LoadDouble(view.data, view.dtype, view.Offset(b, h, t, d)));
      }
    }
  }
  return values;
}

std::vector<TokenPlace> Places(const View4& segments, std::int64_t batch, std::int64_t len) {
  std::vector<TokenPlace> places(static_cast<std::size_t>(batch * len));
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < len; ++t) {
      TokenPlace& place = places[static_cast<std::size_t>(b * len + t)];
      place = {0, t};
      if (segments.data == nullptr) continue;
      place.segment = LoadInt(segments, segments.Offset(b, 0, 0, t));
      const TokenPlace* before = t > 0 ? &place - 1 : nullptr;
      place.position = before != nullptr && before->segment == place.segment ? before->position + 1 : 0;
    }
  }
  return places;
}

// Four sums, which the compiler can keep in vectors.
double Dot(const double* a, const double* b, std::int64_t n) {
  double sums[4] = {};
  std::int64_t d = 0;
  for (; d + 4 <= n; d += 4) {
    for (int lane = 0; lane < 4; ++lane) sums[lane] += a[d + lane] * b[d + lane];
  }
  double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

void ComputeDots(const Operands& o, RowId row, std::vector<double>* dots) {
  dots->resize(static_cast<std::size_t>(o.kv_len));
  const double* q = o.Q(row.b, row.h, row.i);
  const double* k = o.K(row.b, o.k_head[static_cast<std::size_t>(row.h)], 0);
  for (std::int64_t j = 0; j < o.kv_len; ++j) (*dots)[static_cast<std::size_t>(j)] = Dot(q, k + j * o.head_dim, o.head_dim);
}

std::vector<double> Norms(const std::vector<double>& rows, std::int64_t dim) {
  std::vector<double> norms(rows.size() / static_cast<std::size_t>(dim));
  for (std::size_t r = 0; r < norms.size(); ++r) {
    const double* row = rows.data() + r * static_cast<std::size_t>(dim);
    norms[r] = std::sqrt(Dot(row, row, dim));
  }
  return norms;
}

}  // namespace

void Operands::ComputeNorms() {
  q_norm = Norms(*q, head_dim);
  k_norm = Norms(*k, head_dim);
}

void Operands::KeepDots(const std::vector<RowId>& rows) {
  auto kept = std::make_shared<std::map<RowId, std::vector<double>>>();
  for (const RowId& row : rows) ComputeDots(*this, row, &(*kept)[row]);
  dots = kept;
}

const std::vector<double>* Operands::FindDots(RowId row) const {
  if (dots == nullptr) return nullptr;
  const auto found = dots->find(row);
  return found != dots->end() ? &found->second : nullptr;
}

Evaluator::Evaluator(const Problem& problem, const View4& weights)
    : problem_(problem),
      given_weights_(weights),
      q_places_(Places(problem.q_segments, problem.batch, problem.q_len)),
      k_places_(Places(problem.kv_segments, problem.batch, problem.kv_len)) {
  const Problem& p = problem_;
  operands_ = std::make_shared<Operands>();
  Operands& o = *operands_;
  o.kv_heads = p.kv_heads, o.kv_len = p.kv_len, o.head_dim = p.head_dim, o.v_dim = p.v_dim, o.heads = p.heads, o.q_len = p.q_len;
  o.q = Convert(p.q, p.batch, p.heads, p.q_len, p.head_dim);
  o.k = Convert(p.k, p.batch, p.kv_heads, p.kv_len, p.head_dim);
  o.v = Convert(p.v, p.batch, p.kv_heads, p.kv_len, p.v_dim);
  for (std::int64_t h = 0; h < p.heads; ++h) o.k_head.push_back(h / p.group_size);
  o.v_head = o.k_head;
  o.ComputeNorms();
}

Variant Evaluator::Unedited() const {
  Variant v;
  v.operands = operands_;
  v.rules.causal = problem_.causal;
  v.rules.window_left = problem_.window_left;
  v.rules.window_right = problem_.window_right;
  v.scale = static_cast<double>(problem_.scale);
  v.soft_cap = static_cast<double>(problem_.soft_cap);
  if (given_weights_.data != nullptr) {
    v.softmax = [given = given_weights_, kv_len = problem_.kv_len](RowState& s) {
      s.weights.assign(s.masked.size(), 0);  // keys that only a variant has weigh nothing
      for (std::size_t j = 0; j < std::min(s.weights.size(), static_cast<std::size_t>(kv_len)); ++j)
        s.weights[j] = LoadDouble(given.data, given.dtype, given.Offset(s.id.b, s.id.h, s.id.i, static_cast<std::int64_t>(j)));
    };
  }
  v.memo = std::make_shared<std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>>>();
  return v;
}

double Evaluator::Slope(std::int64_t h) const {
  const View4& slopes = problem_.alibi_slopes;
  return slopes.data != nullptr ? LoadDouble(slopes.data, slopes.dtype, slopes.Offset(0, h, 0, 0)) : 0;
}

bool Evaluator::MaskKeeps(const Variant& variant, RowId row, std::int64_t j) const {
  const Rules& rules = variant.rules;
  if (rules.mask == Rules::Mask::kIgnored) return true;
  const RowId read = rules.mask_row ? rules.mask_row(row) : row;
  std::int64_t i = read.i, column = j;
  if (rules.mask_row_stride) {
    const std::int64_t flat = (i * *rules.mask_row_stride + j) % (problem_.q_len * problem_.kv_len);
    i = flat / problem_.kv_len, column = flat % problem_.kv_len;
  }
  if (rules.mask_transposed) std::swap(i, column);
  bool keeps = true;
  const View4 &mask = problem_.mask, &bias = problem_.bias;
  if (mask.data != nullptr) keeps = LoadDouble(mask.data, mask.dtype, mask.Offset(read.b, read.h, i, column)) != 0;
  if (bias.data != nullptr && rules.bias_hides) {
    keeps = keeps && LoadDouble(bias.data, bias.dtype, bias.Offset(read.b, read.h, i, column)) != -kInfinity;
  }
  return rules.mask == Rules::Mask::kInverted ? !keeps : keeps;
}

// The rules of the contract, pair by pair, as the variant bends them.
void Evaluator::FindVisible(const Variant& variant, RowState& s) const {
  const Rules& r = variant.rules;
  const RowId row = s.id;
  const std::int64_t n = variant.operands->kv_len;
  const TokenPlace query = QueryPlace(row.b, row.i);
  const std::int64_t offset = r.absolute_offset.value_or(QOffset(row.b));
  const bool has_mask = problem_.mask.data != nullptr || problem_.bias.data != nullptr;
  s.visible.assign(static_cast<std::size_t>(n), 0);
  s.in_rules.assign(static_cast<std::size_t>(n), 0);
  s.num_visible = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    const TokenPlace key = KeyPlace(row.b, j);
    const bool packed = r.segments && problem_.q_segments.data != nullptr;
    const std::int64_t distance = (packed ? query.position - key.position : row.i - j) + offset;  // p − j
    bool sees = true;
    if (r.kv_lens && j >= KvLen(row.b) && n == problem_.kv_len) sees = false;
    if (packed) {
      if (query.segment != key.segment) sees = false;
      if (query.segment == -1 && !r.pads_see_pads) sees = false;
    } else if (problem_.q_segments.data != nullptr && r.padding_segments && (query.segment == -1 || key.segment == -1)) {
      sees = false;
    }
    if (r.causal && distance + r.causal_shift < 0) sees = false;
    if (r.window_left && distance > *r.window_left) sees = false;
    if (r.window_right && -distance > *r.window_right) sees = false;
    s.in_rules[static_cast<std::size_t>(j)] = sees;
    if (has_mask && sees && n == problem_.kv_len) sees = MaskKeeps(variant, row, j);
    if (r.all_inverted) sees = !sees;
    s.visible[static_cast<std::size_t>(j)] = sees;
    s.num_visible += sees;
  }
}

double Evaluator::Bias(RowId row, std::int64_t i, std::int64_t j) const {
  const View4& bias = problem_.bias;
  if (j >= problem_.kv_len) return 0;
  return LoadDouble(bias.data, bias.dtype, bias.Offset(row.b, row.h, i, j));
}

// An infinite bias hides and adds nothing.
void Evaluator::AddBias(RowState& s, const BiasElement& element) const {
  const RowId row = s.id;
  const std::int64_t n = static_cast<std::int64_t>(s.masked.size());
  const double slope = Slope(row.h);
  const bool has_bias = problem_.bias.data != nullptr && n == problem_.kv_len;
  s.bias.assign(static_cast<std::size_t>(n), 0);
  if (!has_bias && slope == 0) return;
  const TokenPlace query = QueryPlace(row.b, row.i);
  for (std::int64_t j = 0; j < n; ++j) {
    double added = 0;
    if (has_bias) {
      added = element ? element(s, j) : Bias(row, row.i, j);
      if (added == -kInfinity) added = 0;
    }
    const std::int64_t position = KeyPlace(row.b, j).position;
    if (slope != 0) added -= slope * std::fabs(static_cast<double>(query.position + QOffset(row.b) - position));
    s.bias[static_cast<std::size_t>(j)] = added;
    s.masked[static_cast<std::size_t>(j)] += added;
  }
}

void Evaluator::MaskByRules(RowState& s) {
  for (std::size_t j = 0; j < s.masked.size(); ++j) {
    if (!s.visible[j]) s.masked[j] = -kInfinity;
  }
}

void Evaluator::SoftmaxOverKeys(RowState& s) {
  double largest = s.sink;
  bool undefined = false;
  for (const double x : s.masked) {
    undefined = undefined || std::isnan(x) || x == kInfinity;
    if (x > largest) largest = x;
  }
  s.weights.resize(s.masked.size());
  if (undefined) {
    for (std::size_t j = 0; j < s.masked.size(); ++j) s.weights[j] = s.masked[j] == -kInfinity ? 0 : kNaN;
    s.lse = kNaN;
    return;
  }
  if (largest == -kInfinity) {
    std::fill(s.weights.begin(), s.weights.end(), 0.0);
    s.lse = -kInfinity;
    return;
  }
  double sum = std::exp(s.sink - largest);
  for (std::size_t j = 0; j < s.masked.size(); ++j) {
    s.weights[j] = s.masked[j] - largest < -745 ? 0 : std::exp(s.masked[j] - largest);  // exp(−745) is the smallest double
    sum += s.weights[j];
  }
  for (double& w : s.weights) w /= sum;
  s.lse = largest + std::log(sum);
}

void Evaluator::MultiplyByValues(RowState& s) {
  const Operands& o = *s.variant->operands;
  const std::size_t dims = static_cast<std::size_t>(std::min(o.v_dim, s.max_dims));
  s.context.assign(dims, 0);
  s.magnitude.assign(dims, 0);
  const double* v = o.V(s.id.b, o.v_head[static_cast<std::size_t>(s.id.h)], 0);
  for (std::size_t j = 0; j < s.weights.size(); ++j, v += o.v_dim) {
    const double w = s.weights[j];
    // An invisible value is never read; a visible one that is not finite shows even with weight 0.
    if (w == 0 && !s.visible[j]) continue;
    for (std::size_t d = 0; d < dims; ++d) {
      s.context[d] += w * v[d];
      s.magnitude[d] += std::fabs(w * v[d]);
    }
  }
}

void Evaluator::FindMagnitudes(RowState& s) {
  const Operands& o = *s.variant->operands;
  double largest = -kInfinity;
  for (std::size_t j = 0; j < s.masked.size(); ++j) {
    if (s.visible[j] && s.masked[j] > largest) largest = s.masked[j];
  }
  const std::int64_t k_head = o.k_head[static_cast<std::size_t>(s.id.h)];
  const double* norms = o.k_norm.data() + (s.id.b * o.kv_heads + k_head) * o.kv_len;
  double largest_norm = 0;
  const double cap = s.variant->cap ? 0 : s.variant->soft_cap;
  s.largest_score = 0;
  for (std::size_t j = 0; j < s.masked.size(); ++j) {
    if (!s.visible[j] || !(s.masked[j] > largest - 60)) continue;  // e⁻⁶⁰ of the largest weight
    // A capped score moves less than the score: by the slope of the cap, a little before it.
    const double tanh = cap > 0 ? std::tanh(0.9 * s.scores[j] / cap) : 0;
    largest_norm = std::max(largest_norm, norms[j] * (1 - tanh * tanh));
    s.largest_score = std::max(s.largest_score, std::fabs(s.masked[j]));
  }
  // A sink is exponentiated beside them.
  if (std::isfinite(s.sink) && s.sink > largest - 60) s.largest_score = std::max(s.largest_score, std::fabs(s.sink));
  s.largest_dot = std::fabs(s.variant->scale) *
                  o.q_norm[static_cast<std::size_t>((s.id.b * o.heads + s.id.h) * o.q_len + s.id.i)] * largest_norm;
}

void Evaluator::EvaluateMasked(const Variant& variant, RowId row, RowState* state) const {
  RowState& s = *state;
  const Operands& o = *variant.operands;
  s.id = row;
  s.evaluator = this;
  s.variant = &variant;
  const std::size_t n = static_cast<std::size_t>(o.kv_len);
  const std::vector<double>* kept = o.FindDots(row);
  if (kept != nullptr) {
    s.dots = *kept;
  } else {
    ComputeDots(o, row, &s.dots);
  }
  s.scores.resize(n);
  for (std::size_t j = 0; j < n; ++j) s.scores[j] = variant.scale * s.dots[j];
  FindVisible(variant, s);
  if (variant.score) variant.score(s);
  s.capped = s.scores;
  if (variant.cap) {
    variant.cap(s);
  } else if (variant.soft_cap > 0) {
    for (double& x : s.capped) x = variant.soft_cap * std::tanh(x / variant.soft_cap);
  }
  s.masked = s.capped;
  if (variant.bias) {
    variant.bias(s);
  } else {
    AddBias(s);
  }
  if (variant.masking) {
    variant.masking(s);
  } else {
    MaskByRules(s);
  }
}

void Evaluator::Evaluate(const Variant& variant, RowId row, RowState* state) const {
  RowState& s = *state;
  const RowId source = variant.output_row ? variant.output_row(row) : row;
  EvaluateMasked(variant, source, state);
  const View4& sinks = problem_.sinks;
  s.sink = sinks.data != nullptr ? LoadDouble(sinks.data, sinks.dtype, sinks.Offset(0, source.h, 0, 0)) : -kInfinity;
  if (variant.sink) s.sink = variant.sink(s);
  FindMagnitudes(s);
  if (variant.softmax) {
    variant.softmax(s);
  } else {
    SoftmaxOverKeys(s);
  }
  if (s.num_visible == 0 && variant.empty_row) variant.empty_row(s);
  if (variant.reweigh) variant.reweigh(s);
  if (variant.product) {
    variant.product(s);
  } else {
    MultiplyByValues(s);
  }
  if (!variant.context_row) return;
  const RowId context_source = variant.context_row(row);
  if (context_source == source) return;
  Variant inner = variant;
  inner.context_row = nullptr;
  RowState other;
  other.max_dims = s.max_dims;
  Evaluate(inner, context_source, &other);
  s.context = other.context;
  s.magnitude = other.magnitude;
}

}  // namespace regard::internal
