#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>

#include "regard/attention.h"
#include "regard/info.h"
#include "tests/support/expect_error.h"

namespace regard {
namespace {

using test::ExpectError;

constexpr std::int64_t k2To20 = std::int64_t{1} << 20, k2To40 = std::int64_t{1} << 40;

TEST(Plan, RefusesTensorsThatNoMemoryHolds) {
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    const PlanShape shape = {
        .batch = k2To40, .heads = k2To20, .kv_heads = k2To20, .q_len = k2To40, .kv_len = k2To40, .head_dim = 64, .v_dim = 64};
    ExpectError([&] { Plan(shape, {}, {.path = path}); }, ErrorCode::kInvalidArgument,
                "shape: q would be 1099511627776×1048576×1099511627776×64");
    const PlanShape no_tokens = {.heads = k2To40, .kv_heads = k2To40, .head_dim = k2To40, .v_dim = 1};
    ExpectError([&] { Plan(no_tokens, {}, {.path = path}); }, ErrorCode::kInvalidArgument,
                "shape: q would be 1×1099511627776×1×1099511627776");
  }
}

TEST(Plan, RefusesAWorkspaceThatNoMemoryHolds) {
  const PlanShape shape = {.q_len = k2To40, .kv_len = k2To40, .head_dim = 1, .v_dim = 1};
  ExpectError([&] { Plan(shape, {}, {.path = Path::kStaged, .threads = 1}); }, ErrorCode::kOutOfMemory,
              "q_len 1099511627776, kv_len 1099511627776 on path staged");
}

TEST(Plan, ALargeCapacityIsFine) {
  const PlanShape shape = {
      .batch = 1 << 10, .heads = 128, .kv_heads = 8, .q_len = 1, .kv_len = k2To20, .head_dim = 128, .v_dim = 128};
  EXPECT_LT(Plan(shape, {}, {.threads = 2}).WorkspaceBytes(), std::size_t{1} << 40);
}

// Ends at once: nothing is done for each of sequences and heads without queries.
TEST(Plan, ManySequencesWithoutQueries) {
  constexpr std::int64_t kMany = std::int64_t{1} << 28;
  const Tensor none(DType::kF32, {kMany, kMany, 0, 1});
  for (const Path path : {Path::kFused, Path::kStaged, Path::kReference}) {
    const AttentionResult r = Attention(none, none, none, {.causal = true}, {.path = path, .threads = 1});
    EXPECT_EQ(r.context.shape(), none.shape());
    EXPECT_EQ(r.empty_rows, 0);
  }
}

TEST(Plan, RefusesMoreThreadsThanCanBeStarted) {
  ExpectError([] { Plan({.q_len = 4, .kv_len = 4, .head_dim = 4, .v_dim = 4}, {}, {.threads = 2147483647}); },
              ErrorCode::kInvalidArgument, "threads: 2147483647 is more than 4096");
}

TEST(Plan, SaysHowAnIsaIsSpelled) {
  const std::string best = BestTarget();
  std::string small = best;
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  ASSERT_NE(small, best);
  const PlanShape shape = {.q_len = 4, .kv_len = 4, .head_dim = 4, .v_dim = 4};
  ExpectError([&] { Plan(shape, {}, {.isa = small}); }, ErrorCode::kUnsupported, "does not run here; write " + best);
  ExpectError([&] { Plan(shape, {}, {.isa = "AVX9"}); }, ErrorCode::kUnsupported, "use one of " + best);
}

TEST(Plan, SaysWhatItCopies) {
  PlanShape shape{.batch = 1, .heads = 2, .kv_heads = 2, .q_len = 20, .kv_len = 20, .head_dim = 8, .v_dim = 8};
  EXPECT_EQ(Plan(shape, {}).Description().find("copies"), std::string::npos);
  shape.q_dtype = shape.k_dtype = shape.v_dtype = DType::kBF16;
  EXPECT_TRUE(Plan(shape, {}).Description().ends_with(", copies q as f32"));
  EXPECT_TRUE(Plan(shape, {}, {.path = Path::kStaged}).Description().ends_with(", copies q, k, v as f32"));
  shape.v_dtype = DType::kF64;
  EXPECT_TRUE(Plan(shape, {}).Description().ends_with(", copies q, v as f32"));
  shape = {.batch = 1, .heads = 2, .kv_heads = 2, .q_len = 20, .kv_len = 20, .head_dim = 8, .v_dim = 8, .strided_dim = true};
  EXPECT_TRUE(Plan(shape, {}).Description().ends_with(", copies operands without unit stride along dim"));
}

TEST(Plan, SaysWhichKernelRuns) {
  const auto choice = [](std::int64_t q_len, const TensorView& segments) {
    return Plan({.heads = 4, .kv_heads = 2, .q_len = q_len, .kv_len = 20, .head_dim = 8, .v_dim = 8},
                {.q_segments = segments, .kv_segments = segments}, {.isa = BestTarget(), .threads = 1})
        .Description();
  };
  const std::string prefix = "fused, " + BestTarget() + ", 1 thread, ";
  EXPECT_EQ(choice(8, {}), prefix + "prefill kernel (q_len·group_size 16 ≥ 16)");
  EXPECT_EQ(choice(7, {}), prefix + "decode kernel (q_len·group_size 14 < 16)");
  const Tensor segments(DType::kI32, {20});
  EXPECT_EQ(choice(20, segments), prefix + "prefill kernel for segments of q_len·group_size ≥ 16, else decode");
  EXPECT_EQ(choice(7, segments), prefix + "decode kernel (q_len·group_size 14 < 16)");
}

TEST(Plan, ARunMayNotWriteOverItsInputs) {
  Tensor x(DType::kF32, {5, 4}), context(DType::kF32, {5, 4});
  const Plan plan(PlanShape::Of(x, x, x), {});
  Workspace workspace = plan.MakeWorkspace();
  const Status status = plan.Run({x, x, x}, {.context = x.mutable_view()}, workspace);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "context: lies in the memory of q; give it memory of its own");
  EXPECT_TRUE(plan.Run({x, x, x}, {.context = context.mutable_view()}, workspace).ok());
}

