#include "kernels/kernel_case.h"

namespace regard::internal {
namespace {

class DecodeTest : public PerStoredType {
 protected:
  void Check(const CaseSpec& spec, unsigned seed, std::int64_t split = 1 << 20) const;
};
INSTANTIATE_TEST_SUITE_P(Targets, DecodeTest,
                         testing::ValuesIn(EveryTargetWith({DType::kF32, DType::kF16, DType::kBF16, DType::kI8})),
                         StoredCaseName);

struct States {
  explicit States(const KernelCase& test)
      : ref(test.rows.size(), kNaN),
        sum(test.rows.size(), kNaN),
        acc(test.rows.size() * static_cast<std::size_t>(test.spec.v_dim), kNaN),
        saw_key(test.rows.size(), 77) {}
  std::vector<float> ref, sum, acc;
  std::vector<std::uint8_t> saw_key;
};

States RunDecode(const KernelTable& kernels, const KernelCase& test, std::int64_t first_key, std::int64_t last_key) {
  States states(test);
  const Scratch scratch(kernels.decode_scratch_bytes(test.kv.head_dim, test.kv.v_dim));
  const std::int64_t stride = test.spec.v_dim + 1;
  std::vector<float> acc(test.rows.size() * static_cast<std::size_t>(stride), 123.0f);
  kernels.decode(test.kv, test.options, test.rows.data(), static_cast<std::int64_t>(test.rows.size()), first_key, last_key,
                 states.ref.data(), states.sum.data(), acc.data(), stride, states.saw_key.data(), scratch.get());
  for (std::size_t r = 0; r < test.rows.size(); ++r) {
    std::copy_n(acc.begin() + static_cast<std::ptrdiff_t>(r) * stride, test.spec.v_dim,
                states.acc.begin() + static_cast<std::ptrdiff_t>(r) * test.spec.v_dim);
    EXPECT_EQ(acc[(r + 1) * static_cast<std::size_t>(stride) - 1], 123.0f) << "written between rows";
  }
  return states;
}

/// Splits the keys, merges the states in double and writes context and lse; returns how many rows saw no key.
std::int64_t DecodeInSplits(const KernelTable& kernels, const KernelCase& test, std::int64_t split) {
  std::vector<States> parts;
  for (std::int64_t first = 0; first < std::max<std::int64_t>(test.kv.kv_len, 1); first += split) {
    parts.push_back(RunDecode(kernels, test, first, std::min(first + split, test.kv.kv_len)));
  }
  std::int64_t empty = 0;
  const std::size_t v_dim = static_cast<std::size_t>(test.spec.v_dim);
  for (std::size_t r = 0; r < test.rows.size(); ++r) {
    const QueryRow& row = test.rows[r];
    double ref = -kInfinity;
    bool saw_key = false;
    for (const States& part : parts) {
      ref = std::max<double>(ref, part.ref[r]);
      saw_key |= part.saw_key[r] != 0;
      EXPECT_LE(part.saw_key[r], 1);
    }
    double sum = 0;
    std::vector<double> acc(v_dim);
    for (const States& part : parts) {
      if (part.ref[r] == -kInfinity && part.sum[r] == 0) continue;
      const double factor = std::exp2(part.ref[r] - ref);
      sum += factor * part.sum[r];
      for (std::size_t c = 0; c < v_dim; ++c) acc[c] += factor * part.acc[r * v_dim + c];
    }
    const double lse = sum == 0 ? -kInfinity : std::log(2.0) * ref + std::log(sum);
    const double share = row.sink == -kInfinity ? 1 : 1 / (1 + std::exp(row.sink - lse));
    for (std::size_t c = 0; c < v_dim; ++c) row.context[c] = sum == 0 ? 0.0f : static_cast<float>(share * acc[c] / sum);
    *row.lse = static_cast<float>(sum == 0 ? row.sink : lse - std::log(share));
    empty += !saw_key;
  }
  return empty;
}

void DecodeTest::Check(const CaseSpec& spec, unsigned seed, std::int64_t split) const {
  const KernelCase test(In(spec), seed);
  const std::int64_t empty = DecodeInSplits(kernels(), test, split);
  ExpectNearDefinition(test);
  std::int64_t expected_empty = 0;
  for (const QueryRow& row : test.rows) expected_empty += !Define(test, row).saw_key;
  EXPECT_EQ(empty, expected_empty);
}

TEST_P(DecodeTest, EveryDim) {
  for (const std::int64_t dim : kDims) {
    SCOPED_TRACE(dim);
    Check({.rows = 5, .kv_len = 37, .head_dim = dim, .v_dim = 7}, 1);
    Check({.rows = 5, .kv_len = 37, .head_dim = 7, .v_dim = dim}, 2);
    Check({.rows = 4, .kv_len = 70, .head_dim = dim, .v_dim = dim, .causal = true}, 3);
  }
}

TEST_P(DecodeTest, EveryLengthAndSplit) {
  for (std::int64_t rows = 1; rows <= kMaxDecodeRows; ++rows) {
    for (const std::int64_t kv_len : {0, 1, 2, 15, 16, 17, 33, 100}) {
      for (const std::int64_t split : {7, 16, 48, 1000}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(kv_len) + " keys by " + std::to_string(split));
        Check({.rows = rows, .kv_len = kv_len, .head_dim = 9, .v_dim = 10}, 4, split);
        Check({.rows = rows, .kv_len = kv_len, .head_dim = 9, .v_dim = 10, .causal = true, .window = 20}, 5, split);
        Check({.rows = rows, .kv_len = kv_len, .head_dim = 9, .v_dim = 10, .ragged = true}, 6, split);
      }
    }
  }
}

TEST_P(DecodeTest, EveryCombinationOfOptions) {
  for (unsigned bits = 0; bits < kOptionCombinations; ++bits) {
    SCOPED_TRACE(bits);
    Check(WithOptions({.rows = 7, .kv_len = 203, .head_dim = 12, .v_dim = 9}, bits), bits, 64);
    Check(WithOptions({.rows = 7, .kv_len = 203, .head_dim = 64, .v_dim = 32}, bits), bits, 64);  // whole vectors, of any type
  }
}

TEST_P(DecodeTest, EveryStride) {
  for (const std::int64_t stride : {0, 1, 2, 3}) {
    SCOPED_TRACE(stride);
    Check({.rows = 6,
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

// Wherever a row is stored, and however many others share its page, its bits are the same.
TEST_P(DecodeTest, PagesHaveTheBitsOfOneRun) {
  for (const DType v_type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const std::int64_t dim : {37, 64, 128}) {
      for (const std::int64_t rows : {1, 5}) {
        CaseSpec spec = {.rows = rows,
                         .kv_len = 333,
                         .head_dim = dim,
                         .v_dim = dim == 37 ? 40 : 96,
                         .causal = true,
                         .mask = dim == 37,
                         .k_padding = 3,
                         .v_padding = 1};
        std::vector<std::uint32_t> context, lse;
        for (const std::int64_t page_len : {0, 16, 48, 256}) {
          SCOPED_TRACE(std::string(Name(v_type)) + " values, dim " + std::to_string(dim) + ", pages of " +
                       std::to_string(page_len));
          spec.page_len = page_len;
          CaseSpec stored = In(spec);
          stored.v_type = v_type;
          const KernelCase test(stored, 11);
          DecodeInSplits(kernels(), test, 160);
          ExpectNearDefinition(test);
          if (page_len == 0) {
            context = Bits(test.context);
            lse = Bits(test.lse);
          }
          ASSERT_EQ(Bits(test.context), context);
          ASSERT_EQ(Bits(test.lse), lse);
        }
      }
    }
  }
}

// A single key weighs exactly 1.
TEST_P(DecodeTest, EveryHalfIsItself) {
  if (GetParam().type != DType::kF16) GTEST_SKIP();
  constexpr std::int64_t kDim = 4096;
  std::vector<F16> halves(kDim);
  const float one = 1;
  for (int first = 0; first < 65536; first += kDim) {
    KernelCase test({.rows = 1, .kv_len = 1, .head_dim = 1, .v_dim = kDim}, 14);
    for (int i = 0; i < kDim; ++i) halves[static_cast<std::size_t>(i)].bits = static_cast<std::uint16_t>(first + i);
    test.kv.k = {&one, 1};
    test.kv.v = {halves.data(), kDim, DType::kF16};
    const States states = RunDecode(kernels(), test, 0, 1);
    for (std::size_t i = 0; i < kDim; ++i) {
      const float expected = ToFloat(halves[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(states.acc[i])) << first + static_cast<int>(i);
      } else {
        ASSERT_EQ(states.acc[i], expected) << first + static_cast<int>(i);
      }
    }
  }
}

// A distance keeps its accuracy where keys stand far apart.
TEST_P(DecodeTest, KeysStandWhereTheySay) {
  for (const std::int64_t rows : {1, 4, 11}) {
    SCOPED_TRACE(rows);
    const CaseSpec spec = {.rows = rows, .kv_len = 400, .causal = true, .alibi = true, .forgets_keys = true};
    Check(spec, 12);
    CaseSpec paged = spec;
    paged.k_type = DType::kBF16;
    paged.page_len = 48;
    Check(paged, 13, 64);
  }
}

TEST_P(DecodeTest, BitsDoNotDependOnCompanions) {
  for (unsigned bits = 0; bits < 16; ++bits) {
    const CaseSpec spec = {.rows = 13,
                           .kv_len = 190,
                           .head_dim = bits % 3 == 0   ? 20
                                       : bits % 3 == 1 ? 64
                                                       : 128,
                           .v_dim = bits % 3 == 0 ? 70 : 96,
                           .ragged = (bits & 8) != 0,
                           .mask = (bits & 1) != 0,
                           .bias = (bits & 2) != 0,
                           .alibi = (bits & 4) != 0,
                           .soft_cap = (bits & 4) != 0 ? 4.0f : 0.0f,
                           .q_size = 4};
    SCOPED_TRACE(bits);
    KernelCase test(In(spec), 20 + bits);
    DecodeInSplits(kernels(), test, 64);
    const auto context = Bits(test.context);
    const auto lse = Bits(test.lse);
    const std::vector<QueryRow> rows = test.rows;
    const std::vector<float> bad_q(static_cast<std::size_t>(spec.head_dim), kNaN);
    const std::vector<float> huge_q(static_cast<std::size_t>(spec.head_dim), 1e30f);
    std::vector<float> elsewhere(static_cast<std::size_t>(spec.v_dim));
    float elsewhere_lse = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t companions = 0; companions < 6; ++companions) {
        QueryRow stranger = rows[(i + 1) % rows.size()];
        stranger.q = i % 2 == 0 ? bad_q.data() : huge_q.data();
        stranger.key_begin = 0;
        stranger.key_end = spec.kv_len;
        stranger.context = elsewhere.data();
        stranger.lse = &elsewhere_lse;
        test.rows.assign(companions, stranger);
        test.rows.insert(test.rows.begin() + static_cast<std::ptrdiff_t>(companions / 2), rows[i]);
        std::fill_n(rows[i].context, spec.v_dim, kNaN);
        DecodeInSplits(kernels(), test, 64);
        ASSERT_EQ(Bits(test.context), context) << "row " << i << " with " << companions;
        ASSERT_EQ(Bits(test.lse), lse) << "row " << i << " with " << companions;
      }
    }
  }
}

TEST_P(DecodeTest, InvisibleKeysAndValuesLeaveNoTrace) {
  if (GetParam().type == DType::kI8) GTEST_SKIP() << "a scale for each row, which one element would change";
  for (const float garbage : {kNaN, kInfinity, -kInfinity, 3e38f}) {
    for (unsigned bits = 0; bits < 8; ++bits) {
      SCOPED_TRACE(std::to_string(garbage) + ", options " + std::to_string(bits));
      CaseSpec spec = {
          .rows = 6, .kv_len = 90, .mask = (bits & 1) != 0, .bias = (bits & 2) != 0, .soft_cap = (bits & 4) != 0 ? 5.f : 0};
      KernelCase test(In(spec), 50 + bits);
      for (std::size_t i = 0; i < test.rows.size(); ++i) {
        test.rows[i].key_end = i < 3 ? 40 : 90;
        if (spec.mask) std::fill_n(test.mask.begin() + static_cast<std::ptrdiff_t>(i) * 90 + 20, 3, std::uint8_t{0});
        if (spec.bias) std::fill_n(test.bias.begin() + static_cast<std::ptrdiff_t>(i) * 90 + 20, 3, -kInfinity);
      }
      const States clean = RunDecode(kernels(), test, 0, 90);
      const auto spoil = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t j = begin; j < end; ++j) {
          std::fill_n(test.Key(j), 16, garbage);
          std::fill_n(test.Value(j), 16, garbage);
        }
        test.Store();
      };
      if (spec.mask || spec.bias) {
        spoil(20, 23);
        const States now = RunDecode(kernels(), test, 0, 90);
        EXPECT_EQ(Bits(now.acc), Bits(clean.acc));
        EXPECT_EQ(Bits(now.sum), Bits(clean.sum));
      }
      spoil(40, 90);  // seen by the later rows only
      const States now = RunDecode(kernels(), test, 0, 90);
      for (std::size_t i = 0; i < 3 * 16; ++i) ASSERT_EQ(Bits(now.acc)[i], Bits(clean.acc)[i]);
      for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(Bits(now.sum)[i], Bits(clean.sum)[i]);
      for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(Bits(now.ref)[i], Bits(clean.ref)[i]);
    }
  }
}

