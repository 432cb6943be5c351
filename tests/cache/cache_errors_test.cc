// Every refusal of a cache: its code, its words, and that nothing has changed.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "regard/kv_cache.h"
#include "regard/summary.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace regard::test {
namespace {

using enum ErrorCode;

class KvCacheErrors : public testing::Test {
 protected:
  KvCache cache_{{.kv_heads = 2, .head_dim = 3, .v_dim = 5, .page_len = 16, .max_bytes = 3 * 2 * 16 * 8 * sizeof(float)}};
  SequenceId id_ = cache_.NewSequence();
  Tensor k_ = Numbers(DType::kF32, {1, 2, 4, 3}, 1), v_ = Numbers(DType::kF32, {1, 2, 4, 5}, 2);
  Tensor q_ = Numbers(DType::kF32, {1, 4, 2, 3}, 3);
};

TEST(KvCacheOptions, AreChecked) {
  const auto expect = [](const KvCacheOptions& options, ErrorCode code, const char* part) {
    ExpectError([&] { KvCache cache(options); }, code, part);
  };
  expect({}, kInvalidArgument, "head_dim: 0; give 1 or more");
  expect({.kv_heads = 0, .head_dim = 4}, kInvalidArgument, "kv_heads: 0; give 1 or more");
  expect({.head_dim = 4, .v_dim = -1}, kInvalidArgument, "v_dim: -1; give 0 or more");
  expect({.head_dim = 4, .page_len = -16}, kInvalidArgument, "page_len: -16; give 0 or more");
  expect({.head_dim = 4, .k_dtype = DType::kF64}, kUnsupported, "k_dtype: a cache stores no f64; use f32, f16, bf16 or i8");
  expect({.head_dim = 4, .v_dtype = DType::kU8}, kUnsupported, "v_dtype: a cache stores no u8; use f32, f16, bf16 or i8");
  expect({.head_dim = 4, .page_len = 16, .max_bytes = 511}, kInvalidArgument,
         "max_bytes: 511 is less than one page of 512 bytes; give more, or a smaller page_len");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const KvCacheOptions& huge : {KvCacheOptions{.kv_heads = kMost, .head_dim = 4}, KvCacheOptions{.head_dim = kMost},
                                     KvCacheOptions{.head_dim = 4, .page_len = kMost},
                                     KvCacheOptions{.head_dim = kMost, .k_dtype = DType::kI8, .v_dtype = DType::kI8}}) {
    expect(huge, kOutOfMemory, "need more than 2^48 bytes; give a smaller one");
  }
}

TEST(KvCacheOptions, PageLenInForce) {
  const auto page_len = [](const KvCacheOptions& options) { return KvCache(options).options().page_len; };
  EXPECT_EQ(page_len({.head_dim = 128}), 128);  // 512 bytes a row, 64 KB a run
  EXPECT_EQ(page_len({.head_dim = 128, .k_dtype = DType::kBF16}), 256);
  EXPECT_EQ(page_len({.head_dim = 128, .v_dim = 64, .v_dtype = DType::kI8}), 1024);
  EXPECT_EQ(page_len({.head_dim = 1 << 20}), 16);
  EXPECT_EQ(page_len({.head_dim = 128, .page_len = 1}), 16);
  EXPECT_EQ(page_len({.head_dim = 128, .page_len = 33}), 48);
}

TEST_F(KvCacheErrors, MemoryIsAsStated) {
  EXPECT_EQ(cache_.Memory().page_bytes, 2 * 16 * 8 * sizeof(float));
  EXPECT_EQ(cache_.Memory().bytes_reserved, 0u);
  cache_.Append(id_, k_, v_);
  EXPECT_EQ(cache_.Memory().pages_in_use, 1);
  EXPECT_EQ(KvCache({.kv_heads = 3, .head_dim = 64, .v_dim = 32, .k_dtype = DType::kI8, .v_dtype = DType::kF16, .page_len = 32})
                .Memory()
                .page_bytes,
            3u * 32 * (64 + 4 + 64));
}

