#include "diagnose/where.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "diagnose/search.h"

namespace regard::internal {
namespace {

constexpr std::int64_t kStretches = 64;

std::vector<std::int64_t> Sorted(const std::set<std::int64_t>& set) { return {set.begin(), set.end()}; }

// "heads 4–7", "rows ≥ 1024"; empty when all of 0…count−1 are meant.
std::string AxisText(const char* one, const char* many, const std::vector<std::int64_t>& wrong,
                     const std::vector<std::int64_t>& compared) {
  if (wrong.size() == compared.size() || wrong.empty()) return {};
  const std::size_t first =
      static_cast<std::size_t>(std::lower_bound(compared.begin(), compared.end(), wrong.front()) - compared.begin());
  const bool is_end = compared.size() - first == wrong.size();  // every compared one from the first wrong one on
  if (is_end && wrong.size() > 2) return std::string(many) + " ≥ " + std::to_string(wrong.front());
  if (wrong.size() > 2 && wrong.back() == compared[wrong.size() - 1] && wrong.front() == compared.front())
    return std::string(many) + " ≤ " + std::to_string(wrong.back());
  const std::string ranges = RangesText(wrong);
  if (std::count(ranges.begin(), ranges.end(), ',') > 6)
    return std::to_string(wrong.size()) + " of " + std::to_string(compared.size()) + " " + many;
  return std::string(wrong.size() == 1 ? one : many) + " " + ranges;
}

// Keys whose cells differ in some wrong row, from the first observed stage over keys that differs.
std::vector<std::int64_t> WrongKeys(const Case& c) {
  const ObservedStage* over_keys = nullptr;
  for (const ObservedStage& o : c.observed()) {
    if (o.stage < Stage::kLse && !c.UneditedOf(o.stage).Matches()) {
      over_keys = &o;
      break;
    }
  }
  if (over_keys == nullptr) return {};
  const Variant unedited = c.evaluator().Unedited();
  std::set<std::int64_t> wrong;
  RowState s;
  for (const RowId& row : c.wrong_rows()) {
    c.evaluator().Evaluate(unedited, row, &s);
    const std::vector<double>& expected = over_keys->stage == Stage::kScores    ? s.scores
                                          : over_keys->stage == Stage::kCapped  ? s.capped
                                          : over_keys->stage == Stage::kWeights ? s.weights
                                                                                : s.masked;
    double largest = 0;
    for (std::size_t j = 0; j < expected.size(); ++j) {
      const double difference = std::fabs(over_keys->At(row, static_cast<std::int64_t>(j)) - expected[j]);
      if (std::isfinite(difference)) largest = std::max(largest, difference);
    }
    for (std::size_t j = 0; j < expected.size(); ++j) {
      const double difference = std::fabs(over_keys->At(row, static_cast<std::int64_t>(j)) - expected[j]);
      if (!(difference <= 1e-3 * largest)) wrong.insert(static_cast<std::int64_t>(j));
    }
  }
  return Sorted(wrong);
}

// The last few keys are often the tail of a block that kernels use.
std::string KeysText(const std::vector<std::int64_t>& keys, std::int64_t kv_len) {
  if (keys.empty() || static_cast<std::int64_t>(keys.size()) == kv_len) return {};
  const std::int64_t count = static_cast<std::int64_t>(keys.size());
  if (keys.front() == kv_len - count && count < 256) {
    std::string text = "the last " + (count == 1 ? std::string("key") : std::to_string(count) + " keys");
    for (const std::int64_t block : {16, 32, 64, 128, 256, 8, 4}) {
      if (kv_len % block == count) return text + ": the tail of a block of " + std::to_string(block);
    }
    return text;
  }
  std::vector<std::int64_t> all;
  for (std::int64_t j = 0; j < kv_len; ++j) all.push_back(j);
  return AxisText("key", "keys", keys, all);
}

}  // namespace

std::string WithCommas(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

Difference FindDifference(const Case& c) {
  Difference d;
  std::set<std::int64_t> batches, heads, rows, all_batches, all_heads, all_rows;
  Fit total;
  for (std::size_t r = 0; r < c.rows().size(); ++r) {
    const RowId row = c.rows()[r];
    all_batches.insert(row.b), all_heads.insert(row.h), all_rows.insert(row.i);
    total.Add(c.unedited()[r]);
    if (c.unedited()[r].Matches()) continue;
    batches.insert(row.b), heads.insert(row.h), rows.insert(row.i);
    ++d.rows_wrong;
  }
  d.rows_compared = static_cast<std::int64_t>(c.rows().size());
  d.batches = Sorted(batches), d.heads = Sorted(heads), d.rows = Sorted(rows);
  d.keys = WrongKeys(c);
  d.largest = total.largest;
  d.worst = total.cell;
  if (d.rows_wrong == 0) return d;
  for (const std::string& part : {AxisText("only sequence", "only sequences", d.batches, Sorted(all_batches)),
                                  AxisText("only head", "only heads", d.heads, Sorted(all_heads)),
                                  AxisText("row", "rows", d.rows, Sorted(all_rows)), KeysText(d.keys, c.problem().kv_len)}) {
    if (!part.empty()) d.text += (d.text.empty() ? "" : "; ") + part;
  }
  if (d.text.empty()) d.text = "everywhere";
  return d;
}

std::vector<std::vector<double>> DrawPicture(const Case& c) {
  const Problem& p = c.problem();
  const std::int64_t stretches = std::min(kStretches, std::max<std::int64_t>(p.q_len, 1));
  std::vector<std::vector<double>> picture(static_cast<std::size_t>(p.heads),
                                           std::vector<double>(static_cast<std::size_t>(stretches), 0));
  for (std::size_t r = 0; r < c.rows().size(); ++r) {
    const RowId row = c.rows()[r];
    double& cell = picture[static_cast<std::size_t>(row.h)][static_cast<std::size_t>(row.i * stretches / p.q_len)];
    cell = std::max(cell, c.unedited()[r].worst[0]);
  }
  return picture;
}

std::string CoverageText(const Case& c) {
  const Problem& p = c.problem();
  std::string of;
  if (static_cast<std::int64_t>(c.batches().size()) < p.batch)
    of += std::string(c.batches().size() == 1 ? " of sequence " : " of sequences ") + RangesText(c.batches());
  if (static_cast<std::int64_t>(c.heads().size()) < p.heads)
    of += std::string(c.heads().size() == 1 ? " of head " : " of heads ") + RangesText(c.heads());
  if (!c.sampled()) return "all " + WithCommas(c.all_rows()) + " rows" + of;
  return WithCommas(static_cast<std::int64_t>(c.rows().size())) + " of " + WithCommas(c.all_rows()) + " rows" + of +
         ": first and last of every head, starts of blocks, evenly spaced";
}

}  // namespace regard::internal
