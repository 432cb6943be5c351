// Faults of layout and heads: F10–F18, F94, F99.
//
// Memory read in another order than it was written is a map of rows: which row of which tensor stands where row (b, head, t) should.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

using From = RowSource::From;

// A buffer written as [tokens, heads, dim], read as [heads, tokens, dim].
RowMap ReadAsHeadsFirst(From from, std::int64_t heads, std::int64_t len) {
  return [=](std::int64_t b, std::int64_t head, std::int64_t t) {
    const std::int64_t n = head * len + t;
    return RowSource{from, b, n % heads, n / heads};
  };
}

// A buffer written as [heads, tokens, dim], read as [tokens, heads, dim].
RowMap ReadAsTokensFirst(From from, std::int64_t heads, std::int64_t len) {
  return [=](std::int64_t b, std::int64_t head, std::int64_t t) {
    const std::int64_t n = t * heads + head;
    return RowSource{from, b, n / len, n % len};
  };
}

std::function<void(Variant&)> UseRows(const Case& c, RowMap q, RowMap k, RowMap v) {
  return [&c, q = std::move(q), k = std::move(k), v = std::move(v)](Variant& variant) {
    variant.operands = GatherOperands(c, q, k, v);
  };
}

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

void SplitByView(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.heads == 1) return;
  p.Add(UseRows(c, ReadAsHeadsFirst(From::kQ, x.heads, x.q_len), ReadAsHeadsFirst(From::kK, x.kv_heads, x.kv_len),
                ReadAsHeadsFirst(From::kV, x.kv_heads, x.kv_len)));
}

void MergeWithoutTranspose(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  const std::int64_t heads = x.heads, len = x.q_len, batch = x.batch;
  if (c.Find(Stage::kContext) == nullptr) return;
  if (heads > 1 && len > 1) {
    p.Add(
        [=](Variant& v) {
          v.context_row = [=](RowId r) {
            const std::int64_t n = r.i * heads + r.h;
            return RowId{r.b, n / len, n % len};
          };
        },
        {{"axes", 0, "heads and tokens"}});
    p.Add(
        [=](Variant& v) {
          v.context_row = [=](RowId r) {
            const std::int64_t n = r.h * len + r.i;
            return RowId{r.b, n % heads, n / heads};
          };
        },
        {{"axes", 0, "tokens and heads"}});
  }
  if (batch > 1 && heads > 1) {
    p.Add(
        [=](Variant& v) {
          v.context_row = [=](RowId r) {
            const std::int64_t n = r.h * batch + r.b;  // the context as [heads, batch, …]
            return RowId{n / heads, n % heads, r.i};
          };
        },
        {{"axes", 0, "batch and heads"}});
  }
}

// Attention along the batch axis: batch and sequence exchanged on the way in and out.
void BatchAndSequenceSwapped(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.batch == 1 || x.batch > x.kv_len || x.q_len != x.kv_len || x.mask.data != nullptr || x.bias.data != nullptr ||
      x.kv_lens.data != nullptr || x.q_segments.data != nullptr)
    return;
  const std::int64_t batch = x.batch;
  p.AddWithSlots(slot::kOperands | slot::kSoftmax | slot::kMasking | slot::kOutput, [batch](Variant& v) {
    v.masking = [batch](RowState& s) {
      const Operands& o = *s.variant->operands;
      const RowId row = s.id;
      const bool causal = s.variant->rules.causal;
      for (std::size_t j = 0; j < s.masked.size(); ++j) s.masked[j] = -std::numeric_limits<double>::infinity(), s.visible[j] = 0;
      // Keys are the other samples' tokens at the same place; they take the first entries of the row.
      s.num_visible = 0;
      for (std::int64_t other = 0; other < batch && other < static_cast<std::int64_t>(s.masked.size()); ++other) {
        if (causal && other > row.b) continue;
        const double* q = o.Q(row.b, row.h, row.i);
        const double* k = o.K(other, o.k_head[static_cast<std::size_t>(row.h)], row.i);
        double dot = 0;
        for (std::int64_t d = 0; d < o.head_dim; ++d) dot += q[d] * k[d];
        s.masked[static_cast<std::size_t>(other)] = s.variant->scale * dot;
        s.visible[static_cast<std::size_t>(other)] = 1;
        ++s.num_visible;
      }
    };
    v.product = [](RowState& s) {
      const Operands& o = *s.variant->operands;
      s.context.assign(static_cast<std::size_t>(o.v_dim), 0);
      s.magnitude = s.context;
      for (std::size_t other = 0; other < s.weights.size(); ++other) {
        if (!s.visible[other]) continue;
        const double* value = o.V(static_cast<std::int64_t>(other), o.v_head[static_cast<std::size_t>(s.id.h)], s.id.i);
        for (std::size_t d = 0; d < s.context.size(); ++d) {
          s.context[d] += s.weights[other] * value[d];
          s.magnitude[d] += std::fabs(s.weights[other] * value[d]);
        }
      }
    };
  });
}