TEST_F(KvCacheErrors, SequencesThatAreNotThere) {
  const SequenceId dropped = cache_.NewSequence();
  cache_.Drop(dropped);
  const SequenceId again = cache_.NewSequence();  // in the same place
  EXPECT_NE(again, dropped);
  for (const SequenceId bad : {SequenceId{}, dropped, SequenceId{~std::uint64_t{0}}}) {
    const char* const part = "sequence: not in this cache; give an id that NewSequence or Fork returned";
    ExpectError([&] { cache_.Drop(bad); }, kInvalidArgument, part);
    ExpectError([&] { cache_.Fork(bad); }, kInvalidArgument, part);
    ExpectError([&] { cache_.Append(bad, k_, v_); }, kInvalidArgument, part);
    ExpectError([&] { cache_.Truncate(bad, 0); }, kInvalidArgument, part);
    ExpectError([&] { cache_.Evict(bad, 0, 0); }, kInvalidArgument, part);
    ExpectError([&] { cache_.Length(bad); }, kInvalidArgument, part);
    ExpectError([&] { cache_.Keys(bad); }, kInvalidArgument, part);
    ExpectError([&] { Attention(q_, cache_, {&bad, 1}); }, kInvalidArgument, part);
    const Plan plan(PlanShape::Of(q_, cache_, {&id_, 1}), {});
    Workspace workspace = plan.MakeWorkspace();
    const Status status = plan.Run({.q = q_, .cache = &cache_, .sequences = {&bad, 1}}, {}, workspace);
    EXPECT_EQ(status.code(), kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("sequences[0] is not in the cache; give"), std::string::npos)
        << status.message();
  }
}

TEST_F(KvCacheErrors, WhatIsAppended) {
  const auto expect = [&](const TensorView& k, const TensorView& v, ErrorCode code, const char* part) {
    ExpectError([&] { cache_.Append(id_, k, v); }, code, part);
    EXPECT_EQ(cache_.Length(id_), 0);
  };
  expect({}, v_, kShapeMismatch, "k: missing; give [sequences, kv_heads, tokens, dim]");
  expect(k_, {}, kShapeMismatch, "v: missing; give [sequences, kv_heads, tokens, dim]");
  expect(k_, k_, kShapeMismatch, "v: shape 1×2×4×3, expected [1 sequences, 2 kv heads, tokens, dim 5]; check the axis order");
  expect(k_.view().Select(0, 0), v_, kShapeMismatch, "k: shape 2×4×3; give [sequences, kv_heads, tokens, dim]");
  expect(k_.view().Slice(2, 0, 3), v_, kShapeMismatch, "v: 4 tokens, but k has 3; give both alike");
  expect(Tensor(DType::kI8, {1, 2, 4, 3}), v_, kInvalidArgument, "k: element type i8 is not a float type; give f32");
  const SequenceId twice[] = {id_, id_};
  const Tensor k = Numbers(DType::kF32, {2, 2, 4, 3}, 1), v = Numbers(DType::kF32, {2, 2, 4, 5}, 2);
  ExpectError([&] { cache_.Append(twice, k, v); }, kInvalidArgument, "sequences: one stands in the list twice");
  cache_.Append(std::span<const SequenceId>(), k.view().Slice(0, 0, 0), v.view().Slice(0, 0, 0));  // nothing to nobody
  cache_.Append(id_, k_.view().Slice(2, 0, 0), v_.view().Slice(2, 0, 0));
  EXPECT_EQ(cache_.Memory().pages_in_use, 0);
}

TEST_F(KvCacheErrors, MemoryIsRefusedBeforeAnythingChanges) {
  const Tensor k = Numbers(DType::kF32, {1, 2, 40, 3}, 1), v = Numbers(DType::kF32, {1, 2, 40, 5}, 2);
  cache_.Append(id_, k, v);  // all three pages
  const SequenceId fork = cache_.Fork(id_);
  const char* const part =
      "append: 4 tokens to 1 sequences needs 1 more pages of 1024 bytes, but 3 of 3 are in use; evict, truncate or drop "
      "sequences, or "
      "give a larger max_bytes";
  ExpectError([&] { cache_.Append(fork, k_, v_); }, kOutOfMemory, part);
  ExpectError([&] { cache_.Evict(fork, 1, 1); }, kOutOfMemory, "evict: copying what other sequences share needs 3 more pages");
  EXPECT_EQ(cache_.Length(fork), 40);
  EXPECT_EQ(cache_.NextPosition(fork), 40);
  EXPECT_EQ(cache_.Memory().pages_in_use, 3);
  cache_.Evict(fork, 0, 16);  // a whole page moves nothing
  EXPECT_EQ(cache_.Length(fork), 24);
  cache_.Drop(fork);
  cache_.Append(id_, k_, v_);
  EXPECT_EQ(cache_.Length(id_), 44);
  ExpectError([&] { cache_.Append(id_, k, v); }, kOutOfMemory, "append: 40 tokens to 1 sequences needs 3 more pages");
}

