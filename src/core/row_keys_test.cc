#include "core/row_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace regard::internal {
namespace {

// A problem's positional part and the memory behind it.
struct Positions {
  Problem problem;
  std::vector<std::int64_t> kv_lens, offsets, q_segments, kv_segments;

  Positions(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len) {
    problem.batch = batch;
    problem.q_len = q_len;
    problem.kv_len = kv_len;
  }
  std::vector<RowKeys> Rows() {
    const auto bind = [](const std::vector<std::int64_t>& values, std::int64_t batch_stride, std::int64_t stride) {
      return values.empty() ? View4{} : View4{values.data(), DType::kI64, {batch_stride, 0, 0, stride}};
    };
    problem.kv_lens = bind(kv_lens, 1, 0);
    problem.q_offset = bind(offsets, 1, 0);
    problem.q_segments = bind(q_segments, problem.q_len, 1);
    problem.kv_segments = bind(kv_segments, problem.kv_len, 1);
    std::vector<RowKeys> rows(static_cast<std::size_t>(problem.batch * problem.q_len));
    ComputeRowKeys(problem, rows.data());
    return rows;
  }
};

void ExpectRow(const RowKeys& row, std::int64_t begin, std::int64_t end) {
  EXPECT_EQ(row.begin, begin);
  EXPECT_EQ(row.end, end);
}

TEST(RowKeys, WithoutOptionsEveryKeyIsVisible) {
  Positions p(1, 2, 5);
  const auto rows = p.Rows();
  ExpectRow(rows[0], 0, 5);
  ExpectRow(rows[1], 0, 5);
  EXPECT_EQ(rows[1].position, 1);
}

TEST(RowKeys, CausalCountsFromTheOffset) {
  Positions p(1, 2, 4);
  p.problem.causal = true;
  ExpectRow(p.Rows()[0], 0, 1);
  p.problem.scalar_q_offset = 2;
  ExpectRow(p.Rows()[0], 0, 3);
  ExpectRow(p.Rows()[1], 0, 4);
  p.problem.scalar_q_offset = -1;
  ExpectRow(p.Rows()[0], 0, 0);  // nothing
  ExpectRow(p.Rows()[1], 0, 1);
}

TEST(RowKeys, WindowsBoundTheirOwnSide) {
  Positions p(1, 6, 6);
  p.problem.window_left = 1;
  ExpectRow(p.Rows()[3], 2, 6);
  p.problem.window_right = 0;
  ExpectRow(p.Rows()[3], 2, 4);
  p.problem.window_left.reset();
  ExpectRow(p.Rows()[3], 0, 4);
}

TEST(RowKeys, LengthsAndTheOffsetTheyImply) {
  Positions p(2, 2, 5);
  p.kv_lens = {3, 0};
  p.problem.q_offset_from_kv_lens = true;
  p.problem.causal = true;
  const auto rows = p.Rows();
  ExpectRow(rows[0], 0, 2);
  ExpectRow(rows[1], 0, 3);
  ExpectRow(rows[2], 0, 0);
  ExpectRow(rows[3], 0, 0);
}

TEST(RowKeys, SegmentsRestartPositionsAndMayComeInAnyOrder) {
  Positions p(1, 5, 6);
  p.q_segments = {7, 7, 3, 3, -1};
  p.kv_segments = {3, 3, 3, -1, 7, 7};
  p.problem.causal = true;
  const auto rows = p.Rows();
  ExpectRow(rows[0], 4, 5);
  ExpectRow(rows[1], 4, 6);
  ExpectRow(rows[2], 0, 1);
  ExpectRow(rows[3], 0, 2);
  ExpectRow(rows[4], 0, 0);
  EXPECT_EQ(rows[0].position, 4);  // on the absolute key axis
}

// The definition, pair by pair.
bool Sees(const Positions& p, std::int64_t b, std::int64_t i, std::int64_t j) {
  const auto place = [b](const std::vector<std::int64_t>& segments, std::int64_t length, std::int64_t token) {
    if (segments.empty()) return std::pair<std::int64_t, std::int64_t>{0, token};
    const std::int64_t* const row = segments.data() + b * length;
    std::int64_t first = token;
    while (first > 0 && row[first - 1] == row[token]) --first;
    return std::pair<std::int64_t, std::int64_t>{row[token], token - first};
  };
  const auto [q_segment, q_place] = place(p.q_segments, p.problem.q_len, i);
  const auto [kv_segment, key] = place(p.kv_segments, p.problem.kv_len, j);
  const std::int64_t position = q_place + p.problem.QOffset(b);
  if (q_segment != kv_segment || q_segment == -1 || j >= p.problem.KvLen(b)) return false;
  if (p.problem.causal && key > position) return false;
  if (p.problem.window_left && position - key > *p.problem.window_left) return false;
  return !p.problem.window_right || key - position <= *p.problem.window_right;
}

TEST(RowKeys, AgreeWithTheDefinitionOnRandomCombinations) {
  std::mt19937_64 bits(20240607);
  const auto draw = [&bits](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  };
  std::int64_t visible = 0, cells = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    Positions p(draw(1, 3), draw(1, 12), draw(1, 12));
    Problem& problem = p.problem;
    problem.causal = draw(0, 1) == 1;
    if (draw(0, 2) == 0) problem.window_left = draw(0, 6);
    if (draw(0, 2) == 0) problem.window_right = draw(0, 6);
    problem.scalar_q_offset = draw(-6, 6);
    for (std::int64_t b = 0; b < problem.batch && trial % 3 == 0; ++b) p.kv_lens.push_back(draw(0, problem.kv_len));
    for (std::int64_t b = 0; b < problem.batch && trial % 4 == 0; ++b) p.offsets.push_back(draw(-6, 6));
    if (trial % 2 == 0) {
      const auto runs = [&](std::int64_t length, std::vector<std::int64_t>* segments) {
        for (std::int64_t b = 0; b < problem.batch; ++b) {
          std::vector<std::int64_t> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
          std::shuffle(numbers.begin(), numbers.end(), bits);
          for (std::int64_t t = 0, run = 0; t < length; ++t) {
            if (t > 0 && draw(0, 2) == 0) ++run;
            segments->push_back(numbers[static_cast<std::size_t>(run)] % 5 == 4 ? -1 : numbers[static_cast<std::size_t>(run)]);
          }
        }
      };
      runs(problem.q_len, &p.q_segments);
      runs(problem.kv_len, &p.kv_segments);
    }
    const auto rows = p.Rows();
    problem.kv_lens.data = p.kv_lens.empty() ? nullptr : p.kv_lens.data();
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      for (std::int64_t i = 0; i < problem.q_len; ++i) {
        const RowKeys& row = rows[static_cast<std::size_t>(b * problem.q_len + i)];
        ASSERT_LE(0, row.begin);
        ASSERT_LE(row.begin, row.end);
        ASSERT_LE(row.end, problem.kv_len);
        for (std::int64_t j = 0; j < problem.kv_len; ++j, ++cells) {
          ASSERT_EQ(j >= row.begin && j < row.end, Sees(p, b, i, j))
              << "trial " << trial << ", batch " << b << ", query " << i << ", key " << j;
          visible += Sees(p, b, i, j) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(visible, cells / 20);  // neither all hidden
  EXPECT_LT(visible, cells / 2);   // nor all visible
}

}  // namespace
}  // namespace regard::internal
