// Queries, keys and values in storage, to the kernels that tell about weights. What they are for prefill is in fused_prefill_f32_test.cc.
#include <bit>
#include <map>

#include "kernels/kernel_case.h"

namespace regard::internal {
namespace {

class StoredRowsTest : public PerTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, StoredRowsTest, testing::ValuesIn(CompiledTargetNames()), CaseName);

/// All that tracked_prefill, stream_weights and reduce_weights say about a case; ran on test.kv.
struct Told {
  std::vector<float> context, lse, entropy, share, topk_weight, tail, row_max;
  std::vector<std::int64_t> topk_key;
  std::vector<float> weights;  // [rows, kv_len], by stream_weights
  std::vector<float> mean, std, window;
  std::vector<double> mass, pooled, distances;
  std::int64_t first_distance = 0;
};

constexpr std::int64_t kTopK = 5, kWindow = 12;

Told Ask(const KernelTable& kernels, const KernelCase& test) {
  const std::int64_t n = test.spec.rows, kv_len = test.spec.kv_len;
  const auto rows = static_cast<std::size_t>(n);
  Told told;
  for (auto* to : {&told.entropy, &told.share, &told.tail, &told.row_max, &told.mean, &told.std, &told.window})
    to->assign(rows, 0);
  told.topk_weight.assign(rows * kTopK, 0);
  told.topk_key.assign(rows * kTopK, 0);
  RowTracking tracking;
  tracking.entropy = told.entropy.data();
  tracking.first_key_share = told.share.data();
  tracking.top_k = kTopK;
  tracking.topk_key = told.topk_key.data();
  tracking.topk_weight = told.topk_weight.data();
  tracking.topk_tail = told.tail.data();
  tracking.row_max = told.row_max.data();
  {
    const Scratch scratch(kernels.tracked_scratch_bytes(kv_len, test.kv.head_dim, test.kv.v_dim, kTopK));
    kernels.tracked_prefill(test.kv, test.options, test.rows.data(), n, tracking, scratch.get());
  }
  told.context = test.context;
  told.lse = test.lse;

  told.weights.assign(rows * static_cast<std::size_t>(kv_len), 0);
  struct Sheet {
    Told* told;
    std::int64_t kv_len;
  } sheet = {&told, kv_len};
  const Scratch stream_scratch(kernels.stream_scratch_bytes(test.kv.head_dim));
  kernels.stream_weights(
      test.kv, test.options, test.rows.data(), n,
      [](void* to, const WeightBlock& block) {
        const Sheet& all = *static_cast<Sheet*>(to);
        for (std::int64_t r = 0; r < block.num_rows; ++r) {
          for (std::int64_t j = 0; j < block.num_keys; ++j) {
            all.told->weights[static_cast<std::size_t>((block.first_row + r) * all.kv_len + block.first_key + j)] =
                block.weights[j * block.key_stride + r];
          }
        }
      },
      &sheet, stream_scratch.get());

  WeightReductions out;
  out.distance_mean = told.mean.data();
  out.distance_std = told.std.data();
  out.window_share = told.window.data();
  out.window = kWindow;
  told.mass.assign(static_cast<std::size_t>(kv_len), 0);
  out.key_mass = told.mass.data();
  told.pooled.assign(6, 0);
  out.pooled = told.pooled.data();
  out.pooled_rows = 2;
  out.pooled_cols = 3;
  out.q_len = n;
  out.kv_len = kv_len;
  std::int64_t first = 0, last = 0;
  for (const QueryRow& row : test.rows) {
    first = std::min(first, row.position - test.Position(kv_len - 1));
    last = std::max(last, row.position - test.Position(0));
  }
  if (last - first < 100'000) {
    told.first_distance = out.first_distance = first;
    told.distances.assign(static_cast<std::size_t>(last - first + 1), 0);
    out.distances = told.distances.data();
  }
  const Scratch scratch(kernels.reduce_scratch_bytes(test.kv.head_dim, out));
  kernels.reduce_weights(test.kv, test.options, test.rows.data(), n, out, scratch.get());
  return told;
}

TEST_P(StoredRowsTest, TellsTheBitsOfTheirFloats) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const std::int64_t page_len : {0, 16, 80, 128}) {
      for (const std::int64_t rows : {30, 290}) {
        SCOPED_TRACE(std::string(Name(type)) + ", pages of " + std::to_string(page_len) + ", rows " + std::to_string(rows));
        KernelCase test({.rows = rows,
                         .kv_len = 300,
                         .head_dim = 21,
                         .v_dim = 10,
                         .causal = true,
                         .alibi = page_len == 80,
                         .q_size = 3,
                         .k_padding = 2,
                         .q_type = page_len == 16                            ? DType::kF16
                                   : page_len == 128 && type != DType::kBF16 ? DType::kBF16
                                                                             : DType::kF32,
                         .k_type = type,
                         .v_type = type == DType::kI8 ? DType::kF16 : type,
                         .page_len = page_len},
                        7);
        const Told stored = Ask(kernels(), test);
        test.kv.k = {test.k.data(), test.k_stride()};
        test.kv.v = {test.v.data(), test.v_stride()};
        test.UseFloatQueries();
        const Told floats = Ask(kernels(), test);
        EXPECT_EQ(Bits(stored.context), Bits(floats.context));
        EXPECT_EQ(Bits(stored.lse), Bits(floats.lse));
        EXPECT_EQ(Bits(stored.entropy), Bits(floats.entropy));
        EXPECT_EQ(Bits(stored.share), Bits(floats.share));
        EXPECT_EQ(stored.topk_key, floats.topk_key);
        EXPECT_EQ(Bits(stored.topk_weight), Bits(floats.topk_weight));
        EXPECT_EQ(Bits(stored.tail), Bits(floats.tail));
        EXPECT_EQ(Bits(stored.row_max), Bits(floats.row_max));
        EXPECT_EQ(Bits(stored.weights), Bits(floats.weights));
        EXPECT_EQ(Bits(stored.mean), Bits(floats.mean));
        EXPECT_EQ(Bits(stored.std), Bits(floats.std));
        EXPECT_EQ(Bits(stored.window), Bits(floats.window));
        EXPECT_EQ(stored.mass, floats.mass);
        EXPECT_EQ(stored.pooled, floats.pooled);
        EXPECT_EQ(stored.distances, floats.distances);
        EXPECT_GT(*std::max_element(floats.weights.begin(), floats.weights.end()), 0.1f);
      }
    }
  }
}

