// The smallest inputs with known wrong answers, every fault of the catalogue on problems that show it, and results that are right.
#include "regard/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>

#include "diagnose/fault.h"
#include "diagnose/search.h"
#include "tests/support/random_problem.h"

namespace regard {

// What gtest shows of a diagnosis.
void PrintTo(const Diagnosis& d, std::ostream* out) {
  *out << Name(d.verdict);
  for (const Explanation& e : d.explanations) *out << " " << e.id;
}

namespace {

using internal::Case;
using internal::Evaluator;
using internal::Hypothesis;
using internal::RowId;
using internal::RowState;
using internal::Variant;

Tensor F32(const Dims& shape, std::initializer_list<float> values) { return Tensor::Of<float>(shape, values); }

Tensor AllOf(float value, const Dims& shape) {
  Tensor t(DType::kF32, shape);
  std::fill_n(t.MutableAs<float>(), t.num_elements(), value);
  return t;
}

// Whether `id` is the first explanation or ties with it.
bool Names(const Diagnosis& d, const std::string& id) {
  for (int n = 0; n < std::max(d.ties, 1) && n < static_cast<int>(d.explanations.size()); ++n) {
    if (d.explanations[static_cast<std::size_t>(n)].id == id) return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------------------------------- probes

TEST(DiagnoseProbes, ColumnSoftmax) {
  const Tensor q = F32({2, 1}, {1, 0}), k = F32({2, 1}, {0, 1}), v = F32({2, 1}, {1, 2});
  const DiagnosisProblem p{.q = q, .k = k, .v = v, .params = {.scale = 1.0f}};
  EXPECT_EQ(Diagnose(p, {.context = F32({2, 1}, {1.7310586f, 1.5f})}).verdict, Verdict::kMatch);
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({2, 1}, {1.9621172f, 1.0378828f})}), "F60");
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({2, 1}, {1.5f, 1.2689414f})}), "F94");
}

TEST(DiagnoseProbes, ScaleOfFour) {
  const Tensor q = F32({1, 4}, {2, 0, 0, 0}), k = F32({2, 4}, {2, 0, 0, 0, 0, 0, 0, 0}), v = F32({2, 2}, {1, 0, 0, 1});
  const DiagnosisProblem p{.q = q, .k = k, .v = v};
  EXPECT_EQ(Diagnose(p, {.context = F32({1, 2}, {0.8807971f, 0.1192029f})}).verdict, Verdict::kMatch);
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({1, 2}, {0.98201379f, 0.01798621f})}), "F01");
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({1, 2}, {0.73105858f, 0.26894142f})}), "F02");
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({1, 2}, {0.99966465f, 0.00033535f})}), "F03");
}

TEST(DiagnoseProbes, MaskOfOneRow) {
  const Tensor q = F32({1, 1}, {1}), k = F32({3, 1}, {2, 1, 3}), v = F32({3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  const bool keep[] = {true, true, false};
  const DiagnosisProblem p{.q = q, .k = k, .v = v, .params = {.scale = 1.0f, .mask = View(keep, {1, 3})}};
  EXPECT_EQ(Diagnose(p, {.context = F32({1, 3}, {0.7310586f, 0.2689414f, 0})}).verdict, Verdict::kMatch);
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({1, 3}, {0.24472847f, 0.09003057f, 0.66524096f})}), "F52");
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({1, 3}, {0, 0, 1})}), "F41");
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({1, 3}, {0.42231882f, 0.15536241f, 0.42231880f})}), "F42");
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({1, 3}, {0.24472847f, 0.09003057f, 0})}), "F51");
}

TEST(DiagnoseProbes, EmptyRow) {
  const Tensor q = F32({2, 1}, {1, -1}), k = F32({2, 1}, {1, 2}), v = F32({2, 1}, {1, 2});
  const bool keep[] = {true, true, false, false};
  const DiagnosisProblem p{.q = q, .k = k, .v = v, .params = {.scale = 1.0f, .mask = View(keep, {2, 2})}};
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({2, 1}, {1.7310586f, NAN})}), "F47");
  EXPECT_PRED2(Names, Diagnose(p, {.context = F32({2, 1}, {1.7310586f, 1.5f})}), "F48");
}

TEST(DiagnoseProbes, GroupedHeads) {
  const Tensor q = F32({1, 4, 1, 1}, {1, 1, 1, 1}), k = F32({1, 2, 1, 1}, {1, 1}), v = F32({1, 2, 1, 1}, {10, 20});
  EXPECT_PRED2(Names, Diagnose({.q = q, .k = k, .v = v}, {.context = F32({1, 4, 1, 1}, {10, 20, 10, 20})}), "F16");
  EXPECT_PRED2(Names, Diagnose({.q = q, .k = k, .v = v}, {.context = F32({1, 4, 1, 1}, {10, 10, 10, 10})}), "F15");
}