TEST_P(DecodeTest, NoKeysIsTheIdentity) {
  KernelCase test(In({.rows = 2, .kv_len = 40}), 60);
  test.rows[1].key_end = 0;
  for (const std::int64_t key : {0, 16, 40}) {
    const States states = RunDecode(kernels(), test, key, key);
    EXPECT_EQ(states.ref[0], -kInfinity);
    EXPECT_EQ(states.sum[0], 0.0f);
    EXPECT_EQ(states.acc[3], 0.0f);
    EXPECT_EQ(states.saw_key[0], 0);
  }
  const States states = RunDecode(kernels(), test, 0, 40);
  EXPECT_EQ(states.saw_key[0], 1);
  EXPECT_EQ(states.ref[1], -kInfinity);
  EXPECT_EQ(states.sum[1], 0.0f);
  EXPECT_EQ(states.saw_key[1], 0);
}

TEST_P(DecodeTest, VisibleNonFinite) {
  if (GetParam().type == DType::kI8) GTEST_SKIP() << "a scale for each row, which one element would change";
  for (const std::int64_t j : {0, 21, 39}) {
    KernelCase test(In({.rows = 3, .kv_len = 40, .head_dim = 3, .v_dim = 2}), 70);
    for (std::size_t i = 0; i < 3; ++i) test.q[i * 3] = 1;
    test.Key(j)[0] = -kInfinity;
    test.Store();
    DecodeInSplits(kernels(), test, 1000);
    for (const float x : test.context) EXPECT_TRUE(std::isfinite(x));
    for (const float bad : {kNaN, -kNaN, kOddNaN, kInfinity}) {
      test.Key(j)[0] = bad;
      test.Store();
      DecodeInSplits(kernels(), test, 1000);
      for (const float x : test.context) EXPECT_TRUE(std::isnan(x));
      for (const float x : test.lse) EXPECT_TRUE(std::isnan(x));
      test.Key(j)[0] = 0;
      test.Value(j)[1] = bad;
      test.Store();
      DecodeInSplits(kernels(), test, 1000);
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(std::isfinite(test.context[2 * i]) && !std::isfinite(test.context[2 * i + 1]));
      test.Value(j)[1] = 0;
    }
  }
}

