#include "diagnose/evidence.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "diagnose/where.h"

namespace regard::internal {
namespace {

std::string Format(const char* format, double a, double b = 0) {
  char text[256];
  std::snprintf(text, sizeof text, format, a, b);
  return text;
}

std::vector<double> ReadRow(const ObservedStage& o, RowId row) {
  std::vector<double> values(static_cast<std::size_t>(o.columns));
  for (std::int64_t n = 0; n < o.columns; ++n) values[static_cast<std::size_t>(n)] = o.At(row, n);
  return values;
}

std::vector<RowId> ProbeRows(const Case& c) {
  std::vector<RowId> rows = c.wrong_rows();
  rows.insert(rows.end(), c.right_rows().begin(), c.right_rows().end());
  return rows;
}

// NaN and zero rows of all that are compared, against the rows that see no key.
void NonFiniteEvidence(const Case& c, const ObservedStage& o, std::vector<std::string>* evidence) {
  std::int64_t nan_rows = 0, nan_empty = 0, zero_full = 0, empty_rows = 0;
  const Variant unedited = c.evaluator().Unedited();
  RowState s;
  for (const RowId& row : c.rows()) {
    const std::vector<double> values = ReadRow(o, row);
    const bool nan = std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); });
    const bool zero = std::all_of(values.begin(), values.end(), [](double x) { return x == 0; });
    nan_rows += nan;
    if (!nan && !zero && nan_rows > nan_empty) continue;  // who else is empty no longer matters
    c.evaluator().EvaluateMasked(unedited, row, &s);
    empty_rows += s.num_visible == 0;
    nan_empty += nan && s.num_visible == 0, zero_full += zero && s.num_visible > 0;
  }
  const std::string of = " of the " + WithCommas(static_cast<std::int64_t>(c.rows().size())) + " rows looked at";
  if (nan_rows > 0 && nan_rows == empty_rows && nan_empty == nan_rows)
    evidence->push_back(std::string(Name(o.stage)) + " is NaN exactly in the rows that see no key");
  else if (nan_rows > 0)
    evidence->push_back(std::string(Name(o.stage)) + " is NaN in " + WithCommas(nan_rows) + of);
  if (zero_full > 0)
    evidence->push_back(std::string(Name(o.stage)) + " is 0 in " + WithCommas(zero_full) + of + ", which do see keys");
}

// Row sums, sign and support of observed weights.
void WeightEvidence(const Case& c, const ObservedStage& weights, std::vector<std::string>* evidence) {
  const Variant unedited = c.evaluator().Unedited();
  RowState s;
  double least = std::numeric_limits<double>::infinity(), most = -least, least_weight = least;
  std::int64_t on_hidden = 0, rows = 0, complement = 0;
  for (const RowId& row : c.wrong_rows()) {
    c.evaluator().Evaluate(unedited, row, &s);
    if (s.num_visible == 0) continue;
    const std::vector<double> values = ReadRow(weights, row);
    double sum = 0;
    bool hidden_weight = false, only_hidden = true;
    for (std::size_t j = 0; j < values.size(); ++j) {
      sum += values[j];
      least_weight = std::min(least_weight, values[j]);
      if (values[j] != 0 && s.visible[j]) only_hidden = false;
      if (values[j] != 0 && !s.visible[j]) hidden_weight = true;
    }
    if (!std::isfinite(sum)) continue;
    least = std::min(least, sum), most = std::max(most, sum);
    on_hidden += hidden_weight, complement += hidden_weight && only_hidden, ++rows;
  }
  if (rows == 0) return;
  if (least_weight < 0) evidence->push_back("some weights are negative: no softmax was applied");
  if (most - least < 0.01 * std::fabs(most) && std::fabs(most - 1) > 0.01 && c.problem().sinks.data == nullptr)
    evidence->push_back(Format("every row of the weights sums to %.4g", most));
  else if (std::fabs(most - 1) > 0.01 || std::fabs(least - 1) > 0.01)
    evidence->push_back(Format("rows of the weights sum to between %.4g and %.4g", least, most));
  if (complement == rows)
    evidence->push_back("weights stand only on keys that should be hidden");
  else if (on_hidden > 0)
    evidence->push_back(
        Format("hidden keys have weight in %.0f of %.0f wrong rows", static_cast<double>(on_hidden), static_cast<double>(rows)));
}

