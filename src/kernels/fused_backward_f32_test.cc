#include "kernels/kernel_case.h"

namespace regard::internal {
namespace {

constexpr double kUnit = 0x1p-24;

// A forward run by prefill, and the memory of a backward run. What is added to starts from some numbers; what lies behind it is guarded.
struct BackwardCase : KernelCase {
  BackwardCase(const KernelTable& kernels, const CaseSpec& wanted, unsigned seed) : KernelCase(wanted, seed) {
    RunPrefill(kernels, *this, rows);
    std::mt19937 random(seed + 1);
    std::normal_distribution<float> normal;
    d_context.resize(context.size());
    for (float& x : d_context) x = normal(random) + 0.3f;
    d_q.assign(q.size(), kNaN);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      gradients.push_back({context.data() + static_cast<std::int64_t>(i) * kv.v_dim,
                           d_context.data() + static_cast<std::int64_t>(i) * kv.v_dim,
                           d_q.data() + static_cast<std::int64_t>(i) * kv.head_dim});
    }
  }

  void Run(const KernelTable& kernels) { Run(kernels, rows, gradients); }
  void Run(const KernelTable& kernels, const std::vector<QueryRow>& some_rows, const std::vector<GradientRow>& some_gradients) {
    const Scratch scratch(kernels.backward_scratch_bytes(kv.head_dim, kv.v_dim));
    const std::int64_t k_floats = GradientRows(kv.kv_len) * GradientStride(kv.head_dim),
                       v_floats = GradientRows(kv.kv_len) * GradientStride(kv.v_dim);
    const Scratch k_sums(static_cast<std::size_t>(k_floats) * sizeof(float)),
        v_sums(static_cast<std::size_t>(v_floats) * sizeof(float));
    float* const k_memory = static_cast<float*>(k_sums.get());
    float* const v_memory = static_cast<float*>(v_sums.get());
    std::fill_n(k_memory, k_floats, kBefore);
    std::fill_n(v_memory, v_floats, kBefore);
    kernels.backward(kv, options, some_rows.data(), some_gradients.data(), static_cast<std::int64_t>(some_rows.size()), k_memory,
                     v_memory, scratch.get());
    d_k.assign(k_memory, k_memory + k_floats);
    d_v.assign(v_memory, v_memory + v_floats);
  }

  static constexpr float kBefore = 0.25f;
  std::vector<float> d_context, d_q, d_k, d_v;
  std::vector<GradientRow> gradients;
};

// A sum in double, and how far f32 may be from it.
struct Sum {
  double value = 0, error = 0, magnitude = 0;
  int terms = 0;

