#include "measure/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "measure/row_check.h"

namespace regard::measure {
namespace {

// Multiples of these are where one kernel tile, task or split ends and the next begins.
constexpr std::int64_t kBlockEdges[] = {16, 48, 64, 128, 256, 2048};

}  // namespace

std::vector<RowIndex> SampleRows(std::int64_t heads, std::int64_t q_len) {
  std::set<std::int64_t> queries{0, q_len - 1};
  for (const std::int64_t edge : kBlockEdges) {
    if (edge < q_len) queries.insert({edge - 1, edge});
  }
  for (std::int64_t i = 1; static_cast<std::int64_t>(queries.size()) < std::min(q_len, kSampledRows); ++i) {
    queries.insert(i * (q_len - 1) / kSampledRows);
    if (i > kSampledRows) break;  // rounding may hit the same query twice
  }
  std::vector<RowIndex> rows;
  std::int64_t head = 0;
  for (const std::int64_t query : queries) rows.push_back({head++ % heads, query});
  // A single query is looked at in every head.
  for (; q_len == 1 && head < std::min(heads, kSampledRows); ++head)
    rows.push_back({head * heads / std::min(heads, kSampledRows), 0});
  return rows;
}

void Verification::Expect(double value, double reference, double bound, const std::function<std::string()>& place) {
  const double infinity = std::numeric_limits<double>::infinity();
  double part = value == reference ? 0 : std::fabs(value - reference) / bound;
  if (std::isnan(value) || std::isnan(reference)) part = std::isnan(value) && std::isnan(reference) ? 0 : infinity;
  if (part <= worst) return;
  worst = part;
  if (part > 1) {
    fault = fmt::format("{} is {:.8g}, reference {:.8g}: error {:.1f} times its bound", place(), value, reference, part);
  }
}

Verification VerifyRows(const Workload& workload, const TensorView& context, const TensorView& lse, double weight_unit,
                        const internal::IntegerRounding& integers) {
  Verification result;
  for (const RowIndex& index : SampleRows(workload.bench_case().heads, workload.queries())) {
    const Workload::Row row = workload.RowCall(index.head, index.query);
    const RowCheck expected(row, weight_unit, integers);
    const std::string place = fmt::format("head {}, query {}", index.head, index.query);
    for (std::int64_t d = 0; d < workload.bench_case().dim; ++d) {
      result.Expect(context(0, index.head, index.query, d), expected.Context(d), expected.ContextBound(d, context.dtype()),
                    [&] { return fmt::format("context at {}, dim {}", place, d); });
    }
    if (lse) {
      result.Expect(lse(0, index.head, index.query), expected.Lse(), expected.LseBound(), [&] { return "lse at " + place; });
    }
    ++result.rows;
  }
  return result;
}

}  // namespace regard::measure
