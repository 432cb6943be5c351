// A key or value that a query does not see never influences its result, whatever it holds; one that it sees always does.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/paths.h"
#include "tests/support/placement.h"
#include "tests/support/random_problem.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Poison(Random& random) { return random.OneOf({kNaN, kInfinity, -kInfinity, 1e30, kNaN}); }

// The problem's tensor as one that may be written to.
MutableTensorView Writable(const TensorView& view) {
  return MutableTensorView(const_cast<void*>(view.data()), view.dtype(), view.shape(), view.strides());
}

void Spoil(Random& random, const TensorView& view, std::int64_t b, std::int64_t kv_head, std::int64_t j) {
  const TensorView rank4 = AsRank4(view);
  for (std::int64_t d = 0; d < rank4.dim(3); ++d) Set(Writable(rank4), {b, kv_head, j, d}, Poison(random));
}

struct Visibility {
  Visibility(const TestProblem& problem, const RunResult& reference) : p(problem), r(reference) {}
  // Scores of the generator are finite: −inf among the masked ones means not visible.
  bool Sees(std::int64_t row, std::int64_t j) const { return r.masked_scores.at(row, j) != -kInfinity; }
  bool AnySees(std::int64_t b, std::int64_t kv_head, std::int64_t j) const {
    const std::int64_t group_rows = p.heads / p.kv_heads * p.q_len, first = (b * p.kv_heads + kv_head) * group_rows;
    for (std::int64_t row = first; row < first + group_rows; ++row) {
      if (Sees(row, j)) return true;
    }
    return false;
  }
  const TestProblem& p;
  const RunResult& r;
};

TEST(Invisible, KeysAndValuesThatNobodySeesMayHoldAnything) {
  std::int64_t spoiled = 0;
  for (std::uint64_t seed : Seeds(300)) {
    const TestProblem p = MakeProblem(seed, {.dropout = true});
    SCOPED_TRACE(p.description);
    std::vector<RunResult> before;
    for (const PathCase& path : AllPaths()) before.push_back(RunPath(path, p));
    const Visibility visibility(p, before[0]);
    Random random(seed);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
        for (std::int64_t j = 0; j < p.kv_len; ++j) {
          if (visibility.AnySees(b, kv_head, j)) continue;
          Spoil(random, p.k, b, kv_head, j);
          Spoil(random, p.v, b, kv_head, j);
          ++spoiled;
        }
      }
    }
    std::size_t n = 0;
    for (const PathCase& path : AllPaths()) ASSERT_TRUE(before[n++].SameAs(RunPath(path, p))) << path.Name();
  }
  if (Seeds(2).size() > 1) {
    EXPECT_GT(spoiled, 1000);
  }
}

TEST(Invisible, ABiasOnAHiddenCellMayBeNaN) {
  ProblemOptions options;
  options.any_layout = false;
  options.dropout = true;
  for (std::uint64_t seed : Seeds(150)) {
    TestProblem p = MakeProblem(seed, options);
    SCOPED_TRACE(p.description);
    Tensor bias(DType::kF32, {p.batch, p.heads, p.q_len, p.kv_len});
    p.params.bias = bias;
    std::vector<RunResult> before;
    for (const PathCase& path : AllPaths()) before.push_back(RunPath(path, p));
    const Visibility visibility(p, before[0]);
    for (std::int64_t row = 0; row < p.num_rows(); ++row) {
      for (std::int64_t j = 0; j < p.kv_len; ++j) {
        if (!visibility.Sees(row, j))
          bias.MutableAs<float>()[row * p.kv_len + j] = static_cast<float>(row % 2 == 0 ? kNaN : kInfinity);
      }
    }
    std::size_t n = 0;
    for (const PathCase& path : AllPaths()) ASSERT_TRUE(before[n++].SameAs(RunPath(path, p))) << path.Name();
  }
}