TEST(DiagnoseProbes, BlocksCapSinkAndMerge) {
  const Tensor q = F32({1, 1}, {1}), v = F32({2, 2}, {1, 0, 0, 1});
  const Tensor rising = F32({2, 1}, {0, 2}), ten = F32({2, 1}, {10, 0}), zero = F32({2, 1}, {0, 0});
  EXPECT_PRED2(
      Names,
      Diagnose({.q = q, .k = rising, .v = v, .params = {.scale = 1.0f}}, {.context = F32({1, 2}, {0.88079708f, 0.88079708f})}),
      "F68");
  EXPECT_PRED2(Names,
               Diagnose({.q = q, .k = ten, .v = v, .params = {.scale = 1.0f, .soft_cap = 1}},
                        {.context = F32({1, 2}, {0.99995460f, 4.53978687e-05f})}),
               "F71");
  const Tensor sink = F32({1}, {0});
  EXPECT_PRED2(
      Names,
      Diagnose({.q = q, .k = zero, .v = v, .params = {.scale = 1.0f, .sinks = sink}}, {.context = F32({1, 2}, {0.5f, 0.5f})}),
      "F72");
  const Tensor keys = F32({4, 1}, {0, 0, 0, 0}), first = F32({4, 1}, {1, 0, 0, 0});
  EXPECT_PRED2(Names,
               Diagnose({.q = q, .k = keys, .v = first, .params = {.scale = 1.0f}}, {.context = F32({1, 1}, {0.17009382f})}),
               "F82");
}

// ----------------------------------------------------------------------------------------------------------- verdicts

TEST(Diagnose, TheOtherAlignmentIsAVariant) {
  const Tensor q = F32({2, 1}, {1, -2}), k = F32({4, 1}, {1, 2, -1, 3}), v = F32({4, 2}, {1, 0, 0, 1, 2, 5, -3, 1});
  const AttentionParams top_left{.causal = true, .q_offset = 0}, bottom_right{.causal = true, .q_offset = 2};
  const AttentionResult theirs = Attention(q, k, v, top_left, {.path = Path::kReference});
  const Diagnosis d = Diagnose({.q = q, .k = k, .v = v, .params = bottom_right}, {.context = theirs.context});
  EXPECT_EQ(d.verdict, Verdict::kVariant) << d.summary;
  EXPECT_TRUE(Names(d, "F37"));
}

// Signed numbers without a pattern.
Tensor Noise(const Dims& shape, double frequency) {
  Tensor t(DType::kF32, shape);
  for (std::int64_t n = 0; n < t.num_elements(); ++n)
    t.MutableAs<float>()[n] = static_cast<float>(1.5 * std::sin(frequency * static_cast<double>(n * n + 3 * n + 1)));
  return t;
}

TEST(Diagnose, SomethingElseIsUnexplained) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9),
               other = Noise({1, 2, 9, 4}, 0.37);
  const Diagnosis d = Diagnose({.q = q, .k = k, .v = v}, {.context = other});
  EXPECT_EQ(d.verdict, Verdict::kUnexplained) << d.summary;
  EXPECT_EQ(d.first_wrong_stage, "context");
  EXPECT_NE(d.next_step.find("dump the weights"), std::string::npos) << d.next_step;
  EXPECT_GT(d.where.largest, 1);
}

// The context alone does not show dropout; the weights, which the next step asks for, do.
TEST(Diagnose, ThatDropoutWasLeftOnTheWeightsTell) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9);
  const Tensor mask = DropoutMask({1, 2, 9, 9}, 0.25f, 3);
  const Stages stages = ComputeStages(q, k, v, {}, {.path = Path::kReference});
  const AttentionResult theirs = Attention(q, k, v, {.dropout = 0.25f, .dropout_seed = 3}, {.path = Path::kReference});
  const DiagnosisProblem p{.q = q, .k = k, .v = v};
  for (const TensorView& scores : {TensorView(), stages.scores.view()}) {
    const Diagnosis blind = Diagnose(p, {.scores = scores, .context = theirs.context}, {}, {.pairs = false});
    EXPECT_EQ(blind.verdict, Verdict::kUnexplained) << blind.summary;
    EXPECT_NE(blind.next_step.find("dump the weights"), std::string::npos) << blind.next_step;
  }
  Tensor dropped = Tensor::CopyOf(stages.weights, DType::kF32);
  for (std::int64_t n = 0; n < dropped.num_elements(); ++n) dropped.MutableAs<float>()[n] *= mask.As<float>()[n];
  EXPECT_TRUE(Names(Diagnose(p, {.weights = dropped, .context = theirs.context}), "F75"));
}

// One place that rounds, each in a context that the bounds of 11 bits hold. What was rounded says which type it was.
TEST(Diagnose, RoundingIsNamedAfterTheTypeThatReproducesIt) {
  const Tensor q = Noise({1, 2, 40, 8}, 0.7), k = Noise({1, 2, 40, 8}, 1.3), v = Noise({1, 2, 40, 8}, 2.9);
  const Tensor weights = ComputeStages(q, k, v, {}, {.path = Path::kReference}).weights;
  const auto rounded = [](const Tensor& x, DType type) { return Tensor::CopyOf(Tensor::CopyOf(x, type), DType::kF32); };
  const auto context = [&](const Tensor& w, const Tensor& values) {
    Tensor result(DType::kF32, {1, 2, 40, 8});
    for (std::int64_t row = 0; row < 80; ++row) {
      for (std::int64_t d = 0; d < 8; ++d) {
        double sum = 0;
        for (std::int64_t j = 0; j < 40; ++j) sum += w(0, row / 40, row % 40, j) * values(0, row / 40, j, d);
        result.MutableAs<float>()[row * 8 + d] = static_cast<float>(sum);
      }
    }
    return result;
  };
  const auto expect = [&](const Tensor& theirs, const char* precision, const char* sentence) {
    const Diagnosis d = Diagnose({.q = q, .k = k, .v = v}, {.context = theirs});
    EXPECT_EQ(d.verdict, Verdict::kRounding) << d.summary;
    EXPECT_EQ(d.precision, precision) << sentence;
    const bool said = std::any_of(d.evidence.begin(), d.evidence.end(),
                                  [&](const std::string& e) { return e.find(sentence) != std::string::npos; });
    EXPECT_TRUE(said) << d.evidence.back();
  };
  expect(context(rounded(weights, DType::kBF16), v), "bf16", "rounding weights to bf16, and nothing else, makes these numbers");
  expect(context(rounded(weights, DType::kF16), v), "tf32", "rounding weights to tf32, and nothing else, makes these numbers");
  expect(context(weights, rounded(v, DType::kBF16)), "bf16", "rounding values to bf16");
  const Tensor q16 = rounded(q, DType::kBF16), k16 = rounded(k, DType::kBF16);
  expect(Tensor::CopyOf(ComputeStages(q16, k16, v, {}, {.path = Path::kReference}).context, DType::kF32), "bf16",
         "rounding q and k to bf16");
}

