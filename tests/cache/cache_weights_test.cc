// The weights over a cache: exact rows, tiles and summaries, against a call of each sequence's own and against the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "regard/summary.h"
#include "tests/cache/cached_call.h"
#include "tests/support/paths.h"
#include "tests/support/summary_members.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

constexpr double kUnit = 0x1p-24;

std::vector<PathCase> FusedPaths() {
  std::vector<PathCase> paths = OptimizedPaths();
  std::erase_if(paths, [](const PathCase& path) { return path.path != Path::kFused; });
  return paths;
}

SummaryOptions Everything() {
  return {.row_max = true,
          .row_argmax = true,
          .entropy = true,
          .top_k = 3,
          .distance = true,
          .first_key_share = true,
          .window_share = 5,
          .key_mass = true,
          .key_mass_mean = true,
          .key_top_k = 2,
          .pooled_rows = 2,
          .pooled_cols = 3,
          .pooled_max = true,
          .head_kind = true};
}

// Row b of the batch; NaN equals NaN. With a key axis, only the sequence's own keys, which are all that the other has.
bool SameRow(const Tensor& batched, std::int64_t b, const Tensor& own, bool has_keys) {
  TensorView row = batched.view().Slice(0, b, b + 1);
  if (has_keys) row = row.Slice(2, 0, own.dim(2));
  if (!(row.shape() == own.shape())) return true;  // bins of a sequence shorter than they are many
  const Tensor copy = Tensor::CopyOf(row);
  return own.num_elements() == 0 || std::memcmp(copy.view().data(), own.view().data(),
                                                static_cast<std::size_t>(own.num_elements()) * ItemSize(own.dtype())) == 0;
}

void ExpectSameBits(const Summary& batched, std::int64_t b, const Summary& own) {
  for (const SummaryMember& member : kSummaryMembers) {
    EXPECT_TRUE(SameRow(batched.*member.tensor, b, own.*member.tensor, member.has_keys)) << member.name;
  }
}

// What depends on position, against the definition's weights: masses, shares, and moments of the distance.
void CompareByPosition(const PathCase& path, const Summary& s, const KvCache& cache, const CachedCall& call, std::size_t b,
                       const TestProblem& own) {
  const RunResult reference = RunPath(ReferencePath(), own);
  const Bounds bounds = ErrorBounds(own, reference, path, IntegerRoundingOf(cache, call, path.isa));
  const auto batch = static_cast<std::int64_t>(b);
  const auto bound = [&](std::int64_t row, std::int64_t j) {  // a weight by its rounded lse
    const double lse = reference.lse.at(row, 0), shared = bounds.lse.at(row, 0) + 3 * kUnit * std::fabs(lse);
    const double w = reference.weights.at(row, j);
    return std::min(1.0, bounds.weights.at(row, j) + (w > 0 ? w * std::expm1(shared) : 0) + 0x1p-126);
  };
  std::vector<double> mass(static_cast<std::size_t>(own.heads * own.kv_len)), mass_bound(mass.size());
  for (std::int64_t row = 0; row < own.num_rows(); ++row) {
    const std::int64_t h = row / own.q_len, i = row % own.q_len;
    double sum = 0, first = 0, window = 0, window_bound = kUnit, error = 0;
    const auto distance = [&](std::int64_t j) {
      return static_cast<double>(i + call.QOffset(b) - call.sequences[b].tokens[static_cast<std::size_t>(j)].position);
    };
    for (std::int64_t j = 0; j < own.kv_len; ++j) {
      const double w = reference.weights.at(row, j);
      mass[static_cast<std::size_t>(h * own.kv_len + j)] += w;
      mass_bound[static_cast<std::size_t>(h * own.kv_len + j)] += bound(row, j) + kUnit * static_cast<double>(own.q_len) * w;
      sum += w;
      first += w * distance(j);
      if (std::fabs(distance(j)) > 5) continue;
      window += w;
      window_bound += bound(row, j) + kUnit * static_cast<double>(own.kv_len) * w;
    }
    EXPECT_NEAR(s.window_share(batch, h, i), window, window_bound) << "row " << row;
    if (sum == 0) {
      EXPECT_TRUE(std::isnan(s.distance_mean(batch, h, i)));
      continue;
    }
    double weight_error = 0;
    for (std::int64_t j = 0; j < own.kv_len; ++j) {
      const double e = bound(row, j) + 8 * kUnit * reference.weights.at(row, j);
      error += e * std::fabs(distance(j) - first / sum);
      weight_error += e;
    }
    if (sum <= weight_error) continue;  // the errors of the weights leave nothing certain
    // Moments are taken from somewhere among the positions, so that they round by their range.
    const double range = std::fabs(first / sum) + static_cast<double>(call.sequences[b].next_position);
    EXPECT_NEAR(s.distance_mean(batch, h, i), first / sum, error / (sum - weight_error) + 8 * kUnit * range) << "row " << row;
  }
  for (std::int64_t cell = 0; cell < own.heads * own.kv_len; ++cell) {
    const auto n = static_cast<std::size_t>(cell);
    EXPECT_NEAR(s.key_mass(batch, cell / own.kv_len, cell % own.kv_len), mass[n], mass_bound[n] + 0x1p-120);
  }
}

