#include "io/fused_qkv.h"

#include <gtest/gtest.h>

#include "io/problem_test_support.h"

namespace regard::io {
namespace {

TEST(FusedQkvTest, FallsIntoBlocksOfHeads) {
  const Tensor fused = Numbers({2, 3, 16});  // 4 heads of q, 2 of k, 2 of v, dim 2
  const Problem p = ProblemFile().Add("qkv", fused).Load({.num_heads = 4, .num_kv_heads = 2});
  EXPECT_EQ(p.q.shape(), Dims({2, 4, 3, 2}));
  EXPECT_EQ(p.k.shape(), Dims({2, 2, 3, 2}));
  EXPECT_EQ(p.q(1, 3, 2, 1), fused(1, 2, 7));
  EXPECT_EQ(p.k(1, 1, 2, 0), fused(1, 2, 10));
  EXPECT_EQ(p.v(0, 1, 1, 1), fused(0, 1, 15));
  EXPECT_EQ(p.FileShape("context", {2, 4, 3, 2}), Dims({2, 3, 8}));
  EXPECT_EQ(p.reading, "read as batch 2, heads 4 (kv_heads 2), tokens 3, dim 2; not causal; scale 1/√2");
}

TEST(FusedQkvTest, WithoutBatch) {
  const Problem p = ProblemFile().Add("qkv", Numbers({5, 12})).Add("num_heads", Scalar<std::int32_t>(2)).Load();
  EXPECT_EQ(p.v.shape(), Dims({1, 2, 5, 2}));
  EXPECT_EQ(p.FileShape("context", {1, 2, 5, 2}), Dims({2, 5, 2}));
}

TEST(FusedQkvTest, SaysWhatItNeeds) {
  const auto error = [](const Dims& shape, const ProblemOptions& options) {
    try {
      ProblemFile().Add("qkv", Numbers(shape)).Load(options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error({5, 12}, {}), "num_heads: not stated, and qkv needs it to be split; give --num-heads N");
  EXPECT_EQ(error({5, 12}, {.num_heads = 5}),
            "qkv: width 12 does not divide into 5 + 2·5 heads; check --num-heads and --num-kv-heads");
  EXPECT_EQ(error({2, 2, 5, 12}, {.num_heads = 2}),
            "qkv: shape 2×2×5×12 has 4 axes; give [tokens, width] or [batch, tokens, width]");
  EXPECT_EQ(error({5, 12}, {.layout = Layout::kHsd, .num_heads = 2}),
            "--layout: hsd, but qkv is [tokens, width] or [batch, tokens, width]; leave it out");
}

TEST(FusedQkvTest, GivesWayToQAndKAndV) {
  const Problem p = ProblemFile().AddQkv().Add("qkv", Numbers({4, 9})).Load();
  EXPECT_EQ(p.notes, (std::vector<std::string>{"qkv: not used, since q, k or v are given"}));
}

}  // namespace
}  // namespace regard::io