// What is left to look at, stage by stage.
TEST(Diagnose, TheNextStepGoesByTheStagesThatAreRight) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9),
               other = Noise({1, 2, 9, 4}, 0.37), wrong = Noise({1, 2, 9, 9}, 0.41);
  const Stages right = ComputeStages(q, k, v, {}, {.path = Path::kReference});
  const auto next = [&](const ObservedTensors& observed) {
    return Diagnose({.q = q, .k = k, .v = v}, observed, {}, {.pairs = false}).next_step;
  };
  const auto says = [&](const ObservedTensors& observed, const char* part) {
    const std::string step = next(observed);
    EXPECT_NE(step.find(part), std::string::npos) << step;
  };
  says({.weights = right.weights, .context = other}, "dump v as the kernel sees it");
  says({.weights = wrong, .context = other}, "dump the scores");
  says({.scores = wrong, .weights = wrong, .context = other}, "dump q and k as the kernel sees them");
  says({.scores = right.scores, .weights = wrong, .context = other}, "dump the masked_scores");
  says({.scores = right.scores, .masked_scores = wrong, .weights = wrong, .context = other}, "dump mask and bias");
  says({.scores = right.scores, .masked_scores = right.masked_scores, .weights = wrong, .context = other}, "the softmax runs");
}

TEST(Diagnose, TwoMistakesAtOnce) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9);
  const AttentionResult wrong = Attention(q, k, v, {.scale = 1.0f}, {.path = Path::kReference});
  const Diagnosis d = Diagnose({.q = q, .k = k, .v = v, .params = {.causal = true}}, {.context = wrong.context});
  EXPECT_EQ(d.verdict, Verdict::kFault) << d.summary;
  EXPECT_TRUE(Names(d, "F01+F35")) << d.summary;
}

// A constant that is in no list, and one that only some heads have.
TEST(Diagnose, SolvesForConstants) {
  const Tensor q = Noise({1, 3, 11, 4}, 0.7), k = Noise({1, 3, 11, 4}, 1.3), v = Noise({1, 3, 11, 5}, 2.9);
  const DiagnosisProblem p{.q = q, .k = k, .v = v};
  const Diagnosis d = Diagnose(p, {.context = Attention(q, k, v, {.scale = 0.3137f}, {.path = Path::kReference}).context});
  ASSERT_TRUE(Names(d, "F05")) << d.summary;
  EXPECT_EQ(d.explanations[0].params[0].name, "scale");
  EXPECT_NEAR(d.explanations[0].params[0].value, 0.3137, 1e-5);
  Tensor some = Attention(q, k, v, {}, {.path = Path::kReference}).context;
  const Tensor causal = Attention(q, k, v, {.causal = true}, {.path = Path::kReference}).context;
  for (std::int64_t n = 2 * 11 * 5; n < some.num_elements(); ++n) some.MutableAs<float>()[n] = causal.As<float>()[n];
  const Diagnosis in_one_head = Diagnose(p, {.context = some});
  EXPECT_TRUE(Names(in_one_head, "F36")) << in_one_head.summary;
  EXPECT_EQ(in_one_head.explanations[0].scope, "only head 2");
}

// Scores near 0 make every row of the context nearly the mean of v: in another order they differ by what bf16 explains as well, but a
// mistake that leaves f32's rounding alone is no chance.
TEST(Diagnose, ReversedTokensAreNoLowPrecision) {
  for (const bool causal : {false, true}) {
    for (const double spread : {1.0, 0.01}) {
      const Tensor q = Noise({1, 2, 64, 16}, 0.7), k = Noise({1, 2, 64, 16}, 1.3), v = Noise({1, 2, 64, 16}, 2.9);
      Tensor small = q, reversed = q;
      for (std::int64_t n = 0; n < q.num_elements(); ++n) small.MutableAs<float>()[n] *= static_cast<float>(spread);
      for (std::int64_t n = 0; n < q.num_elements(); ++n)
        reversed.MutableAs<float>()[n] = small.As<float>()[(n / 1024 * 64 + 63 - n / 16 % 64) * 16 + n % 16];
      const DiagnosisProblem p{.q = small, .k = k, .v = v, .params = {.causal = causal}};
      const Diagnosis d = Diagnose(p, {.context = Attention(reversed, k, v, p.params, {.path = Path::kReference}).context});
      ASSERT_TRUE(Names(d, "F104")) << d.summary;
      EXPECT_EQ(d.explanations[0].params[0].text, "q");
    }
  }
}

