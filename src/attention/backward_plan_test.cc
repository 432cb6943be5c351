#include <gtest/gtest.h>

#include <cmath>
#include <stop_token>
#include <string>

#include "regard/backward.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/same_bits.h"

namespace regard {
namespace {

using test::ExpectError;
using test::Numbers;
using test::SameBits;

// Two sequences, four heads on two kv heads; what a backward run of them reads and writes.
class BackwardPlanTest : public testing::Test {
 protected:
  BackwardPlanTest() {
    result_ = Attention(q_, k_, v_, params_);
    inputs_ = {{q_, k_, v_}, result_.context, result_.lse, d_context_};
    outputs_ = {.d_q = d_q_.mutable_view(), .d_k = d_k_.mutable_view(), .d_v = d_v_.mutable_view()};
  }

  Status Run(const ExecOptions& exec = {}) {
    const BackwardPlan plan(PlanShape::Of(q_, k_, v_), params_, exec);
    Workspace workspace = plan.MakeWorkspace();
    return plan.Run(inputs_, outputs_, workspace);
  }
  void ExpectFailure(ErrorCode code, const std::string& part) {
    const Status status = Run();
    EXPECT_EQ(status.code(), code) << status.message();
    const std::string message = status.message();
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find(';'), std::string::npos) << "no next step in: " << message;
  }

  AttentionParams params_{.causal = true, .q_offset = 3};
  Tensor q_ = Numbers(DType::kF32, {2, 4, 20, 8}, 1), k_ = Numbers(DType::kF32, {2, 2, 23, 8}, 2),
         v_ = Numbers(DType::kF32, {2, 2, 23, 6}, 3), d_context_ = Numbers(DType::kF32, {2, 4, 20, 6}, 4);
  Tensor d_q_{DType::kF32, {2, 4, 20, 8}}, d_k_{DType::kF32, {2, 2, 23, 8}}, d_v_{DType::kF32, {2, 2, 23, 6}};
  AttentionResult result_;
  BackwardInputs inputs_;
  BackwardOutputs outputs_;
};

TEST_F(BackwardPlanTest, OneCallGivesThePlansBits) {
  ASSERT_TRUE(Run().ok()) << Run().message();
  const AttentionGrads grads = AttentionBackward(q_, k_, v_, result_.context, result_.lse, d_context_, params_);
  EXPECT_TRUE(SameBits(grads.d_q, d_q_));
  EXPECT_TRUE(SameBits(grads.d_k, d_k_));
  EXPECT_TRUE(SameBits(grads.d_v, d_v_));
  EXPECT_FALSE(grads.d_bias || grads.d_alibi_slopes || grads.d_sinks);
}

TEST_F(BackwardPlanTest, GradientsHaveTheTypesOfWhatTheyAreOf) {
  const Tensor k = Tensor::CopyOf(k_, DType::kBF16), slopes = Numbers(DType::kF64, {4}, 5);
  params_.alibi_slopes = slopes;
  const AttentionGrads grads = AttentionBackward(q_, k, v_, result_.context, result_.lse, d_context_, params_, {},
                                                 {.d_bias = false, .d_alibi_slopes = true, .d_sinks = false});
  EXPECT_EQ(grads.d_q.dtype(), DType::kF32);
  EXPECT_EQ(grads.d_k.dtype(), DType::kBF16);
  EXPECT_EQ(grads.d_alibi_slopes.dtype(), DType::kF64);
  EXPECT_EQ(grads.d_alibi_slopes.shape(), (Dims{4}));
}

TEST_F(BackwardPlanTest, EachGradientMayBeWantedAlone) {
  for (const Path path : {Path::kFused, Path::kReference}) {
    ASSERT_TRUE(Run({.path = path, .threads = 1}).ok());
    const Tensor d_q = d_q_, d_k = d_k_, d_v = d_v_;
    for (Tensor* tensor : {&d_q_, &d_k_, &d_v_}) *tensor = Tensor(DType::kF32, tensor->shape());
    outputs_ = {.d_k = d_k_.mutable_view()};
    ASSERT_TRUE(Run({.path = path, .threads = 1}).ok());
    outputs_ = {.d_v = d_v_.mutable_view()};
    ASSERT_TRUE(Run({.path = path, .threads = 1}).ok());
    outputs_ = {.d_q = d_q_.mutable_view()};
    ASSERT_TRUE(Run({.path = path, .threads = 1}).ok());
    EXPECT_TRUE(SameBits(d_q, d_q_) && SameBits(d_k, d_k_) && SameBits(d_v, d_v_)) << Name(path);
    outputs_ = {.d_q = d_q_.mutable_view(), .d_k = d_k_.mutable_view(), .d_v = d_v_.mutable_view()};
  }
}

// d_k alone would take 32 TB: what is wrong with the params is said before anything is made.
TEST_F(BackwardPlanTest, ParamsAreCheckedBeforeGradientsAreMade) {
  const float one = 1;
  const TensorView keys = View(&one, {1, 1, std::int64_t{1} << 40, 8}, {0, 0, 0, 1});
  const TensorView query = View(&one, {1, 1, 1, 8}, {0, 0, 0, 0});
  ExpectError([&] { AttentionBackward(query, keys, keys, query, query.Select(3, 0), query, {.soft_cap = -1}); },
              ErrorCode::kInvalidArgument, "soft_cap: -1");
}

TEST_F(BackwardPlanTest, ALargerPlanGivesTheSameBits) {
  ASSERT_TRUE(Run().ok());
  const Tensor d_k = d_k_;
  PlanShape capacity = PlanShape::Of(q_, k_, v_);
  capacity.batch = 5;
  capacity.q_len = 700;
  capacity.kv_len = 900;
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    const BackwardPlan plan(capacity, params_, {.path = path});
    Workspace workspace = plan.MakeWorkspace();
    const Status status = plan.Run(inputs_, outputs_, workspace);
    ASSERT_TRUE(status.ok()) << status.message();
    if (path == Path::kFused) {
      EXPECT_TRUE(SameBits(d_k, d_k_));
    }
  }
}

