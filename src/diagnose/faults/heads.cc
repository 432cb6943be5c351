// Faults of heads: F15–F17, F99, F101. Which kv head a query head reads, in which order heads stand, and how many there are.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

using From = RowSource::From;

std::function<void(Variant&)> UseHeads(const Case& c, std::vector<std::int64_t> k_head, std::vector<std::int64_t> v_head) {
  return [&c, k_head = std::move(k_head), v_head = std::move(v_head)](Variant& variant) {
    auto operands = std::make_shared<Operands>(c.evaluator().operands());
    operands->k_head = k_head;
    operands->v_head = v_head;
    std::vector<RowId> probes = c.wrong_rows();
    probes.insert(probes.end(), c.right_rows().begin(), c.right_rows().end());
    operands->KeepDots(probes);
    variant.operands = operands;
  };
}

// The kv head that each query head reads, found head by head; empty when none reads another than its own.
std::vector<std::int64_t> SolveHeadMap(const Case& c) {
  const Problem& x = c.problem();
  const std::vector<std::int64_t>& own = c.evaluator().operands().k_head;
  if (x.kv_heads == 1) return {};
  std::vector<std::int64_t> map = SolveEach(c, &RowId::h, x.heads, x.kv_heads, [&](std::int64_t g) {
    auto operands = std::make_shared<Operands>(c.evaluator().operands());
    operands->dots = nullptr;
    operands->k_head.assign(static_cast<std::size_t>(x.heads), g);
    operands->v_head = operands->k_head;
    Variant v = c.evaluator().Unedited();
    v.operands = operands;
    return v;
  });
  for (std::size_t h = 0; h < map.size(); ++h) map[h] = map[h] < 0 ? own[h] : map[h];
  return map == own ? std::vector<std::int64_t>{} : map;
}

void HeadCollapse(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  const std::size_t heads = static_cast<std::size_t>(x.heads);
  for (std::int64_t g = 0; g < x.kv_heads && x.kv_heads > 1; ++g) {
    const std::vector<std::int64_t> all(heads, g);
    const std::vector<std::int64_t>& own = c.evaluator().operands().k_head;
    const double number = static_cast<double>(g);
    const int complexity = g == 0 ? 0 : 1;
    p.Add(UseHeads(c, all, all), {{"kv_head", number}, {"of", 0, "k and v"}}, complexity);
    p.Add(UseHeads(c, all, own), {{"kv_head", number}, {"of", 0, "k"}}, complexity);
    p.Add(UseHeads(c, own, all), {{"kv_head", number}, {"of", 0, "v"}}, complexity);
  }
  if (x.heads == 1) return;
  p.Add([](Variant& v) { v.output_row = [](RowId r) { return RowId{r.b, 0, r.i}; }; }, {{"head", 0}, {"of", 0, "q, k and v"}});
  if (x.kv_heads == 1) return;
  const RowMap head_0 = [](std::int64_t b, std::int64_t, std::int64_t t) { return RowSource{From::kQ, b, 0, t}; };
  p.Add([&c, head_0](Variant& v) { v.operands = GatherOperands(c, head_0, {}, {}); }, {{"head", 0}, {"of", 0, "q"}});
  std::vector<std::int64_t> shifted;
  for (std::int64_t h = 0; h < x.heads; ++h) shifted.push_back((h / x.group_size + 1) % x.kv_heads);
  p.Add(UseHeads(c, shifted, shifted), {{"of", 0, "the next kv head"}}, 1);
  if (x.group_size > 1) return;  // F16
  if (const std::vector<std::int64_t> map = SolveHeadMap(c); !map.empty() && map != shifted)
    p.Add(UseHeads(c, map, map), {{"kv_head_of_head", 0, ListText(map)}}, 2);
}

void GroupsTiled(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.kv_heads == 1) return;
  if (x.kv_heads < x.heads) {
    std::vector<std::int64_t> tiled;
    for (std::int64_t h = 0; h < x.heads; ++h) tiled.push_back(h % x.kv_heads);
    p.Add(UseHeads(c, tiled, tiled), {{"of", 0, "k and v"}});
    p.Add(UseHeads(c, tiled, c.evaluator().operands().k_head), {{"of", 0, "k"}}, 1);
    p.Add(UseHeads(c, c.evaluator().operands().k_head, tiled), {{"of", 0, "v"}}, 1);
    if (const std::vector<std::int64_t> map = SolveHeadMap(c); !map.empty() && map != tiled) {
      p.Add(UseHeads(c, map, map), {{"kv_head_of_head", 0, ListText(map)}}, 2);
    }
  }
}