TEST(Diagnose, TwoRunsThatDiffer) {
  const Tensor q = F32({3, 1}, {1, -2, 1}), k = F32({3, 1}, {1, 2, -1}), v = F32({3, 2}, {1, 0, 0, 1, 2, 5});
  const AttentionResult right = Attention(q, k, v, {.scale = 1.0f}, {.path = Path::kReference});
  Tensor raced = right.context;
  raced.MutableAs<float>()[0] += 1;
  EXPECT_PRED2(Names,
               Diagnose({.q = q, .k = k, .v = v, .params = {.scale = 1.0f}}, {.context = right.context}, {.context = raced}),
               "F91");
}

// Of one run the contexts, of the other what w_out makes of them: they share one row a token.
TEST(Diagnose, TwoRunsThatShareTheProjectedContextAlone) {
  const Tensor q = Noise({2, 3, 5, 4}, 1), k = Noise({2, 3, 9, 4}, 2), v = Noise({2, 3, 9, 2}, 3), w_out = Noise({7, 6}, 4);
  const DiagnosisProblem p{.q = q, .k = k, .v = v, .projections = {.w_out = w_out, .num_heads = 3}};
  const AttentionResult right = Attention(q, k, v);
  const Tensor projected = ProjectContext(right.context, p.projections), other = Noise({2, 5, 7}, 5);
  const Tensor wrong = Noise({2, 3, 5, 2}, 6);
  for (const bool swapped : {false, true}) {
    const ObservedTensors both{.context = wrong, .projected = other}, alone{.projected = projected};
    const Diagnosis d = Diagnose(p, swapped ? alone : both, swapped ? both : alone, {});
    EXPECT_TRUE(std::any_of(d.evidence.begin(), d.evidence.end(), [](const std::string& line) {
      return line.rfind("10 of 10 rows differ between the runs", 0) == 0;
    })) << testing::PrintToString(d.evidence);
    EXPECT_EQ(d.coverage_note, swapped ? "all 10 rows" : "all 30 rows");
  }
}

// Fewer columns than keys, so that cells are not taken for keys; tests with the address sanitizer see who does.
TEST(Diagnose, TheProjectedContextAlone) {
  const Tensor q = Noise({1, 2, 5, 4}, 1), k = Noise({1, 2, 300, 4}, 2), v = Noise({1, 2, 300, 2}, 3), w_out = Noise({3, 4}, 4);
  const DiagnosisProblem p{.q = q, .k = k, .v = v, .projections = {.w_out = w_out, .num_heads = 2}};
  Tensor projected = ProjectContext(Attention(q, k, v).context, p.projections);
  EXPECT_EQ(Diagnose(p, {.projected = projected}).verdict, Verdict::kMatch);
  projected.MutableAs<float>()[4 * 3 + 1] += 1;
  const Diagnosis d = Diagnose(p, {.projected = projected}, {}, {.pairs = false});
  EXPECT_EQ(d.verdict, Verdict::kUnexplained);
  EXPECT_EQ(d.where.keys, std::vector<std::int64_t>());
  EXPECT_EQ(d.where.text, "row 4");
}

TEST(Diagnose, OneNumberIsNoAttention) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9);
  const Diagnosis d = Diagnose({.q = q, .k = k, .v = v}, {.context = AllOf(3, {1, 2, 9, 4})});
  EXPECT_EQ(d.verdict, Verdict::kUnexplained) << d.summary;
  EXPECT_NE(d.evidence.back().find("one number"), std::string::npos) << d.evidence.back();
}

TEST(Diagnose, RowsNeverWritten) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9);
  const DiagnosisProblem p{.q = q, .k = k, .v = v, .params = {.causal = true}};
  Tensor context = Attention(q, k, v, p.params, {.path = Path::kReference}).context;
  const Diagnosis all = Diagnose(p, {.context = Tensor(DType::kF32, {1, 2, 9, 4})});
  EXPECT_EQ(all.explanations.at(0).id, "F102") << all.summary;
  EXPECT_LE(all.ties, 1);
  std::fill_n(context.MutableAs<float>() + 9 * 4, 9 * 4, 0.0f);
  const Diagnosis head = Diagnose(p, {.context = context});
  EXPECT_EQ(head.explanations.at(0).id, "F102") << head.summary;
  EXPECT_EQ(head.explanations.at(0).scope, "only head 1");
}

