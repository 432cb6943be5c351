#include "regard/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "regard/error.h"
#include "tests/support/expect_error.h"

namespace regard {
namespace {

using test::ExpectError;

constexpr float kCount[24] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};

TEST(Dims, KeepsAFewNumbers) {
  const Dims dims = {2, 3, 4};
  EXPECT_EQ(dims.size(), 3);
  EXPECT_EQ(dims[1], 3);
  EXPECT_TRUE(dims == (Dims{2, 3, 4}));
  EXPECT_FALSE(dims == (Dims{2, 3}));
  EXPECT_EQ(ToString(dims), "2×3×4");
  EXPECT_EQ(ToString({}), "scalar");
  EXPECT_EQ(ContiguousStrides(dims), (Dims{12, 4, 1}));
  ExpectError([] { Dims({1, 1, 1, 1, 1, 1, 1, 1, 1}); }, ErrorCode::kUnsupported, "8 axes");
}

TEST(Dims, CountsElementsWithoutOverflow) {
  EXPECT_EQ(NumElements({}), 1);
  EXPECT_EQ(NumElements({5, 0, 7}), 0);
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_EQ(NumElements({kHuge, 0, kHuge}), 0);  // no overflow on the way to zero
  ExpectError([&] { NumElements({kHuge, 2}); }, ErrorCode::kInvalidArgument, "2^63");
  ExpectError([&] { NumElements({3, -1}); }, ErrorCode::kInvalidArgument, "-1");
}

TEST(TensorView, SaysWhetherItWasGiven) {
  EXPECT_FALSE(TensorView());
  EXPECT_TRUE(TensorView(nullptr, DType::kF32, {0, 3}));  // given, without elements
  EXPECT_FALSE(Tensor());
  EXPECT_TRUE(Tensor(DType::kF32, {0}));
}

TEST(TensorView, LooksAtStridedMemory) {
  const TensorView view = View(kCount, {2, 3, 4});
  EXPECT_EQ(view(1, 2, 3), 23);
  EXPECT_TRUE(view.IsContiguous());
  const TensorView swapped = view.Transpose(0, -1);
  EXPECT_EQ(swapped.shape(), (Dims{4, 3, 2}));
  EXPECT_EQ(swapped(3, 2, 1), 23);
  EXPECT_FALSE(swapped.IsContiguous());
  const TensorView slice = view.Slice(1, 1, 3);
  EXPECT_EQ(slice.shape(), (Dims{2, 2, 4}));
  EXPECT_EQ(slice(1, 0, 0), 16);
  const TensorView row = view.Select(-2, 2);
  EXPECT_EQ(row.shape(), (Dims{2, 4}));
  EXPECT_EQ(row(1, 1), 21);
  EXPECT_EQ(view.Unsqueeze(0).shape(), (Dims{1, 2, 3, 4}));
  EXPECT_EQ(view.Unsqueeze(-1).shape(), (Dims{2, 3, 4, 1}));
  EXPECT_EQ(view.Unsqueeze(1)(1, 0, 2, 3), 23);
  EXPECT_EQ(view.Reshape({6, 4})(5, 3), 23);
  EXPECT_EQ(View(kCount + 3, {4}, {-1})(3), 0);          // backwards
  EXPECT_EQ(View(kCount + 5, {2, 3}, {0, 0})(1, 2), 5);  // repeated
}

TEST(TensorView, ContiguousIgnoresAxesOfLengthOne) {
  EXPECT_TRUE(View(kCount, {3, 1, 4}, {4, 99, 1}).IsContiguous());
  EXPECT_FALSE(View(kCount, {3, 4}, {5, 1}).IsContiguous());
  EXPECT_TRUE(TensorView(nullptr, DType::kF32, {0, 4}, {9, 9}).IsContiguous());
}

TEST(TensorView, RefusesWhatDoesNotFit) {
  const TensorView view = View(kCount, {2, 3, 4});
  ExpectError([&] { view(2, 0, 0); }, ErrorCode::kInvalidArgument, "index: 2");
  ExpectError([&] { view(-1, 0, 0); }, ErrorCode::kInvalidArgument, "index: -1");
  ExpectError([&] { view(0, 0); }, ErrorCode::kInvalidArgument, "index: 2 numbers");
  ExpectError([&] { view.dim(3); }, ErrorCode::kInvalidArgument, "axis: 3");
  ExpectError([&] { view.stride(-4); }, ErrorCode::kInvalidArgument, "axis: -4");
  ExpectError([&] { view.Slice(0, 1, 3); }, ErrorCode::kInvalidArgument, "[1, 3)");
  ExpectError([&] { view.Slice(0, 2, 1); }, ErrorCode::kInvalidArgument, "[2, 1)");
  ExpectError([&] { view.Select(0, 2); }, ErrorCode::kInvalidArgument, "slice");
  ExpectError([&] { view.Unsqueeze(5); }, ErrorCode::kInvalidArgument, "axis: 5");
  ExpectError([&] { view.Reshape({5, 5}); }, ErrorCode::kShapeMismatch, "2×3×4 to 5×5");
  ExpectError([&] { view.Transpose(0, 1).Reshape({24}); }, ErrorCode::kShapeMismatch, "not contiguous");
  ExpectError([&] { view.As<double>(); }, ErrorCode::kInvalidArgument, "f32, asked for as f64");
  ExpectError([] { TensorView(nullptr, DType::kF32, {1}); }, ErrorCode::kInvalidArgument, "null pointer");
  ExpectError([] { View(kCount, {2, 2}, {1}); }, ErrorCode::kShapeMismatch, "strides: 1");
}

TEST(Tensor, OwnsZeroedAlignedMemory) {
  const Tensor tensor(DType::kF32, {3, 5});
  for (int i = 0; i < 15; ++i) EXPECT_EQ(tensor.As<float>()[i], 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.As<float>()) % 64, 0u);
  const Tensor large = Tensor::Uninitialized(DType::kU8, {std::int64_t{5} << 20});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.view().data()) % (1u << 21), 0u);
}