// As ring attention needs it: with the lse and the context of all keys, each part of the keys has its own gradients, and d_q is a sum.
TEST_F(BackwardPlanTest, PartsOfTheKeysAddUp) {
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    ASSERT_TRUE(Run({.path = path}).ok());
    Tensor sum(DType::kF32, d_q_.shape());
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 9}, {9, 23}}) {
      AttentionParams params = params_;
      params.q_offset = 3 - begin;
      const Tensor k = Tensor::CopyOf(k_.view().Slice(2, begin, end)), v = Tensor::CopyOf(v_.view().Slice(2, begin, end));
      const AttentionGrads part = AttentionBackward(q_, k, v, result_.context, result_.lse, d_context_, params, {.path = path});
      for (std::int64_t n = 0; n < sum.num_elements(); ++n) sum.MutableAs<float>()[n] += part.d_q.As<float>()[n];
      for (std::int64_t j = begin; j < end; ++j) EXPECT_NEAR(part.d_k(1, 0, j - begin, 5), d_k_(1, 0, j, 5), 2e-6) << Name(path);
      for (std::int64_t j = begin; j < end; ++j) EXPECT_NEAR(part.d_v(0, 1, j - begin, 2), d_v_(0, 1, j, 2), 2e-6) << Name(path);
    }
    for (std::int64_t n = 0; n < sum.num_elements(); ++n)
      ASSERT_NEAR(sum.As<float>()[n], d_q_.As<float>()[n], 2e-6) << Name(path);
  }
}

TEST_F(BackwardPlanTest, RefusesWhatDoesNotFit) {
  inputs_.context = {};
  ExpectFailure(ErrorCode::kInvalidArgument, "context: missing");
  inputs_.context = result_.context;
  inputs_.lse = result_.context;
  ExpectFailure(ErrorCode::kShapeMismatch, "lse: shape 2×4×20×6; give 2×4×20");
  inputs_.lse = result_.lse;
  const Tensor integers(DType::kI32, d_context_.shape());
  inputs_.d_context = integers;
  ExpectFailure(ErrorCode::kInvalidArgument, "d_context: element type i32");
  inputs_.d_context = d_context_;
  outputs_.d_v = d_k_.mutable_view();
  ExpectFailure(ErrorCode::kShapeMismatch, "d_v: shape 2×2×23×8; give 2×2×23×6");
  outputs_.d_v = d_v_.mutable_view();
  outputs_.d_bias = d_q_.mutable_view();
  ExpectFailure(ErrorCode::kInvalidArgument, "d_bias: wanted without bias");
  ExpectError(
      [&] {
        AttentionBackward(q_, k_, v_, result_.context, result_.lse, d_context_, params_, {},
                          {.d_bias = false, .d_alibi_slopes = false, .d_sinks = true});
      },
      ErrorCode::kInvalidArgument, "d_sinks: wanted without sinks");
  ExpectError([&] { BackwardPlan(PlanShape::Of(q_, k_, v_), params_, {.isa = "AVX99"}); }, ErrorCode::kUnsupported,
              "isa: \"AVX99\"");
}