// One wrong cell, row or head beside results that are right: no rounding spares all others. In f32, f16 and bf16 storage.
TEST(Diagnose, RoundingSparesNothing) {
  const Tensor q = Noise({1, 4, 21, 8}, 0.7), k = Noise({1, 4, 21, 8}, 1.3), v = Noise({1, 4, 21, 16}, 2.9);
  const DiagnosisProblem p{.q = q, .k = k, .v = v};
  const Tensor right = Attention(q, k, v, {}, {.path = Path::kReference}).context;
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  const std::int64_t row = 21 * 16 + 5 * 16;  // head 1, row 5
  const std::pair<std::int64_t, std::int64_t> ranges[] = {{row + 3, 1}, {row, 16}, {21 * 16, 21 * 16}};
  for (const DType type : types) {
    for (const auto& [begin, count] : ranges) {
      for (const float part : {1.0f, 4.0f, 16.0f}) {
        Tensor wrong(type, right.shape());
        for (std::int64_t n = 0; n < right.num_elements(); ++n) {
          const float least = type == DType::kF32 ? 1e-4f : type == DType::kF16 ? 2e-3f : 1.6e-2f;
          const float x = right.As<float>()[n] + (n >= begin && n < begin + count ? part * least : 0);
          if (type == DType::kF32) wrong.MutableAs<float>()[n] = x;
          if (type == DType::kF16) wrong.MutableAs<F16>()[n] = ToF16(x);
          if (type == DType::kBF16) wrong.MutableAs<BF16>()[n] = ToBF16(x);
        }
        const Diagnosis d = Diagnose(p, {.context = wrong}, {}, {.pairs = false});
        EXPECT_EQ(d.verdict, Verdict::kUnexplained) << Name(type) << " " << count << " cells, part " << part << ": " << d.summary;
        EXPECT_EQ(d.where.heads, std::vector<std::int64_t>{1});
      }
    }
  }
}

// Scores exact but for a block of keys: every row is wrong, and still rounding would not spare the other keys.
// Over many keys values cancel, and bounds by Σ |w·v| are wider than the context itself.
TEST(Diagnose, NumbersAsLargeAsTheContextAreNoRounding) {
  const Tensor q = Noise({1, 2, 512, 64}, 0.7), k = Noise({1, 2, 512, 64}, 1.3), v = Noise({1, 2, 512, 64}, 2.9);
  const Tensor right = Attention(q, k, v).context;
  double squares = 0;
  for (std::int64_t n = 0; n < right.num_elements(); ++n) squares += right.As<float>()[n] * right.As<float>()[n];
  const float rms = static_cast<float>(std::sqrt(squares / static_cast<double>(right.num_elements())));
  Tensor noise = Noise({1, 2, 512, 64}, 4.1), near = right;
  for (std::int64_t n = 0; n < noise.num_elements(); ++n) {
    noise.MutableAs<float>()[n] *= 0.7f * rms;
    near.MutableAs<float>()[n] += noise.As<float>()[n];
  }
  for (const Tensor* wrong : {&noise, &near}) {
    const Diagnosis d = Diagnose({.q = q, .k = k, .v = v}, {.context = *wrong}, {}, {.pairs = false});
    EXPECT_EQ(d.verdict, Verdict::kUnexplained) << d.summary;
  }
}

TEST(Diagnose, ABlockOfKeysIsNoRounding) {
  const Tensor q = Noise({1, 2, 21, 8}, 0.7), k = Noise({1, 2, 21, 8}, 1.3), v = Noise({1, 2, 21, 8}, 2.9);
  const Stages right = ComputeStages(q, k, v, {});
  for (const float factor : {1.001f, 0.99f}) {
    Tensor weights = right.weights;
    for (std::int64_t n = 0; n < weights.num_elements(); ++n) {
      if (n % 21 >= 8 && n % 21 < 16) weights.MutableAs<float>()[n] *= factor;
    }
    const Diagnosis d = Diagnose({.q = q, .k = k, .v = v}, {.weights = weights}, {}, {.pairs = false});
    EXPECT_EQ(d.verdict, Verdict::kUnexplained) << factor << ": " << d.summary;
  }
}

// Operands of 11 bits and scores of about ±1,000, which leave most rows exact: one key has all the weight, or the cap is reached.
TEST(Diagnose, RoundingMaySpareManyRows) {
  const Tensor q = Noise({1, 6, 21, 8}, 0.7), k = Noise({1, 6, 21, 8}, 1.3), v = Noise({1, 6, 21, 8}, 2.9);
  const auto rounded = [](const Tensor& from) {
    Tensor to(DType::kF32, from.shape());
    for (std::int64_t n = 0; n < from.num_elements(); ++n) to.MutableAs<float>()[n] = ToFloat(ToF16(from.As<float>()[n]));
    return to;
  };
  for (const float soft_cap : {0.0f, 1.0f, 5.0f}) {
    const AttentionParams params{.scale = 100.0f, .soft_cap = soft_cap};
    const AttentionResult theirs = Attention(rounded(q), rounded(k), v, params, {.path = Path::kReference});
    const Diagnosis d = Diagnose({.q = q, .k = k, .v = v, .params = params}, {.context = theirs.context});
    EXPECT_EQ(d.verdict, Verdict::kRounding) << soft_cap << ": " << d.summary;
    EXPECT_LT(d.where.rows_wrong, d.where.rows_compared) << "no row is exact: the test tests nothing";
  }
}

