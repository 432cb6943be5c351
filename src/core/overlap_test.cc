#include "core/overlap.h"

#include <gtest/gtest.h>

#include <string>

namespace regard::internal {
namespace {

// Two heads, three queries, three keys, dim 4: every tensor a part of one block, apart from the others.
class OverlapTest : public testing::Test {
 protected:
  static constexpr std::int64_t kOperand = 2 * 3 * 4;
  Tensor memory_{DType::kF32, {6 * kOperand}};
  float* const base_ = memory_.MutableAs<float>();

  MutableTensorView Operand(std::int64_t at) const { return MutableView(base_ + at, {1, 2, 3, 4}); }
  MutableTensorView Lse(std::int64_t at) const { return MutableView(base_ + at, {1, 2, 3}); }

  AttentionParams params_;
  Inputs inputs_{Operand(0), Operand(kOperand), Operand(2 * kOperand)};
  Outputs outputs_{.context = Operand(3 * kOperand), .lse = Lse(4 * kOperand)};

  std::string Message() const {
    const Status status = CheckOverlap(params_, inputs_, outputs_);
    EXPECT_EQ(status.code(), std::string(status.message()).empty() ? ErrorCode::kOk : ErrorCode::kInvalidArgument);
    return status.message();
  }
  static std::string In(const std::string& output, const std::string& other) {
    return output + ": lies in the memory of " + other + "; give it memory of its own";
  }
};

TEST_F(OverlapTest, NeighboursAreFine) { EXPECT_EQ(Message(), ""); }

TEST_F(OverlapTest, OneSharedElementIsAnError) {
  outputs_.context = Operand(3 * kOperand - 1);
  EXPECT_EQ(Message(), In("context", "v"));
  outputs_.context = Operand(3 * kOperand);
  outputs_.lse = Lse(4 * kOperand - 1);
  EXPECT_EQ(Message(), In("lse", "context"));
  outputs_.lse = Lse(0);
  EXPECT_EQ(Message(), In("lse", "q"));
}

TEST_F(OverlapTest, InputsMayShare) {
  inputs_ = {Operand(0), Operand(0), Operand(0)};
  EXPECT_EQ(Message(), "");
  outputs_.context = Operand(0);
  EXPECT_EQ(Message(), In("context", "q"));
}

TEST_F(OverlapTest, TensorsOfThePlanAreInputs) {
  params_.sinks = View(base_ + 4 * kOperand + 5, {2});
  EXPECT_EQ(Message(), In("lse", "sinks"));
  inputs_.sinks = View(base_ + 5 * kOperand, {2});  // the run's own stand for them
  EXPECT_EQ(Message(), "");
}

TEST_F(OverlapTest, NegativeStridesReachBackwards) {
  // Rows in descending order: the first of them lies last.
  outputs_.context = MutableView(base_ + 3 * kOperand + 8, {1, 2, 3, 4}, {24, 12, -4, 1});
  EXPECT_EQ(Message(), "");
  outputs_.context = MutableView(base_ + 3 * kOperand + 7, {1, 2, 3, 4}, {24, 12, -4, 1});
  EXPECT_EQ(Message(), In("context", "v"));
}

TEST_F(OverlapTest, StridesMayNotRepeatAnElement) {
  const std::string repeats = ": its strides lead to one element twice; give each element a place";
  for (const Dims& strides :
       {Dims{24, 12, 0, 1}, Dims{24, 4, 4, 1}, Dims{24, 12, 3, 1}, Dims{24, 12, -3, 1}, Dims{24, 1, 2, 5}}) {
    outputs_.context = MutableView(base_ + 4 * kOperand, {1, 2, 3, 4}, strides);
    outputs_.lse = {};
    EXPECT_EQ(Message(), "context" + repeats) << ToString(strides);
  }
  for (const Dims& strides : {Dims{0, 12, 4, 1}, Dims{24, 4, 8, 1}, Dims{24, 1, 2, 12}, Dims{24, 1, 8, 2}}) {
    outputs_.context = MutableView(base_ + 4 * kOperand, {1, 2, 3, 4}, strides);
    EXPECT_EQ(Message(), "") << ToString(strides);
  }
}

TEST_F(OverlapTest, WhatHasNoElementsLiesNowhere) {
  outputs_.context = MutableView(base_, {1, 2, 0, 4});
  EXPECT_EQ(Message(), "");
}

}  // namespace
}  // namespace regard::internal
