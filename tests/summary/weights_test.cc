// The tile stream and WeightRows: every weight once, equal to the reference's, whatever the options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/info.h"
#include "regard/summary.h"
#include "tests/support/paths.h"
#include "tests/support/placement.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<PathCase> FusedPaths() {
  std::vector<PathCase> paths = OptimizedPaths();
  std::erase_if(paths, [](const PathCase& path) { return path.path != Path::kFused; });
  return paths;
}

// Writes what it sees into whole matrices, and keeps the order of what it saw.
struct Collector : TileVisitor {
  explicit Collector(const TestProblem& problem)
      : p(&problem),
        weights{p->num_rows(), p->kv_len, DType::kF32, std::vector<double>(static_cast<std::size_t>(p->num_rows() * p->kv_len))},
        visits(weights.values.size()) {}
  std::unique_ptr<TileVisitor> Fork() const override { return std::make_unique<Collector>(*p); }
  void Visit(const WeightTile& t) override {
    for (std::int64_t r = 0; r < t.rows; ++r) {
      for (std::int64_t c = 0; c < t.cols; ++c) {
        const std::int64_t row = (t.batch * p->heads + t.head) * p->q_len + t.first_query + r;
        const auto cell = static_cast<std::size_t>(row * p->kv_len + t.first_key + c);
        weights.values[cell] = t.data[r * t.query_stride + c * t.key_stride];
        visits[cell] += t.fully_visible ? 1000001 : 1;
        rows_in_order.push_back(row);
      }
    }
  }
  void Merge(TileVisitor& part) override {
    const auto& from = static_cast<Collector&>(part);
    for (std::size_t n = 0; n < visits.size(); ++n) {
      visits[n] += from.visits[n];
      if (from.visits[n] != 0) weights.values[n] = from.weights.values[n];
    }
    rows_in_order.insert(rows_in_order.end(), from.rows_in_order.begin(), from.rows_in_order.end());
  }

  const TestProblem* p;
  Grid weights;
  std::vector<int> visits;
  std::vector<std::int64_t> rows_in_order;
};

Collector Collect(const PathCase& path, const TestProblem& p, const Tensor& lse, int threads) {
  Collector collector(p);
  VisitWeights(p.q, p.k, lse, p.params, collector, {.isa = path.isa, .threads = threads});
  return collector;
}

class Weights : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Fused, Weights, testing::ValuesIn(FusedPaths()), TestName);

TEST_P(Weights, TilesAreTheWeightsOfTheDefinition) {
  double worst = 0;
  const std::vector<std::uint64_t> seeds = Seeds(500);
  for (std::uint64_t seed : seeds) {
    const TestProblem p = MakeProblem(seed);
    SCOPED_TRACE(p.description);
    const RunResult reference = RunPath(ReferencePath(), p);
    const Bounds bounds = ErrorBounds(p, reference, GetParam());
    const AttentionResult fused = Attention(p.q, p.k, p.v, p.params, {.isa = GetParam().isa, .threads = 1});
    const Collector seen = Collect(GetParam(), p, fused.lse, p.threads);
    for (std::int64_t row = 0; row < p.num_rows(); ++row) {
      const double lse = reference.lse.at(row, 0);
      for (std::int64_t j = 0; j < p.kv_len; ++j) {
        const int visits = seen.visits[static_cast<std::size_t>(row * p.kv_len + j)];
        const double expected = reference.weights.at(row, j);
        ASSERT_TRUE(visits == 0 || visits == 1 || visits == 1000001)
            << "row " << row << ", key " << j << " visited more than once";
        if (visits == 0) {
          ASSERT_EQ(expected, 0) << "row " << row << ", key " << j << " left out";
        }
        if (visits > 1) {
          ASSERT_NE(reference.masked_scores.at(row, j), -kInfinity) << "row " << row << ", key " << j << " is not visible";
        }
        // What the weights of a row share is the error of its lse, and its rounding to log2 units.
        const double shared = std::isfinite(lse) ? bounds.lse.at(row, 0) + 3 * 0x1p-24 * std::fabs(lse) : 0;
        const double bound =
            bounds.weights.at(row, j) + (expected > 0 ? std::min(1.0, expected * std::expm1(shared)) : 0) + 0x1p-126;
        const double error = std::fabs(seen.weights.at(row, j) - expected);
        ASSERT_LE(error, bound) << "row " << row << ", key " << j << ": " << seen.weights.at(row, j) << " instead of "
                                << expected;
        worst = std::max(worst, error / bound);
      }
    }
  }
  if (seeds.size() > 1) {
    EXPECT_GE(worst, 0.1) << "the bound is loose, or the inputs exercise no rounding";
  }
}