TEST(Plan, AShapeIsOfFourAxesOrTwo) {
  const Tensor x(DType::kF32, {5, 4}), three(DType::kF32, {2, 5, 4});
  ExpectError([&] { PlanShape::Of({}, x, x); }, ErrorCode::kShapeMismatch,
              "q: missing; give [batch, heads, tokens, dim] or [tokens, dim]");
  const Tensor four(DType::kF32, {1, 3, 5, 4});
  ExpectError([&] { Attention(x, four, four, {}); }, ErrorCode::kShapeMismatch,
              "q, k, v: shapes 5×4, 1×3×5×4 and 1×3×5×4; give all three 4 axes, or all three 2");
  ExpectError([&] { PlanShape::Of(four, four, x); }, ErrorCode::kShapeMismatch, "q, k, v: shapes 1×3×5×4, 1×3×5×4 and 5×4;");
  ExpectError([&] { PlanShape::Of(x, x, three); }, ErrorCode::kShapeMismatch, "v: shape 2×5×4; give [batch, heads, tokens, dim]");
}

TEST(Plan, ARunNeedsItsWorkspace) {
  const Tensor x(DType::kF32, {5, 4});
  Tensor context(DType::kF32, {5, 4});
  const Plan plan(PlanShape::Of(x, x, x), {});
  Workspace workspace;
  const Status status = plan.Run({x, x, x}, {.context = context.mutable_view()}, workspace);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "workspace: 0 bytes, but this plan needs " + std::to_string(plan.WorkspaceBytes()) + "; use MakeWorkspace");
}

TEST(Plan, TheFusedPathHoldsNoStages) {
  const Tensor x(DType::kF32, {5, 4});
  Tensor context(DType::kF32, {5, 4}), weights(DType::kF32, {5, 5});
  const Plan plan(PlanShape::Of(x, x, x), {}, {.path = Path::kFused});
  Workspace workspace = plan.MakeWorkspace();
  const Status status = plan.Run({x, x, x}, {.context = context.mutable_view(), .weights = weights.mutable_view()}, workspace);
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_EQ(std::string(status.message()),
            "outputs: the fused path holds no scores or weights; use path staged or reference, "
            "ComputeStages, or leave the stages out");
}

}  // namespace
}  // namespace regard
