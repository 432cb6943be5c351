// Faults of the batch: F105. Whose keys and values a sequence reads, and where its results go.
#include <algorithm>
#include <utility>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

constexpr double kMostCopied = 2e8;  // numbers: trying a sequence's neighbours takes a copy of the keys and values of all

enum class Of { kKeys, kValues, kBoth };

// Sequence b reads the keys or values of sequence order[b], or both.
std::function<void(Variant&)> UseKeysOf(const Case& c, Of of, const std::vector<std::int64_t>& order) {
  const auto from = [order](RowSource::From source) {
    return [order, source](std::int64_t b, std::int64_t head, std::int64_t t) {
      return RowSource{source, order[static_cast<std::size_t>(b)], head, t};
    };
  };
  return [&c, of, from](Variant& v) {
    v.operands = GatherOperands(c, {}, of == Of::kValues ? RowMap() : from(RowSource::From::kK),
                                of == Of::kKeys ? RowMap() : from(RowSource::From::kV));
  };
}

std::function<void(Variant&)> UseResultsOf(const std::vector<std::int64_t>& of) {
  return [of](Variant& v) { v.output_row = [of](RowId r) { return RowId{of[static_cast<std::size_t>(r.b)], r.h, r.i}; }; };
}

// For each sequence the one whose data explains its rows, among those `shift` further on; empty when none does.
std::vector<std::int64_t> SolveOrder(const Case& c,
                                     const std::function<std::function<void(Variant&)>(std::int64_t shift)>& edit) {
  const std::int64_t batch = c.problem().batch;
  std::vector<std::int64_t> order = SolveEach(c, &RowId::b, batch, batch, [&](std::int64_t shift) {
    Variant v = c.evaluator().Unedited();
    edit(shift)(v);
    return v;
  });
  bool changed = false;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t& from = order[static_cast<std::size_t>(b)];
    changed = changed || from > 0;
    from = (b + std::max<std::int64_t>(from, 0)) % batch;
  }
  return changed ? order : std::vector<std::int64_t>{};
}

void SequencesMixedUp(const Case& c, Proposals& p) {
  const std::int64_t batch = c.problem().batch;
  if (batch == 1) return;
  const std::vector<std::int64_t> first(static_cast<std::size_t>(batch), 0);
  p.Add(UseKeysOf(c, Of::kBoth, first), {{"sequence", 0}, {"of", 0, "k and v"}});
  p.AddWithSlots(slot::kOutput, UseResultsOf(first), {{"sequence", 0}, {"of", 0, "q, k and v"}});
  const Operands& o = c.evaluator().operands();
  if (static_cast<double>(batch) * static_cast<double>(o.k->size() + o.v->size()) > kMostCopied) return;
  const auto shifted = [batch](std::int64_t shift) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(batch));
    for (std::int64_t b = 0; b < batch; ++b) order[static_cast<std::size_t>(b)] = (b + shift) % batch;
    return order;
  };
  constexpr std::pair<Of, const char*> kWhich[] = {
      {Of::kBoth, "kv_of_sequence"}, {Of::kKeys, "k_of_sequence"}, {Of::kValues, "v_of_sequence"}};
  for (const auto& [of, name] : kWhich) {
    const std::vector<std::int64_t> order =
        SolveOrder(c, [&c, of = of, &shifted](std::int64_t shift) { return UseKeysOf(c, of, shifted(shift)); });
    if (!order.empty()) p.Add(UseKeysOf(c, of, order), {{name, 0, ListText(order)}}, 2);
  }
  const std::vector<std::int64_t> results = SolveOrder(c, [&](std::int64_t shift) { return UseResultsOf(shifted(shift)); });
  if (!results.empty()) p.AddWithSlots(slot::kOutput, UseResultsOf(results), {{"result_of_sequence", 0, ListText(results)}}, 2);
}

constexpr Fault kFaults[] = {
    {"F105", "sequences mixed up", Stage::kInputs, slot::kOperands, "k and v, or results, of another sequence of the batch",
     "each sequence alone is right",
     "reorder the cache with the sequences (beam search), and write results where their queries came from", SequencesMixedUp},
};

}  // namespace

std::span<const Fault> BatchFaults() { return kFaults; }

}  // namespace regard::internal
