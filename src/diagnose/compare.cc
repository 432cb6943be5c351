// How well a variant fits what was observed: cell by cell, against the bounds of rounding.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/parallel_for.h"
#include "diagnose/case.h"

namespace regard::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Below this a masked score stands for −inf: implementations fill with the lowest finite number of their type, or −1e9, or −1e4.
constexpr double kFillThreshold = -9000;

constexpr double kNearlyAll = 0.9;

// Where bf16 scores at most double a weight, by their bound, no rounding moves contexts by more than this part of them, in the root mean square.
// Bounds alone do not see that: over many keys values cancel, and Σ |w·v| is far more than the context.
constexpr double kMostMoved = 0.25;
bool IsClear(const RowRoundoff& roundoff) {
  constexpr int kBf16 = static_cast<int>(Precision::kBf16);
  return roundoff.weight[kBf16] - roundoff.sums[kBf16] < 1;
}

// One cell against what is expected; bounds[p] without storage.
void AddCell(const ObservedStage& o, RowId row, std::int64_t column, double want, const double* bounds, Fit* fit) {
  const double got = o.At(row, column);
  double difference = std::fabs(got - want);
  if (want == got || (std::isnan(want) && std::isnan(got))) difference = 0;
  if (std::isnan(difference)) difference = kInfinity;
  if (o.stage == Stage::kMaskedScores && want == -kInfinity && got < kFillThreshold) difference = 0;
  if (std::fabs(want) > o.storage.largest && std::isinf(got) && (want > 0) == (got > 0)) difference = 0;
  const double storage = o.storage.relative * std::fabs(want) + o.storage.absolute;
  for (int p = 0; p < kNumPrecisions; ++p) {
    const double bound = bounds[p] + storage;
    if (p == kNumPrecisions - 1) fit->room = std::min(fit->room, bound / (bounds[0] + storage));
    const double ratio = difference == 0 ? 0 : std::isinf(difference) || !(bound > 0) ? kInfinity : difference / bound;
    fit->worst[p] = std::max(fit->worst[p], ratio);
    if (std::isfinite(ratio)) fit->squares[p] += ratio * ratio;
  }
  const StorageRoundoff of_file = RoundoffOf(o.view.dtype);
  const double bound_as_stored =
      bounds[static_cast<int>(Precision::kF32)] + of_file.relative * std::fabs(want) + of_file.absolute;
  fit->worst_as_stored = std::max(fit->worst_as_stored, difference == 0 ? 0 : difference / bound_as_stored);
  fit->finite_cells += std::isfinite(want) && std::isfinite(got);
  if (std::isfinite(difference)) fit->absolute_squares += difference * difference;
  if (difference > fit->largest || fit->cells == 0) {
    fit->largest = difference;
    fit->cell = {Name(o.stage), row.b, row.h, row.i, column, want, got};
  }
  ++fit->cells;
}

void AddClearCell(double got, double want, Fit* fit) {
  if (!std::isfinite(got - want)) return;
  fit->clear_squares += (got - want) * (got - want);
  fit->clear_size += want * want;
}

}  // namespace

void Fit::Add(const Fit& other) {
  if (other.largest > largest || cells == 0) cell = other.cell;
  for (int p = 0; p < kNumPrecisions; ++p) {
    worst[p] = std::max(worst[p], other.worst[p]);
    squares[p] += other.squares[p];
  }
  absolute_squares += other.absolute_squares;
  clear_squares += other.clear_squares;
  clear_size += other.clear_size;
  room = std::min(room, other.room);
  lost_row = lost_row || other.lost_row;
  largest = std::max(largest, other.largest);
  worst_as_stored = std::max(worst_as_stored, other.worst_as_stored);
  cells += other.cells;
  finite_cells += other.finite_cells;
}

bool Fit::IsRounding(Precision precision) const {
  const int p = static_cast<int>(precision);
  if (worst[p] > 1 || clear_squares > kMostMoved * kMostMoved * clear_size) return false;
  return cells == 0 || std::sqrt(squares[p] / static_cast<double>(cells)) <= kTypicalUse;
}