void GroupsRepeatTokens(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  const std::int64_t group = x.group_size, len = x.kv_len;
  if (group == 1) return;
  // k.repeat_interleave(group, tokens) has as many numbers as the right one, and is then viewed as [heads, tokens, dim].
  std::vector<std::int64_t> each(static_cast<std::size_t>(x.heads));
  std::iota(each.begin(), each.end(), 0);
  const auto expanded = [&c, group, len, each](bool interleave) {
    return [&c, group, len, each, interleave](Variant& v) {
      const Operands& o = c.evaluator().operands();
      auto wide = std::make_shared<Operands>(o);
      wide->kv_heads = o.heads;
      wide->k_head = wide->v_head = each;
      for (const bool keys : {true, false}) {
        const std::vector<double>& from = keys ? *o.k : *o.v;
        const std::int64_t dim = keys ? o.head_dim : o.v_dim;
        auto to = std::make_shared<std::vector<double>>();
        to->reserve(from.size() * static_cast<std::size_t>(group));
        for (std::int64_t b = 0; b < c.problem().batch; ++b) {
          for (std::int64_t n = 0; n < o.heads * len; ++n) {
            const std::int64_t g = n / (len * group), within = n % (len * group);
            const std::int64_t t = interleave ? within / group : within % len;
            const double* row = from.data() + ((b * o.kv_heads + g) * len + t) * dim;
            to->insert(to->end(), row, row + dim);
          }
        }
        (keys ? wide->k : wide->v) = to;
      }
      wide->ComputeNorms();
      wide->dots = nullptr;
      v.operands = wide;
    };
  };
  p.Add(expanded(true), {{"kv_len", static_cast<double>(len)}});
  if (x.kv_heads > 1) return;
  // One kv head broadcasts over all heads, so the longer keys pass as they are.
  p.Add(
      [&c, group, len](Variant& v) {
        const Operands& o = c.evaluator().operands();
        auto longer = std::make_shared<Operands>(o);
        longer->kv_len = len * group;
        for (const bool keys : {true, false}) {
          const std::vector<double>& from = keys ? *o.k : *o.v;
          const std::size_t dim = static_cast<std::size_t>(keys ? o.head_dim : o.v_dim);
          auto to = std::make_shared<std::vector<double>>();
          for (std::size_t r = 0; r < from.size() / dim; ++r) {
            for (std::int64_t copy = 0; copy < group; ++copy)
              to->insert(to->end(), from.begin() + static_cast<std::ptrdiff_t>(r * dim),
                         from.begin() + static_cast<std::ptrdiff_t>((r + 1) * dim));
          }
          (keys ? longer->k : longer->v) = to;
        }
        longer->ComputeNorms();
        longer->dots = nullptr;
        v.operands = longer;
      },
      {{"kv_len", static_cast<double>(len * group)}});
}

// Heads written in another order: found head by head, by their context.
void HeadsPermuted(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.heads == 1 || c.Find(Stage::kContext) == nullptr) return;
  const Stage only = Stage::kContext;
  const Variant unedited = c.evaluator().Unedited();
  std::vector<std::int64_t> order = SolveEach(
      c, &RowId::h, x.heads, x.heads,
      [&](std::int64_t other) {
        Variant v = unedited;
        v.output_row = [other](RowId r) { return RowId{r.b, other, r.i}; };
        return v;
      },
      &only);
  bool changed = false;
  for (std::size_t h = 0; h < order.size(); ++h) {
    changed = changed || order[h] >= 0;
    if (order[h] < 0) order[h] = static_cast<std::int64_t>(h);
  }
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (!changed || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return;
  const auto move = [order](RowId r) { return RowId{r.b, order[static_cast<std::size_t>(r.h)], r.i}; };
  const std::vector<ExplanationParam> params = {{"head_of_head", 0, ListText(order)}};
  p.Add([move](Variant& v) { v.output_row = move; }, params, 2);
  p.Add([move](Variant& v) { v.context_row = move; }, params, 2);
}