TEST_P(Weights, OrderAndBitsDoNotDependOnThreads) {
  for (std::uint64_t seed : Seeds(20)) {
    const TestProblem p = MakeProblem(seed, {.empty_shapes = false});
    SCOPED_TRACE(p.description);
    const AttentionResult fused = Attention(p.q, p.k, p.v, p.params, {.isa = GetParam().isa, .threads = 1});
    const Collector one = Collect(GetParam(), p, fused.lse, 1), three = Collect(GetParam(), p, fused.lse, 3);
    EXPECT_EQ(one.weights.values, three.weights.values);
    EXPECT_EQ(one.rows_in_order, three.rows_in_order);
  }
}

TEST_P(Weights, RowsOnDemandHaveTheBitsOfTheTiles) {
  if (GetParam().isa != FusedPaths()[0].isa) GTEST_SKIP() << "WeightRows takes the best target";
  for (std::uint64_t seed : Seeds(300)) {
    const TestProblem p = MakeProblem(seed, {.empty_shapes = false});
    SCOPED_TRACE(p.description);
    Random random(seed);
    const AttentionResult fused = Attention(p.q, p.k, p.v, p.params, {.threads = 1});
    const Collector seen = Collect(GetParam(), p, fused.lse, 1);
    WeightWindow window{.batch = random.Int(0, p.batch - 1), .head = random.Int(0, p.heads - 1)};
    window.key_begin = random.Int(0, p.kv_len);
    window.key_end = random.Chance(0.2) ? -1 : random.Int(window.key_begin, p.kv_len);
    const std::int64_t key_end = window.key_end == -1 ? p.kv_len : window.key_end;
    for (std::int64_t n = random.Int(0, 5); n > 0; --n) window.rows.push_back(random.Int(0, p.q_len - 1));
    const Tensor rows = WeightRows(p.q, p.k, fused.lse, p.params, window);
    const bool all = window.rows.empty();
    ASSERT_EQ(rows.shape(), (Dims{all ? p.q_len : static_cast<std::int64_t>(window.rows.size()), key_end - window.key_begin}));
    for (std::int64_t r = 0; r < rows.dim(0); ++r) {
      const std::int64_t i = all ? r : window.rows[static_cast<std::size_t>(r)];
      for (std::int64_t j = window.key_begin; j < key_end; ++j) {
        ASSERT_EQ(rows(r, j - window.key_begin), seen.weights.at((window.batch * p.heads + window.head) * p.q_len + i, j));
      }
    }
  }
}

// One head with many tiles and tasks, where the invariants need no reference: rows sum to 1, nothing above the diagonal.
TEST_P(Weights, ManyTilesOfACausalHead) {
  constexpr std::int64_t kTokens = 777, kDim = 24;
  Random random(7);
  TestProblem p;
  p.q_len = p.kv_len = kTokens;
  Tensor q(DType::kF32, {kTokens, kDim}), k(DType::kF32, {kTokens, kDim});
  for (std::int64_t n = 0; n < kTokens * kDim; ++n) {
    q.MutableAs<float>()[n] = static_cast<float>(random.Normal());
    k.MutableAs<float>()[n] = static_cast<float>(random.Normal());
  }
  p.q = q;
  p.k = p.v = k;
  p.params = {.causal = true};
  const AttentionResult fused = Attention(q, k, k, p.params, {.isa = GetParam().isa});
  const Collector seen = Collect(GetParam(), p, fused.lse, 2);
  for (std::int64_t i = 0; i < kTokens; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < kTokens; ++j) {
      sum += seen.weights.at(i, j);
      if (j > i) {
        ASSERT_EQ(seen.weights.at(i, j), 0);
      }
    }
    ASSERT_NEAR(sum, 1, 2e-6) << "row " << i;
    // Blocks of 128 keys beyond the diagonal of a block of rows are skipped, the others of its rows are not.
    ASSERT_NE(seen.visits[static_cast<std::size_t>(i * kTokens + i)], 0);
  }
  EXPECT_EQ(seen.visits[kTokens - 1], 0) << "a tile without visible keys was not skipped";
}