// One of two that share a page copies it; the other then has it for itself.
TEST_F(KvCacheErrors, TwoWritersOfASharedPageNeedOneCopy) {
  cache_.Append(id_, k_, v_);
  const SequenceId both[] = {id_, cache_.Fork(id_)};
  const Tensor k = Numbers(DType::kF32, {2, 2, 1, 3}, 4), v = Numbers(DType::kF32, {2, 2, 1, 5}, 5);
  cache_.Append(both, k, v);
  EXPECT_EQ(cache_.Memory().pages_in_use, 2);
  EXPECT_EQ(cache_.Keys(both[0])(0, 1, 4, 2), k(0, 1, 0, 2));
  EXPECT_EQ(cache_.Keys(both[1])(0, 1, 4, 2), k(1, 1, 0, 2));
}

TEST_F(KvCacheErrors, RangesOfTokens) {
  cache_.Append(id_, k_, v_);
  ExpectError([&] { cache_.Truncate(id_, 5); }, kInvalidArgument, "length: 5 is outside 0…4");
  ExpectError([&] { cache_.Truncate(id_, -1); }, kInvalidArgument, "length: -1 is outside 0…4");
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 5},
                                     {4, 1},
                                     {-1, 2},
                                     {0, -1},
                                     {5, 0},
                                     {2, std::numeric_limits<std::int64_t>::max()}}) {
    ExpectError([&, f = first, c = count] { cache_.Evict(id_, f, c); }, kInvalidArgument,
                "are not among the 4 that are kept; give");
  }
  EXPECT_EQ(cache_.Length(id_), 4);
}

TEST_F(KvCacheErrors, WhatARunReads) {
  cache_.Append(id_, k_, v_);
  const auto expect = [&](Inputs inputs, const PlanShape& shape, const AttentionParams& params, ErrorCode code,
                          const char* part) {
    const Plan plan(shape, params, {.path = Path::kReference});
    Workspace workspace = plan.MakeWorkspace();
    ExpectError([&] { plan.Run(inputs, {}, workspace).ThrowIfFailed(); }, code, part);
  };
  const PlanShape shape = PlanShape::Of(q_, cache_, {&id_, 1});
  EXPECT_EQ(shape.kv_len, 4);
  EXPECT_EQ(shape.v_dim, 5);
  const Inputs good{.q = q_, .cache = &cache_, .sequences = {&id_, 1}};
  Inputs bad = good;
  bad.k = k_;
  expect(bad, shape, {}, kInvalidArgument, "k: given beside a cache; leave it out, or the cache");
  bad = good;
  bad.cache = nullptr;
  expect(bad, shape, {}, kInvalidArgument, "sequences: given without a cache; give cache too");
  bad = good;
  bad.sequences = {};
  expect(bad, shape, {}, kShapeMismatch, "sequences: size=0, expected q's batch=1; check");
  PlanShape other = shape;
  other.k_dtype = DType::kBF16;
  expect(good, other, {}, kInvalidArgument,
         "cache: holds k as f32, but the plan was made for bf16; make a plan with k_dtype = f32");
  other = shape;
  other.kv_len = 3;
  expect(good, other, {}, kShapeMismatch, "k: kv_len=4 exceeds the plan's 3; make a plan with a larger kv_len");
  const Tensor lens = Tensor::Of<std::int32_t>({1}, {3}), q_segments = Tensor::Of<std::int32_t>({2}, {0, 0}),
               kv_segments = Tensor::Of<std::int32_t>({4}, {0, 0, 0, 0});
  expect(good, shape, {.kv_lens = lens}, kUnsupported, "kv_lens: given with a cache, which knows its lengths; leave it out");
  expect(good, shape, {.q_segments = q_segments, .kv_segments = kv_segments}, kUnsupported, "q_segments: given with a cache");
  const Tensor q = Numbers(DType::kF32, {1, 4, 2, 4}, 3);
  ExpectError([&] { Attention(q, cache_, {&id_, 1}); }, kShapeMismatch, "cache: head_dim=3, expected q's head_dim=4");
  ExpectError([&] { Attention({}, cache_, {&id_, 1}); }, kShapeMismatch, "q: missing; give");
}

}  // namespace
}  // namespace regard::test