// Everything it sees, summed.
struct Total : TileVisitor {
  double sum = 0;
  std::unique_ptr<TileVisitor> Fork() const override { return std::make_unique<Total>(); }
  void Visit(const WeightTile& t) override {
    for (std::int64_t r = 0; r < t.rows; ++r) {
      for (std::int64_t c = 0; c < t.cols; ++c) sum += t.data[r * t.query_stride + c * t.key_stride];
    }
  }
  void Merge(TileVisitor& part) override { sum += static_cast<Total&>(part).sum; }
};

class CachedWeights : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Fused, CachedWeights, testing::ValuesIn(FusedPaths()), TestName);

TEST_P(CachedWeights, EqualTheCallOnTensorsOfTheStoredValues) {
  int same = 0, compared = 0;
  const std::vector<std::uint64_t> seeds = Seeds(120);
  for (const std::uint64_t seed : seeds) {
    Random random(seed);
    const ModelledCache modelled = RandomCache(random, seed % 2 == 0);
    CachedCall call = RandomCall(random, modelled);
    call.params.dropout =
        0;  // the mask of a sequence is that of its place in the batch, which a summary of it alone cannot be told
    SCOPED_TRACE(call.description + "\nREGARD_TEST_SEED=" + std::to_string(seed));
    const ExecOptions exec{.isa = GetParam().isa, .threads = call.threads};
    const Summary s = Summarize(call.q, modelled.cache, call.ids, call.params, Everything(), exec);
    const bool i8 = call.options.k_dtype == DType::kI8 || call.options.v_dtype == DType::kI8;
    std::int64_t empty_rows = 0;
    for (std::size_t b = 0; b < call.ids.size(); ++b) {
      const TestProblem own = ProblemOf(modelled.cache, call, b);
      if (!i8 && !call.sequences[b].forgot()) {
        const Summary alone = Summarize(own.q, own.k, own.v, own.params, Everything(), {.isa = GetParam().isa, .threads = 1});
        ExpectSameBits(s, static_cast<std::int64_t>(b), alone);
        EXPECT_EQ(s.head_kind[b * static_cast<std::size_t>(call.heads)], alone.head_kind[0]);
        ++same;
      }
      CompareByPosition(GetParam(), s, modelled.cache, call, b, own);
      ++compared;
      empty_rows += RunPath(ReferencePath(), own).empty_rows;
      if (HasFailure()) return;
    }
    EXPECT_EQ(s.empty_rows, empty_rows);
  }
  if (seeds.size() == 1) return;
  EXPECT_GT(same, 20);
  EXPECT_GT(compared, 200);
}

TEST_P(CachedWeights, RowsAndTilesAreTheDefinitions) {
  for (const std::uint64_t seed : Seeds(80)) {
    Random random(seed);
    const ModelledCache modelled = RandomCache(random, seed % 2 == 0);
    const CachedCall call = RandomCall(random, modelled);
    SCOPED_TRACE(call.description + "\nREGARD_TEST_SEED=" + std::to_string(seed));
    const ExecOptions exec{.isa = GetParam().isa, .threads = call.threads};
    const AttentionResult r = Attention(call.q, modelled.cache, call.ids, call.params, exec);
    Total total;
    VisitWeights(call.q, modelled.cache, call.ids, r.lse, call.params, total, exec);
    double sum = 0, sum_bound = 0;
    for (std::size_t b = 0; b < call.ids.size(); ++b) {
      const TestProblem own = ProblemOf(modelled.cache, call, b);
      const RunResult reference = RunPath(ReferencePath(), own);
      const Bounds bounds = ErrorBounds(own, reference, GetParam(), IntegerRoundingOf(modelled.cache, call, GetParam().isa));
      for (std::int64_t h = 0; h < call.heads; ++h) {
        const Tensor rows = WeightRows(call.q, modelled.cache, call.ids, r.lse, call.params,
                                       {.batch = static_cast<std::int64_t>(b), .head = h, .key_end = own.kv_len});
        for (std::int64_t i = 0; i < call.q_len; ++i) {
          const std::int64_t row = h * call.q_len + i;
          const double lse = reference.lse.at(row, 0),
                       shared = std::isfinite(lse) ? bounds.lse.at(row, 0) + 3 * kUnit * std::fabs(lse) : 0;
          for (std::int64_t j = 0; j < own.kv_len; ++j) {
            const double w = reference.weights.at(row, j),
                         bound = bounds.weights.at(row, j) + (w > 0 ? std::min(1.0, w * std::expm1(shared)) : 0) + 0x1p-126;
            ASSERT_NEAR(rows(i, j), w, bound) << "sequence " << b << ", head " << h << ", row " << i << ", key " << j;
            sum += rows(i, j);
            sum_bound += rows(i, j) * 1e-6;
          }
        }
      }
    }
    EXPECT_NEAR(total.sum, sum, sum_bound) << "tiles and rows differ";
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace regard::test