TEST_F(BackwardPlanTest, RefusesOutputsOverOthers) {
  outputs_.d_q = q_.mutable_view();
  ExpectFailure(ErrorCode::kInvalidArgument, "d_q: lies in the memory of q");
  outputs_.d_q = MutableTensorView(d_context_.mutable_view().mutable_data(), DType::kF16, {2, 4, 20, 8});
  ExpectFailure(ErrorCode::kInvalidArgument, "d_q: lies in the memory of d_context");
  outputs_.d_q = d_k_.mutable_view().dim(0) == 2
                     ? MutableTensorView(d_k_.mutable_view().mutable_data(), DType::kF16, {2, 4, 20, 8})
                     : MutableTensorView();
  ExpectFailure(ErrorCode::kInvalidArgument, "d_k: lies in the memory of d_q");
}

TEST_F(BackwardPlanTest, ARunNeedsItsWorkspace) {
  const BackwardPlan plan(PlanShape::Of(q_, k_, v_), params_);
  Workspace workspace;
  const Status status = plan.Run(inputs_, outputs_, workspace);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "workspace: 0 bytes, but this plan needs " + std::to_string(plan.WorkspaceBytes()) + "; use MakeWorkspace");
}

TEST_F(BackwardPlanTest, StopsOnRequest) {
  std::stop_source stop;
  stop.request_stop();
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    EXPECT_EQ(Run({.path = path, .stop_token = stop.get_token()}).code(), ErrorCode::kCancelled) << Name(path);
  }
}

TEST_F(BackwardPlanTest, ReportsProgress) {
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    double last = 0;
    ASSERT_TRUE(Run({.path = path,
                     .threads = 2,
                     .on_progress =
                         [&](double part) {
                           EXPECT_GE(part, last);
                           last = part;
                         }})
                    .ok());
    EXPECT_EQ(last, 1) << Name(path);
  }
}

// Ends at once: nothing is done for each of sequences and heads without tokens.
TEST(BackwardPlan, ManySequencesWithoutTokens) {
  constexpr std::int64_t kMany = std::int64_t{1} << 28;
  const Tensor none(DType::kF32, {kMany, kMany, 0, 1}), lse(DType::kF32, {kMany, kMany, 0});
  const Tensor bias = Numbers(DType::kF32, {1}, 1);
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    const AttentionGrads grads =
        AttentionBackward(none, none, none, none, lse, none, {.causal = true, .bias = bias}, {.path = path, .threads = 1},
                          {.d_bias = true, .d_alibi_slopes = false, .d_sinks = false});
    EXPECT_EQ(grads.d_q.shape(), none.shape());
    EXPECT_EQ(grads.d_bias(0), 0);
  }
}

TEST(BackwardPlan, MemoryGrowsWithTokens) {
  const Tensor segments(DType::kI32, {1});
  for (const bool packed : {false, true}) {
    const auto bytes = [&](std::int64_t tokens) {
      AttentionParams params{.causal = true};
      if (packed) params.q_segments = params.kv_segments = segments;
      return BackwardPlan({.heads = 8, .kv_heads = 2, .q_len = tokens, .kv_len = tokens, .head_dim = 64, .v_dim = 64}, params,
                          {.threads = 4})
          .WorkspaceBytes();
    };
    // What backward.h states: 32 bytes a query, with segments 72 more a query and key, and 4 · (head_dim + v_dim) bytes a key for each kv
    // head and each thread.
    const double per_token = 32 + (packed ? 2 * 72 : 0) + 4.0 * 128 * (2 + 4);
    const double fixed = static_cast<double>(bytes(1 << 17)) - per_token * (1 << 17);
    EXPECT_LT(std::fabs(fixed), 16e6);
    EXPECT_NEAR(static_cast<double>(bytes(1 << 20)), fixed + per_token * (1 << 20), 3e5);
  }
}

}  // namespace
}  // namespace regard