// One tensor alone read in another order than it lies in memory.
void StridesIgnored(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.heads > 1) {
    p.Add(UseRows(c, ReadAsHeadsFirst(From::kQ, x.heads, x.q_len), {}, {}), {{"tensor", 0, "q"}, {"written_as", 0, "bshd"}}, 1);
    p.Add(UseRows(c, ReadAsTokensFirst(From::kQ, x.heads, x.q_len), {}, {}), {{"tensor", 0, "q"}, {"written_as", 0, "bhsd"}}, 1);
  }
  if (x.kv_heads > 1) {
    p.Add(UseRows(c, {}, ReadAsHeadsFirst(From::kK, x.kv_heads, x.kv_len), {}), {{"tensor", 0, "k"}, {"written_as", 0, "bshd"}},
          1);
    p.Add(UseRows(c, {}, ReadAsTokensFirst(From::kK, x.kv_heads, x.kv_len), {}), {{"tensor", 0, "k"}, {"written_as", 0, "bhsd"}},
          1);
    p.Add(UseRows(c, {}, ReadAsHeadsFirst(From::kK, x.kv_heads, x.kv_len), ReadAsHeadsFirst(From::kV, x.kv_heads, x.kv_len)),
          {{"tensor", 0, "k and v"}, {"written_as", 0, "bshd"}}, 1);
  }
  // k stored as its transpose, [dim, tokens], and read as [tokens, dim].
  if (x.head_dim > 1) {
    p.Add(
        [&c](Variant& v) {
          const Operands& o = c.evaluator().operands();
          auto k = std::make_shared<std::vector<double>>(o.k->size());
          const std::size_t plane = static_cast<std::size_t>(o.kv_len * o.head_dim);
          for (std::size_t n = 0; n < k->size(); ++n) {
            const std::int64_t in_plane = static_cast<std::int64_t>(n % plane);
            (*k)[n] =
                (*o.k)[n / plane * plane + static_cast<std::size_t>(in_plane % o.kv_len * o.head_dim + in_plane / o.kv_len)];
          }
          v.operands = ReplaceOperands(c, {}, k, {});
        },
        {{"tensor", 0, "k"}, {"written_as", 0, "transposed, [dim, tokens]"}}, 1);
  }
}

