#include "diagnose/fault.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/parallel_for.h"

namespace regard::internal {
namespace {

const std::vector<double>& Source(const Operands& o, RowSource::From from) {
  return from == RowSource::From::kQ ? *o.q : from == RowSource::From::kK ? *o.k : *o.v;
}

std::shared_ptr<const std::vector<double>> Gather(const Operands& o, std::int64_t batch, std::int64_t heads, std::int64_t len,
                                                  std::int64_t dim, const RowMap& map) {
  auto rows = std::make_shared<std::vector<double>>(static_cast<std::size_t>(batch * heads * len * dim));
  double* to = rows->data();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t t = 0; t < len; ++t, to += dim) {
        const RowSource s = map(b, h, t);
        if (s.t < 0) continue;
        const bool is_q = s.from == RowSource::From::kQ;
        const std::int64_t from_heads = is_q ? o.heads : o.kv_heads, from_len = is_q ? o.q_len : o.kv_len;
        const std::int64_t from_dim = s.from == RowSource::From::kV ? o.v_dim : o.head_dim;
        const double* from = Source(o, s.from).data() + ((s.b * from_heads + s.head) * from_len + s.t) * from_dim;
        std::copy_n(from, std::min(dim, from_dim), to);
      }
    }
  }
  return rows;
}

std::vector<RowId> Probes(const Case& c) {
  std::vector<RowId> probes = c.wrong_rows();
  probes.insert(probes.end(), c.right_rows().begin(), c.right_rows().end());
  return probes;
}

}  // namespace

void Proposals::Add(std::function<void(Variant&)> edit, std::vector<ExplanationParam> params, int complexity) {
  AddWithSlots(current->slots, std::move(edit), std::move(params), complexity);
}

void Proposals::AddWithSlots(Slots slots, std::function<void(Variant&)> edit, std::vector<ExplanationParam> params,
                             int complexity) {
  hypotheses.push_back({current, slots, std::move(edit), std::move(params), complexity});
}

void Proposals::AddFamily(std::function<void(Variant&, double)> edit, std::vector<double> starts,
                          std::function<std::vector<ExplanationParam>(double)> describe) {
  families.push_back({current, current->slots, std::move(edit), std::move(starts), std::move(describe)});
}

const std::vector<const Fault*>& Catalogue() {
  static const std::vector<const Fault*> all = [] {
    std::vector<const Fault*> faults;
    for (const std::span<const Fault> group :
         {ScaleFaults(), LayoutFaults(), HeadFaults(), PositionFaults(), MaskFaults(), SoftmaxFaults(), CapAndSinkFaults(),
          ContextFaults(), CacheFaults(), ProjectionFaults(), RunFaults(), BiasFaults(), BatchFaults()}) {
      for (const Fault& fault : group) faults.push_back(&fault);
    }
    std::sort(faults.begin(), faults.end(), [](const Fault* a, const Fault* b) {
      const std::string_view x = a->id, y = b->id;
      return x.size() != y.size() ? x.size() < y.size() : x < y;
    });
    return faults;
  }();
  return all;
}

const Fault* FindFault(std::string_view id) {
  for (const Fault* fault : Catalogue()) {
    if (fault->id == id) return fault;
  }
  return nullptr;
}

Proposals ProposeAll(const Case& c) {
  Proposals proposals;
  for (const Fault* fault : Catalogue()) {
    proposals.current = fault;
    if (fault->propose != nullptr) fault->propose(c, proposals);
  }
  if (c.given().weights) {  // nothing before the product can be wrong
    constexpr Slots kThirdStage = slot::kOperands | slot::kReweigh | slot::kValues | slot::kOutput;
    std::erase_if(proposals.hypotheses, [](const Hypothesis& h) { return (h.slots & ~kThirdStage) != 0; });
    std::erase_if(proposals.families, [](const Family& f) { return (f.slots & ~kThirdStage) != 0; });
  }
  return proposals;
}

bool SameGroup(std::string_view id_a, std::string_view id_b) {
  // One line a group: what a single output cannot separate, at least on some inputs.
  static const std::vector<std::vector<std::string_view>> groups = {
      {"F35", "F40", "F43", "F44", "F49", "F52", "F53"},  // the only mask there is, ignored
      {"F45", "F50"},                                     // a tiny fill and a factor 0
      {"F60", "F95"},                                     // transposed weights of symmetric scores
      {"F15", "F16", "F99"},                              // which kv head, which order of heads
      {"F10", "F13", "F14", "F18"},                       // memory of one tensor read in another order
      {"F35", "F37", "F38", "F103"},                      // one query sees everything under one alignment
      {"F04", "F05", "F87"},                              // a constant factor has several stories
      {"F42", "F45"},
      {"F47", "F46", "F44"},
      {"F48", "F45", "F46", "F44"},
      {"F75", "F91"},
      {"F64", "F65", "F66", "F73"},  // NaN in every row: something overflows
  };
  if (id_a == id_b) return true;
  for (const auto& group : groups) {
    const auto has = [&](std::string_view id) { return std::find(group.begin(), group.end(), id) != group.end(); };
    if (has(id_a) && has(id_b)) return true;
  }
  return false;
}

