// Faults of layout: F10–F14, F18, F94, F100, F104.
//
// Memory read in another order than it was written is a map of rows: which row of which tensor stands where row (b, head, t) should.
#include <algorithm>
#include <array>
#include <cmath>
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

void SplitByView(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.heads == 1) return;
  p.Add(UseRows(c, ReadAsHeadsFirst(From::kQ, x.heads, x.q_len), ReadAsHeadsFirst(From::kK, x.kv_heads, x.kv_len),
                ReadAsHeadsFirst(From::kV, x.kv_heads, x.kv_len)),
        {{"written_as", 0, "bshd"}});
  const auto tokens_first =
      UseRows(c, ReadAsTokensFirst(From::kQ, x.heads, x.q_len), ReadAsTokensFirst(From::kK, x.kv_heads, x.kv_len),
              ReadAsTokensFirst(From::kV, x.kv_heads, x.kv_len));
  p.Add(tokens_first, {{"written_as", 0, "bhsd"}, {"read_as", 0, "bshd"}});
  // The result goes back the way it came: written as [tokens, heads, dim], read as [heads, tokens, dim].
  const std::int64_t heads = x.heads, len = x.q_len;
  p.AddWithSlots(slot::kOperands | slot::kOutput,
                 [tokens_first, heads, len](Variant& v) {
                   tokens_first(v);
                   v.output_row = [heads, len](RowId r) {
                     const std::int64_t n = r.h * len + r.i;
                     return RowId{r.b, n % heads, n / heads};
                   };
                 },
                 {{"written_as", 0, "bhsd"}, {"read_as", 0, "bshd, the result too"}});
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

// Attention along another axis than the tokens': the keys of `row` are the rows other(row, 0 … count − 1), and take the first entries.
void AttendAlong(Proposals& p, std::int64_t count, std::int64_t (*own)(const RowId&), RowId (*other)(RowId, std::int64_t)) {
  p.AddWithSlots(slot::kOperands | slot::kSoftmax | slot::kMasking | slot::kOutput, [=](Variant& v) {
    v.masking = [=](RowState& s) {
      const Operands& o = *s.variant->operands;
      std::fill(s.masked.begin(), s.masked.end(), -kInfinity);
      std::fill(s.visible.begin(), s.visible.end(), 0);
      s.num_visible = 0;
      for (std::int64_t n = 0; n < count; ++n) {
        if (s.variant->rules.causal && n > own(s.id)) continue;
        const RowId key = other(s.id, n);
        const double* q = o.Q(s.id.b, s.id.h, s.id.i);
        const double* k = o.K(key.b, o.k_head[static_cast<std::size_t>(key.h)], key.i);
        s.masked[static_cast<std::size_t>(n)] = s.variant->scale * std::inner_product(q, q + o.head_dim, k, 0.0);
        s.visible[static_cast<std::size_t>(n)] = 1;
        ++s.num_visible;
      }
    };
    v.product = [=](RowState& s) {
      const Operands& o = *s.variant->operands;
      s.context.assign(static_cast<std::size_t>(o.v_dim), 0);
      s.magnitude = s.context;
      for (std::int64_t n = 0; n < count; ++n) {
        if (!s.visible[static_cast<std::size_t>(n)]) continue;
        const RowId key = other(s.id, n);
        const double weight = s.weights[static_cast<std::size_t>(n)];
        const double* value = o.V(key.b, o.v_head[static_cast<std::size_t>(key.h)], key.i);
        for (std::size_t d = 0; d < s.context.size(); ++d) {
          s.context[d] += weight * value[d];
          s.magnitude[d] += std::fabs(weight * value[d]);
        }
      }
    };
  });
}

// Where another axis can stand for the tokens: as many queries as keys, and no rule that the other axis could not follow.
bool MayAttendAlong(const Case& c, std::int64_t count) {
  const Problem& x = c.problem();
  return count > 1 && count <= x.kv_len && x.q_len == x.kv_len && x.mask.data == nullptr && x.bias.data == nullptr &&
         x.kv_lens.data == nullptr && x.q_segments.data == nullptr;
}

void BatchAndSequenceSwapped(const Case& c, Proposals& p) {
  if (!MayAttendAlong(c, c.problem().batch)) return;
  AttendAlong(
      p, c.problem().batch, [](const RowId& r) { return r.b; },
      [](RowId r, std::int64_t n) {
        return RowId{n, r.h, r.i};
      });
}

void HeadsAndTokensSwapped(const Case& c, Proposals& p) {
  if (!MayAttendAlong(c, c.problem().heads)) return;
  AttendAlong(
      p, c.problem().heads, [](const RowId& r) { return r.h; },
      [](RowId r, std::int64_t n) {
        return RowId{r.b, n, r.i};
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

// Tokens last to first, in some of the tensors. Rules of positions stay with the places.
void TokensReversed(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  const auto reversed = [](From from, std::int64_t len) -> RowMap {
    return [=](std::int64_t b, std::int64_t head, std::int64_t t) { return RowSource{from, b, head, len - 1 - t}; };
  };
  const RowMap q = reversed(From::kQ, x.q_len), k = reversed(From::kK, x.kv_len), v = reversed(From::kV, x.kv_len);
  p.Add(UseRows(c, q, {}, {}), {{"tensor", 0, "q"}}, 1);
  p.Add(UseRows(c, {}, k, {}), {{"tensor", 0, "k"}}, 1);
  p.Add(UseRows(c, {}, {}, v), {{"tensor", 0, "v"}}, 1);
  p.Add(UseRows(c, {}, k, v), {{"tensor", 0, "k and v"}}, 1);
  if (x.q_len == x.kv_len) p.Add(UseRows(c, q, k, v), {{"tensor", 0, "q, k and v"}}, 1);
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
    {"F18", "fused qkv split in another order", Stage::kInputs, slot::kOperands, "[q k v] in blocks against per head",
     "shapes agree; matches after splitting again; one head hides it",
     "split the fused projection in the order the checkpoint stores it", FusedOrder},
    {"F100", "heads and tokens swapped", Stage::kInputs, slot::kOperands, "attention along the head axis, token by token",
     "rows depend on the other heads of their own token only; one token gives what one head gives",
     "the kernel expects [batch, heads, tokens, dim]: transpose [batch, tokens, heads, dim] first; if they lie so in this file, "
     "read it "
     "with --layout bshd",
     HeadsAndTokensSwapped},
    {"F94", "q and k swapped", Stage::kInputs, slot::kOperands, "softmax(k·qᵀ)",
     "scores are the transpose; symmetric inputs hide it", "scores are q·kᵀ: rows are queries", QueriesAndKeysSwapped},
    {"F104", "tokens reversed", Stage::kInputs, slot::kOperands, "rows of a tensor last to first",
     "without rules of positions the context's rows are right and stand in reverse order",
     "give all tensors and the result the same order of tokens", TokensReversed},
};

}  // namespace

std::span<const Fault> LayoutFaults() { return kFaults; }

}  // namespace regard::internal