void KeyStridesForValues(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.kv_heads > 1) {
    p.Add(UseRows(c, {}, {}, ReadAsTokensFirst(From::kV, x.kv_heads, x.kv_len)),
          {{"k_layout", 0, "bshd"}, {"v_layout", 0, "bhsd"}});
    p.Add(UseRows(c, {}, {}, ReadAsHeadsFirst(From::kV, x.kv_heads, x.kv_len)),
          {{"k_layout", 0, "bhsd"}, {"v_layout", 0, "bshd"}});
  }
  if (x.head_dim == x.v_dim) return;
  // Rows of v taken head_dim apart instead of v_dim.
  p.Add(
      [&c](Variant& v) {
        const Operands& o = c.evaluator().operands();
        auto values = std::make_shared<std::vector<double>>(o.v->size());
        for (std::size_t n = 0; n < values->size(); ++n) {
          const std::size_t row = n / static_cast<std::size_t>(o.v_dim), d = n % static_cast<std::size_t>(o.v_dim);
          const std::size_t t = row % static_cast<std::size_t>(o.kv_len), plane = row / static_cast<std::size_t>(o.kv_len);
          (*values)[n] =
              (*o.v)[(plane * static_cast<std::size_t>(o.kv_len * o.v_dim) + t * static_cast<std::size_t>(o.head_dim) + d) %
                     o.v->size()];
        }
        v.operands = ReplaceOperands(c, {}, {}, values);
      },
      {{"row_stride", static_cast<double>(x.head_dim)}});
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
  p.Add(UseRows(c,
                [](std::int64_t b, std::int64_t, std::int64_t t) {
                  return RowSource{From::kQ, b, 0, t};
                },
                {}, {}),
        {{"head", 0}, {"of", 0, "q"}});
  std::vector<std::int64_t> shifted;
  for (std::int64_t h = 0; h < x.heads; ++h) shifted.push_back((h / x.group_size + 1) % x.kv_heads);
  p.Add(UseHeads(c, shifted, shifted), {{"of", 0, "the next kv head"}}, 1);
}

// The kv head that each query head reads, found head by head; empty when no head decides it.
std::vector<std::int64_t> SolveHeadMap(const Case& c) {
  const Problem& x = c.problem();
  std::vector<std::int64_t> map = c.evaluator().operands().k_head;
  if (x.kv_heads == 1 || x.kv_heads > 64) return {};
  bool changed = false;
  RowState state;
  for (std::int64_t h = 0; h < x.heads; ++h) {
    for (std::int64_t g = 0; g < x.kv_heads; ++g) {
      auto operands = std::make_shared<Operands>(c.evaluator().operands());
      operands->dots = nullptr;
      std::fill(operands->k_head.begin(), operands->k_head.end(), g);
      operands->v_head = operands->k_head;
      Variant v = c.evaluator().Unedited();
      v.operands = operands;
      int rows = 0;
      bool fits = true;
      for (const RowId& row : c.wrong_rows()) {
        if (row.h != h || rows == 2) continue;
        ++rows;
        fits = fits && c.Compare(v, row, &state).Matches();
        if (!fits) break;
      }
      if (rows == 0 || !fits) continue;
      changed = changed || map[static_cast<std::size_t>(h)] != g;
      map[static_cast<std::size_t>(h)] = g;
      break;
    }
  }
  return changed ? map : std::vector<std::int64_t>{};
}

