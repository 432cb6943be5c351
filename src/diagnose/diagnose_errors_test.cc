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
  const Tensor fits(DType::kF32, {3, 24}), integers(DType::kI32, {3, 24}), four(DType::kF32, {4});
  problem_.projections.w_out = integers;
  ExpectRefusal({.context = context_}, ErrorCode::kInvalidArgument, "w_out: element type i32 is not a float type");
  problem_.projections = {.w_out = fits, .b_out = four};
  ExpectRefusal({.context = context_}, ErrorCode::kShapeMismatch, "b_out: shape 4; give [out] = [3]");
  problem_.projections = {.b_out = four};
  ExpectRefusal({.context = context_}, ErrorCode::kInvalidArgument, "b_out: given without w_out; give both or neither");
}

TEST_F(DiagnoseErrors, OfWhereQAndKComeFrom) {
  const auto refused = [&](const std::string& part) { ExpectRefusal({.context = context_}, ErrorCode::kShapeMismatch, part); };
  const Tensor seven_tokens(DType::kF32, {2, 7, 3}), one_sequence(DType::kF32, {1, 5, 3}), inputs(DType::kF32, {2, 5, 3});
  for (const Tensor* wrong : {&seven_tokens, &one_sequence}) {
    problem_.inputs = *wrong;
    refused("inputs: shape " + ToString(wrong->shape()) + "; give [batch, tokens, in_dim] with batch 2 and the 5 tokens of q");
  }
  problem_.inputs = inputs;
  const Tensor transposed(DType::kF32, {3, 32}), w_query(DType::kF32, {32, 3}), b_query(DType::kF32, {31});
  problem_.projections = {.w_query = transposed};
  refused("w_query: shape 3×32; give [out_dim, in_dim] 32×3");
  problem_.projections = {.w_query = w_query, .b_query = b_query};
  refused("b_query: shape 31; give [out] = [32]");
  problem_.projections = {.w_key = w_query};
  refused("w_key: shape 32×3; give [out_dim, in_dim] 16×3");
  problem_.projections = {.w_value = w_query};
  refused("w_value: shape 32×3; give [out_dim, in_dim] 12×3");
  problem_.projections = {}, problem_.inputs = {};
  problem_.q_pre_rope = k_;
  refused("q_pre_rope: shape 2×2×7×8; give 2×4×5×8, as the rotated one is");
  problem_.q_pre_rope = {}, problem_.k_pre_rope = q_;
  refused("k_pre_rope: shape 2×4×5×8; give 2×2×7×8, as the rotated one is");
  problem_.k_pre_rope = {};
  const Tensor three_sequences(DType::kI32, {3, 5}), six_tokens(DType::kI32, {6}), rank_3(DType::kI32, {1, 2, 5});
  for (const Tensor* wrong : {&three_sequences, &six_tokens, &rank_3}) {
    problem_.positions = *wrong;
    refused("positions: shape " + ToString(wrong->shape()) +
            "; give [tokens] or [batch, tokens] with batch 2 and q_len 5 or kv_len 7 tokens");
  }
}

// The inputs are those of q; keys of a cache before them come from elsewhere.
TEST_F(DiagnoseErrors, NoneOfInputsBehindACache) {
  const Tensor inputs = Numbers(DType::kF32, {2, 5, 3}, 5), w_query = Numbers(DType::kF32, {32, 3}, 6),
               w_key = Numbers(DType::kF32, {16, 3}, 7), b_key = Numbers(DType::kF32, {16}, 8);
  problem_.inputs = inputs;
  problem_.projections = {.w_query = w_query, .w_key = w_key, .b_key = b_key, .num_heads = 4, .num_kv_heads = 2};
  EXPECT_EQ(Diagnose(problem_, {.context = context_}, {}, {.pairs = false}).verdict, Verdict::kUnexplained);
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
