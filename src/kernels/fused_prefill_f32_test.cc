#include "kernels/kernel_case.h"

namespace regard::internal {
namespace {

/// Every target with q, k and v of f32, and of bf16: converted, or by dot products of their own.
class PrefillTest : public PerStoredType {
 protected:
  std::int64_t Run(KernelCase& test, const std::vector<QueryRow>& rows) const {
    test.Store();
    return RunPrefill(kernels(), test, rows);
  }
  void Check(const CaseSpec& spec, unsigned seed) const {
    KernelCase test(In(spec), seed);
    const std::int64_t empty = Run(test, test.rows);
    ExpectNearDefinition(test);
    std::int64_t expected_empty = 0;
    for (const QueryRow& row : test.rows) expected_empty += !Define(test, row).saw_key;
    EXPECT_EQ(empty, expected_empty);
  }
  void ExpectTheBitsOfRowsAlone(KernelCase& test) const {
    Run(test, test.rows);
    ExpectNearDefinition(test);
    const auto context = Bits(test.context), lse = Bits(test.lse);
    std::fill(test.context.begin(), test.context.end(), kNaN);
    for (const QueryRow& row : test.rows) RunPrefill(kernels(), test, {row});
    EXPECT_EQ(Bits(test.context), context);
    EXPECT_EQ(Bits(test.lse), lse);
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, PrefillTest, testing::ValuesIn(EveryTargetWith({DType::kF32, DType::kBF16})), StoredCaseName);

TEST_P(PrefillTest, EveryDim) {
  for (const std::int64_t dim : kDims) {
    SCOPED_TRACE(dim);
    Check({.rows = 19, .kv_len = 37, .head_dim = dim, .v_dim = 7}, 1);
    Check({.rows = 19, .kv_len = 37, .head_dim = 7, .v_dim = dim}, 2);
    Check({.rows = 5, .kv_len = 131, .head_dim = dim, .v_dim = dim, .causal = true}, 3);
  }
}

TEST_P(PrefillTest, EveryLengthAroundTilesAndBlocks) {
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

TEST_P(PrefillTest, EveryCombinationOfOptions) {
  for (unsigned bits = 0; bits < kOptionCombinations; ++bits) {
    SCOPED_TRACE(bits);
    Check(WithOptions({.rows = 70, .kv_len = 203, .head_dim = 12, .v_dim = 9}, bits), bits);
  }
}

TEST_P(PrefillTest, EveryStride) {
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

// Every type is exact in f32, so that only where a row comes from differs. The bf16 dot products have bits of their own, of pages as of one
// run.
TEST_P(PrefillTest, StoredRowsHaveTheBitsOfTheirFloats) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8};
  for (const DType k_type : kTypes) {
    for (const DType v_type : kTypes) {
      for (const std::int64_t page_len : {0, 16, 48, 128, 256}) {
        SCOPED_TRACE(std::string(Name(k_type)) + " keys, " + std::string(Name(v_type)) + " values, pages of " +
                     std::to_string(page_len));
        CaseSpec spec = In({.rows = 300,
                            .kv_len = 333,
                            .head_dim = 37,
                            .v_dim = 21,
                            .causal = true,
                            .mask = page_len == 16,
                            .k_padding = 3,
                            .v_padding = 1});
        spec.k_type = k_type;
        spec.v_type = v_type;
        spec.page_len = page_len;
        if (page_len == 48) spec.q_type = DType::kF16;
        if (page_len == 256 && k_type != DType::kBF16) spec.q_type = DType::kBF16;
        KernelCase test(spec, 11);
        RunPrefill(kernels(), test, test.rows);
        ExpectNearDefinition(test);
        const auto context = Bits(test.context), lse = Bits(test.lse);
        if (UsesBf16Dots() && spec.q_type == DType::kBF16 && k_type == DType::kBF16 && v_type == DType::kBF16) {
          test.spec.page_len = 0;
          test.Store();
        } else {
          test.kv.k = {test.k.data(), test.k_stride()};
          test.kv.v = {test.v.data(), test.v_stride()};
          test.UseFloatQueries();
        }
        RunPrefill(kernels(), test, test.rows);
        EXPECT_EQ(Bits(test.context), context);
        EXPECT_EQ(Bits(test.lse), lse);
      }
    }
  }
}

// A distance keeps its accuracy where keys stand far apart.
TEST_P(PrefillTest, KeysStandWhereTheySay) {
  for (const std::int64_t rows : {20, 150}) {
    SCOPED_TRACE(rows);
    Check({.rows = rows, .kv_len = 400, .causal = true, .alibi = true, .forgets_keys = true}, 12);
    Check({.rows = rows,
           .kv_len = 400,
           .causal = true,
           .alibi = true,
           .k_type = DType::kBF16,
           .page_len = 48,
           .forgets_keys = true},
          13);
  }
}

// The head's k and v exceed the second cache level, so that query blocks share key blocks.
TEST_P(PrefillTest, ManyQueryBlocksAtOnce) {
  Check({.rows = 300, .kv_len = 1100, .head_dim = 128, .v_dim = 128, .causal = true}, 9);
}

TEST_P(PrefillTest, LseIsOptional) {
  KernelCase test(In({.rows = 20, .kv_len = 30}), 10);
  for (QueryRow& row : test.rows) row.lse = nullptr;
  Run(test, test.rows);
  ExpectNearDefinition(test);
}

// A row's bits may depend neither on which rows share its call and its vector, nor on what these hold.
TEST_P(PrefillTest, BitsDoNotDependOnCompanions) {
  for (unsigned bits = 0; bits < 16; ++bits) {
    const CaseSpec spec = {.rows = 150,
                           .kv_len = 290,
                           .head_dim = 20,
                           .v_dim = 18,
                           .causal = true,
                           .window = (bits & 8) != 0 ? 100 : -1,
                           .mask = (bits & 1) != 0,
                           .bias = (bits & 2) != 0,
                           .alibi = (bits & 4) != 0,
                           .soft_cap = (bits & 4) != 0 ? 4.0f : 0.0f,
                           .q_size = 4};
    SCOPED_TRACE(bits);
    KernelCase test(In(spec), 20 + bits);
    Run(test, test.rows);
    const auto context = Bits(test.context);
    const auto lse = Bits(test.lse);

    for (const std::size_t chunk : {1, 5, 16, 33, 64}) {
      std::fill(test.context.begin(), test.context.end(), kNaN);
      for (std::size_t i = 0; i < test.rows.size(); i += chunk) {
        Run(test, {test.rows.begin() + i, test.rows.begin() + std::min(i + chunk, test.rows.size())});
      }
      EXPECT_EQ(Bits(test.context), context) << "in chunks of " << chunk;
      EXPECT_EQ(Bits(test.lse), lse) << "in chunks of " << chunk;
    }

    std::vector<QueryRow> shuffled = test.rows;
    std::mt19937 random(bits);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const std::vector<float> bad_q(static_cast<std::size_t>(spec.head_dim), kNaN);
    const std::vector<float> huge_q(static_cast<std::size_t>(spec.head_dim), 1e30f);
    std::vector<float> elsewhere(static_cast<std::size_t>(spec.v_dim));
    for (std::size_t i = 0; i < shuffled.size(); i += 3) {  // strangers in between
      QueryRow stranger = shuffled[i];
      stranger.q = i % 2 == 0 ? bad_q.data() : huge_q.data();
      stranger.key_begin = 0;
      stranger.key_end = spec.kv_len;
      stranger.context = elsewhere.data();
      stranger.lse = nullptr;
      shuffled.insert(shuffled.begin() + static_cast<std::ptrdiff_t>(i), stranger);
    }
    std::fill(test.context.begin(), test.context.end(), kNaN);
    Run(test, shuffled);
    EXPECT_EQ(Bits(test.context), context) << "shuffled among strangers";
    EXPECT_EQ(Bits(test.lse), lse) << "shuffled among strangers";
  }
}

// Tiles that are weighed in runs have the bits of single tiles, which a row alone has, wherever a reference has to move (4 keys that
// outweigh all before them, the first of a tile, in its midst, the last of a key block) or a weight is as good as nothing.
TEST_P(PrefillTest, RunsOfTilesHaveTheBitsOfSingleTiles) {
  for (const std::int64_t head_dim : {24, 64, 96, 131}) {
    for (const bool faint : {false, true}) {
      SCOPED_TRACE(std::to_string(head_dim) + (faint ? ", faint" : ""));
      KernelCase test(In({.rows = 70, .kv_len = 295, .head_dim = head_dim, .v_dim = 20, .causal = true, .q_size = 0.5f}), 31);
      for (std::int64_t i = 0; i < 70; ++i) test.q[static_cast<std::size_t>(i * head_dim)] = 2 + static_cast<float>(i % 7);
      const auto first_of_key = [&](std::int64_t j) -> float& { return test.k[static_cast<std::size_t>(j * test.k_stride())]; };
      float height = 0;
      for (const std::int64_t key : {40, 97, 127, 250}) first_of_key(key) = height += 30;
      if (faint) first_of_key(61) = -600;
      ExpectTheBitsOfRowsAlone(test);
    }
  }
}

// Tiles that nobody sees and tiles that all rows see, in turn and in runs, with windows and sinks.
TEST_P(PrefillTest, RunsEndWhereKeysAreHidden) {
  for (unsigned bits = 0; bits < 8; ++bits) {
    SCOPED_TRACE(bits);
    KernelCase test(In({.rows = 130,
                        .kv_len = 300,
                        .head_dim = 98,
                        .v_dim = 21,
                        .causal = (bits & 1) != 0,
                        .window = (bits & 2) != 0 ? 150 : -1,
                        .mask = true,
                        .sink = (bits & 4) != 0,
                        .q_size = 3}),
                    33 + bits);
    for (std::size_t n = 0; n < test.mask.size(); ++n) test.mask[n] = (n % 300) / 12 % 3 != 1;
    ExpectTheBitsOfRowsAlone(test);
  }
}

TEST_P(PrefillTest, BitsDoNotDependOnStridesAndAlignment) {
  const CaseSpec spec = {.rows = 70, .kv_len = 150, .head_dim = 24, .v_dim = 20, .causal = true};
  KernelCase test(In(spec), 40);
  Run(test, test.rows);
  const auto context = Bits(test.context);
  CaseSpec apart = spec;
  apart.k_padding = 7;
  apart.v_padding = 13;
  apart.page_len = 160;  // one page; storage is aligned to its elements only
  KernelCase other(In(apart), 41);
  std::copy(test.q.begin(), test.q.end(), other.q.begin());
  for (std::int64_t j = 0; j < spec.kv_len; ++j) {
    std::copy_n(test.Key(j), spec.head_dim, other.Key(j));
    std::copy_n(test.Value(j), spec.v_dim, other.Value(j));
  }
  Run(other, other.rows);
  EXPECT_EQ(Bits(other.context), context);
}

// What no row sees, and what some rows do not see, may hold anything.
TEST_P(PrefillTest, InvisibleKeysAndValuesLeaveNoTrace) {
  for (const float garbage : {kNaN, kInfinity, -kInfinity, 3e38f}) {
    for (unsigned bits = 0; bits < 8; ++bits) {
      SCOPED_TRACE(std::to_string(garbage) + ", options " + std::to_string(bits));
      CaseSpec spec = {
          .rows = 90, .kv_len = 300, .mask = (bits & 1) != 0, .bias = (bits & 2) != 0, .soft_cap = (bits & 4) != 0 ? 5.f : 0};
      KernelCase test(In(spec), 50 + bits);
      // Rows up to 44 see keys below 150; the others see keys from 100 on, without the 10 in the middle of their block if masked.
      for (std::size_t i = 0; i < test.rows.size(); ++i) {
        test.rows[i].key_begin = i < 45 ? 0 : 100;
        test.rows[i].key_end = i < 45 ? 150 : 300;
        if (spec.mask) std::fill_n(test.mask.begin() + static_cast<std::ptrdiff_t>(i) * 300 + 200, 10, std::uint8_t{0});
        if (spec.bias) std::fill_n(test.bias.begin() + static_cast<std::ptrdiff_t>(i) * 300 + 200, 10, -kInfinity);
      }
      Run(test, test.rows);
      const auto context = Bits(test.context);
      const auto lse = Bits(test.lse);
      const auto expect_rows = [&](std::size_t begin, std::size_t end) {
        const auto now = Bits(test.context), now_lse = Bits(test.lse);
        for (std::size_t i = begin; i < end; ++i) {
          EXPECT_EQ(now_lse[i], lse[i]) << "row " << i;
          for (std::size_t c = 0; c < 16; ++c) ASSERT_EQ(now[i * 16 + c], context[i * 16 + c]) << "row " << i << ", column " << c;
        }
      };
      const auto spoil = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t j = begin; j < end; ++j) {
          std::fill_n(test.Key(j), 16, garbage);
          std::fill_n(test.Value(j), 16, garbage);
        }
      };
      if (spec.mask || spec.bias) {
        spoil(200, 210);  // nobody's
        Run(test, test.rows);
        expect_rows(0, 90);
      }
      spoil(150, 300);  // seen by the later rows only
      Run(test, test.rows);
      expect_rows(0, 45);
    }
  }
}

TEST_P(PrefillTest, EmptyRows) {
  KernelCase test(In({.rows = 40, .kv_len = 20}), 60);
  for (std::size_t i = 0; i < 40; i += 2) test.rows[i].key_end = test.rows[i].key_begin = 20;
  test.rows[4].sink = 1.25f;
  EXPECT_EQ(Run(test, test.rows), 20);
  ExpectNearDefinition(test);
  EXPECT_EQ(test.lse[4], 1.25f);
  EXPECT_EQ(test.lse[6], -kInfinity);
  for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(test.context[6 * 16 + c], 0.0f);
}

TEST_P(PrefillTest, VisibleNonFiniteScores) {
  for (const bool with_options : {false, true}) {
    SCOPED_TRACE(with_options);
    const CaseSpec spec = {.rows = 5, .kv_len = 140, .head_dim = 3, .v_dim = 2, .alibi = with_options};
    for (const std::int64_t j : {0, 77, 139}) {
      KernelCase test(In(spec), 70);
      for (std::int64_t i = 0; i < 5; ++i) test.q[static_cast<std::size_t>(i * 3)] = 1;
      test.Key(j)[0] = -kInfinity;  // weighs nothing
      Run(test, test.rows);
      KernelCase without(In(spec), 70);
      for (std::int64_t i = 0; i < 5; ++i) without.q[static_cast<std::size_t>(i * 3)] = 1;
      std::fill_n(without.Key(j), 3, -3e5f);
      Run(without, without.rows);
      for (const float x : test.context) EXPECT_TRUE(std::isfinite(x));
      for (const float x : test.lse) EXPECT_TRUE(std::isfinite(x));

      for (const float bad : {kNaN, -kNaN, kOddNaN, kInfinity}) {
        test.Key(j)[0] = bad;
        Run(test, test.rows);
        for (const float x : test.context) EXPECT_TRUE(std::isnan(x));
        for (const float x : test.lse) EXPECT_TRUE(std::isnan(x));
      }
    }
  }
}

TEST_P(PrefillTest, OnlyMinusInfinityScores) {
  KernelCase test(In({.rows = 3, .kv_len = 9, .head_dim = 1, .v_dim = 2}), 71);
  std::fill(test.q.begin(), test.q.end(), 1.0f);
  std::fill(test.k.begin(), test.k.end(), -kInfinity);
  EXPECT_EQ(Run(test, test.rows), 0);  // there were keys, though none weighs anything
  for (const float x : test.context) EXPECT_EQ(x, 0.0f);
  for (const float x : test.lse) EXPECT_EQ(x, -kInfinity);
}

// Rows that see a value which is not finite have it; others, in the same vector, do not. Infinities of both signs make NaN of those that see both.
TEST_P(PrefillTest, VisibleNonFiniteValues) {
  for (const std::int64_t kv_len : {70, 72}) {
    for (const bool causal : {false, true}) {
      for (const float bad : {kNaN, kInfinity, -kInfinity}) {
        KernelCase test(In({.rows = 70, .kv_len = kv_len, .v_dim = 6, .causal = causal}), 80);
        test.Value(33)[2] = bad;
        test.Value(40)[3] = kInfinity;
        test.Value(45)[3] = -kInfinity;
        Run(test, test.rows);
        for (std::int64_t i = 0; i < 70; ++i) {
          SCOPED_TRACE(std::to_string(kv_len) + " keys, row " + std::to_string(i));
          const auto sees = [&](std::int64_t key) { return !causal || key <= kv_len - 70 + i; };
          const float* const context = test.context.data() + i * 6;
          EXPECT_EQ(std::isfinite(context[2]), !sees(33));
          EXPECT_EQ(std::isfinite(context[3]), !sees(40));
          EXPECT_EQ(std::isnan(context[3]), sees(45));
          for (const int c : {0, 1, 4, 5}) EXPECT_TRUE(std::isfinite(context[c])) << c;
        }
      }
    }
  }
}

// The first reference of a row may be anything, and so may what it would be rescaled by.
TEST_P(PrefillTest, EveryFirstReference) {
  KernelCase test(In({.rows = 600, .kv_len = 9, .head_dim = 1, .v_dim = 3}), 85);
  std::fill(test.k.begin(), test.k.end(), 1.0f);
  for (std::size_t i = 0; i < 600; ++i) test.q[i] = (static_cast<float>(i) - 300) * 0.6931472f;
  Run(test, test.rows);
  ExpectNearDefinition(test);
}

// A sum of −0 must not show whether somebody else's key, which adds +0, came after it.
TEST_P(PrefillTest, ZeroHasOneSign) {
  KernelCase test(In({.rows = 2, .kv_len = 300, .head_dim = 1, .v_dim = 5}), 86);
  std::fill(test.q.begin(), test.q.end(), 1.0f);
  std::fill(test.k.begin(), test.k.end(), 0.0f);
  std::fill(test.v.begin(), test.v.end(), -0.0f);
  std::fill_n(test.Value(0), 5, -1.4e-45f);  // acc, until key 193 with its score of 100 rescales it to −0
  *test.Key(193) = 100;
  *test.Key(192) = 99;
  std::fill_n(test.Value(192), 5, -1.4e-45f);  // weighs less than a half: rounds to −0
  test.rows[0].key_end = 200;
  Run(test, {test.rows[0]});
  const std::vector<std::uint32_t> alone = Bits(test.context);
  Run(test, test.rows);
  for (std::size_t c = 0; c < 5; ++c) EXPECT_EQ(Bits(test.context)[c], alone[c]) << "column " << c;
}

TEST_P(PrefillTest, SubnormalsCount) {
  KernelCase test(In({.rows = 3, .kv_len = 8, .head_dim = 4, .v_dim = 5}), 90);
  for (float& x : test.q) x *= 1e-40f;
  for (float& x : test.v) x *= 1e-40f;
  Run(test, test.rows);
  for (std::size_t i = 0; i < test.context.size(); ++i) {
    if (UsesBf16Dots()) {  // they are not for them
      EXPECT_EQ(test.context[i], 0.0f);
      continue;
    }
    const double expected = Define(test, test.rows[i / 5]).context[i % 5];
    EXPECT_NEAR(test.context[i], expected, 8 * 1.4e-45);  // a rounding to the subnormal grid per key
    EXPECT_NE(test.context[i], 0.0f);
  }
}

TEST_P(PrefillTest, LargeNegativeBiasesWeighNothing) {
  CheckLargeNegativeBiases([&](KernelCase& test) { Run(test, test.rows); }, In({}));
}

/// Softmax in two passes over f32 scores, as a careful program without fusion has it: exact maximum, sums in blocks.
std::vector<float> TwoPass(const KernelCase& test, const QueryRow& row) {
  const KvHead& kv = test.kv;
  std::vector<float> scores(static_cast<std::size_t>(kv.kv_len));
  float largest = -kInfinity;
  for (std::int64_t j = 0; j < kv.kv_len; ++j) {
    float dot = 0;
    for (std::int64_t i = 0; i < kv.head_dim; ++i) dot = std::fma(test.Query(row)[i], test.Key(j)[i], dot);
    scores[static_cast<std::size_t>(j)] = dot * test.options.scale;
    largest = std::max(largest, dot * test.options.scale);
  }
  const auto blocked_sum = [&](auto term) {
    float sum = 0;
    for (std::int64_t first = 0; first < kv.kv_len; first += 128) {
      float block = 0;
      for (std::int64_t j = first; j < std::min(first + 128, kv.kv_len); ++j) block += term(j);
      sum += block;
    }
    return sum;
  };
  for (float& s : scores) s = std::exp(s - largest);
  const float sum = blocked_sum([&](std::int64_t j) { return scores[static_cast<std::size_t>(j)]; });
  std::vector<float> context;
  for (std::int64_t c = 0; c < kv.v_dim; ++c) {
    context.push_back(blocked_sum([&](std::int64_t j) { return scores[static_cast<std::size_t>(j)] / sum * test.Value(j)[c]; }));
  }
  return context;
}

TEST_P(PrefillTest, AsAccurateAsTwoPasses) {
  // Products of bf16 numbers are exact until the scale is multiplied into q, which two passes have no need to do.
  if (GetParam().type != DType::kF32) GTEST_SKIP() << "the two have other roundings";
  const char* const families[] = {"normal", "±1000", "equal", "rising", "falling", "one-hot", "subnormal"};
  for (const std::string family : families) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(family + ", seed " + std::to_string(seed));
      KernelCase test(In({.rows = 16, .kv_len = 600, .head_dim = 32, .v_dim = 8}), 100 + seed);
      for (std::int64_t j = 0; j < 600; ++j) {
        for (int i = 0; i < 32; ++i) {
          float& k = test.Key(j)[i];
          if (family == "±1000") k *= 350;
          if (family == "equal") k = 0.25f;
          if (family == "rising") k = 0.05f * static_cast<float>(j) + 0.01f * k;
          if (family == "falling") k = -0.05f * static_cast<float>(j) + 0.01f * k;
          if (family == "one-hot" && j == 17 * static_cast<std::int64_t>(seed)) k *= 1e4f;
          if (family == "subnormal") k *= 1e-40f;
        }
        if (family == "subnormal") {
          for (int c = 0; c < 8; ++c) test.Value(j)[c] *= 1e-40f;
        }
      }
      if (family == "rising" || family == "falling") {
        for (float& x : test.q) x = std::fabs(x);
      }
      Run(test, test.rows);
      float largest_value = 0;
      for (const float x : test.v) largest_value = std::max(largest_value, std::fabs(x));
      double fused_error = 0, two_pass_error = 0;
      for (std::size_t i = 0; i < test.rows.size(); ++i) {
        const ExpectedRow expected = Define(test, test.rows[i]);
        const std::vector<float> two_pass = TwoPass(test, test.rows[i]);
        for (std::size_t c = 0; c < 8; ++c) {
          const double error = std::fabs(test.rows[i].context[c] - expected.context[c]);
          ASSERT_FALSE(std::isnan(error));
          fused_error = std::max(fused_error, error);
          two_pass_error = std::max(two_pass_error, std::fabs(two_pass[c] - expected.context[c]));
        }
      }
      EXPECT_LE(fused_error, 1.5 * two_pass_error + 4 * std::ldexp(1.0, -24) * largest_value);
    }
  }
}

}  // namespace
}  // namespace regard::internal