std::string ListText(const std::vector<std::int64_t>& list) {
  std::string text;
  for (const std::int64_t n : list) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
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

// q, k and v cut out of one fused tensor [tokens, …] in another order than it was written. Chunks are rows of one head.
void FusedOrder(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.heads == 1 || x.q_len != x.kv_len || x.head_dim != x.v_dim) return;
  const std::int64_t heads = x.heads, kv_heads = x.kv_heads, group = x.group_size;
  const auto in_blocks = [=](std::int64_t chunk, std::int64_t b, std::int64_t t) {  // [q heads | k heads | v heads]
    if (chunk < heads) return RowSource{From::kQ, b, chunk, t};
    if (chunk < heads + kv_heads) return RowSource{From::kK, b, chunk - heads, t};
    return RowSource{From::kV, b, chunk - heads - kv_heads, t};
  };
  const auto by_group = [=](std::int64_t chunk, std::int64_t b, std::int64_t t) {  // for each kv head [its q heads, k, v]
    const std::int64_t g = chunk / (group + 2), within = chunk % (group + 2);
    if (within < group) return RowSource{From::kQ, b, g * group + within, t};
    return RowSource{within == group ? From::kK : From::kV, b, g, t};
  };
  const auto index_by_group = [=](From from, std::int64_t head) {
    if (from == From::kQ) return head / group * (group + 2) + head % group;
    return head * (group + 2) + group + (from == From::kV ? 1 : 0);
  };
  const auto index_in_blocks = [=](From from, std::int64_t head) {
    return from == From::kQ ? head : from == From::kK ? heads + head : heads + kv_heads + head;
  };
  const auto map = [](auto source, auto index, From from) -> RowMap {
    return [=](std::int64_t b, std::int64_t head, std::int64_t t) { return source(index(from, head), b, t); };
  };
  p.Add(UseRows(c, map(in_blocks, index_by_group, From::kQ), map(in_blocks, index_by_group, From::kK),
                map(in_blocks, index_by_group, From::kV)),
        {{"written_as", 0, "blocks [q | k | v]"}, {"read_as", 0, "per head [q k v]"}});
  p.Add(UseRows(c, map(by_group, index_in_blocks, From::kQ), map(by_group, index_in_blocks, From::kK),
                map(by_group, index_in_blocks, From::kV)),
        {{"written_as", 0, "per head [q k v]"}, {"read_as", 0, "blocks [q | k | v]"}});
  if (heads != kv_heads) return;
  // Blocks in another order.
  const std::pair<const char*, std::array<From, 3>> orders[] = {{"k q v", {From::kK, From::kQ, From::kV}},
                                                                {"q v k", {From::kQ, From::kV, From::kK}},
                                                                {"v k q", {From::kV, From::kK, From::kQ}},
                                                                {"k v q", {From::kK, From::kV, From::kQ}},
                                                                {"v q k", {From::kV, From::kQ, From::kK}}};
  for (const auto& [name, order] : orders) {
    const auto whole = [](From from) -> RowMap {
      return [from](std::int64_t b, std::int64_t head, std::int64_t t) { return RowSource{from, b, head, t}; };
    };
    p.Add(UseRows(c, whole(order[0]), whole(order[1]), whole(order[2])), {{"read_as", 0, name}});
  }
}

void QueriesAndKeysSwapped(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.q_len != x.kv_len) return;
  const std::int64_t group = x.group_size;
  p.Add([&c, group](Variant& v) {
    const Operands& o = c.evaluator().operands();
    auto swapped = std::make_shared<Operands>(o);
    const std::size_t row = static_cast<std::size_t>(o.q_len * o.head_dim);
    auto q = std::make_shared<std::vector<double>>();
    for (std::int64_t b = 0; b < c.problem().batch; ++b) {
      for (std::int64_t h = 0; h < o.heads; ++h) {
        const double* from = o.K(b, h / group, 0);
        q->insert(q->end(), from, from + row);
      }
    }
    // Every head gets keys of its own: the queries.
    swapped->q = q;
    swapped->k = o.q;
    auto values = std::make_shared<std::vector<double>>();
    for (std::int64_t b = 0; b < c.problem().batch; ++b) {
      for (std::int64_t h = 0; h < o.heads; ++h) {
        const double* from = o.V(b, h / group, 0);
        values->insert(values->end(), from, from + o.kv_len * o.v_dim);
      }
    }
    swapped->v = values;
    swapped->kv_heads = o.heads;
    std::iota(swapped->k_head.begin(), swapped->k_head.end(), 0);
    swapped->v_head = swapped->k_head;
    swapped->ComputeNorms();
    swapped->dots = nullptr;
    v.operands = swapped;
  });
}

