// Faults of key-value caches: F84–F89.
#include <algorithm>
#include <cmath>
#include <utility>

#include "diagnose/fault.h"
#include "diagnose/golden_section.h"

namespace regard::internal {
namespace {

using From = RowSource::From;

// One slot of the cache not written, or everything shifted by one.
void CacheHole(const Case& c, Proposals& p) {
  const std::int64_t len = c.problem().kv_len;
  if (len < 2) return;
  const auto zero = [](std::int64_t slot, bool keys, bool values) {
    return [slot, keys, values](Variant& v) {
      if (keys) v.score = [slot](RowState& s) { s.scores[static_cast<std::size_t>(slot)] = 0; };
      if (values) {
        v.product = [slot](RowState& s) {
          const double weight = std::exchange(s.weights[static_cast<std::size_t>(slot)], 0.0);
          Evaluator::MultiplyByValues(s);
          s.weights[static_cast<std::size_t>(slot)] = weight;
        };
      }
    };
  };
  for (std::int64_t slot = len - 1; slot >= 0 && slot > len - 1025; --slot) {
    p.AddWithSlots(slot::kScore | slot::kValues, zero(slot, true, true), {{"slot", Number(slot)}, {"holds", 0, "zeros"}}, 1);
    p.AddWithSlots(slot::kScore, zero(slot, true, false), {{"slot", Number(slot)}, {"holds", 0, "zeros in k"}}, 1);
    p.AddWithSlots(slot::kValues, zero(slot, false, true), {{"slot", Number(slot)}, {"holds", 0, "zeros in v"}}, 1);
  }
  for (const std::int64_t shift : {1, -1, 2, -2}) {
    for (const int which : {3, 1, 2}) {  // both, k, v
      p.AddWithSlots(
          slot::kOperands,
          [&c, shift, which, len](Variant& v) {
            const auto from = [shift, len](RowSource::From tensor) -> RowMap {
              return [=](std::int64_t b, std::int64_t head, std::int64_t t) {
                return RowSource{tensor, b, head, ((t - shift) % len + len) % len};
              };
            };
            v.operands = GatherOperands(c, {}, (which & 1) != 0 ? from(RowSource::From::kK) : RowMap(),
                                        (which & 2) != 0 ? from(RowSource::From::kV) : RowMap());
          },
          {{"shift", Number(shift)},
           {"tensor", 0,
            which == 3   ? "k and v"
            : which == 1 ? "k"
                         : "v"}},
          1);
    }
  }
}

// Wrong rows of the query heads that read kv head `g`: first those whose dot products are kept, then others evenly spaced.
std::vector<RowId> RowsOfKvHead(const Case& c, std::int64_t g, std::size_t* num_kept) {
  constexpr std::size_t kKept = 8, kAll = 32;
  const std::int64_t group = c.problem().group_size;
  std::vector<RowId> rows, others;
  for (const RowId& row : c.wrong_rows()) {
    if (row.h / group == g && rows.size() < kKept) rows.push_back(row);
  }
  *num_kept = rows.size();
  for (std::size_t r = 0; r < c.rows().size(); ++r) {
    const RowId row = c.rows()[r];
    if (row.h / group == g && !c.unedited()[r].Matches() && std::find(rows.begin(), rows.end(), row) == rows.end())
      others.push_back(row);
  }
  const std::size_t step = std::max<std::size_t>(others.size() / (kAll - kKept), 1);
  for (std::size_t n = 0; n < others.size(); n += step) rows.push_back(others[n]);
  return rows;
}

std::function<void(Variant&)> KeysTimes(const std::vector<double>& factors, std::int64_t group) {
  return [factors, group](Variant& v) {
    v.score = [factors, group](RowState& s) {
      for (double& score : s.scores) score *= factors[static_cast<std::size_t>(s.id.h / group)];
    };
  };
}

std::function<void(Variant&)> ValuesTimes(const std::vector<double>& factors, std::int64_t group) {
  return [factors, group](Variant& v) {
    v.product = [factors, group](RowState& s) {
      Evaluator::MultiplyByValues(s);
      const double factor = factors[static_cast<std::size_t>(s.id.h / group)];
      for (double& value : s.context) value *= factor;
      for (double& value : s.magnitude) value *= std::fabs(factor);
    };
  };
}

// The factor of kv head `g` that fits best, roughly by Σ difference² and then by what each cell may differ; 1 if the head has no wrong row.
double SolveFactor(const Case& c, std::int64_t g,
                   std::function<void(Variant&)> (*times)(const std::vector<double>&, std::int64_t)) {
  std::size_t num_kept = 0;
  const std::vector<RowId> rows = RowsOfKvHead(c, g, &num_kept);
  if (num_kept == 0) return 1;
  RowState state;
  const auto fit = [&](double factor, std::size_t num_rows) {
    Variant v = c.evaluator().Unedited();
    times(std::vector<double>(static_cast<std::size_t>(c.problem().kv_heads), factor), c.problem().group_size)(v);
    Fit total;
    for (std::size_t n = 0; n < num_rows; ++n) total.Add(c.Compare(v, rows[n], &state));
    return total;
  };
  const auto rough = [&](double factor) { return fit(factor, num_kept).absolute_squares; };
  double best = 1, least = kInfinity;
  for (const double factor : LogSpaced(1.0 / 256, 256, 65)) {
    if (const double misfit = rough(factor); misfit < least) least = misfit, best = factor;
  }
  best = GoldenSection(rough, best / 1.1, best * 1.1);
  constexpr double kPromising = 100;
  const Fit few = fit(best, num_kept);
  if (!(few.squares[0] < kPromising * kPromising * static_cast<double>(few.cells))) return best;
  return GoldenSection([&](double factor) { return fit(factor, rows.size()).squares[0]; }, best * 0.9, best * 1.1);
}

// A constant on k or v that a quantised cache should have taken away: per kv head.
void CacheScale(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.kv_heads == 1 || x.kv_heads > 64 || c.Find(Stage::kContext) == nullptr || c.wrong_rows().empty()) return;
  const auto propose = [&](const char* name, Slots slots, auto times) {
    std::vector<double> factors;
    std::string list;
    for (std::int64_t g = 0; g < x.kv_heads; ++g) {
      factors.push_back(SolveFactor(c, g, times));
      list += (list.empty() ? "" : ", ") + std::to_string(factors.back());
    }
    const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
    if (*most > 1.01 * *least)
      p.AddWithSlots(slots, times(factors, x.group_size), {{name, 0, list}}, 3);  // one for all is F05 or F08
  };
  propose("factor_of_k", slot::kScore, KeysTimes);
  propose("factor_of_v", slot::kValues, ValuesTimes);
}

// Blocks of `block` rows written `written` rows apart and read `read` rows apart; −1 is a slot that nobody wrote.
RowMap BlocksApart(From from, std::int64_t block, std::int64_t written, std::int64_t read, std::int64_t len) {
  return [=](std::int64_t b, std::int64_t head, std::int64_t t) {
    const std::int64_t address = t / block * read + t % block, within = address % written;
    const std::int64_t source = address / written * block + within;
    return RowSource{from, b, head, within < block && source < len ? source : -1};
  };
}

void AddressMismatch(const Case& c, Proposals& p) {
  const std::int64_t len = c.problem().kv_len;
  for (const std::int64_t block : {4, 8, 16, 32, 64, 128, 256}) {
    if (block >= len) break;
    const std::pair<std::int64_t, std::int64_t> strides[] = {{block, 2 * block}, {2 * block, block}, {block, block / 2}};
    for (const auto& [written, read] : strides) {
      p.AddWithSlots(
          slot::kOperands,
          [&c, block, written, read, len](Variant& v) {
            v.operands = GatherOperands(c, {}, BlocksApart(From::kK, block, written, read, len),
                                        BlocksApart(From::kV, block, written, read, len));
          },
          {{"block", Number(block)}, {"written_rows_apart", Number(written)}, {"read_rows_apart", Number(read)}}, 1);
    }
    p.AddWithSlots(
        slot::kOperands,
        [&c, block, len](Variant& v) {
          const auto next = [block, len](From from) -> RowMap {
            return [=](std::int64_t b, std::int64_t head, std::int64_t t) {
              return RowSource{from, b, head, t + block < len ? t + block : -1};
            };
          };
          v.operands = GatherOperands(c, {}, next(From::kK), next(From::kV));
        },
        {{"block", Number(block)}, {"reads", 0, "the next block"}}, 1);
  }
}

// The mask says which slots a query may see; a shortcut goes by the number of the slot instead, as if nothing had been evicted.
void CausalShortcut(const Case& c, Proposals& p) {
  const Problem& x = c.problem();
  if (x.mask.data == nullptr || x.causal) return;
  const std::pair<const char*, std::int64_t> rules[] = {{"j ≤ i + kv_len − q_len", x.kv_len - x.q_len}, {"j ≤ i", 0}};
  for (const auto& [name, offset] : rules) {
    if (offset == 0 && x.kv_len == x.q_len && name == rules[1].first) continue;  // the same rule
    p.AddWithSlots(slot::kMask | slot::kCausal,
                   [offset](Variant& v) {
                     v.rules.mask = Rules::Mask::kIgnored;
                     v.rules.causal = true, v.rules.absolute_offset = offset;
                   },
                   {{"rule", 0, name}});
  }
}

constexpr Fault kFaults[] = {
    {"F84", "hole or shift in the cache", Stage::kInputs, slot::kScore, "slot L+1 written, L read",
     "one column holds zeros or stale keys; prefill is exact",
     "write the new key where the read expects it: check the length that both use", CacheHole},
    {"F85", "cache written and read at different addresses", Stage::kInputs, slot::kOperands,
     "blocks written one stride apart and read another", "decode wrong, prefill right; the error repeats with the block",
     "compute the address of a slot in one place, for writing and for reading", AddressMismatch},
    {"F86", "causal shortcut after eviction", Stage::kMaskedScores, slot::kMask | slot::kCausal,
     "slot j ≤ i instead of the positions the mask stands for", "right until the first eviction",
     "keep each slot's position and compare those, or pass the mask to this path too", CausalShortcut},
    {"F87", "scale of a quantised cache", Stage::kInputs, slot::kScore, "scale 1, 0, or along the wrong axis",
     "scores or context in a constant ratio per kv head", "pass k_scale and v_scale per head as they were used to quantise",
     CacheScale},
    {"F89", "rows without keys not written", Stage::kContext, slot::kEmpty, "an early return leaves the output as it was",
     "only rows that see no key are wrong, and hold what lay there before", "write 0 (and lse −inf) before returning early",
     nullptr},
};

}  // namespace

std::span<const Fault> CacheFaults() { return kFaults; }

}  // namespace regard::internal
