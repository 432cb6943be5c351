#include "core/bind.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace regard::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A problem that binds: batch 2, heads 4/2, q_len 3, kv_len 5, head_dim 8, v_dim 6. Tests bend one thing at a time.
class BindTest : public testing::Test {
 protected:
  Tensor q_{DType::kF32, {2, 4, 3, 8}}, k_{DType::kF32, {2, 2, 5, 8}}, v_{DType::kF32, {2, 2, 5, 6}};
  PlanShape shape_ = {.batch = 2, .heads = 4, .kv_heads = 2, .q_len = 3, .kv_len = 5, .head_dim = 8, .v_dim = 6};
  AttentionParams params_;
  ExecOptions exec_;
  Inputs inputs_{q_, k_, v_};
  Outputs outputs_;
  Problem problem_;
  Results results_;

  Status Plan() const { return CheckPlan(shape_, params_, exec_); }
  Status Run() { return Bind(shape_, params_, ResolveScale(shape_, params_), inputs_, outputs_, &problem_, &results_); }

  static void Expect(const Status& status, ErrorCode code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status.message();
    const std::string message = status.message();
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find(';'), std::string::npos) << "no next step in: " << message;
    EXPECT_LT(message.size(), 250u) << "cut: " << message;
  }
};

TEST_F(BindTest, BindsAndResolves) {
  ASSERT_TRUE(Plan().ok()) << Plan().message();
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(problem_.batch, 2);
  EXPECT_EQ(problem_.group_size, 2);
  EXPECT_EQ(problem_.v_dim, 6);
  EXPECT_EQ(problem_.k.Offset(1, 1, 4, 7), 2 * 2 * 5 * 8 - 1);
  EXPECT_EQ(problem_.scale, static_cast<float>(1 / std::sqrt(8.0)));
  EXPECT_EQ(problem_.mask.data, nullptr);
  EXPECT_EQ(results_.context.data, nullptr);
}

TEST_F(BindTest, RankTwoIsOneSequenceWithOneHead) {
  shape_ = {.q_len = 3, .kv_len = 3, .head_dim = 8, .v_dim = 8};
  const Tensor x(DType::kF32, {3, 8});
  Tensor context(DType::kF32, {3, 8}), lse(DType::kF32, {3});
  inputs_ = {x, x, x};
  outputs_ = {.context = context.mutable_view(), .lse = lse.mutable_view()};
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(problem_.q.Offset(0, 0, 2, 7), 23);
  EXPECT_EQ(results_.lse.Offset(0, 0, 2, 0), 2);
  inputs_.v = v_;
  Expect(Run(), ErrorCode::kShapeMismatch, "2, 2 and 4 axes");
}

// ------------------------------------------------------------------------------------------------------------ the plan

TEST_F(BindTest, PlanRefusesSizes) {
  shape_.batch = -1;
  Expect(Plan(), ErrorCode::kInvalidArgument, "batch: -1");
  shape_.batch = 0;
  shape_.head_dim = 0;
  Expect(Plan(), ErrorCode::kInvalidArgument, "head_dim: 0");
  shape_.head_dim = 8;
  shape_.kv_heads = 3;
  Expect(Plan(), ErrorCode::kShapeMismatch, "kv_heads=3 does not divide heads=4");
}

TEST_F(BindTest, PlanRefusesScaleAndCap) {
  for (float scale : {0.0f, kInfinity, kNaN}) {
    params_.scale = scale;
    Expect(Plan(), ErrorCode::kInvalidArgument, "scale: ");
  }
  params_.scale = -1;
  EXPECT_TRUE(Plan().ok());
  for (float cap : {-1.0f, kInfinity, kNaN}) {
    params_.soft_cap = cap;
    Expect(Plan(), ErrorCode::kInvalidArgument, "soft_cap: ");
  }
}