// Splits that see no key whose row is all −inf scores: visible, yet without weight.
TEST_P(DecodeTest, OnlyMinusInfinityScores) {
  if (GetParam().type == DType::kI8) GTEST_SKIP() << "a scale for each row, which one element would change";
  KernelCase test(In({.rows = 3, .kv_len = 9, .head_dim = 1, .v_dim = 2}), 71);
  std::fill(test.q.begin(), test.q.end(), 1.0f);
  std::fill(test.k.begin(), test.k.end(), -kInfinity);
  test.Store();
  const States states = RunDecode(kernels(), test, 0, 9);
  for (const float x : states.sum) EXPECT_EQ(x, 0.0f);
  for (const float x : states.acc) EXPECT_EQ(x, 0.0f);
  for (const std::uint8_t saw : states.saw_key) EXPECT_EQ(saw, 1);
}

TEST_P(DecodeTest, EveryFirstReference) {
  KernelCase test(In({.rows = 16, .kv_len = 20, .head_dim = 1, .v_dim = 3}), 85);
  std::fill(test.k.begin(), test.k.end(), 1.0f);
  for (int first = -300; first < 300; first += 16) {
    for (int i = 0; i < 16; ++i) test.q[static_cast<std::size_t>(i)] = static_cast<float>(first + i) * 0.6931472f;
    test.Store();
    DecodeInSplits(kernels(), test, 1000);
    ExpectNearDefinition(test);
  }
}

TEST_P(DecodeTest, LargeNegativeBiasesWeighNothing) {
  CheckLargeNegativeBiases([&](const KernelCase& test) { DecodeInSplits(kernels(), test, 1000); });
}

// Scores that rise all the way move the reference many times.
TEST_P(DecodeTest, RisingScores) {
  KernelCase test(In({.rows = 4, .kv_len = 500, .head_dim = 1, .v_dim = 3}), 72);
  std::fill(test.q.begin(), test.q.end(), 1.0f);
  for (std::int64_t j = 0; j < 500; ++j) *test.Key(j) = 2.0f * static_cast<float>(j) - 500;
  test.Store();
  DecodeInSplits(kernels(), test, 1000);
  ExpectNearDefinition(test);
}

}  // namespace
}  // namespace regard::internal