TEST(Tensor, CopiesElementsAndMovesMemory) {
  Tensor a = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  Tensor b = a;
  b.MutableAs<float>()[0] = 9;
  EXPECT_EQ(a(0, 0), 1);
  const float* const memory = b.As<float>();
  const Tensor c = std::move(b);
  EXPECT_EQ(c.As<float>(), memory);
  EXPECT_FALSE(b);  // NOLINT: a moved-from tensor is no tensor
  a = c;
  EXPECT_EQ(a(0, 0), 9);
  const Tensor& self = a;
  a = self;
  EXPECT_EQ(a(0, 0), 9);
  EXPECT_FALSE(Tensor(Tensor()));
}

TEST(Tensor, CopyOfViewsOfAnyLayoutAndType) {
  const TensorView view = View(kCount, {2, 3, 4}).Transpose(0, 2);
  const Tensor copy = Tensor::CopyOf(view);
  EXPECT_TRUE(copy.view().IsContiguous());
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 3; ++b) {
      for (int c = 0; c < 2; ++c) EXPECT_EQ(copy(a, b, c), view(a, b, c));
    }
  }
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor converted = Tensor::CopyOf(view, dtype);
    EXPECT_EQ(converted.dtype(), dtype);
    EXPECT_EQ(converted(3, 2, 1), 23);
    EXPECT_EQ(Tensor::CopyOf(converted, DType::kF32)(3, 2, 1), 23);
  }
  const std::int32_t integers[] = {-3, 7};
  EXPECT_EQ(Tensor::CopyOf(View(integers, {2}), DType::kF32)(0), -3);
  EXPECT_EQ(Tensor::CopyOf(View(integers, {2}).Slice(0, 1, 2))(0), 7);
  EXPECT_EQ(Tensor::CopyOf(TensorView(kCount + 4, DType::kF32, {}))(), 4);  // a scalar
  ExpectError([&] { Tensor::CopyOf(view, DType::kI32); }, ErrorCode::kInvalidArgument, "f32 to i32");
}

TEST(Tensor, RefusesWhatCannotBe) {
  ExpectError([] { Tensor::Of<float>({2, 2}, {1, 2, 3}); }, ErrorCode::kShapeMismatch, "values: 3");
  ExpectError([] { Tensor(DType::kF64, {std::int64_t{1} << 61}); }, ErrorCode::kInvalidArgument, "bytes");
#if !defined(__SANITIZE_ADDRESS__)  // whose allocator ends the program instead of refusing
  ExpectError([] { Tensor(DType::kU8, {(std::int64_t{1} << 62)}); }, ErrorCode::kOutOfMemory, "bytes");
#endif
}

}  // namespace
}  // namespace regard