// A window that ends at the query is a causal mask, and a diagonal that ends at the last key the other alignment: one name each.
TEST(Diagnose, MasksThatAreTheSameAreNoTie) {
  const Tensor q = Noise({1, 2, 5, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9);
  const Tensor context = Attention(q, k, v, {.causal = true, .q_offset = 4}, {.path = Path::kReference}).context;
  const Diagnosis causal = Diagnose({.q = q, .k = k, .v = v, .params = {.q_offset = 4}}, {.context = context});
  EXPECT_EQ(causal.explanations.at(0).id, "F36") << causal.summary;
  EXPECT_LE(causal.ties, 1);
  const Diagnosis aligned = Diagnose({.q = q, .k = k, .v = v, .params = {.causal = true, .q_offset = 0}}, {.context = context});
  EXPECT_EQ(aligned.explanations.at(0).id, "F37") << aligned.summary;
  EXPECT_LE(aligned.ties, 1);
}

TEST(Diagnose, StopsOnRequest) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9);
  std::stop_source source;
  double last = 0;
  DiagnoseOptions options;
  options.stop_token = source.get_token();
  options.on_progress = [&](double done) {
    last = done;
    source.request_stop();
  };
  try {
    Diagnose({.q = q, .k = k, .v = v}, {.context = Noise({1, 2, 9, 4}, 0.37)}, {}, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  }
  EXPECT_GT(last, 0);
  EXPECT_LT(last, 1);
}

TEST(Diagnose, ChosenHeadsAlone) {
  const Tensor q = Noise({1, 3, 9, 4}, 0.7), k = Noise({1, 3, 9, 4}, 1.3), v = Noise({1, 3, 9, 4}, 2.9);
  Tensor context = Attention(q, k, v, {}, {.path = Path::kReference}).context;
  context.MutableAs<float>()[0] += 1;
  const DiagnosisProblem p{.q = q, .k = k, .v = v};
  EXPECT_EQ(Diagnose(p, {.context = context}).verdict, Verdict::kUnexplained);
  const Diagnosis d = Diagnose(p, {.context = context}, {}, {.heads = {1, 2}});
  EXPECT_EQ(d.verdict, Verdict::kMatch);
  EXPECT_EQ(d.coverage_note, "all 18 rows of heads 1, 2");
}

TEST(Diagnose, TheThirdStageAlone) {
  const Tensor q = Noise({1, 4, 5, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 3}, 2.9);
  const Stages stages = ComputeStages(q, k, v, {});
  const DiagnosisProblem p{.v = v, .weights = stages.weights};
  EXPECT_EQ(Diagnose(p, {.context = stages.context}).verdict, Verdict::kMatch);
  Tensor twice = stages.context;
  for (std::int64_t n = 0; n < twice.num_elements(); ++n) twice.MutableAs<float>()[n] *= 2;
  EXPECT_PRED2(Names, Diagnose(p, {.context = twice}), "F08");
}

// Data so narrow that the mean of v would pass.
// Hypotheses of repeated keys have more of them than the weights that are given.
TEST(Diagnose, TheThirdStageOnOneKvHead) {
  const Tensor weights = AllOf(0.2f, {1, 4, 3, 5}), v = Noise({1, 1, 5, 2}, 1);
  const Tensor context = Noise({1, 4, 3, 2}, 2);
  EXPECT_EQ(Diagnose({.v = v, .weights = weights}, {.context = context}).verdict, Verdict::kUnexplained);
}

TEST(Diagnose, SaysWhenInputsHideFaults) {
  Tensor v = Noise({1, 2, 9, 4}, 2.9), q = Noise({1, 2, 9, 4}, 0.7);
  for (std::int64_t n = 0; n < v.num_elements(); ++n) v.MutableAs<float>()[n] = 0.75f + 0.001f * v.MutableAs<float>()[n];
  const Diagnosis d = Diagnose({.q = q, .k = q, .v = v}, {.context = Attention(q, q, v, {}).context});
  EXPECT_EQ(d.verdict, Verdict::kMatch);
  EXPECT_NE(d.evidence.back().find("F93"), std::string::npos) << d.evidence.back();
}

TEST(Diagnose, ObservedShapes) {
  const Tensor q = Noise({2, 3, 7, 4}, 0.7), k = Noise({2, 3, 7, 4}, 1.3), v = Noise({2, 3, 7, 4}, 2.9);
  const AttentionResult r = Attention(q, k, v, {});
  const DiagnosisProblem p{.q = q, .k = k, .v = v};
  const Tensor bshd = Tensor::CopyOf(r.context.view().Transpose(1, 2));
  const auto as = [&](const Dims& shape) { return View(bshd.As<float>(), shape); };
  EXPECT_EQ(Diagnose(p, {.context = bshd}).verdict, Verdict::kMatch);
  EXPECT_EQ(Diagnose(p, {.context = as({2, 7, 12})}).verdict, Verdict::kMatch);
  EXPECT_EQ(Diagnose(p, {.context = as({14, 12})}).verdict, Verdict::kMatch);
  EXPECT_EQ(Diagnose(p, {.context = as({1, 2, 7, 3, 4})}).verdict, Verdict::kMatch);
  EXPECT_EQ(Diagnose(p, {.lse = r.lse.view().Unsqueeze(3)}).verdict, Verdict::kMatch);
}