double Fit::Rms() const { return cells > 0 ? std::sqrt(absolute_squares / static_cast<double>(cells)) : 0; }

bool IsShared(const RowState& s) {
  if (s.num_visible < 2 || s.weights.empty()) return false;
  const double sum = std::accumulate(s.weights.begin(), s.weights.end(), 0.0);
  return *std::max_element(s.weights.begin(), s.weights.end()) < kNearlyAll && sum > 1 - kNearlyAll;
}

// Weights that sum to 1 make nothing larger than the largest value, but where a variant edits values, weights or their product.
bool Case::AveragesValues(const Variant& variant) const {
  return variant.operands->v == evaluator_.operands().v && !variant.softmax && !variant.reweigh && !variant.product;
}

// All heads of the token of `row`, side by side, through w_out. Each context errs as its own bound says; the product adds its own.
void Case::CompareProjected(const Variant& variant, RowId row, const ObservedStage& o, Fit* fit) const {
  if (row.h != 0) return;
  const std::int64_t heads = problem().heads, dim = problem().v_dim, in_dim = heads * dim;
  const bool is_average = AveragesValues(variant);
  std::vector<double> merged, error[kNumPrecisions];
  bool is_clear = true;
  RowState s;
  for (std::int64_t h = 0; h < heads; ++h) {
    s.max_dims = dim;
    evaluator_.Evaluate(variant, {row.b, h, row.i}, &s);
    const RowRoundoff roundoff = RoundoffOfRow(variant.operands->head_dim, s.num_visible, s.largest_dot, s.largest_score);
    is_clear = is_clear && IsClear(roundoff);
    merged.insert(merged.end(), s.context.begin(), s.context.end());
    for (int p = 0; p < kNumPrecisions; ++p) {
      for (std::size_t d = 0; d < s.context.size(); ++d)
        error[p].push_back(roundoff.OfContext(p, s.context[d], s.magnitude[d], largest_value_[d], is_average));
    }
  }
  const bool left_out = w_out_.empty() || variant.out_projection == Variant::OutProjection::kLeftOut;
  if (static_cast<std::int64_t>(merged.size()) != in_dim || (left_out && o.columns != in_dim)) return;
  const bool transposed = variant.out_projection == Variant::OutProjection::kTransposed;
  for (std::int64_t out = 0; out < o.columns; ++out) {
    double want = 0, magnitude = 0, bounds[kNumPrecisions] = {};
    if (left_out) {
      want = merged[static_cast<std::size_t>(out)];
      for (int p = 0; p < kNumPrecisions; ++p) bounds[p] = error[p][static_cast<std::size_t>(out)];
    } else {
      for (std::int64_t n = 0; n < in_dim; ++n) {
        const double w = w_out_[static_cast<std::size_t>(transposed ? n * o.columns + out : out * in_dim + n)];
        want += w * merged[static_cast<std::size_t>(n)];
        magnitude += std::fabs(w * merged[static_cast<std::size_t>(n)]);
        for (int p = 0; p < kNumPrecisions; ++p) bounds[p] += std::fabs(w) * error[p][static_cast<std::size_t>(n)];
      }
      if (variant.out_projection != Variant::OutProjection::kWithoutBias) want += b_out_[static_cast<std::size_t>(out)];
      for (int p = 0; p < kNumPrecisions; ++p) bounds[p] += RoundoffOfProjection(p, in_dim, want, magnitude);
    }
    AddCell(o, row, out, want, bounds, fit);
    if (is_clear) AddClearCell(o.At(row, out), want, fit);
  }
}