// One factor between observed and expected.
void RatioEvidence(const Case& c, const ObservedStage& o, std::vector<std::string>* evidence) {
  const Variant unedited = c.evaluator().Unedited();
  RowState s;
  double cross = 0, square = 0, observed_square = 0;
  for (const RowId& row : c.wrong_rows()) {
    c.evaluator().Evaluate(unedited, row, &s);
    const std::vector<double>& expected = o.stage == Stage::kScores    ? s.scores
                                          : o.stage == Stage::kContext ? s.context
                                                                       : s.masked;
    for (std::size_t n = 0; n < expected.size(); ++n) {
      const double got = o.At(row, static_cast<std::int64_t>(n));
      if (!std::isfinite(got) || !std::isfinite(expected[n])) continue;
      cross += got * expected[n], square += expected[n] * expected[n], observed_square += got * got;
    }
  }
  if (!(square > 0) || !(observed_square > 0)) return;
  const double cosine = cross / std::sqrt(square * observed_square), ratio = cross / square;
  if (cosine > 0.99999 && std::fabs(ratio - 1) > 1e-3)
    evidence->push_back(std::string(Name(o.stage)) + Format(" is %.6g times what it should be, everywhere", ratio));
  else if (o.stage == Stage::kContext)
    evidence->push_back(Format("the correlation of observed and expected context is %.4f", cosine));
}

// Whether these inputs would hide faults: where the mean of v is near every context, any weights pass.
void InputEvidence(const Case& c, std::vector<std::string>* evidence) {
  constexpr double kTellsNothing = 0.02;
  Variant uniform = c.evaluator().Unedited();
  uniform.scale = 0;
  const Variant unedited = c.evaluator().Unedited();
  RowState mean, s;
  double difference = 0, size = 0;
  for (const RowId& row : ProbeRows(c)) {
    c.evaluator().Evaluate(uniform, row, &mean);
    c.evaluator().Evaluate(unedited, row, &s);
    if (s.num_visible < 2) continue;
    for (std::size_t d = 0; d < s.context.size(); ++d) {
      difference = std::max(difference, std::fabs(s.context[d] - mean.context[d]));
      size = std::max(size, std::fabs(s.context[d]));
    }
  }
  if (!(size > 0) || !(difference < kTellsNothing * size)) return;
  evidence->push_back(
      Format("these inputs hide faults (F93): the mean of v instead of attention changes the context by %.2g at most;"
             " test with signed data of a wide spread",
             difference));
}

}  // namespace

std::vector<std::string> GatherEvidence(const Case& c) {
  std::vector<std::string> evidence;
  for (const ObservedStage& o : c.observed()) {
    const Fit fit = c.UneditedOf(o.stage);
    if (fit.Matches()) {
      evidence.push_back(std::string(Name(o.stage)) + " matches");
      continue;
    }
    evidence.push_back(std::string(Name(o.stage)) +
                       Format(" differs by up to %.3g, %.3g times what rounding explains", fit.largest, fit.worst[0]));
    if (o.stage == Stage::kWeights || o.stage == Stage::kContext) NonFiniteEvidence(c, o, &evidence);
    if (o.stage == Stage::kWeights) WeightEvidence(c, o, &evidence);
    if (o.stage == Stage::kScores || o.stage == Stage::kContext) RatioEvidence(c, o, &evidence);
  }
  if (c.Unedited().Matches()) InputEvidence(c, &evidence);
  return evidence;
}

bool IsOneNumber(const Case& c) {
  const ObservedStage* o = c.Find(Stage::kContext);
  if (o == nullptr || c.rows().size() < 3 || o->columns < 1 || c.UneditedOf(Stage::kContext).Matches()) return false;
  const double value = o->At(c.rows()[0], 0);  // NaN equals nothing here: what overflows everywhere has names
  for (const RowId& row : c.rows()) {
    const std::vector<double> values = ReadRow(*o, row);
    if (!std::all_of(values.begin(), values.end(), [value](double x) { return x == value; })) return false;
  }
  const Variant unedited = c.evaluator().Unedited();
  RowState s;
  std::set<double> expected;
  for (const RowId& row : ProbeRows(c)) {
    c.evaluator().Evaluate(unedited, row, &s);
    expected.insert(s.context.begin(), s.context.end());
  }
  return expected.size() > 1;
}