// With bf16 dot products too, where weights become words on the way.
TEST_P(StoredRowsTest, TrackingLeavesTheBitsOfPrefill) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (unsigned bits = 0; bits < 16; ++bits) {
      SCOPED_TRACE(std::string(Name(type)) + ", options " + std::to_string(bits));
      KernelCase test({.rows = 150,
                       .kv_len = 301,
                       .head_dim = 19,
                       .v_dim = 13,
                       .ragged = (bits & 1) != 0,
                       .mask = (bits & 2) != 0,
                       .alibi = (bits & 4) != 0,
                       .soft_cap = (bits & 8) != 0 ? 6.0f : 0.0f,
                       .q_size = 9,  // references move
                       .q_type = type,
                       .k_type = type,
                       .v_type = type},
                      20 + bits);
      RunPrefill(kernels(), test, test.rows);
      const auto context = Bits(test.context), lse = Bits(test.lse);
      std::fill(test.context.begin(), test.context.end(), kNaN);
      const Told told = Ask(kernels(), test);
      EXPECT_EQ(Bits(told.context), context);
      EXPECT_EQ(Bits(told.lse), lse);
      // The entropy of weights that are as exact as the scores allow, also where products had them rounded.
      for (std::size_t i = 0; i < told.entropy.size(); ++i) {
        double entropy = 0;
        for (std::size_t j = 0; j < 301; ++j) {
          const double w = told.weights[i * 301 + j];
          entropy -= w > 0 ? w * std::log(w) : 0;
        }
        EXPECT_NEAR(told.entropy[i], entropy, 2 * Define(test, test.rows[i]).lse_error * (1 + entropy) * 8) << "row " << i;
      }
    }
  }
}

