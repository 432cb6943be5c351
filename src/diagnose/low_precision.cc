#include "diagnose/low_precision.h"

#include <algorithm>
#include <cmath>

#include "core/parallel_for.h"

namespace regard::internal {
namespace {

// L of the finest low precision, tf32 and f16: what it spares, coarser ones spare too seldom to tell.
constexpr double kRoundoff = 0x1p-11;

// Measured over correct outputs of tools/inject_faults.py. Right rows use 0.02 of L at least, but for an approximate exp, which
// is exact where its polynomial crosses exp: 0.0005, in a few rows. f32 uses 0.0001. Spikes of up to 1,025.
constexpr double kMostOfRow = 2;  // cells of a row err together
constexpr double kFewestMoved = 4, kFewestMovedInStorage = 24, kLeastUsePerMoved = 2.5e-5, kLeastUse = 0.005;
constexpr double kManyRight = 0.4, kSomeRight = 0.1, kUseOfMistakes = 3, kLargestSpike = 1e4;
constexpr std::int64_t kFewestCells = 8;

// A row whose largest weight is above this has few ways to err.
constexpr double kNearlyAll = 0.9;

// What is expected of the cells of a row, and L² of each for u = 1.
struct Expected {
  std::vector<double> values, least;
};

Expected ExpectedOf(const Case& c, const ObservedStage& o, const RowState& s) {
  const Operands& x = c.evaluator().operands();
  const double score = s.largest_dot / std::sqrt(static_cast<double>(std::max<std::int64_t>(x.head_dim, 1)));
  const double part = c.given().weights ? 1 : std::min(1.0, score * score);
  Expected e;
  switch (o.stage) {
    case Stage::kWeights:
      e.values = s.weights;
      for (const double w : s.weights) e.least.push_back(w * w * part);
      return e;
    case Stage::kLse:
      return {{s.lse}, {score * score / static_cast<double>(std::max<std::int64_t>(s.num_visible, 1))}};
    case Stage::kContext:
      e.values = s.context;
      e.least.assign(e.values.size(), 0);
      for (std::size_t j = 0; j < s.weights.size(); ++j) {
        const double* v = x.V(s.id.b, x.v_head[static_cast<std::size_t>(s.id.h)], static_cast<std::int64_t>(j));
        const double w = s.weights[j];
        for (std::size_t n = 0; w != 0 && n < e.least.size(); ++n) e.least[n] += w * w * v[n] * v[n] * part;
      }
      return e;
    default:
      e.values = o.stage == Stage::kScores ? s.scores : o.stage == Stage::kCapped ? s.capped : s.masked;
      e.least.assign(e.values.size(), score * score);
      return e;
  }
}

// All heads of a token, through w_out where it is given.
Expected ExpectedProjected(const Case& c, const ObservedStage& o, RowId row) {
  const std::size_t columns = static_cast<std::size_t>(o.columns);
  const Variant unedited = c.evaluator().Unedited();
  Expected merged;
  RowState s;
  ObservedStage context = o;
  context.stage = Stage::kContext;
  for (std::int64_t h = 0; h < c.problem().heads; ++h) {
    c.evaluator().Evaluate(unedited, {row.b, h, row.i}, &s);
    const Expected head = ExpectedOf(c, context, s);
    merged.values.insert(merged.values.end(), head.values.begin(), head.values.end());
    merged.least.insert(merged.least.end(), head.least.begin(), head.least.end());
  }
  if (c.w_out().empty()) return merged;
  Expected e{c.b_out(), std::vector<double>(columns, 0)};
  const std::size_t in_dim = merged.values.size();
  for (std::size_t out = 0; out < columns; ++out) {
    for (std::size_t n = 0; n < in_dim; ++n) {
      const double w = c.w_out()[out * in_dim + n];
      e.values[out] += w * merged.values[n];
      e.least[out] += w * w * merged.least[n];
    }
  }
  return e;
}

// Half an ulp of the stored number.
double HalfUlp(const StorageRoundoff& storage, double x) {
  if (x == 0) return storage.absolute;
  return std::max(storage.relative * std::exp2(std::floor(std::log2(std::fabs(x)))), storage.absolute);
}

// Sums over the cells of rows.
struct Sums {
  double beyond = 0, least = 0;  // of squares: difference beyond half an ulp, L for u = 1
  double moved = 0;              // cells that an error of L would move to another number of storage, at most kMostOfRow a row
  double spike = 0;
  bool telling = false, right = false;