// Heads written in another order: found head by head, by their context.
void HeadsPermuted(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.heads == 1 || x.heads > 128 || c.Find(Stage::kContext) == nullptr) return;
  std::vector<std::int64_t> order(static_cast<std::size_t>(x.heads));
  std::iota(order.begin(), order.end(), 0);
  const Variant unedited = c.evaluator().Unedited();
  const Stage only = Stage::kContext;
  RowState state;
  bool changed = false;
  for (std::int64_t h = 0; h < x.heads; ++h) {
    for (std::int64_t other = 0; other < x.heads; ++other) {
      Variant v = unedited;
      v.output_row = [other](RowId r) { return RowId{r.b, other, r.i}; };
      int rows = 0;
      bool fits = true;
      for (const RowId& row : c.wrong_rows()) {
        if (row.h != h || rows == 2) continue;
        ++rows;
        fits = fits && c.Compare(v, row, &state, &only).Matches();
        if (!fits) break;
      }
      if (rows == 0 || !fits) continue;
      changed = changed || other != h;
      order[static_cast<std::size_t>(h)] = other;
      break;
    }
  }
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (!changed || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return;
  const auto move = [order](RowId r) { return RowId{r.b, order[static_cast<std::size_t>(r.h)], r.i}; };
  const std::vector<ExplanationParam> params = {{"head_of_head", 0, ListText(order)}};
  p.Add([move](Variant& v) { v.output_row = move; }, params, 2);
  p.Add([move](Variant& v) { v.context_row = move; }, params, 2);
}

constexpr Fault kFaults[] = {
    {"F10", "heads split by a view only", Stage::kInputs, slot::kOperands, "[tokens, heads·dim] read as [heads, tokens, dim]",
     "exact with one head; else wrong from the scores on, and head 0 mixes tokens",
     "view as [tokens, heads, dim] first, then transpose tokens and heads", SplitByView},
    {"F11", "heads merged without a transpose", Stage::kContext, slot::kOutput,
     "[heads, tokens, v_dim] read as [tokens, heads·v_dim]",
     "every row of the context is right but stands elsewhere; exact with one token",
     "transpose heads and tokens (and make it contiguous) before merging heads", MergeWithoutTranspose},
    {"F12", "batch and sequence swapped", Stage::kInputs, slot::kOperands, "attention along the batch axis",
     "with batch 1 the context is v; rows depend on other samples",
     "check whether the module expects [batch, tokens, …] or [tokens, batch, …] (batch_first)", BatchAndSequenceSwapped},
    {"F13", "strides ignored", Stage::kInputs, slot::kOperands, "a view read as if it were contiguous",
     "right after copying the inputs to contiguous memory",
     "honour the strides of the tensor, or copy it to contiguous memory first", StridesIgnored},
    {"F14", "k's strides used for v", Stage::kInputs, slot::kOperands, "v read with the strides of k",
     "weights are right; wrong only when k and v differ in layout", "pass v's own strides", KeyStridesForValues},
    {"F15", "head index collapses", Stage::kInputs, slot::kOperands, "several heads read one head",
     "heads with different keys and values give related rows", "check the head index and head stride of the operand named",
     HeadCollapse},
    {"F16", "grouped heads tiled", Stage::kInputs, slot::kOperands, "kv head = h mod kv_heads",
     "permuting the query heads makes it match; one kv head, or as many as heads, hides it",
     "query head h reads kv head h / (heads/kv_heads): repeat_interleave, not repeat", GroupsTiled},
    {"F17", "grouped heads repeated along tokens", Stage::kInputs, slot::kOperands, "k and v repeated along the token axis",
     "columns are duplicated", "repeat along the head axis", GroupsRepeatTokens},
    {"F18", "fused qkv split in another order", Stage::kInputs, slot::kOperands, "[q k v] in blocks against per head",
     "shapes agree; matches after splitting again; one head hides it",
     "split the fused projection in the order the checkpoint stores it", FusedOrder},
    {"F94", "q and k swapped", Stage::kInputs, slot::kOperands, "softmax(k·qᵀ)",
     "scores are the transpose; symmetric inputs hide it", "scores are q·kᵀ: rows are queries", QueriesAndKeysSwapped},
    {"F99", "heads in another order", Stage::kContext, slot::kOutput, "context heads permuted",
     "each head matches another head's result",
     "keep the order of heads of the checkpoint; see the parameter for the order found", HeadsPermuted},
};

}  // namespace

std::span<const Fault> LayoutFaults() { return kFaults; }

}  // namespace regard::internal