// Whatever is said by distance, from the weights and the places themselves.
TEST_P(StoredRowsTest, DistancesAreThoseOfThePlaces) {
  for (const bool alibi : {false, true}) {
    SCOPED_TRACE(alibi);
    KernelCase test({.rows = 70, .kv_len = 300, .causal = true, .alibi = alibi, .forgets_keys = true}, 8);
    // Near enough to be counted one by one; the tests of prefill have gaps of any size.
    for (std::int64_t j = 0, place = 5; j < 300; ++j, place += j % 40 == 9 ? 700 : j % 3 + 1) {
      test.positions[static_cast<std::size_t>(j)] = place;
    }
    for (std::int64_t i = 0; i < 70; ++i) test.rows[static_cast<std::size_t>(i)].position = test.Position(230 + i) + i % 2;
    const Told told = Ask(kernels(), test);
    ExpectNearDefinition(test);
    std::map<std::int64_t, double> expected;
    for (std::size_t i = 0; i < 70; ++i) {
      double sum = 0, mean = 0, square = 0, window = 0;
      for (std::int64_t j = 0; j < 300; ++j) {
        const double w = told.weights[i * 300 + static_cast<std::size_t>(j)];
        const std::int64_t distance = test.rows[i].position - test.Position(j);
        expected[distance] += w;
        sum += w;
        mean += w * static_cast<double>(distance);
        if (std::abs(distance) <= kWindow) window += w;
      }
      mean /= sum;
      for (std::int64_t j = 0; j < 300; ++j) {
        const double from_mean = static_cast<double>(test.rows[i].position - test.Position(j)) - mean;
        square += told.weights[i * 300 + static_cast<std::size_t>(j)] * from_mean * from_mean;
      }
      // Both moments are sums of a block's 128 keys in f32, of offsets within its span; the mean then counts from it.
      const double span = static_cast<double>(test.Position(127) - test.Position(0)), relative = (128 + 8) * std::ldexp(1.0, -24);
      EXPECT_NEAR(told.mean[i], mean, 2 * relative * span) << "row " << i;
      EXPECT_NEAR(told.std[i], std::sqrt(square / sum), 2 * relative * span) << "row " << i;
      EXPECT_NEAR(told.window[i], window, 1e-6) << "row " << i;
    }
    for (std::size_t d = 0; d < told.distances.size(); ++d) {
      EXPECT_NEAR(told.distances[d], expected[static_cast<std::int64_t>(d) + told.first_distance], 1e-6);
    }
  }
}

// Rows of results, whole vectors and what is left of one: all that the cut bits may hold, and numbers beside ties.
TEST_P(StoredRowsTest, ResultsInSixteenBitsAreRoundedAsNumbersAre) {
  std::vector<float> row;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x0FFFu, 0x1000u, 0x1001u, 0x3000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      row.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  row.push_back(-1.7f);  // one more than whole vectors
  std::vector<std::uint16_t> stored(row.size() + 1, 0xABCD);
  const auto count = static_cast<std::int64_t>(row.size());
  kernels().store_row(DType::kBF16, row.data(), count, stored.data());
  for (std::size_t i = 0; i < row.size(); ++i)
    ASSERT_EQ(stored[i], ToBF16(row[i]).bits) << std::hex << std::bit_cast<std::uint32_t>(row[i]);
  kernels().store_row(DType::kF16, row.data(), count, stored.data());
  for (std::size_t i = 0; i < row.size(); ++i)
    ASSERT_EQ(stored[i], ToF16(row[i]).bits) << std::hex << std::bit_cast<std::uint32_t>(row[i]);
  EXPECT_EQ(stored.back(), 0xABCD);
}

// Sequences of a cache, or packed ones, share the scratch of the longest.
TEST_P(StoredRowsTest, ScratchOfTrackersGrowsWithTheKeys) {
  for (std::int64_t kv_len = 1, before = 0; kv_len < 300'000; kv_len += 1 + kv_len / 97) {
    const auto bytes = static_cast<std::int64_t>(kernels().tracked_scratch_bytes(kv_len, 8, 8, 4));
    ASSERT_GE(bytes, before) << kv_len;
    before = bytes;
  }
}

}  // namespace
}  // namespace regard::internal