TEST_F(BindTest, PlanRefusesWindowsThreadsAndTypes) {
  params_.window_left = -1;
  Expect(Plan(), ErrorCode::kInvalidArgument, "window_left: -1");
  params_.window_left.reset();
  params_.window_right = -5;
  Expect(Plan(), ErrorCode::kInvalidArgument, "window_right: -5");
  params_.window_right.reset();
  exec_.threads = -2;
  Expect(Plan(), ErrorCode::kInvalidArgument, "threads: -2");
  exec_.threads = 0;
  const Tensor integers(DType::kI64, {5}), floats(DType::kF32, {5}), truth(DType::kBool, {5});
  params_.mask = integers;
  Expect(Plan(), ErrorCode::kInvalidArgument, "mask: element type i64, expected bool (true = may attend)");
  params_.mask = floats;
  Expect(Plan(), ErrorCode::kInvalidArgument, "pass an additive mask as bias");
  params_.mask = {};
  params_.bias = truth;
  Expect(Plan(), ErrorCode::kInvalidArgument, "bias: element type bool");
  params_.bias = {};
  params_.sinks = integers;
  Expect(Plan(), ErrorCode::kInvalidArgument, "sinks: element type i64");
  params_.sinks = {};
  params_.alibi_slopes = integers;
  Expect(Plan(), ErrorCode::kInvalidArgument, "alibi_slopes: element type i64");
}

// -------------------------------------------------------------------------------------------------------------- q, k, v

TEST_F(BindTest, RefusesOperandsThatDoNotFit) {
  const auto with = [this](const TensorView& q, const TensorView& k, const TensorView& v) {
    inputs_ = {q, k, v};
    return Run();
  };
  const auto f32 = [](const Dims& shape) { return Tensor(DType::kF32, shape); };
  Expect(with({}, k_, v_), ErrorCode::kInvalidArgument, "q: missing");
  const Tensor rank3 = f32({4, 3, 8});
  Expect(with(rank3, rank3, rank3), ErrorCode::kShapeMismatch, "shape 4×3×8 has 3 axes");
  const Tensor integers(DType::kI32, {2, 4, 3, 8}), f64(DType::kF64, {2, 4, 3, 8});
  Expect(with(integers, k_, v_), ErrorCode::kInvalidArgument, "i32 is not a float type");
  Expect(with(f64, k_, v_), ErrorCode::kInvalidArgument, "made for f32");
  const Tensor batch3 = f32({3, 2, 5, 8}), kv_len4 = f32({2, 2, 4, 6}), dim7 = f32({2, 2, 5, 7}), heads3 = f32({2, 3, 3, 8});
  Expect(with(q_, batch3, v_), ErrorCode::kShapeMismatch, "k: batch=3");
  Expect(with(q_, k_, kv_len4), ErrorCode::kShapeMismatch, "v: kv_len=4");
  Expect(with(q_, dim7, v_), ErrorCode::kShapeMismatch, "k: head_dim=7");
  Expect(with(heads3, k_, v_), ErrorCode::kShapeMismatch, "q: heads=3");
  const Tensor long_q = f32({2, 4, 4, 8});
  Expect(with(long_q, k_, v_), ErrorCode::kShapeMismatch, "q: q_len=4 exceeds the plan's 3");
  Expect(with(q_.view().Transpose(2, 3), k_, v_), ErrorCode::kInvalidArgument, "stride 8 along dim");
}

TEST_F(BindTest, SmallerThanTheCapacityIsFine) {
  inputs_ = {q_.view().Slice(0, 0, 1).Slice(2, 0, 1), k_.view().Slice(0, 0, 1).Slice(2, 0, 0),
             v_.view().Slice(0, 0, 1).Slice(2, 0, 0)};
  const Status status = Run();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(problem_.kv_len, 0);
}

// -------------------------------------------------------------------------------------------------------- mask and bias