std::shared_ptr<const Operands> GatherOperands(const Case& c, const RowMap& q, const RowMap& k, const RowMap& v) {
  const Operands& o = c.evaluator().operands();
  const std::int64_t batch = c.problem().batch;
  auto gathered = std::make_shared<Operands>(o);
  if (q) gathered->q = Gather(o, batch, o.heads, o.q_len, o.head_dim, q);
  if (k) gathered->k = Gather(o, batch, o.kv_heads, o.kv_len, o.head_dim, k);
  if (v) gathered->v = Gather(o, batch, o.kv_heads, o.kv_len, o.v_dim, v);
  if (q || k) {
    gathered->ComputeNorms();
    gathered->KeepDots(Probes(c));
  }
  return gathered;
}

std::shared_ptr<const Operands> ReplaceOperands(const Case& c, std::shared_ptr<const std::vector<double>> q,
                                                std::shared_ptr<const std::vector<double>> k,
                                                std::shared_ptr<const std::vector<double>> v) {
  auto replaced = std::make_shared<Operands>(c.evaluator().operands());
  if (v) replaced->v = std::move(v);
  if (q || k) {
    if (q) replaced->q = std::move(q);
    if (k) replaced->k = std::move(k);
    replaced->ComputeNorms();
    replaced->KeepDots(Probes(c));
  }
  return replaced;
}

std::vector<double> LogSpaced(double from, double to, int count) {
  std::vector<double> values;
  for (int n = 0; n < count; ++n) values.push_back(from * std::pow(to / from, static_cast<double>(n) / (count - 1)));
  return values;
}

std::vector<double> Spaced(double from, double to, int count) {
  std::vector<double> values;
  for (int n = 0; n < count; ++n) values.push_back(from + (to - from) * static_cast<double>(n) / (count - 1));
  return values;
}

std::vector<std::int64_t> BlockSizes(std::int64_t limit) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = 1; n < limit; ++n) {
    const bool power = (n & (n - 1)) == 0;
    if (power || n <= 16 || (n <= 256 && n % 8 == 0) || n % 64 == 0) sizes.push_back(n);
    if (n >= 2048) break;
  }
  return sizes;
}

std::vector<std::int64_t> SolveEach(const Case& c, std::int64_t RowId::* axis, std::int64_t size, std::int64_t options,
                                    const std::function<Variant(std::int64_t)>& variant, const Stage* only) {
  constexpr std::size_t kRowsOfEach = 2;
  constexpr std::int64_t kFirstLook = 8;  // dimensions of a context that reject nearly everything
  constexpr double kBudget = 1e10;        // multiplications, some seconds on one core
  std::vector<std::int64_t> found(static_cast<std::size_t>(size), -1);
  const Problem& p = c.problem();
  const double price = static_cast<double>(p.kv_len * (p.head_dim + 2 * kFirstLook));
  if (static_cast<double>(size * options) * price > kBudget) return found;
  std::vector<std::vector<RowId>> wrong(static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < c.rows().size(); ++r) {
    std::vector<RowId>& rows = wrong[static_cast<std::size_t>(c.rows()[r].*axis)];
    if (rows.size() < kRowsOfEach && !c.unedited()[r].Matches()) rows.push_back(c.rows()[r]);
  }
  for (std::int64_t option = 0; option < options; ++option) {
    const Variant v = variant(option);
    ParallelFor(c.threads(), size, [&](std::int64_t n, int) {
      const std::vector<RowId>& rows = wrong[static_cast<std::size_t>(n)];
      if (found[static_cast<std::size_t>(n)] >= 0 || rows.empty() || c.stopped()) return;
      RowState quick, state;
      quick.max_dims = kFirstLook;
      const bool fits = c.Compare(v, rows[0], &quick, only).Matches() && std::all_of(rows.begin(), rows.end(), [&](RowId row) {
                          return c.Compare(v, row, &state, only).Matches();
                        });
      if (fits) found[static_cast<std::size_t>(n)] = option;
    });
  }
  return found;
}

std::string ListText(const std::vector<std::int64_t>& list) {
  std::string text;
  for (const std::int64_t n : list) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

}  // namespace regard::internal