// Inputs that lie as [batch, tokens, heads, dim], read as if heads came first, with a context that lies either way.
TEST(Diagnose, TheOtherLayoutIsRecognised) {
  for (const std::int64_t tokens : {3, 5, 7}) {
    for (const bool causal : {false, true}) {
      const Tensor q = Noise({2, tokens, 3, 4}, 0.7), k = Noise({2, tokens, 3, 4}, 1.3), v = Noise({2, tokens, 3, 6}, 2.9);
      const auto heads_first = [](const Tensor& t) { return t.view().Transpose(1, 2); };
      const AttentionParams params{.causal = causal};
      const AttentionResult right = Attention(heads_first(q), heads_first(k), heads_first(v), params);
      for (const Tensor& context : {right.context, Tensor::CopyOf(heads_first(right.context))}) {
        const Diagnosis d = Diagnose({.q = q, .k = k, .v = v, .params = params}, {.context = context});
        ASSERT_TRUE(Names(d, "F100")) << d.summary;
        EXPECT_EQ(d.explanations[0].params.at(0).text, "[batch, tokens, heads, dim]");
        EXPECT_LT(d.explanations[0].residual, 1e-5);
        EXPECT_NE(d.explanations[0].advice.find("--layout bshd"), std::string::npos);
      }
      if (tokens == 3) continue;
      try {
        (void)Diagnose({.q = q, .k = k, .v = v, .params = params}, {.lse = right.lse});
        ADD_FAILURE() << "the lse fits";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("--layout bshd"), std::string::npos) << error.what();
      }
    }
  }
}

// As many as models have: more than there are rows that everything else is tried on.
TEST(Diagnose, ManyHeadsAndSequencesInAnotherOrder) {
  const Tensor q = Noise({40, 1, 5, 4}, 0.7), k = Noise({40, 1, 7, 4}, 1.3), v = Noise({40, 1, 7, 6}, 2.9);
  const Tensor right = Attention(q, k, v, {}, {.path = Path::kReference}).context;
  Tensor shuffled = right;
  for (std::int64_t n = 0; n < right.num_elements(); ++n) {
    const std::int64_t size = 5 * 6, from = (n / size * 7 + 3) % 40;
    shuffled.MutableAs<float>()[n] = right.As<float>()[from * size + n % size];
  }
  const Diagnosis sequences = Diagnose({.q = q, .k = k, .v = v}, {.context = shuffled});
  EXPECT_TRUE(Names(sequences, "F105")) << sequences.summary;
  const auto as_heads = [](const Tensor& t) { return t.view().Transpose(0, 1); };
  const DiagnosisProblem p{.q = as_heads(q), .k = as_heads(k), .v = as_heads(v)};
  const Diagnosis heads = Diagnose(p, {.context = as_heads(shuffled)});
  EXPECT_TRUE(Names(heads, "F99")) << heads.summary;
  EXPECT_EQ(heads.explanations.at(0).params.at(0).text.substr(0, 10), "3,10,17,24");
}

// One key of the other reading makes v of everything: that says nothing about the layout.
TEST(Diagnose, OneHeadIsNoOtherLayout) {
  const Tensor q = Noise({1, 1, 9, 4}, 0.7), k = Noise({1, 1, 9, 4}, 1.3), v = Noise({1, 1, 9, 4}, 2.9);
  EXPECT_FALSE(Names(Diagnose({.q = q, .k = k, .v = v}, {.context = v}), "F100"));
}

// Keys repeated along tokens are more than the problem has; tests with the address sanitizer see who reads a bias or queries beside them.
TEST(Diagnose, PairsWithMoreKeysThanThereAre) {
  const Tensor q = Noise({1, 3, 7, 4}, 0.7), k = Noise({1, 1, 7, 4}, 1.3), v = Noise({1, 1, 7, 4}, 2.9);
  const Tensor bias = Noise({1, 3, 7, 7}, 3.7), slopes = F32({3}, {0.5f, 0.25f, 0.125f}), other = Noise({1, 3, 7, 4}, 5.1);
  for (const AttentionParams& params :
       {AttentionParams{}, AttentionParams{.bias = bias}, AttentionParams{.alibi_slopes = slopes}}) {
    const Diagnosis d = Diagnose({.q = q, .k = k, .v = v, .params = params}, {.context = other}, {}, {.threads = 1});
    EXPECT_EQ(d.verdict, Verdict::kUnexplained) << d.summary;
  }
}

TEST(Diagnose, RowsWithoutAnyKeys) {
  const Tensor q = Noise({1, 2, 3, 4}, 0.7), none(DType::kF32, {1, 2, 0, 4});
  const Diagnosis d = Diagnose({.q = q, .k = none, .v = none}, {.context = Noise({1, 2, 3, 4}, 2.9)});
  EXPECT_EQ(d.where.rows_wrong, 6);
}

// Whatever overflows makes NaN of everything: constants and pairs that do too explain nothing.
TEST(Diagnose, NaNEverywhereIsNoPair) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9);
  const Diagnosis d = Diagnose({.q = q, .k = k, .v = v}, {.context = AllOf(NAN, {1, 2, 9, 4})});
  for (const Explanation& e : d.explanations) EXPECT_EQ(e.id.find('+'), std::string::npos) << e.id;
  EXPECT_EQ(d.verdict, Verdict::kUnexplained) << d.summary;
}

// What several mistakes make is headed by the one that is the least odd.
TEST(Diagnose, TiesBeginWithTheUsualMistake) {
  const Tensor q = Noise({1, 2, 9, 4}, 0.7), k = Noise({1, 2, 9, 4}, 1.3), v = Noise({1, 2, 9, 4}, 2.9), bias = Noise({9, 9}, 3.1);
  const bool keep[] = {true, true, false, true, false, true, true, true, false};
  const DiagnosisProblem masked{.q = q, .k = k, .v = v, .params = {.mask = View(keep, {1, 9})}};
  const DiagnosisProblem biased{.q = q, .k = k, .v = v, .params = {.bias = bias}};
  const Tensor plain = Attention(q, k, v, {}, {.path = Path::kReference}).context;
  const Diagnosis mask_ignored = Diagnose(masked, {.context = plain}), bias_ignored = Diagnose(biased, {.context = plain});
  EXPECT_EQ(mask_ignored.explanations.at(0).id, "F49") << mask_ignored.summary;  // it is the same for all queries
  EXPECT_EQ(bias_ignored.explanations.at(0).id, "F52") << bias_ignored.summary;
}