TEST_F(BindTest, MasksBroadcastRightAligned) {
  for (const Dims& shape :
       {Dims{}, Dims{5}, Dims{1}, Dims{3, 1}, Dims{3, 5}, Dims{4, 1, 5}, Dims{2, 1, 1, 5}, Dims{2, 4, 3, 5}}) {
    const Tensor mask(DType::kBool, shape);
    params_.mask = mask;
    const Status status = Run();
    EXPECT_TRUE(status.ok()) << ToString(shape) << ": " << status.message();
    // The last cell is the last element, or the only one.
    EXPECT_EQ(problem_.mask.Offset(1, 3, 2, 4), mask.num_elements() - 1) << ToString(shape);
  }
  for (const Dims& shape : {Dims{4}, Dims{5, 3}, Dims{2, 3, 5}, Dims{2, 2, 3, 5}, Dims{1, 2, 4, 3, 5}, Dims{0}}) {
    const Tensor mask(DType::kBool, shape);
    params_.mask = mask;
    Expect(Run(), ErrorCode::kShapeMismatch, ToString(shape) + " does not broadcast to [batch, heads, q_len, kv_len] = 2×4×3×5");
  }
}

TEST_F(BindTest, MasksOfSequencesAreToldTheirAxes) {
  const std::pair<Dims, const char*> cases[] = {
      {{2, 5},
       "2×5 does not broadcast to [batch, heads, q_len, kv_len] = 2×4×3×5; if it is one for each sequence, give [batch, 1, 1, "
       "kv_len] "
       "= 2×1×1×5"},
      {{2, 3, 5}, "if it is one for each sequence, give [batch, 1, q_len, kv_len] = 2×1×3×5"},
      {{2, 1, 5}, "if it is one for each sequence, give [batch, 1, q_len, kv_len] = 2×1×1×5"},
      {{2, 2, 5}, "right-align it, with 1 where it repeats"},
      {{2, 4}, "right-align it, with 1 where it repeats"}};
  for (const auto& [shape, message] : cases) {
    const Tensor mask(DType::kBool, shape);
    params_.mask = mask;
    Expect(Run(), ErrorCode::kShapeMismatch, message);
  }
}

TEST_F(BindTest, ARunMayReplaceWhatThePlanKnows) {
  const Tensor planned(DType::kF32, {3, 1}), same(DType::kF32, {3, 1}), longer(DType::kF32, {3, 5}), f64(DType::kF64, {3, 1});
  inputs_.bias = same;
  Expect(Run(), ErrorCode::kInvalidArgument, "bias: given to the run but not to the plan");
  params_.bias = planned;
  EXPECT_TRUE(Run().ok());
  EXPECT_EQ(problem_.bias.data, same.view().data());
  inputs_.bias = {};
  EXPECT_TRUE(Run().ok());
  EXPECT_EQ(problem_.bias.data, planned.view().data());
  inputs_.bias = longer;
  Expect(Run(), ErrorCode::kShapeMismatch, "longer than the plan's 3×1");
  inputs_.bias = f64;
  Expect(Run(), ErrorCode::kInvalidArgument, "made with f32");
}

// ------------------------------------------------------------------------------------------------------------ positions

TEST_F(BindTest, PositionsMustBeStatedWhenLengthsDiffer) {
  const Tensor slopes(DType::kF32, {4});
  const std::pair<const char*, std::function<void()>> uses[] = {{"causal", [&] { params_.causal = true; }},
                                                                {"a window", [&] { params_.window_left = 2; }},
                                                                {"a window", [&] { params_.window_right = 2; }},
                                                                {"alibi_slopes", [&] { params_.alibi_slopes = slopes; }}};
  for (const auto& [name, use] : uses) {
    params_ = {};
    use();
    Expect(Run(), ErrorCode::kInvalidArgument, name);
    Expect(Run(), ErrorCode::kInvalidArgument,
           "give 0 (top-left: PyTorch, ONNX) or 2 (bottom-right: FlashAttention, FlashInfer, MLX)");
    params_.q_offset = 2;
    EXPECT_TRUE(Run().ok()) << Run().message();
    EXPECT_EQ(problem_.QOffset(1), 2);
  }
}

TEST_F(BindTest, LengthsImplyTheOffset) {
  const std::int64_t lengths[] = {5, 1};
  params_.causal = true;
  params_.kv_lens = View(lengths, {2});
  ASSERT_TRUE(Run().ok()) << Run().message();
  EXPECT_EQ(problem_.QOffset(0), 2);
  EXPECT_EQ(problem_.QOffset(1), -2);
  params_.q_offset = 1;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(problem_.QOffset(1), 1);
  const std::int32_t per_sequence[] = {3, -4};
  params_.q_offset = View(per_sequence, {2});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(problem_.QOffset(1), -4);
}

