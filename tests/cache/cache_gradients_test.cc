// Gradients over caches: sequences of any lengths in one call, each compared with a call of its own on tensors of the stored values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "regard/backward.h"
#include "tests/cache/cached_call.h"
#include "tests/support/gradient_tolerance.h"
#include "tests/support/gradients.h"
#include "tests/support/paths.h"
#include "tests/support/tolerance.h"

namespace regard::test {
namespace {

class CachedGradients : public testing::TestWithParam<PathCase> {};
INSTANTIATE_TEST_SUITE_P(Paths, CachedGradients, testing::ValuesIn(AllPaths()), TestName);

// Rows [first, first + rows) of a tensor [.., columns].
Grid GridOf(const Tensor& tensor, std::int64_t first, std::int64_t rows, std::int64_t columns) {
  const Tensor wide = Tensor::CopyOf(tensor, DType::kF64);
  return {rows, columns, tensor.dtype(), {wide.As<double>() + first * columns, wide.As<double>() + (first + rows) * columns}};
}

// The rows of sequence b's own keys in d_k or d_v [batch, kv_heads, keys, columns]; the rows behind them must be 0.
Grid OwnKeys(const Tensor& gradient, std::int64_t b, std::int64_t own) {
  Grid all{gradient.dim(1) * own, gradient.dim(3), gradient.dtype(), {}};
  for (std::int64_t h = 0; h < gradient.dim(1); ++h) {
    for (std::int64_t j = 0; j < gradient.dim(2); ++j) {
      for (std::int64_t d = 0; d < gradient.dim(3); ++d) {
        const double x = gradient(b, h, j, d);
        if (j < own) {
          all.values.push_back(x);
        } else {
          EXPECT_EQ(x, 0) << "a key that is not there";
        }
      }
    }
  }
  return all;
}

// What PlanShape and the call over tensors say of one sequence: its own context, lse and d_context as the cached call read them.
GradientCase OwnCase(const Tensor& context, const Tensor& lse, const Tensor& d_context, std::int64_t b, const TestProblem& own) {
  GradientCase c(1, own, false);
  const auto pick = [&](const Tensor& all) {
    c.memory.push_back(Tensor::CopyOf(all.view().Slice(0, b, b + 1)));
    return c.memory.back().view();
  };
  c.memory.reserve(c.memory.size() + 3);
  c.context = pick(context);
  c.lse = pick(lse);
  c.d_context = pick(d_context);
  return c;
}

TEST_P(CachedGradients, EqualThoseOfTheCallOnTensorsOfTheStoredValues) {
  const PathCase& path = GetParam();
  ErrorLedger ledger;
  std::int64_t compared = 0, slopes = 0;
  for (const std::uint64_t seed : Seeds(40)) {
    Random random(seed);
    const ModelledCache modelled = RandomCache(random, seed % 2 == 0);
    const CachedCall call = RandomCall(random, modelled);
    if (call.kv_len == 0) continue;
    SCOPED_TRACE(call.description + "\nREGARD_TEST_SEED=" + std::to_string(seed));
    const ExecOptions exec{.path = path.path, .isa = path.isa, .threads = call.threads}, reference{.path = Path::kReference};
    const Stages forward = ComputeStages(call.q, modelled.cache, call.ids, call.params, reference);
    Tensor d_context(DType::kF32, forward.context.shape());
    for (std::int64_t n = 0; n < d_context.num_elements(); ++n)
      d_context.MutableAs<float>()[n] = static_cast<float>(random.Normal());
    const AttentionGrads g = AttentionBackward(call.q, modelled.cache, call.ids, forward.context, forward.lse, d_context,
                                               call.params, exec, {.d_alibi_slopes = static_cast<bool>(call.slopes)});
    std::vector<double> d_slopes(static_cast<std::size_t>(call.heads)), slope_bounds(d_slopes.size());
    for (std::size_t n = 0; n < call.ids.size(); ++n) {
      const auto b = static_cast<std::int64_t>(n);
      const std::int64_t rows = call.heads * call.q_len, own_keys = call.sequences[n].length();
      if (own_keys == 0) continue;
      const TestProblem own = ProblemOf(modelled.cache, call, n);
      const GradientCase c = OwnCase(forward.context, forward.lse, d_context, b, own);
      const RunResult stages = RunPath(ReferencePath(), own);
      const GradientResult expected = RunBackward(ReferencePath(), own, c), bounds = GradientBounds(own, c, stages, path.path);
      const std::pair<std::string, Grid> results[] = {{" d_q", GridOf(g.d_q, b * rows, rows, call.options.head_dim)},
                                                      {" d_k", OwnKeys(g.d_k, b, own_keys)},
                                                      {" d_v", OwnKeys(g.d_v, b, own_keys)}};
      const Grid* const right[] = {&expected.d_q, &expected.d_k, &expected.d_v};
      const Grid* const bound[] = {&bounds.d_q, &bounds.d_k, &bounds.d_v};
      for (std::size_t m = 0; m < 3; ++m) {
        ledger.CompareGrid(path.Name() + results[m].first, results[m].second, *right[m], *bound[m], ArithmeticOf(path.path).unit);
      }
      ++compared;
      if (HasFailure()) return;
      // Where tokens were forgotten a bias says what the slopes do, and its gradient holds theirs.
      if (!call.slopes) continue;
      for (std::int64_t h = 0; h < call.heads; ++h) {
        const auto at = static_cast<std::size_t>(h);
        if (own.params.alibi_slopes) {
          d_slopes[at] += expected.d_alibi_slopes.at(0, h);
          slope_bounds[at] += bounds.d_alibi_slopes.at(0, h);
          continue;
        }
        for (std::int64_t i = 0; i < call.q_len; ++i) {
          for (std::int64_t j = 0; j < own_keys; ++j) {
            const std::int64_t cell = (h * call.q_len + i) * own_keys + j;
            const double distance = std::fabs(
                static_cast<double>(i + call.QOffset(n) - call.sequences[n].tokens[static_cast<std::size_t>(j)].position));
            d_slopes[at] -= expected.d_bias.at(0, cell) * distance;
            slope_bounds[at] += bounds.d_bias.at(0, cell) * distance;
          }
        }
      }
    }
    for (std::int64_t h = 0; call.slopes && h < call.heads; ++h) {
      const auto at = static_cast<std::size_t>(h);
      ASSERT_NEAR(g.d_alibi_slopes(h), d_slopes[at], slope_bounds[at] + 0x1p-24 * std::fabs(d_slopes[at]) + 1e-12)
          << "head " << h;
      ++slopes;
    }
  }
  if (Seeds(2).size() == 1) return;
  EXPECT_GT(compared, 30);
  EXPECT_GT(slopes, 10);
}

}  // namespace
}  // namespace regard::test