  void Add(const Sums& other) { beyond += other.beyond, least += other.least, moved += other.moved; }
  double Use() const { return least > 0 ? std::sqrt(beyond / least) / kRoundoff : 0; }
};

// The storage of one row: others of the same tensor may have been changed after it was rounded.
StorageRoundoff StorageOfRow(const ObservedStage& o, RowId row) {
  if (o.grid != DType::kF32) return o.storage;
  bool f16 = true, bf16 = true;
  std::int64_t telling = 0;
  for (std::int64_t n = 0; n < o.columns && (f16 || bf16); ++n) {
    const double x = o.At(row, n);
    if (!std::isfinite(x) || x == 0 || std::fabs(x) == 1) continue;
    f16 = f16 && static_cast<double>(ToFloat(ToF16(x))) == x;
    bf16 = bf16 && static_cast<double>(ToFloat(ToBF16(x))) == x;
    ++telling;
  }
  if (telling < kFewestCells || (!f16 && !bf16)) return o.storage;
  return RoundoffOf(bf16 ? DType::kBF16 : DType::kF16);
}

Sums SumsOf(const ObservedStage& o, RowId row, const Expected& e) {
  Sums sums;
  const StorageRoundoff storage = StorageOfRow(o, row);
  double largest = 0, all = 0;
  std::int64_t cells = 0;
  for (std::size_t n = 0; n < e.values.size(); ++n) {
    const double got = o.At(row, static_cast<std::int64_t>(n)), difference = std::fabs(got - e.values[n]);
    if (!std::isfinite(difference) || !(e.least[n] > 0)) continue;
    const double half_ulp = HalfUlp(storage, got), error = kRoundoff * std::sqrt(e.least[n]);
    const double beyond = std::max(difference - half_ulp, 0.0);
    sums.beyond += beyond * beyond, sums.least += e.least[n];
    sums.moved += std::min(error / (2 * half_ulp), 1.0);
    const double in_errors = difference * difference / (error * error + half_ulp * half_ulp);
    all += in_errors, largest = std::max(largest, in_errors);
    ++cells;
  }
  if (cells >= kFewestCells && largest > 0)
    sums.spike = largest / std::max((all - largest) / static_cast<double>(cells - 1), 1e-300);
  sums.moved = std::min(sums.moved, kMostOfRow);
  sums.telling = cells > 0;
  sums.right = sums.telling && storage.relative > o.storage.relative && sums.Use() < kLeastUse;
  return sums;
}

}  // namespace

Spread SpreadOf(const Case& c, const ObservedStage& o) {
  const std::vector<RowId>& rows = c.rows();
  std::vector<Sums> all(rows.size());
  const Variant unedited = c.evaluator().Unedited();
  ParallelFor(c.threads(), static_cast<std::int64_t>(rows.size()), [&](std::int64_t r, int) {
    const RowId row = rows[static_cast<std::size_t>(r)];
    if (o.stage == Stage::kProjected && row.h != 0) return;
    RowState s;
    c.evaluator().Evaluate(unedited, row, &s);
    if (!s.weights.empty() && *std::max_element(s.weights.begin(), s.weights.end()) >= kNearlyAll) return;
    if (s.num_visible < 2) return;
    Sums& sums = all[static_cast<std::size_t>(r)];
    sums = SumsOf(o, row, o.stage == Stage::kProjected ? ExpectedProjected(c, o, row) : ExpectedOf(c, o, s));
    sums.right = sums.right || c.unedited()[static_cast<std::size_t>(r)].Matches();
  });
  Spread spread;
  Sums right, wrong;
  for (const Sums& row : all) {
    if (!row.telling) continue;
    ++spread.rows;
    spread.largest_spike = std::max(spread.largest_spike, row.spike);
    spread.right_rows += row.right;
    (row.right ? right : wrong).Add(row);
  }
  spread.moved_in_right_rows = right.moved;
  spread.use_of_right_rows = right.Use(), spread.use_of_wrong_rows = wrong.Use();
  return spread;
}

bool LowPrecisionIsRefuted(const Case& c) {
  for (const Fit& row : c.unedited()) {
    if (row.lost_row) return true;
  }
  for (const ObservedStage& o : c.observed()) {
    if (c.UneditedOf(o.stage).Matches()) continue;
    // A cap that is reached hides what the scores err by, and only what v adds to it shows.
    if (c.problem().soft_cap > 0 && o.stage != Stage::kContext && o.stage != Stage::kProjected) continue;
    const Spread spread = SpreadOf(c, o);
    if ((o.stage == Stage::kContext || o.stage == Stage::kProjected) && spread.largest_spike > kLargestSpike) return true;
    const double share = static_cast<double>(spread.right_rows) / static_cast<double>(std::max<std::int64_t>(spread.rows, 1));
    const bool many = spread.right_rows < spread.rows &&
                      (share >= kManyRight || (share >= kSomeRight && spread.use_of_wrong_rows > kUseOfMistakes));
    // Where storage is coarse, a few cells agree by chance.
    const double fewest = o.storage.relative > kUnitRoundoff[0] ? kFewestMovedInStorage : kFewestMoved;
    const double least_use = std::min(kLeastUse, kLeastUsePerMoved * spread.moved_in_right_rows);
    if (many && spread.moved_in_right_rows >= fewest && spread.use_of_right_rows < least_use) return true;
  }
  return false;
}

}  // namespace regard::internal