TEST_F(BindTest, RefusesLengthsAndOffsets) {
  const std::int32_t too_long[] = {5, 6}, negative[] = {-1, 5}, three[] = {1, 2, 3};
  params_.kv_lens = View(too_long, {2});
  Expect(Run(), ErrorCode::kInvalidArgument, "kv_lens[1]=6 is outside 0…kv_len=5");
  params_.kv_lens = View(negative, {2});
  Expect(Run(), ErrorCode::kInvalidArgument, "kv_lens[0]=-1");
  params_.kv_lens = View(three, {3});
  Expect(Run(), ErrorCode::kShapeMismatch, "kv_lens: shape 3; give [batch] = [2]");
  const Tensor floats(DType::kF32, {2});
  params_.kv_lens = floats;
  Expect(Run(), ErrorCode::kInvalidArgument, "kv_lens: element type f32; give i32 or i64");
  params_.kv_lens = {};
  for (std::int64_t offset : {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    params_.q_offset = offset;
    Expect(Run(), ErrorCode::kInvalidArgument, "beyond ±2^60");
  }
  params_.q_offset = QOffset(View(three, {3}));
  Expect(Run(), ErrorCode::kShapeMismatch, "q_offset: shape 3");
}

TEST_F(BindTest, RefusesSegments) {
  const std::int32_t q[] = {0, 0, 1}, kv[] = {0, 1, 1, 2, -1}, again[] = {0, 1, 1, 0, -1}, below[] = {0, 1, -2, 3, 4};
  params_.q_segments = View(q, {3});
  Expect(Run(), ErrorCode::kInvalidArgument, "kv_segments: missing while q_segments is given");
  params_.kv_segments = View(kv, {5});
  EXPECT_TRUE(Run().ok()) << Run().message();
  params_.kv_segments = View(again, {5});
  Expect(Run(), ErrorCode::kInvalidArgument,
         "kv_segments: number 0 at token 3 continues after a gap (first at token 0, sequence 0)");
  params_.kv_segments = View(below, {5});
  Expect(Run(), ErrorCode::kInvalidArgument, "number -2 at [0, 2]");
  params_.kv_segments = View(q, {3});
  Expect(Run(), ErrorCode::kShapeMismatch, "kv_segments: shape 3; give [batch, tokens] = 2×5");
}

// As many queries as keys in the call, but not in its segments.
TEST_F(BindTest, SegmentsOfOtherLengthsNeedAnOffset) {
  const std::int32_t q[] = {-1, 4, 4, 4, 9}, kv[] = {4, 4, 4, 4, 9}, same[] = {9, 4, 4, 4, -1}, alone[] = {4, 4, 4, 9, 7};
  const Tensor q5(DType::kF32, {2, 4, 5, 8});
  shape_.q_len = 5;
  inputs_.q = q5;
  params_.q_segments = View(q, {5});
  params_.kv_segments = View(kv, {5});
  EXPECT_TRUE(Run().ok()) << "nothing reads positions: " << Run().message();
  const auto expect_each = [&](const std::string& part) {
    params_.causal = true;
    Expect(Run(), ErrorCode::kInvalidArgument, "q_offset: not stated, and causal needs it since " + part);
    params_.causal = false;
    params_.window_right = 2;
    Expect(Run(), ErrorCode::kInvalidArgument, "q_offset: not stated, and a window needs it since " + part);
    params_.window_right.reset();
  };
  expect_each("segment 4 of sequence 0 has 3 queries and 4 keys; give 0 ");
  params_.causal = true;
  for (const std::int32_t* fits : {same, alone}) {  // in another order; with keys that no query has
    params_.kv_segments = View(fits, {5});
    EXPECT_TRUE(Run().ok()) << Run().message();
  }
  params_.kv_segments = View(kv, {5});
  params_.q_offset = 0;
  EXPECT_TRUE(Run().ok()) << Run().message();
  params_.q_offset = {};
  const std::int32_t lens[] = {5, 5};
  params_.kv_lens = View(lens, {2});
  EXPECT_TRUE(Run().ok()) << Run().message();
}

// ----------------------------------------------------------------------------------------------------- slopes, sinks, outputs

TEST_F(BindTest, RefusesSlopesAndSinks) {
  const float ok[] = {-1, 0, 0.5f, 2}, nan[] = {0, kNaN, 0, 0}, minus[] = {0, 0, 0, -kInfinity}, plus[] = {kInfinity, 0, 0, 0};
  params_.sinks = View(ok, {3});
  Expect(Run(), ErrorCode::kShapeMismatch, "sinks: shape 3; give [heads] = [4]");
  params_.sinks = View(minus, {4});
  EXPECT_TRUE(Run().ok());
  for (const float* bad : {nan, plus}) {
    params_.sinks = View(bad, {4});
    Expect(Run(), ErrorCode::kInvalidArgument, "sinks: sinks[");
  }
  params_.sinks = {};
  params_.q_offset = 0;
  params_.alibi_slopes = View(ok, {4});
  EXPECT_TRUE(Run().ok());
  for (const float* bad : {nan, plus, minus}) {
    params_.alibi_slopes = View(bad, {4});
    Expect(Run(), ErrorCode::kInvalidArgument, "alibi_slopes: alibi_slopes[");
  }
}

// Of f64 what f32 does not hold; of f32 what it does not in log2 units. A sink far below is none.
TEST_F(BindTest, RefusesSlopesAndSinksThatF32DoesNotComputeWith) {
  const float largest[] = {0x1p127f, 1, 0, -0x1p127f}, large[] = {0, 3e38f, 0, 0};
  const double huge[] = {0, 1e39, 0, 0}, low[] = {0, -1e39, 0, 0};
  params_.sinks = View(largest, {4});
  EXPECT_TRUE(Run().ok());
  params_.sinks = View(large, {4});
  Expect(Run(), ErrorCode::kInvalidArgument, "sinks: sinks[1]=3e+38 is more than f32 computes with; give 1.7e38 at most");
  params_.sinks = View(huge, {4});
  Expect(Run(), ErrorCode::kInvalidArgument, "sinks: sinks[1]=1e+39 is more than");
  params_.sinks = View(low, {4});
  EXPECT_TRUE(Run().ok());
  params_.sinks = {};
  params_.q_offset = 0;
  params_.alibi_slopes = View(largest, {4});
  EXPECT_TRUE(Run().ok());
  params_.alibi_slopes = View(huge, {4});
  Expect(Run(), ErrorCode::kInvalidArgument, "alibi_slopes: alibi_slopes[1]=1e+39 is more than");
  params_.alibi_slopes = View(low, {4});
  Expect(Run(), ErrorCode::kInvalidArgument, "alibi_slopes: alibi_slopes[1]=-1e+39 is more than");
}

TEST_F(BindTest, OutputsHaveTheContractsShapes) {
  Tensor context(DType::kF16, {2, 4, 3, 6}), lse(DType::kF64, {2, 4, 3}), weights(DType::kF32, {2, 4, 3, 5}),
      integers(DType::kI32, {2, 4, 3});
  outputs_ = {.context = context.mutable_view(), .lse = lse.mutable_view(), .weights = weights.mutable_view()};
  ASSERT_TRUE(Run().ok()) << Run().message();
  EXPECT_EQ(results_.lse.Offset(1, 3, 2, 0), 23);
  EXPECT_EQ(results_.weights.Offset(1, 3, 2, 4), 119);
  outputs_.context = weights.mutable_view();
  Expect(Run(), ErrorCode::kShapeMismatch, "context: shape 2×4×3×5; give 2×4×3×6");
  outputs_.context = {};
  outputs_.lse = integers.mutable_view();
  Expect(Run(), ErrorCode::kInvalidArgument, "lse: element type i32");
}

}  // namespace
}  // namespace regard::internal