// ---------------------------------------------------------------------------------------------------- right results

// Every path's output on every kind of problem, stored in its own type, is a match or rounding.
TEST(Diagnose, AccusesNoCorrectOutput) {
  for (const std::uint64_t seed : test::Seeds(150)) {
    const test::TestProblem p = test::MakeProblem(seed);
    SCOPED_TRACE(p.description);
    for (const Path path : {Path::kReference, Path::kStaged}) {
      const AttentionResult r = Attention(p.q, p.k, p.v, p.params, {.path = path});
      if (r.context.num_elements() == 0) continue;
      const Diagnosis d = Diagnose({.q = p.q, .k = p.k, .v = p.v, .params = p.params}, {.lse = r.lse, .context = r.context});
      EXPECT_TRUE(d.verdict == Verdict::kMatch || d.verdict == Verdict::kRounding) << Name(path) << ": " << d.summary;
    }
  }
}

// Biases of −10⁹ leave f32 no scores to compare, so that the other key may have all the weight; its value is rounded besides.
TEST(Diagnose, ABlurredRowMayTakeTheLargestValue) {
  const float q[] = {1}, k[] = {34, 0}, v[] = {-80, 336.113f}, bias[] = {-1e9f, -1e9f};
  const float other = std::nextafter(v[1], 1e9f);
  AttentionParams params;
  params.scale = 1;
  params.bias = View(bias, {1, 1, 1, 2});
  const DiagnosisProblem p{.q = View(q, {1, 1, 1, 1}), .k = View(k, {1, 1, 2, 1}), .v = View(v, {1, 1, 2, 1}), .params = params};
  const Diagnosis d = Diagnose(p, {.context = View(&other, {1, 1, 1, 1})});
  EXPECT_EQ(d.verdict, Verdict::kMatch) << d.summary;
}

// --------------------------------------------------------------------------------------------------- the whole catalogue

// A hypothesis makes an output; the diagnosis of that output must name its fault, whatever else the hypothesis could be called.
TEST(Diagnose, NamesWhatEveryHypothesisMakes) {
  test::ProblemOptions plain;
  plain.any_type = plain.any_layout = plain.empty_shapes = false;
  plain.max_tokens = 24;
  std::set<std::string> tried;
  int named = 0, total = 0;
  for (const std::uint64_t seed : test::Seeds(30)) {
    const test::TestProblem p = test::MakeProblem(seed, plain);
    if (p.family != test::Family::kNormal && p.family != test::Family::kWide) continue;
    const DiagnosisProblem given{.q = p.q, .k = p.k, .v = p.v, .params = p.params};
    const AttentionResult right = Attention(p.q, p.k, p.v, p.params, {.path = Path::kReference});
    const Case c(given, {.context = right.context}, {.threads = 1});
    std::set<const internal::Fault*> seen;
    for (const Hypothesis& h : internal::ProposeAll(c).hypotheses) {
      if (!seen.insert(h.fault).second) continue;  // the first of each fault
      Variant v = c.evaluator().Unedited();
      h.edit(v);
      Tensor wrong(DType::kF32, {p.batch, p.heads, p.q_len, p.v_dim});
      float* to = wrong.MutableAs<float>();
      RowState s;
      double change = 0;
      for (const RowId& row : c.rows()) {
        const internal::Fit fit = c.Compare(v, row, &s);
        change = std::max(change, fit.worst[internal::kNumPrecisions - 1]);
        for (std::size_t d = 0; d < s.context.size(); ++d) *to++ = static_cast<float>(s.context[d]);
      }
      if (!(change > 1)) continue;  // this problem hides the fault
      const Diagnosis d = Diagnose(given, {.context = wrong}, {}, {.pairs = false, .threads = 1});
      ++total;
      tried.insert(h.fault->id);
      const bool found =
          std::any_of(d.explanations.begin(), d.explanations.end(), [&](const Explanation& e) { return e.id == h.fault->id; });
      named += found;
      EXPECT_NE(d.verdict, Verdict::kMatch) << h.fault->id << " " << p.description;
    }
  }
  EXPECT_GE(named, total * 95 / 100) << named << " of " << total;
  EXPECT_GE(tried.size(), 30u);
}

TEST(Catalogue, EveryEntryIsWhole) {
  std::set<std::string> ids;
  for (const CatalogueEntry& entry : FaultCatalogue()) {
    EXPECT_TRUE(ids.insert(entry.id).second) << entry.id;
    for (const std::string& text : {entry.name, entry.formula, entry.tell_tale, entry.advice})
      EXPECT_FALSE(text.empty()) << entry.id;
  }
  EXPECT_GE(ids.size(), 60u);
}

TEST(Ranges, AreShort) {
  EXPECT_EQ(internal::RangesText({}), "");
  EXPECT_EQ(internal::RangesText({4}), "4");
  EXPECT_EQ(internal::RangesText({0, 1, 5, 6, 7, 9}), "0, 1, 5–7, 9");
}

}  // namespace
}  // namespace regard