namespace {

Candidate Finding(const char* id, std::vector<ExplanationParam> params, const Case& c) {
  Candidate candidate{{FindFault(id)}, std::move(params), [](Variant&) {}};
  candidate.coverage = 1;
  candidate.evidence = std::numeric_limits<double>::infinity();
  candidate.fit.cells = static_cast<std::int64_t>(c.rows().size());
  return candidate;
}

// Each observed weight is 0 or 1/(1−p) times the right one; the share of zeros is p.
bool IsDropout(const Case& c, const ObservedStage& weights, double* p) {
  const Variant unedited = c.evaluator().Unedited();
  RowState s;
  std::vector<double> ratios;
  std::int64_t zeros = 0, cells = 0;
  const double tolerance = std::max(1e-4, 4 * weights.storage.relative);
  for (const RowId& row : c.wrong_rows()) {
    c.evaluator().Evaluate(unedited, row, &s);
    for (std::size_t j = 0; j < s.weights.size(); ++j) {
      if (s.weights[j] < 1e-4) continue;
      const double got = weights.At(row, static_cast<std::int64_t>(j));
      ++cells;
      if (got == 0)
        ++zeros;
      else
        ratios.push_back(got / s.weights[j]);
    }
  }
  if (ratios.size() < 4 || zeros == 0) return false;
  std::sort(ratios.begin(), ratios.end());
  const double middle = ratios[ratios.size() / 2];
  if (!(middle > 1.005) || ratios.front() < middle * (1 - 2 * tolerance) || ratios.back() > middle * (1 + 2 * tolerance))
    return false;
  *p = 1 - 1 / middle;
  const double expected = *p * static_cast<double>(cells), spread = std::sqrt(expected * (1 - *p)) + 1;
  return std::fabs(static_cast<double>(zeros) - expected) < 5 * spread;
}

// Whether context is the product of the observed weights with v.
bool IsConsistent(const Case& c, const ObservedStage& weights, const ObservedStage& context) {
  Variant v = c.evaluator().Unedited();
  v.softmax = [&weights](RowState& s) { s.weights = ReadRow(weights, s.id); };
  const Stage only = Stage::kContext;
  RowState s;
  const double allowed = 1 + 4 * weights.storage.relative / std::max(context.storage.relative, 0x1p-24);
  for (const RowId& row : c.wrong_rows()) {
    if (c.Compare(v, row, &s, &only).worst[0] > allowed) return false;
  }
  return true;
}

// Whether every wrong row sees no key.
bool OnlyEmptyRowsDiffer(const Case& c) {
  const Variant unedited = c.evaluator().Unedited();
  RowState s;
  for (std::size_t r = 0; r < c.rows().size(); ++r) {
    if (c.unedited()[r].Matches()) continue;
    c.evaluator().EvaluateMasked(unedited, c.rows()[r], &s);
    if (s.num_visible > 0) return false;
  }
  return !c.wrong_rows().empty();
}

bool IsHeadMean(const Case& c, const ObservedStage& weights) {
  const Variant unedited = c.evaluator().Unedited();
  RowState s;
  const std::int64_t heads = c.problem().heads;
  if (heads == 1) return false;
  for (std::size_t n = 0; n < std::min<std::size_t>(c.wrong_rows().size(), 6); ++n) {
    const RowId row = c.wrong_rows()[n];
    std::vector<double> mean(static_cast<std::size_t>(c.problem().kv_len), 0);
    for (std::int64_t h = 0; h < heads; ++h) {
      c.evaluator().Evaluate(unedited, {row.b, h, row.i}, &s);
      for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += s.weights[j] / static_cast<double>(heads);
    }
    for (std::size_t j = 0; j < mean.size(); ++j) {
      if (std::fabs(weights.At(row, static_cast<std::int64_t>(j)) - mean[j]) > 1e-5 + 2 * weights.storage.relative * mean[j])
        return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Candidate> FindInconsistencies(const Case& c) {
  std::vector<Candidate> found;
  if (OnlyEmptyRowsDiffer(c)) return {Finding("F89", {}, c)};
  const ObservedStage* weights = c.Find(Stage::kWeights);
  const ObservedStage* context = c.Find(Stage::kContext);
  const Stage result = context != nullptr ? Stage::kContext : Stage::kProjected;
  if (weights == nullptr || c.UneditedOf(Stage::kWeights).Matches()) return found;
  double p = 0;
  const bool dropout = IsDropout(c, *weights, &p);
  const bool context_right = c.Find(result) != nullptr && c.UneditedOf(result).Matches();
  if (dropout && !context_right) found.push_back(Finding("F75", {{"p", p}}, c));
  if (context_right) {
    std::vector<ExplanationParam> params;
    if (dropout)
      params = {{"weights", 0, "after dropout"}, {"p", p}};
    else if (IsHeadMean(c, *weights))
      params = {{"weights", 0, "mean over heads"}};
    else
      params = {{"weights", 0, "of another computation"}};
    found.push_back(Finding("F76", params, c));
  } else if (context != nullptr && found.empty() && !IsConsistent(c, *weights, *context) && IsHeadMean(c, *weights)) {
    found.push_back(Finding("F76", {{"weights", 0, "mean over heads"}}, c));
  }
  return found;
}

std::vector<Candidate> CompareRuns(const Case& first, const Case& again, std::vector<std::string>* evidence) {
  std::vector<Candidate> found;
  std::int64_t differing = 0, beyond = 0, rows = 0;
  std::set<std::int64_t> heads;
  double largest = 0;
  bool zeros_differ = false;
  for (std::size_t n = 0; n < first.observed().size(); ++n) {
    const ObservedStage& a = first.observed()[n];
    const ObservedStage* b = again.Find(a.stage);
    if (b == nullptr) continue;
    for (const RowId& row : first.rows()) {
      if (a.stage == Stage::kProjected && row.h != 0) continue;  // one row of it belongs to all heads
      ++rows;
      double row_largest = 0, row_size = 0;
      for (std::int64_t column = 0; column < a.columns; ++column) {
        const double x = a.At(row, column), y = b->At(row, column);
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        if (a.stage == Stage::kWeights && (x == 0) != (y == 0)) zeros_differ = true;
        row_largest = std::max(row_largest, std::isnan(x - y) ? std::numeric_limits<double>::infinity() : std::fabs(x - y));
        row_size = std::max({row_size, std::fabs(x), std::fabs(y)});
      }
      if (row_largest == 0) continue;
      ++differing;
      if (a.stage != Stage::kProjected) heads.insert(row.h);
      largest = std::max(largest, row_largest);
      beyond += row_largest > 64 * a.storage.relative * row_size;
    }
  }
  if (rows == 0) return found;
  if (differing == 0) {
    evidence->push_back("both runs agree bit for bit");
    return found;
  }
  evidence->push_back(WithCommas(differing) + " of " + WithCommas(rows) + " rows differ between the runs" +
                      Format(", by up to %.3g", largest));
  if (beyond == 0) {
    found.push_back(Finding("F90", {}, first));
    return found;
  }
  // Dropout touches nearly every row; threads that overwrite each other leave some right.
  double p = 0;
  const ObservedStage* weights = first.Find(Stage::kWeights);
  const bool dropout = weights != nullptr && IsDropout(first, *weights, &p);
  std::int64_t right = 0, compared = 0;
  for (std::size_t r = 0; r < first.rows().size(); ++r) {
    const auto same = std::lower_bound(again.rows().begin(), again.rows().end(), first.rows()[r]);
    if (same == again.rows().end() || *same != first.rows()[r])
      continue;  // only the projected tensor of one of the runs was observed
    right += first.unedited()[r].Matches() || again.unedited()[static_cast<std::size_t>(same - again.rows().begin())].Matches();
    ++compared;
  }
  const double right_share = static_cast<double>(right) / static_cast<double>(compared);
  std::vector<ExplanationParam> dropout_params;
  if (dropout) dropout_params.push_back({"p", p});
  std::vector<ExplanationParam> race_params;
  if (!heads.empty()) race_params.push_back({"heads", 0, RangesText({heads.begin(), heads.end()})});
  const Candidate race = Finding("F91", race_params, first);
  if (dropout || zeros_differ) {
    found.push_back(Finding("F75", dropout_params, first));
  } else if (right_share > 0.5) {
    found.push_back(race);
  } else {
    found.push_back(Finding("F75", {}, first));
    found.push_back(race);
  }
  return found;
}

}  // namespace regard::internal