// q, k and v side by side [tokens, heads·dim] cut into fewer heads, so that `joined` of ours share one softmax.
void JoinHeads(const Case& c, Proposals& p, std::int64_t joined) {
  const double wider = 1 / std::sqrt(static_cast<double>(joined));
  for (const double scale : {wider, 1.0}) {
    p.Add(
        [joined, scale](Variant& v) {
          v.score = [joined, scale](RowState& s) {
            const Operands& o = *s.variant->operands;
            std::fill(s.scores.begin(), s.scores.end(), 0.0);
            for (std::int64_t h = s.id.h / joined * joined, end = h + joined; h < end; ++h) {
              const double* q = o.Q(s.id.b, h, s.id.i);
              const double* k = o.K(s.id.b, h, 0);
              for (double& score : s.scores) {
                score += scale * s.variant->scale * std::inner_product(q, q + o.head_dim, k, 0.0);
                k += o.head_dim;
              }
            }
          };
        },
        {{"heads", static_cast<double>(c.problem().heads / joined)}, {"scale", 0, scale == 1 ? "unchanged" : "1/√(their size)"}},
        scale == 1 ? 1 : 0);
  }
}

// The same cut into more heads: each of ours falls into `parts` with a softmax of their own.
void CutHeads(const Case& c, Proposals& p, std::int64_t parts) {
  const double narrower = std::sqrt(static_cast<double>(parts));
  p.Add(
      [parts, narrower](Variant& v) {
        v.product = [parts, narrower](RowState& s) {
          const Operands& o = *s.variant->operands;
          const std::int64_t size = o.head_dim / parts;
          s.context.assign(static_cast<std::size_t>(o.v_dim), 0);
          s.magnitude = s.context;
          for (std::int64_t part = 0; part < parts; ++part) {
            const double* q = o.Q(s.id.b, s.id.h, s.id.i) + part * size;
            const double* k = o.K(s.id.b, s.id.h, 0) + part * size;
            for (std::size_t j = 0; j < s.masked.size(); ++j, k += o.head_dim) {
              s.masked[j] = s.visible[j] ? narrower * s.variant->scale * std::inner_product(q, q + size, k, 0.0) : -kInfinity;
            }
            Evaluator::SoftmaxOverKeys(s);
            const double* value = o.V(s.id.b, s.id.h, 0) + part * size;
            for (std::size_t j = 0; j < s.weights.size(); ++j, value += o.v_dim) {
              for (std::int64_t d = 0; d < size && s.weights[j] != 0; ++d) {
                s.context[static_cast<std::size_t>(part * size + d)] += s.weights[j] * value[d];
                s.magnitude[static_cast<std::size_t>(part * size + d)] += std::fabs(s.weights[j] * value[d]);
              }
            }
          }
        };
      },
      {{"heads", static_cast<double>(c.problem().heads * parts)}});
}

void OtherNumberOfHeads(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.kv_heads != x.heads || x.head_dim != x.v_dim || x.soft_cap > 0 || x.bias.data != nullptr) return;
  for (std::int64_t joined = 2; joined <= x.heads; ++joined) {
    if (x.heads % joined == 0) JoinHeads(c, p, joined);
  }
  for (std::int64_t parts = 2; parts <= std::min<std::int64_t>(x.head_dim, 16); ++parts) {
    if (x.head_dim % parts == 0) CutHeads(c, p, parts);
  }
}

constexpr Fault kFaults[] = {
    {"F15", "head index collapses", Stage::kInputs, slot::kOperands,
     "several heads read one head, or each another's keys and values", "heads with different keys and values give related rows",
     "check the head index and head stride of the operand named", HeadCollapse},
    {"F16", "grouped heads tiled", Stage::kInputs, slot::kOperands, "kv head = h mod kv_heads",
     "permuting the query heads makes it match; one kv head, or as many as heads, hides it",
     "query head h reads kv head h / (heads/kv_heads): repeat_interleave, not repeat", GroupsTiled},
    {"F17", "grouped heads repeated along tokens", Stage::kInputs, slot::kOperands, "k and v repeated along the token axis",
     "columns are duplicated", "repeat along the head axis", GroupsRepeatTokens},
    {"F99", "heads in another order", Stage::kContext, slot::kOutput, "context heads permuted",
     "each head matches another head's result",
     "keep the order of heads of the checkpoint; see the parameter for the order found", HeadsPermuted},
    {"F101", "another number of heads", Stage::kInputs, slot::kScore | slot::kSoftmax | slot::kValues,
     "[tokens, heads·dim] cut into more or fewer heads", "shapes agree; q, k, v and packed results have the same sizes",
     "pass the number of heads of the checkpoint, not of another model size", OtherNumberOfHeads},
};

}  // namespace

std::span<const Fault> HeadFaults() { return kFaults; }

}  // namespace regard::internal