void Case::CompareRow(const Variant& variant, const RowState& s, RowId row, const ObservedStage& o, Fit* fit) const {
  if (o.stage == Stage::kProjected) return CompareProjected(variant, row, o, fit);
  const std::vector<double>* expected = nullptr;
  std::vector<double> lse{s.lse};
  switch (o.stage) {
    case Stage::kScores:
      expected = &s.scores;
      break;
    case Stage::kCapped:
      expected = &s.capped;
      break;
    case Stage::kMaskedScores:
      expected = &s.masked;
      break;
    case Stage::kWeights:
      expected = &s.weights;
      break;
    case Stage::kLse:
      expected = &lse;
      break;
    default:
      expected = &s.context;
      break;
  }
  const std::int64_t columns = static_cast<std::int64_t>(expected->size());
  const bool first_look = o.stage == Stage::kContext && columns == std::min(o.columns, s.max_dims);
  if (columns != o.columns && !first_look) return;  // a variant with keys of its own has no such stage
  const Operands& operands = *variant.operands;
  const RowRoundoff roundoff = RoundoffOfRow(operands.head_dim, s.num_visible, s.largest_dot, s.largest_score);
  const bool is_average = AveragesValues(variant);
  for (std::int64_t c = 0; c < columns; ++c) {
    const std::size_t n = static_cast<std::size_t>(c);
    const double want = (*expected)[n];
    double bounds[kNumPrecisions];
    for (int p = 0; p < kNumPrecisions; ++p) {
      switch (o.stage) {
        case Stage::kScores:
        case Stage::kCapped:
        case Stage::kMaskedScores:
          bounds[p] = roundoff.OfScore(p, want);
          break;
        case Stage::kWeights:
          bounds[p] = roundoff.OfWeight(p, want);
          break;
        case Stage::kLse:
          bounds[p] = roundoff.OfLse(p, want);
          break;
        default:
          bounds[p] = roundoff.OfContext(p, want, s.magnitude[n], largest_value_[n], is_average);
          break;
      }
    }
    AddCell(o, row, c, want, bounds, fit);
    if (o.stage == Stage::kContext && IsClear(roundoff)) AddClearCell(o.At(row, c), want, fit);
  }
  if (o.stage != Stage::kContext) return;
  bool all_zero = columns > 0;
  double largest = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    all_zero = all_zero && o.At(row, c) == 0;
    largest = std::max(largest, std::fabs((*expected)[static_cast<std::size_t>(c)]) /
                                    std::max(largest_value_[static_cast<std::size_t>(c)], 1e-300));
  }
  fit->lost_row = all_zero && largest > 1e-3;
}

Fit Case::Compare(const Variant& variant, RowId row, RowState* state, const Stage* only) const {
  Fit fit;
  if (stopped()) {
    std::fill(std::begin(fit.worst), std::end(fit.worst), kInfinity);
    return fit;
  }
  evaluator_.Evaluate(variant, row, state);
  for (const ObservedStage& o : observed_) {
    if (only != nullptr && o.stage != *only) continue;
    Fit one;
    CompareRow(variant, *state, row, o, &one);
    fit.Add(one);
  }
  fit.shared = IsShared(*state);
  return fit;
}

std::vector<Fit> Case::CompareAll(const Variant& variant) const {
  std::vector<Fit> fits(rows_.size());
  Variant copy = variant;
  if (copy.memo == nullptr) {
    ParallelFor(threads_, static_cast<std::int64_t>(rows_.size()), [&](std::int64_t r, int) {
      RowState state;
      fits[static_cast<std::size_t>(r)] = Compare(copy, rows_[static_cast<std::size_t>(r)], &state);
    });
    return fits;
  }
  RowState state;
  for (std::size_t r = 0; r < rows_.size(); ++r) fits[r] = Compare(copy, rows_[r], &state);
  return fits;
}

Fit Case::UneditedOf(Stage stage) const {
  Fit fit;
  for (std::size_t o = 0; o < observed_.size(); ++o) {
    if (observed_[o].stage != stage) continue;
    for (const Fit& row : unedited_by_stage_[o]) fit.Add(row);
  }
  return fit;
}

Fit Case::Unedited() const {
  Fit fit;
  for (const Fit& row : unedited_) fit.Add(row);
  return fit;
}

}  // namespace regard::internal