// One key, then one value, is NaN: the rows that see it are spoiled, as a whole or in that element; the others keep their bits.
TEST(Invisible, ASpoiledKeySpoilsTheRowsThatSeeIt) {
  ProblemOptions options;
  options.any_layout = false;
  options.dropout = true;
  options.empty_shapes = false;
  std::int64_t seen = 0, hidden = 0;
  for (std::uint64_t seed : Seeds(150)) {
    const TestProblem p = MakeProblem(seed, options);
    SCOPED_TRACE(p.description);
    std::vector<RunResult> before;
    for (const PathCase& path : AllPaths()) before.push_back(RunPath(path, p));
    const Visibility visibility(p, before[0]);
    Random random(seed);
    const std::int64_t b = random.Int(0, p.batch - 1), kv_head = random.Int(0, p.kv_heads - 1), j = random.Int(0, p.kv_len - 1);
    Set(Writable(AsRank4(p.k)), {b, kv_head, j, random.Int(0, p.head_dim - 1)}, kNaN);
    std::size_t n = 0;
    for (const PathCase& path : AllPaths()) {
      const RunResult after = RunPath(path, p);
      ASSERT_EQ(after.empty_rows, before[n].empty_rows);
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        const bool spoiled = row / (p.heads * p.q_len) == b && row / p.q_len % p.heads / (p.heads / p.kv_heads) == kv_head &&
                             visibility.Sees(row, j);
        ++(spoiled ? seen : hidden);
        if (!spoiled) {
          ASSERT_TRUE(after.SameRow(before[n], row)) << path.Name() << " row " << row;
          continue;
        }
        ASSERT_TRUE(std::isnan(after.lse.at(row, 0))) << path.Name() << " row " << row;
        for (std::int64_t d = 0; d < p.v_dim; ++d)
          ASSERT_TRUE(std::isnan(after.context.at(row, d))) << path.Name() << " row " << row;
        for (std::int64_t key = 0; key < after.weights.columns; ++key) {
          const double weight = after.weights.at(row, key);
          ASSERT_TRUE(visibility.Sees(row, key) ? std::isnan(weight) : weight == 0) << path.Name();
        }
      }
      ++n;
    }
  }
  if (Seeds(2).size() > 1) {
    EXPECT_GT(std::min(seen, hidden), 1000);
  }
}

TEST(Invisible, ASpoiledValueSpoilsOneElementOfTheRowsThatSeeIt) {
  ProblemOptions options;
  options.any_layout = false;
  options.dropout = true;
  options.empty_shapes = false;
  for (std::uint64_t seed : Seeds(150)) {
    const TestProblem p = MakeProblem(seed, options);
    SCOPED_TRACE(p.description);
    std::vector<RunResult> before;
    for (const PathCase& path : AllPaths()) before.push_back(RunPath(path, p));
    const Visibility visibility(p, before[0]);
    Random random(seed);
    const std::int64_t b = random.Int(0, p.batch - 1), kv_head = random.Int(0, p.kv_heads - 1), j = random.Int(0, p.kv_len - 1),
                       element = random.Int(0, p.v_dim - 1);
    Set(Writable(AsRank4(p.v)), {b, kv_head, j, element}, random.OneOf({kNaN, kInfinity, -kInfinity}));
    std::size_t n = 0;
    for (const PathCase& path : AllPaths()) {
      const RunResult after = RunPath(path, p);
      ASSERT_TRUE(after.lse.SameAs(before[n].lse)) << path.Name();
      for (std::int64_t row = 0; row < p.num_rows(); ++row) {
        const bool sees = row / (p.heads * p.q_len) == b && row / p.q_len % p.heads / (p.heads / p.kv_heads) == kv_head &&
                          visibility.Sees(row, j);
        for (std::int64_t d = 0; d < p.v_dim; ++d) {
          if (sees && d == element) {
            ASSERT_FALSE(std::isfinite(after.context.at(row, d))) << path.Name() << " row " << row;
          } else {
            ASSERT_EQ(after.context.at(row, d), before[n].context.at(row, d)) << path.Name() << " row " << row;
          }
        }
      }
      ++n;
    }
  }
}

}  // namespace
}  // namespace regard::test