TEST_P(Weights, UndefinedAndEmptyRows) {
  const Tensor q = Tensor::Of<float>({4, 1}, {1, kNaN, 1, 1}), k = Tensor::Of<float>({3, 1}, {-kInfinity, 1, 2});
  const Tensor mask = Tensor::Of<bool>({4, 3}, {true, true, true, true, true, false, false, false, false, true, false, false});
  const AttentionParams params{.mask = mask};
  TestProblem p;
  p.q_len = 4;
  p.kv_len = 3;
  p.q = q;
  p.k = p.v = k;
  p.params = params;
  const AttentionResult fused = Attention(q, k, Tensor::Of<float>({3, 1}, {1, 2, 3}), params, {.isa = GetParam().isa});
  const Collector seen = Collect(GetParam(), p, fused.lse, 1);
  EXPECT_EQ(seen.weights.at(0, 0), 0) << "a score of −inf";
  EXPECT_NEAR(seen.weights.at(0, 1) + seen.weights.at(0, 2), 1, 1e-6);
  EXPECT_TRUE(std::isnan(seen.weights.at(1, 0)) && std::isnan(seen.weights.at(1, 1)));
  EXPECT_EQ(seen.weights.at(1, 2), 0) << "an invisible key of an undefined row";
  for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(seen.weights.at(2, j), 0) << "an empty row";
  for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(seen.weights.at(3, j), 0) << "a row that sees nothing but −inf";
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(WeightErrors, NameTheArgument) {
  const Tensor q(DType::kF32, {5, 2}), k(DType::kF32, {7, 2}), lse(DType::kF32, {5});
  const auto rows = [&](const TensorView& l, const WeightWindow& window) {
    return MessageOf([&] { WeightRows(q, k, l, {}, window); });
  };
  EXPECT_EQ(rows({}, {}), "lse: missing; pass the lse that Attention gave for q, k and these options");
  EXPECT_EQ(rows(Tensor(DType::kF32, {4}), {}), "lse: shape 4; give 5");
  EXPECT_EQ(rows(lse, {.head = 1}), "window.head: 1; give 0…0");
  EXPECT_EQ(rows(lse, {.batch = -1}), "window.batch: -1; give 0…0");
  EXPECT_EQ(rows(lse, {.rows = {0, 5}}), "window.rows: 5; give 0…4");
  EXPECT_EQ(rows(lse, {.key_begin = 4, .key_end = 3}), "window.key_begin: 4; give 0…3");
  EXPECT_EQ(rows(lse, {.key_end = 8}), "window.key_end: 8; give 0…7");
  const TestProblem none;
  Collector collector(none);
  EXPECT_EQ(MessageOf([&] { VisitWeights(q, k, lse, {}, collector, {.path = Path::kStaged}); }),
            "path: staged streams no weights; use fused, or ComputeStages and reduce its weights");
  EXPECT_TRUE(MessageOf([&] {
                VisitWeights(q, k, lse, {}, collector, {.isa = "AVX9"});
              }).starts_with("isa: \"AVX9\" does not run here; use one of " + BestTarget()));
}

// Throws on its second tile of head 1.
struct Thrower : TileVisitor {
  std::unique_ptr<TileVisitor> Fork() const override { return std::make_unique<Thrower>(); }
  void Visit(const WeightTile& t) override {
    if (t.head == 1) throw std::runtime_error("enough");
    ++tiles;
  }
  void Merge(TileVisitor& part) override { tiles += static_cast<Thrower&>(part).tiles; }
  int tiles = 0;
};

TEST(WeightVisitors, ExceptionsReachTheCaller) {  // 10 rows: a tile on any target with vectors
  const Tensor q(DType::kF32, {1, 4, 10, 2}), lse(DType::kF32, {1, 4, 10});
  for (int threads = 1; threads <= 3; ++threads) {
    Thrower visitor;
    EXPECT_THROW(VisitWeights(q, q, lse, {}, visitor, {.threads = threads}), std::runtime_error);
    EXPECT_EQ(visitor.tiles, 1) << "what came before it was merged, and nothing after";
  }
}

TEST(WeightVisitors, StopOnRequest) {
  const Tensor q(DType::kF32, {1, 4, 40, 2}), lse(DType::kF32, {1, 4, 40});
  std::stop_source stop;
  stop.request_stop();
  Thrower visitor;
  try {
    VisitWeights(q, q, lse, {}, visitor, {.stop_token = stop.get_token()});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
}

}  // namespace
}  // namespace regard::test
