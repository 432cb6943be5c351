#include "regard/stages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "regard/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace regard {
namespace {

using test::ExpectError;
using test::Numbers;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor SixTokens() {
  return Tensor::Of<float>({6, 3}, {0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f, 0.22f, 0.58f, 0.33f, 0.77f,
                                    0.25f, 0.10f, 0.05f, 0.80f, 0.55f});
}

TEST(Stages, TheCourseInFiveCalls) {
  const Tensor x = SixTokens();
  const Tensor s = Scores(x, x, {.scale = 1}), l = ScoresByLoops(x, x, {.scale = 1}), w = Softmax(s, -1), c = Context(w, x),
               c1 = ContextForToken(w, x, 1);
  const double scores[] = {0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865},
               weights[] = {0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581}, context[] = {0.4419, 0.6515, 0.5683},
               row_sums_of_columns[] = {0.922, 1.297, 1.279, 0.797, 0.754, 0.951};
  for (int j = 0; j < 6; ++j) {
    EXPECT_NEAR(s(1, j), scores[j], 0.51e-4);
    EXPECT_NEAR(l(1, j), scores[j], 0.51e-4);
    EXPECT_NEAR(w(1, j), weights[j], 0.51e-4);
  }
  for (int d = 0; d < 3; ++d) {
    EXPECT_NEAR(c(1, d), context[d], 0.51e-4);
    EXPECT_NEAR(c1(d), c(1, d), 3e-7);
  }
  const Tensor columns = Softmax(s, 0);
  for (int i = 0; i < 6; ++i) {
    double row = 0, column = 0;
    for (int j = 0; j < 6; ++j) {
      row += columns(i, j);
      column += columns(j, i);
    }
    EXPECT_NEAR(row, row_sums_of_columns[i], 0.51e-3);
    EXPECT_NEAR(column, 1, 3e-7);
  }
}

TEST(Stages, AnyRankTypeAndLayout) {
  for (DType type : {DType::kF32, DType::kF64}) {
    const double unit = type == DType::kF64 ? 0x1p-53 : 0x1p-24;
    const Tensor q_dense = Numbers(type, {2, 5, 3, 7}, 1), k_dense = Numbers(type, {2, 4, 3, 7}, 2),
                 v = Numbers(type, {2, 3, 4, 6}, 3);
    const TensorView q = q_dense.view().Transpose(1, 2), k = k_dense.view().Transpose(1, 2);  // [2, 3, tokens, 7], heads inside
    const TensorView k_strided = k.Transpose(-1, -2);
    const Tensor k_copy = Tensor::CopyOf(k_strided);
    const Tensor s = Scores(q, k), l = ScoresByLoops(q, k), s2 = Scores(q, k_copy.view().Transpose(-1, -2)), c = Context(s, v);
    EXPECT_EQ(s.dtype(), type);
    ASSERT_EQ(s.shape(), (Dims{2, 3, 5, 4}));
    ASSERT_EQ(c.shape(), (Dims{2, 3, 5, 6}));
    const Tensor c2 = ContextForToken(s, v, 2);
    ASSERT_EQ(c2.shape(), (Dims{2, 3, 6}));
    for (int b = 0; b < 2; ++b) {
      for (int h = 0; h < 3; ++h) {
        for (int i = 0; i < 5; ++i) {
          for (int j = 0; j < 4; ++j) {
            double dot = 0, size = 0;
            for (int d = 0; d < 7; ++d) {
              dot += q(b, h, i, d) * k(b, h, j, d);
              size += std::fabs(q(b, h, i, d) * k(b, h, j, d));
            }
            const double scale = static_cast<double>(static_cast<float>(1 / std::sqrt(7.0))), bound = 10 * unit * size;
            ASSERT_NEAR(s(b, h, i, j), scale * dot, bound);
            ASSERT_NEAR(l(b, h, i, j), scale * dot, bound);
            ASSERT_NEAR(s2(b, h, i, j), scale * dot, bound);
          }
          for (int d = 0; d < 6; ++d) {
            double sum = 0, size = 0;
            for (int j = 0; j < 4; ++j) {
              sum += s(b, h, i, j) * v(b, h, j, d);
              size += std::fabs(s(b, h, i, j) * v(b, h, j, d));
            }
            ASSERT_NEAR(c(b, h, i, d), sum, 5 * unit * size);
            if (i == 2) {
              ASSERT_NEAR(c2(b, h, d), sum, 5 * unit * size);
            }
          }
        }
      }
    }
  }
}

TEST(Stages, MixedTypesGiveF32) {
  const Tensor f16 = Numbers(DType::kF16, {3, 4}, 1), f64 = Numbers(DType::kF64, {3, 4}, 2);
  EXPECT_EQ(Scores(f16, f64).dtype(), DType::kF32);
  EXPECT_EQ(Softmax(f16, 0).dtype(), DType::kF32);
  EXPECT_EQ(Softmax(f64, 0).dtype(), DType::kF64);
  const Tensor wide = Tensor::CopyOf(f16, DType::kF32);
  EXPECT_EQ(Scores(f16, f16)(1, 2), Scores(wide, wide)(1, 2));
}

TEST(Stages, SoftmaxAlongEveryAxis) {
  for (DType type : {DType::kF32, DType::kF64, DType::kBF16}) {
    const Tensor dense = Numbers(type, {3, 5, 4}, 5);
    const TensorView x = dense.view().Transpose(0, 1);  // [5, 3, 4]
    for (int axis = 0; axis < 3; ++axis) {
      const Tensor w = Softmax(x, axis), same = Softmax(x, axis - 3);
      for (int a = 0; a < 5; ++a) {
        for (int b = 0; b < 3; ++b) {
          for (int c = 0; c < 4; ++c) {
            double sum = 0;
            for (int n = 0; n < x.dim(axis); ++n) sum += std::exp(axis == 0 ? x(n, b, c) : axis == 1 ? x(a, n, c) : x(a, b, n));
            ASSERT_NEAR(w(a, b, c), std::exp(x(a, b, c)) / sum, type == DType::kF64 ? 1e-15 : 5e-7);
            ASSERT_EQ(w(a, b, c), same(a, b, c));
          }
        }
      }
    }
  }
}

TEST(Stages, SoftmaxAtTheEdges) {
  const float minus = -std::numeric_limits<float>::infinity();
  const Tensor w = Softmax(Tensor::Of<float>({2, 2}, {minus, minus, 0, minus}), -1);
  EXPECT_EQ(w(0, 0), 0);
  EXPECT_EQ(w(0, 1), 0);
  EXPECT_EQ(w(1, 0), 1);
  const Tensor nan = Softmax(Tensor::Of<float>({2}, {std::numeric_limits<float>::quiet_NaN(), 0}), 0);
  EXPECT_TRUE(std::isnan(nan(0)) && std::isnan(nan(1)));
  EXPECT_EQ(Softmax(Tensor(DType::kF32, {0, 3}), 0).shape(), (Dims{0, 3}));
  EXPECT_EQ(Softmax(Tensor(DType::kF32, {3, 0}), 0).shape(), (Dims{3, 0}));
}

TEST(Stages, EmptyAxes) {
  const Tensor none(DType::kF32, {0, 4}), some = Numbers(DType::kF32, {3, 4}, 1);
  EXPECT_EQ(Scores(none, some).shape(), (Dims{0, 3}));
  EXPECT_EQ(Scores(some, none).shape(), (Dims{3, 0}));
  const Tensor c = Context(Tensor(DType::kF32, {3, 0}), none);
  ASSERT_EQ(c.shape(), (Dims{3, 4}));
  EXPECT_EQ(c(2, 3), 0);
  EXPECT_EQ(Scores(Tensor(DType::kF32, {0, 2, 4}), Tensor(DType::kF32, {0, 3, 4})).shape(), (Dims{0, 2, 3}));
}

TEST(Stages, NonFiniteValuesPropagate) {
  Tensor v = Numbers(DType::kF32, {2, 2}, 1);
  v.MutableAs<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const Tensor c = Context(Tensor::Of<float>({1, 2}, {0, 1}), v);
  EXPECT_TRUE(std::isnan(c(0, 0)));
  EXPECT_EQ(c(0, 1), v(1, 1));
}

TEST(Stages, RefuseWhatDoesNotFit) {
  const Tensor a = Numbers(DType::kF32, {3, 4}, 1), b = Numbers(DType::kF32, {3, 5}, 2),
               rank3 = Numbers(DType::kF32, {2, 3, 4}, 3), other3 = Numbers(DType::kF32, {1, 3, 4}, 3),
               row = Numbers(DType::kF32, {4}, 4), integers(DType::kI32, {3, 4});
  ExpectError([&] { Scores(a, b); }, ErrorCode::kShapeMismatch, "k: dim=5, expected q's dim=4");
  ExpectError([&] { Scores(a, rank3); }, ErrorCode::kShapeMismatch, "k: shape 2×3×4 does not match q's 3×4");
  ExpectError([&] { ScoresByLoops(rank3, other3); }, ErrorCode::kShapeMismatch, "k: shape 1×3×4 does not match q's 2×3×4");
  ExpectError([&] { Scores(row, a); }, ErrorCode::kShapeMismatch, "q: shape 4 has 1 axis;");
  ExpectError([&] { Scores(integers, a); }, ErrorCode::kInvalidArgument, "q: element type i32");
  ExpectError([&] { Scores({}, a); }, ErrorCode::kInvalidArgument, "q: missing");
  for (float scale : {0.0f, static_cast<float>(kInfinity), std::numeric_limits<float>::quiet_NaN()}) {
    ExpectError([&] { Scores(a, a, {.scale = scale}); }, ErrorCode::kInvalidArgument, "scale: ");
  }
  ExpectError([&] { Softmax(a, 2); }, ErrorCode::kInvalidArgument, "dim: 2 of a tensor of shape 3×4; use -2…1");
  ExpectError([&] { Softmax(a, -3); }, ErrorCode::kInvalidArgument, "dim: -3");
  ExpectError([&] { Context(a, b); }, ErrorCode::kShapeMismatch, "v: kv_len=3, expected weights' last axis=4");
  ExpectError([&] { ContextForToken(Tensor(DType::kF32, {2, 3}), a, 2); }, ErrorCode::kInvalidArgument, "token: 2 of 2");
  ExpectError([&] { ContextForToken(Tensor(DType::kF32, {2, 3}), a, -1); }, ErrorCode::kInvalidArgument, "token: -1");
}

}  // namespace
}  // namespace regard