  void Add(double factor, double factor_error, double x) {
    value += factor * x;
    error += factor_error * std::fabs(x);
    magnitude += std::fabs(factor * x);
    ++terms;
  }
  double Bound(double scale) const { return scale * (error + (terms + 6) * kUnit * (magnitude + error)) + terms * 1e-37; }
};

// Each block of rows is added to what was there before and rounded: at most as many as there are terms.
void ExpectNear(float value, const Sum& sum, double scale, double before, const std::string& what) {
  const double expected = before + scale * sum.value;
  ASSERT_LE(std::fabs(static_cast<double>(value) - expected), sum.Bound(scale) + kUnit * std::fabs(before) * (1 + sum.terms))
      << what << ": " << value << " instead of " << expected;
}

void ExpectNearDefinition(const BackwardCase& test) {
  const KvHead& kv = test.kv;
  const std::size_t head_dim = static_cast<std::size_t>(kv.head_dim), v_dim = static_cast<std::size_t>(kv.v_dim);
  std::vector<Sum> k_sums(static_cast<std::size_t>(kv.kv_len) * head_dim), v_sums(static_cast<std::size_t>(kv.kv_len) * v_dim);
  for (std::size_t i = 0; i < test.rows.size(); ++i) {
    const QueryRow& row = test.rows[i];
    const float* const q = test.Query(row);
    const float* const d_context = test.gradients[i].d_context;
    std::vector<Sum> q_sums(head_dim);
    double delta = 0, delta_magnitude = 0;
    for (std::size_t c = 0; c < v_dim; ++c) {
      const double product = static_cast<double>(d_context[c]) * static_cast<double>(test.gradients[i].context[c]);
      delta += product;
      delta_magnitude += std::fabs(product);
    }
    for (std::int64_t j = 0; j < kv.kv_len; ++j) {
      if (!test.Visible(row, j)) continue;
      const float* const k = kv.k.f32() + j * kv.k.stride;
      const float* const v = kv.v.f32() + j * kv.v.stride;
      double dot = 0, magnitude = 0;
      for (std::size_t c = 0; c < head_dim; ++c) {
        dot += static_cast<double>(q[c]) * static_cast<double>(k[c]);
        magnitude += std::fabs(static_cast<double>(q[c]) * static_cast<double>(k[c]));
      }
      double score = test.options.scale * dot, slope = 1, slope_error = 0;
      magnitude = test.options.scale * magnitude + std::fabs(static_cast<double>(*row.lse));
      const double roundings = 2 * static_cast<double>(kv.head_dim + 8) * kUnit;
      if (test.options.soft_cap > 0) {
        const double tanh = std::tanh(score / test.options.soft_cap);
        slope = 1 - tanh * tanh;
        slope_error = roundings * magnitude / test.options.soft_cap + 12 * kUnit;
        score = test.options.soft_cap * tanh;
        magnitude += test.options.soft_cap;
      }
      const double bias = test.options.has_bias ? row.bias[j * test.options.bias_key_stride] : 0;
      const double alibi = test.options.has_alibi ? row.alibi_slope * std::fabs(static_cast<double>(row.position - j)) : 0;
      score += bias - alibi;
      magnitude += std::fabs(bias) + alibi;
      const double weight = std::exp(score - static_cast<double>(*row.lse)), relative = roundings * magnitude + 8 * kUnit;
      double above = -delta, above_magnitude = 2 * delta_magnitude;
      for (std::size_t c = 0; c < v_dim; ++c) {
        const double product = static_cast<double>(d_context[c]) * static_cast<double>(v[c]);
        above += product;
        above_magnitude += std::fabs(product);
      }
      const double above_error = 2 * static_cast<double>(kv.v_dim + 4) * kUnit * above_magnitude;
      const double masked = weight * above,
                   masked_error = weight * above_error + (std::fabs(masked) + weight * above_error) * 2 * relative;
      const double gradient = masked * slope;
      const double gradient_error =
          masked_error * (slope + slope_error) + std::fabs(masked) * slope_error + 2 * kUnit * std::fabs(gradient);
      for (std::size_t c = 0; c < head_dim; ++c) {
        q_sums[c].Add(gradient, gradient_error, k[c]);
        k_sums[static_cast<std::size_t>(j) * head_dim + c].Add(gradient, gradient_error, q[c]);
      }
      for (std::size_t c = 0; c < v_dim; ++c) {
        v_sums[static_cast<std::size_t>(j) * v_dim + c].Add(weight, 2 * weight * relative, d_context[c]);
      }
    }
    for (std::size_t c = 0; c < head_dim; ++c) {
      ExpectNear(test.gradients[i].d_q[c], q_sums[c], test.options.scale, 0, "d_q of row " + std::to_string(i));
    }
  }
  for (std::int64_t j = 0; j < kv.kv_len; ++j) {
    for (std::size_t c = 0; c < head_dim; ++c) {
      ExpectNear(test.d_k[static_cast<std::size_t>(j * GradientStride(kv.head_dim)) + c],
                 k_sums[static_cast<std::size_t>(j) * head_dim + c], test.options.scale, BackwardCase::kBefore,
                 "d_k of key " + std::to_string(j));
    }
    for (std::size_t c = 0; c < v_dim; ++c) {
      ExpectNear(test.d_v[static_cast<std::size_t>(j * GradientStride(kv.v_dim)) + c],
                 v_sums[static_cast<std::size_t>(j) * v_dim + c], 1, BackwardCase::kBefore, "d_v of key " + std::to_string(j));
    }
  }
}

class BackwardTest : public PerTarget {
 protected:
  void Check(const CaseSpec& spec, unsigned seed) {
    BackwardCase test(kernels(), spec, seed);
    test.Run(kernels());
    ExpectNearDefinition(test);
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, BackwardTest, testing::ValuesIn(CompiledTargetNames()), CaseName);

TEST_P(BackwardTest, EveryDim) {
  for (const std::int64_t dim : kDims) {
    SCOPED_TRACE(dim);
    Check({.rows = 19, .kv_len = 37, .head_dim = dim, .v_dim = 7}, 1);
    Check({.rows = 19, .kv_len = 37, .head_dim = 7, .v_dim = dim}, 2);
    Check({.rows = 5, .kv_len = 131, .head_dim = dim, .v_dim = dim, .causal = true}, 3);
  }
}

TEST_P(BackwardTest, EveryLengthAroundTilesAndBlocks) {
  for (const std::int64_t rows : {1, 3, 4, 15, 16, 17, 63, 64, 65, 130}) {
    for (const std::int64_t kv_len : {0, 1, 3, 4, 5, 64, 127, 128, 129, 260}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(kv_len) + " keys");
      Check({.rows = rows, .kv_len = kv_len, .head_dim = 8, .v_dim = 6}, 4);
      Check({.rows = rows, .kv_len = kv_len, .head_dim = 8, .v_dim = 6, .causal = true}, 5);
      Check({.rows = rows, .kv_len = kv_len, .head_dim = 8, .v_dim = 6, .causal = true, .window = 9}, 6);
      if (kv_len > 0) Check({.rows = rows, .kv_len = kv_len, .head_dim = 8, .v_dim = 6, .ragged = true}, 7);
    }
  }
}

TEST_P(BackwardTest, EveryCombinationOfOptions) {
  for (unsigned bits = 0; bits < kOptionCombinations; ++bits) {
    SCOPED_TRACE(bits);
    Check(WithOptions({.rows = 70, .kv_len = 203, .head_dim = 12, .v_dim = 9}, bits), bits);
  }
}

TEST_P(BackwardTest, EveryStride) {
  for (const std::int64_t stride : {0, 1, 2, 3}) {
    SCOPED_TRACE(stride);
    Check({.rows = 70,
           .kv_len = 150,
           .mask = true,
           .bias = true,
           .k_padding = 5,
           .v_padding = 3,
           .mask_key_stride = stride,
           .bias_key_stride = stride},
          8);
  }
}

// Beyond the second cache level four blocks of rows share each block of keys.
TEST_P(BackwardTest, BlocksThatShareKeys) {
  Check({.rows = 300, .kv_len = 1100, .head_dim = 64, .v_dim = 70, .causal = true}, 9);
}

TEST_P(BackwardTest, ARowsBitsDoNotDependOnItsCompanions) {
  BackwardCase test(kernels(),
                    {.rows = 70, .kv_len = 203, .head_dim = 12, .v_dim = 9, .ragged = true, .mask = true, .soft_cap = 2}, 10);
  test.Run(kernels());
  const std::vector<float> together = test.d_q;
  for (const std::size_t i : {std::size_t{0}, std::size_t{13}, std::size_t{64}, std::size_t{69}}) {
    std::fill(test.d_q.begin(), test.d_q.end(), kNaN);
    test.Run(kernels(), {test.rows[i]}, {test.gradients[i]});
    for (std::size_t c = 0; c < 12; ++c) ASSERT_EQ(test.d_q[i * 12 + c], together[i * 12 + c]) << "row " << i;
  }
}

// A whole block of rows takes tiles in runs, with AVX-512 of enough dims, and fewer rows never do.
TEST_P(BackwardTest, RunsOfTilesHaveTheBitsOfTilesOneByOne) {
  for (const std::int64_t dim : {47, 48, 49, 95, 96, 97, 130}) {
    SCOPED_TRACE(dim);
    BackwardCase test(kernels(), {.rows = 64, .kv_len = 300, .head_dim = dim, .v_dim = dim, .causal = true}, 14);
    test.Run(kernels());
    ExpectNearDefinition(test);
    const std::vector<float> together = test.d_q;
    std::fill(test.d_q.begin(), test.d_q.end(), kNaN);
    for (const std::size_t first : {std::size_t{0}, std::size_t{32}}) {
      const auto half = [first](const auto& all) { return std::vector(all.begin() + first, all.begin() + first + 32); };
      test.Run(kernels(), half(test.rows), half(test.gradients));
    }
    EXPECT_EQ(test.d_q, together);
  }
}

TEST_P(BackwardTest, StoredRowsHaveTheBitsOfTheirFloats) {
  for (const bool has_loose_row : {false, true}) {
    SCOPED_TRACE(has_loose_row);
    BackwardCase test(kernels(), {.rows = 70, .kv_len = 203, .head_dim = 20, .v_dim = 9, .causal = true}, 11);
    if (has_loose_row) test.q[13 * 20 + 5] = kInfinity;  // added by itself
    std::vector<std::uint16_t> q(test.q.size()), k(test.k.size()), v(test.v.size());
    const auto narrow = [](std::vector<float>& wide, std::vector<std::uint16_t>& bits) {
      for (std::size_t n = 0; n < wide.size(); ++n) {
        bits[n] = ToBF16(static_cast<double>(wide[n])).bits;
        wide[n] = ToFloat(BF16{bits[n]});
      }
    };
    narrow(test.q, q);
    narrow(test.k, k);
    narrow(test.v, v);
    test.Run(kernels());
    const std::vector<float> d_q = test.d_q, d_k = test.d_k, d_v = test.d_v;
    for (std::size_t i = 0; i < test.rows.size(); ++i) test.rows[i].q = q.data() + i * 20;
    test.options.q_type = DType::kBF16;
    test.kv.k = {k.data(), test.kv.k.stride, DType::kBF16};
    test.kv.v = {v.data(), test.kv.v.stride, DType::kBF16};
    test.Run(kernels());
    EXPECT_EQ(Bits(d_q), Bits(test.d_q));
    EXPECT_EQ(Bits(d_k), Bits(test.d_k));
    EXPECT_EQ(Bits(d_v), Bits(test.d_v));
  }
}

// Keys that no row sees, and rows that see no key, hold anything.
TEST_P(BackwardTest, WhatIsNotVisibleLeavesNoTrace) {
  BackwardCase test(kernels(), {.rows = 70, .kv_len = 203, .head_dim = 12, .v_dim = 9, .ragged = true}, 12);
  for (QueryRow& row : test.rows) row.key_end = std::min<std::int64_t>(row.key_end, 190);
  for (QueryRow& row : test.rows) row.key_begin = std::min(row.key_begin, row.key_end);
  RunPrefill(kernels(), test, test.rows);
  test.Run(kernels());
  const std::vector<float> d_q = test.d_q, d_k = test.d_k, d_v = test.d_v;
  std::int64_t empty = 0;
  for (std::size_t i = 0; i < test.rows.size(); ++i) {
    if (test.rows[i].key_begin < test.rows[i].key_end) continue;
    ++empty;
    std::fill_n(test.q.begin() + static_cast<std::int64_t>(i) * 12, 12, kOddNaN);
    std::fill_n(test.d_context.begin() + static_cast<std::int64_t>(i) * 9, 9, kInfinity);
  }
  EXPECT_GT(empty, 3);
  for (std::int64_t j = 190; j < 203; ++j) {
    std::fill_n(test.Key(j), 12, kOddNaN);
    std::fill_n(test.Value(j), 9, j % 2 == 0 ? kInfinity : kNaN);
  }
  test.Run(kernels());
  EXPECT_EQ(Bits(d_q), Bits(test.d_q));
  EXPECT_EQ(Bits(d_k), Bits(test.d_k));
  EXPECT_EQ(Bits(d_v), Bits(test.d_v));
}

// The stream hands out what a bias gets: summed over keys, each row comes to nothing, and weighed by k, to d_q.
TEST_P(BackwardTest, StreamedGradientsAreThoseOfTheScores) {
  BackwardCase test(kernels(), {.rows = 70, .kv_len = 203, .head_dim = 12, .v_dim = 9, .ragged = true, .mask = true}, 13);
  test.Run(kernels());
  const Scratch scratch(kernels().score_gradients_scratch_bytes(12, 9));
  std::vector<double> d_q(70 * 12);
  struct Visitor {
    std::vector<double>* d_q;
    const BackwardCase* test;
    double worst_invisible = 0;
  } visitor{&d_q, &test};
  kernels().stream_score_gradients(
      test.kv, test.options, test.rows.data(), test.gradients.data(), 70,
      [](void* to, const WeightBlock& block) {
        Visitor& v = *static_cast<Visitor*>(to);
        for (std::int64_t r = 0; r < block.num_rows; ++r) {
          for (std::int64_t j = 0; j < block.num_keys; ++j) {
            const std::size_t row = static_cast<std::size_t>(block.first_row + r);
            const double gradient = block.weights[j * block.key_stride + r];
            if (!v.test->Visible(v.test->rows[row], block.first_key + j))
              v.worst_invisible = std::fmax(v.worst_invisible, std::fabs(gradient));
            for (std::size_t c = 0; c < 12; ++c) {
              (*v.d_q)[row * 12 + c] +=
                  v.test->options.scale * gradient *
                  static_cast<double>(
                      v.test->kv.k.f32()[(block.first_key + j) * v.test->kv.k.stride + static_cast<std::int64_t>(c)]);
            }
          }
        }
      },
      &visitor, scratch.get());
  EXPECT_EQ(visitor.worst_invisible, 0);
  for (std::size_t n = 0; n < d_q.size(); ++n) ASSERT_NEAR(d_q[n], test.d_q[n], 3e-6);
}

}  // namespace
}  // namespace regard::internal
