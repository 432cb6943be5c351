#include "regard/projections.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "regard/attention.h"
#include "regard/error.h"
#include "regard/stages.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace regard {
namespace {

using test::ExpectError;
using test::Numbers;

// x·wᵀ + b for one output number, in double.
double Affine(const TensorView& x, std::int64_t b, std::int64_t t, const TensorView& w, const TensorView& bias,
              std::int64_t out) {
  double sum = bias ? bias(out) : 0;
  for (std::int64_t d = 0; d < w.dim(1); ++d) sum += x(b, t, d) * w(out, d);
  return sum;
}

TEST(Projections, LeftOutTheyAreTheIdentity) {
  for (DType type : {DType::kF32, DType::kF64}) {
    const Tensor x = Numbers(type, {5, 3}, 1);
    const Projected p = Project(x, {});
    for (const Tensor* tensor : {&p.q, &p.k, &p.v}) {
      ASSERT_EQ(tensor->shape(), (Dims{1, 1, 5, 3}));
      EXPECT_EQ(tensor->dtype(), type);
      for (int t = 0; t < 5; ++t) {
        for (int d = 0; d < 3; ++d) EXPECT_EQ((*tensor)(0, 0, t, d), x(t, d));
      }
    }
  }
}

TEST(Projections, SimplifiedAttentionIsIdentityProjectionsWithScaleOne) {
  const Tensor x = Numbers(DType::kF32, {7, 3}, 2);
  const Projected p = Project(x, {});
  for (Path path : {Path::kReference, Path::kStaged}) {
    AttentionParams params;
    params.scale = 1;
    ExecOptions exec;
    exec.path = path;
    const Stages simplified = ComputeStages(x, x, x, params, exec), trained = ComputeStages(p.q, p.k, p.v, params, exec);
    for (int i = 0; i < 7; ++i) {
      for (int j = 0; j < 7; ++j) {
        EXPECT_EQ(simplified.scores(i, j), trained.scores(0, 0, i, j));
        EXPECT_EQ(simplified.weights(i, j), trained.weights(0, 0, i, j));
      }
      for (int d = 0; d < 3; ++d) EXPECT_EQ(simplified.context(i, d), trained.context(0, 0, i, d));
    }
  }
  // Explicit identity matrices give the same again.
  const Tensor identity = Tensor::Of<float>({3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  Projections explicit_identity;
  explicit_identity.w_query = explicit_identity.w_key = explicit_identity.w_value = identity;
  const Projected e = Project(x, explicit_identity);
  for (int t = 0; t < 7; ++t) {
    for (int d = 0; d < 3; ++d) EXPECT_EQ(e.q(0, 0, t, d), x(t, d));
  }
}

TEST(Projections, FollowIndependentLoops) {
  constexpr std::int64_t kBatch = 2, kTokens = 5, kIn = 6, kHeads = 4, kKvHeads = 2, kHeadDim = 3, kVDim = 2, kOut = 7;
  for (DType type : {DType::kF32, DType::kF64, DType::kBF16}) {
    const double tolerance =
        type == DType::kF64 ? 30 * 0x1p-53 * 6.8 * kIn : 8 * 0x1p-24 * 6.8 * kIn;  // γ(in + 2) of products below 6.8
    const Tensor x = Numbers(type, {kBatch, kTokens, kIn}, 1), wq = Numbers(type, {kHeads * kHeadDim, kIn}, 2),
                 wk = Numbers(type, {kIn, kKvHeads * kHeadDim}, 3), wv = Numbers(type, {kKvHeads * kVDim, kIn}, 4),
                 wo = Numbers(type, {kOut, kHeads * kVDim}, 5), bq = Numbers(type, {kHeads * kHeadDim}, 6),
                 bk = Numbers(type, {kKvHeads * kHeadDim}, 7), bo = Numbers(type, {kOut}, 8);
    Projections projections;
    projections.w_query = wq;
    projections.w_key = wk.view().Transpose(0, 1);  // stored [in, out]
    projections.w_value = wv;
    projections.w_out = wo;
    projections.b_query = bq;
    projections.b_key = bk;
    projections.b_out = bo;
    projections.num_heads = kHeads;
    projections.num_kv_heads = kKvHeads;
    const Projected p = Project(x, projections);
    ASSERT_EQ(p.q.shape(), (Dims{kBatch, kHeads, kTokens, kHeadDim}));
    ASSERT_EQ(p.k.shape(), (Dims{kBatch, kKvHeads, kTokens, kHeadDim}));
    ASSERT_EQ(p.v.shape(), (Dims{kBatch, kKvHeads, kTokens, kVDim}));
    EXPECT_EQ(p.q.dtype(), type == DType::kF64 ? DType::kF64 : DType::kF32);
    const TensorView xv = x;
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t t = 0; t < kTokens; ++t) {
        for (std::int64_t n = 0; n < kHeads * kHeadDim; ++n) {
          ASSERT_NEAR(p.q(b, n / kHeadDim, t, n % kHeadDim), Affine(xv, b, t, wq, bq, n), tolerance);
        }
        for (std::int64_t n = 0; n < kKvHeads * kHeadDim; ++n) {
          ASSERT_NEAR(p.k(b, n / kHeadDim, t, n % kHeadDim), Affine(xv, b, t, projections.w_key, bk, n), tolerance);
        }
        for (std::int64_t n = 0; n < kKvHeads * kVDim; ++n) {
          ASSERT_NEAR(p.v(b, n / kVDim, t, n % kVDim), Affine(xv, b, t, wv, {}, n), tolerance);
        }
      }
    }
    const Tensor context = Numbers(type, {kBatch, kHeads, kTokens, kVDim}, 9), y = ProjectContext(context, projections);
    ASSERT_EQ(y.shape(), (Dims{kBatch, kTokens, kOut}));
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t t = 0; t < kTokens; ++t) {
        for (std::int64_t n = 0; n < kOut; ++n) {
          double sum = bo(n);
          for (std::int64_t m = 0; m < kHeads * kVDim; ++m) sum += context(b, m / kVDim, t, m % kVDim) * wo(n, m);
          ASSERT_NEAR(y(b, t, n), sum, 2 * tolerance);
        }
      }
    }
  }
}

