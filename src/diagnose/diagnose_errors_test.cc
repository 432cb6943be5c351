// What Diagnose refuses, and what it says about it.
#include <gtest/gtest.h>

#include "regard/diagnose.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace regard {
namespace {

using test::ExpectError;
using test::Numbers;

// Two sequences, four heads on two kv heads.
class DiagnoseErrors : public testing::Test {
 protected:
  void ExpectRefusal(const ObservedTensors& observed, ErrorCode code, const std::string& part,
                     const DiagnoseOptions& options = {}) {
    ExpectError([&] { Diagnose(problem_, observed, {}, options); }, code, part);
  }

  Tensor q_ = Numbers(DType::kF32, {2, 4, 5, 8}, 1), k_ = Numbers(DType::kF32, {2, 2, 7, 8}, 2),
         v_ = Numbers(DType::kF32, {2, 2, 7, 6}, 3), context_ = Numbers(DType::kF32, {2, 4, 5, 6}, 4);
  DiagnosisProblem problem_{.q = q_, .k = k_, .v = v_};
};

TEST_F(DiagnoseErrors, OfWhatWasObserved) {
  ExpectRefusal({}, ErrorCode::kInvalidArgument, "observed: nothing given; give context, weights, or another stage");
  ExpectRefusal({.context = Tensor(DType::kI32, {2, 4, 5, 6})}, ErrorCode::kInvalidArgument,
                "observed context: element type i32; give a float type");
  ExpectRefusal({.context = Tensor(DType::kF32, {3, 1})}, ErrorCode::kShapeMismatch,
                "observed context: shape 3×1; give [batch, heads, q_len, v_dim] 2×4×5×6, [batch, q_len, heads, v_dim] 2×5×4×6 or "
                "packed 2×5×24");
  ExpectRefusal({.lse = Tensor(DType::kF32, {2, 5, 4})}, ErrorCode::kShapeMismatch,
                "observed lse: shape 2×5×4; give [batch, heads, q_len] 2×4×5");
  ExpectRefusal({.projected = Tensor(DType::kF32, {2, 5, 23})}, ErrorCode::kShapeMismatch,
                "observed projected: shape 2×5×23; give [batch, q_len, out_dim] 2×5×24");
}

TEST_F(DiagnoseErrors, OfStagesSayWhatTheyLookLike) {
  const std::string expected = "; give [batch, heads, q_len, kv_len] 2×4×5×7";
  ExpectRefusal({.scores = Tensor(DType::kF32, {2, 4, 5, 8})}, ErrorCode::kShapeMismatch,
                "observed scores: shape 2×4×5×8" + expected);
  ExpectRefusal(
      {.weights = Tensor(DType::kF32, {2, 5, 7})}, ErrorCode::kShapeMismatch,
      "observed weights: shape 2×5×7" + expected + "; a mean over heads? dump them per head (average_attn_weights=False)");
  ExpectRefusal({.masked_scores = Tensor(DType::kF32, {2, 4, 7, 5})}, ErrorCode::kShapeMismatch,
                "observed masked_scores: shape 2×4×7×5" + expected + "; its last two axes look exchanged");
}

TEST_F(DiagnoseErrors, OfWeightsThatStandForTheFirstStages) {
  const Tensor weights = Numbers(DType::kF32, {2, 4, 5, 7}, 5);
  problem_.weights = weights;
  ExpectRefusal({.context = context_}, ErrorCode::kInvalidArgument,
                "weights: given besides q or k; give them as observed instead");
  problem_ = {.v = v_, .weights = weights};
  ExpectRefusal({.scores = weights}, ErrorCode::kInvalidArgument,
                "observed: scores or lse, but weights and v alone are the third stage; observe the context, or give q and k");
  const std::string expected = "; give float weights [batch, heads, q_len, kv_len] and v [batch, kv_heads, kv_len, v_dim]";
  problem_ = {.weights = weights};
  ExpectRefusal({.context = context_}, ErrorCode::kInvalidArgument, "weights: f32 2×4×5×7, v missing" + expected);
  const Tensor integers(DType::kI32, {2, 4, 5, 7});
  problem_ = {.v = v_, .weights = integers};
  ExpectRefusal({.context = context_}, ErrorCode::kInvalidArgument, "weights: i32 2×4×5×7, v 2×2×7×6" + expected);
  const Tensor eight_keys(DType::kF32, {2, 4, 5, 8});
  problem_.weights = eight_keys;
  ExpectRefusal({.context = context_}, ErrorCode::kShapeMismatch,
                "weights: shape 2×4×5×8 does not fit v 2×2×7×6; batch, heads and keys must agree");
}

TEST_F(DiagnoseErrors, OfTheProblem) {
  problem_.params.dropout = 0.5f;
  ExpectRefusal({.context = context_}, ErrorCode::kUnsupported, "dropout: 0.5");
  problem_.params.dropout = 0;
  const Tensor w_out(DType::kF32, {3, 23});
  problem_.projections.w_out = w_out;
  ExpectRefusal({.context = context_}, ErrorCode::kShapeMismatch,
                "w_out: shape 3×23; give [out_dim, heads·v_dim] with heads·v_dim = 24");
}

TEST_F(DiagnoseErrors, OfTheChoice) {
  ExpectRefusal({.context = context_}, ErrorCode::kInvalidArgument,
                "options.heads: 4 is not among the 4; give 0 or more, below that", {.heads = {4}});
  ExpectRefusal({.projected = Tensor(DType::kF32, {2, 5, 24})}, ErrorCode::kInvalidArgument,
                "options.heads: only `projected` is observed, which mixes all heads; leave them out, or observe the context",
                {.heads = {1}});
}

}  // namespace
}  // namespace regard
