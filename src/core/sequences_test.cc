#include "core/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace regard::internal {
namespace {

std::vector<Sequence> SequencesOf(const std::vector<std::int64_t>& q_segments, const std::vector<std::int64_t>& kv_segments) {
  Problem problem;
  problem.batch = 1;
  problem.q_len = static_cast<std::int64_t>(q_segments.size());
  problem.kv_len = static_cast<std::int64_t>(kv_segments.size());
  problem.q_segments = {q_segments.data(), DType::kI64, {problem.q_len, 0, 0, 1}};
  problem.kv_segments = {kv_segments.data(), DType::kI64, {problem.kv_len, 0, 0, 1}};
  std::vector<Sequence> sequences;
  Sequence s;
  for (SequenceWalk walk(problem, 0); walk.Next(&s);) sequences.push_back(s);
  return sequences;
}

void ExpectSequence(const Sequence& s, std::int64_t first_query, std::int64_t q_len, std::int64_t first_key,
                    std::int64_t kv_len) {
  EXPECT_EQ(s.first_query, first_query);
  EXPECT_EQ(s.q_len, q_len);
  EXPECT_EQ(s.first_key, first_key);
  EXPECT_EQ(s.kv_len, kv_len);
}

TEST(Sequences, WithoutSegmentsABatchEntryIsOne) {
  Problem problem;
  problem.batch = 2;
  problem.q_len = 3;
  problem.kv_len = 5;
  Sequence s;
  SequenceWalk walk(problem, 1);
  ASSERT_TRUE(walk.Next(&s));
  EXPECT_EQ(s.batch, 1);
  ExpectSequence(s, 0, 3, 0, 5);
  EXPECT_FALSE(walk.Next(&s));
}

TEST(Sequences, SegmentsInAnyOrderAndPadding) {
  const auto s = SequencesOf({7, 7, 3, -1, 9, 9}, {3, 3, 3, -1, 7, 7, 5});
  ASSERT_EQ(s.size(), 6u);
  ExpectSequence(s[0], 0, 2, 4, 2);
  ExpectSequence(s[1], 2, 1, 0, 3);
  ExpectSequence(s[2], 3, 1, 0, 0);  // padding
  ExpectSequence(s[3], 4, 2, 0, 0);  // no keys of that number
  ExpectSequence(s[4], 6, 0, 3, 1);  // padding
  ExpectSequence(s[5], 6, 0, 6, 1);  // no queries of that number
}

TEST(Sequences, EveryTokenIsInOne) {
  std::mt19937_64 bits(20240611);
  const auto draw = [&bits](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  };
  const auto runs = [&](std::int64_t length) {
    std::vector<std::int64_t> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, segments;
    std::shuffle(numbers.begin(), numbers.end(), bits);
    for (std::size_t run = 0; static_cast<std::int64_t>(segments.size()) < length; ++run) {
      segments.insert(segments.end(), static_cast<std::size_t>(draw(1, 3)), numbers[run] < 8 ? numbers[run] : -1);
      if (run + 1 == numbers.size()) break;
    }
    return segments;
  };
  for (int trial = 0; trial < 2000; ++trial) {
    const auto q = runs(draw(1, 12)), kv = runs(draw(1, 12));
    std::vector<int> queries(q.size()), keys(kv.size());
    for (const Sequence& s : SequencesOf(q, kv)) {
      EXPECT_TRUE(s.q_len > 0 || s.kv_len > 0);
      for (std::int64_t i = s.first_query; i < s.first_query + s.q_len; ++i) ++queries[static_cast<std::size_t>(i)];
      for (std::int64_t j = s.first_key; j < s.first_key + s.kv_len; ++j) ++keys[static_cast<std::size_t>(j)];
      if (s.q_len > 0 && s.kv_len > 0) {
        EXPECT_EQ(q[static_cast<std::size_t>(s.first_query)], kv[static_cast<std::size_t>(s.first_key)]);
      }
    }
    ASSERT_EQ(queries, std::vector<int>(q.size(), 1)) << "trial " << trial;
    ASSERT_EQ(keys, std::vector<int>(kv.size(), 1)) << "trial " << trial;
  }
}

}  // namespace
}  // namespace regard::internal