TEST(Projections, WithoutWOutHeadsAreOnlyMerged) {
  const Tensor context = Numbers(DType::kF32, {2, 3, 4, 5}, 1), y = ProjectContext(context, {});
  ASSERT_EQ(y.shape(), (Dims{2, 4, 15}));
  EXPECT_EQ(y(1, 3, 7), context(1, 1, 3, 2));
}

TEST(Projections, RefuseWhatDoesNotFit) {
  const Tensor x = Numbers(DType::kF32, {5, 6}, 1), square = Numbers(DType::kF32, {6, 6}, 2),
               wide = Numbers(DType::kF32, {6, 8}, 3), row = Numbers(DType::kF32, {6}, 4), integers(DType::kI8, {6, 6});
  const auto with = [&](auto set) {
    Projections p;
    set(p);
    Project(x, p);
  };
  ExpectError([&] { Project({}, {}); }, ErrorCode::kInvalidArgument, "inputs: missing");
  ExpectError([&] { Project(row, {}); }, ErrorCode::kShapeMismatch, "inputs: shape 6;");
  ExpectError([&] { Project(integers, {}); }, ErrorCode::kInvalidArgument, "inputs: element type i8");
  ExpectError([&] { with([&](Projections& p) { p.w_query = wide; }); }, ErrorCode::kShapeMismatch,
              "w_query: shape 6×8, expected [out, in] with in=6; transpose it");
  ExpectError([&] { with([&](Projections& p) { p.w_key = wide.view().Transpose(0, 1).Slice(1, 0, 5); }); },
              ErrorCode::kShapeMismatch, "w_key: ");
  ExpectError([&] { with([&](Projections& p) { p.w_value = row; }); }, ErrorCode::kShapeMismatch,
              "w_value: shape 6; give [out, in], rank 2");
  ExpectError([&] { with([&](Projections& p) { p.w_query = integers; }); }, ErrorCode::kInvalidArgument,
              "w_query: element type i8");
  ExpectError([&] { with([&](Projections& p) { p.b_key = row; }); }, ErrorCode::kInvalidArgument, "b_key: given without w_key");
  ExpectError([&] { with([&](Projections& p) { p.w_key = square, p.b_key = square; }); }, ErrorCode::kShapeMismatch,
              "b_key: shape 6×6");
  ExpectError([&] { with([&](Projections& p) { p.num_heads = 0; }); }, ErrorCode::kInvalidArgument, "num_heads: 0");
  ExpectError([&] { with([&](Projections& p) { p.num_heads = 4; }); }, ErrorCode::kShapeMismatch,
              "do not divide into num_heads=4");
  ExpectError([&] { with([&](Projections& p) { p.num_heads = 3, p.num_kv_heads = 2; }); }, ErrorCode::kInvalidArgument,
              "num_kv_heads: 2");
  ExpectError([&] { with([&](Projections& p) { p.num_heads = 2, p.num_kv_heads = 1; }); }, ErrorCode::kShapeMismatch,
              "w_key: head_dim=6");
  ExpectError([&] { ProjectContext(x, {}); }, ErrorCode::kShapeMismatch, "context: shape 5×6");
}

}  // namespace
}  // namespace regard
