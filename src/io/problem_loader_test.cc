#include "io/problem_loader.h"

#include <cmath>
#include <limits>

#include "io/problem_test_support.h"

namespace regard::io {
namespace {

TEST(ProblemLoaderTest, EveryAliasOfTheOperands) {
  const char* names[][3] = {
      {"q", "k", "v"}, {"Q", "K", "V"}, {"query", "key", "value"}, {"query_states", "key_states", "value_states"}};
  for (const auto& name : names) {
    const Problem p =
        ProblemFile().Add(name[0], Numbers({4, 3}, 1)).Add(name[1], Numbers({4, 3}, 2)).Add(name[2], Numbers({4, 3}, 3)).Load();
    EXPECT_EQ(p.kind, Problem::Kind::kAttention);
    EXPECT_EQ(p.v(0, 0, 1, 2), Numbers({4, 3}, 3)(1, 2));
  }
  for (const char* name : {"inputs", "x", "hidden_states"}) {
    EXPECT_EQ(ProblemFile().Add(name, Numbers({4, 3})).Load().kind, Problem::Kind::kSelfAttention);
  }
}

TEST(ProblemLoaderTest, SeveralFilesAndNames) {
  const TemporaryFolder folder;
  const Tensor q = Numbers({4, 3}, 1), k = Numbers({5, 3}, 2), v = Numbers({5, 2}, 3);
  WriteNpy(folder / "a.npy", q);
  WriteNpz(folder / "b.npz", {{.name = "key", .tensor = k}});
  Spill(folder / "c.bin", std::string_view(static_cast<const char*>(v.view().data()), 40));
  const Problem p = LoadProblem({"query=" + folder / "a.npy", folder / "b.npz", "v=" + folder / "c.bin:f32:5x2"});
  ExpectEqualElements(p.q, q.view().Unsqueeze(0).Unsqueeze(0));
  ExpectEqualElements(p.v, v.view().Unsqueeze(0).Unsqueeze(0));
  EXPECT_EQ(p.shape.kv_len, 5);
}

TEST(ProblemLoaderTest, RowsOfTextUnderAnyName) {
  const TemporaryFolder folder;
  Spill(folder / "q.txt", "one 1 2\ntwo 3 4\n");
  Spill(folder / "kv.txt", "a 1 0\nb 0 1\nc 1 1\n");
  const Problem p = LoadProblem({"q=" + folder / "q.txt", "k=" + folder / "kv.txt", "v=" + folder / "kv.txt"});
  EXPECT_EQ(p.q_tokens.values, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(p.k_tokens.values, (std::vector<std::string>{"a", "b", "c"}));
  const Problem alone = LoadProblem({folder / "kv.txt"});
  EXPECT_EQ(alone.kind, Problem::Kind::kSelfAttention);
  EXPECT_EQ(alone.q_tokens.At(0, 2), "c");
}

TEST(ProblemLoaderTest, AFileWhoseNameHoldsAnEqualsSign) {
  const TemporaryFolder folder;
  WriteNpz(folder / "run=3.npz", {{.name = "x", .tensor = Numbers({4, 3})}});
  EXPECT_EQ(LoadProblem({folder / "run=3.npz"}).shape.q_len, 4);
}

// ------------------------------------------------------------------------------------------------------- self-attention

TEST(ProblemLoaderTest, SimplifiedSelfAttentionHasScaleOne) {
  const Problem p = ProblemFile().Add("inputs", Numbers({6, 3})).Load();
  EXPECT_EQ(p.scale, 1);
  EXPECT_EQ(p.params.scale, 1.0f);
  EXPECT_EQ(p.q.data(), p.k.data());
  EXPECT_EQ(p.q.data(), p.inputs.data()) << "no copy";
  EXPECT_FALSE(p.HasProjections());
  EXPECT_EQ(p.reading, "read as tokens 6, dim 3; q = k = v = inputs; not causal; scale 1");
  EXPECT_EQ(ProblemFile().Add("inputs", Numbers({6, 3})).Load({.scale = 0.5f}).scale, 0.5f);
}

TEST(ProblemLoaderTest, InputsOfRankThreeAreBatches) {
  const Problem p = ProblemFile().Add("inputs", Numbers({2, 6, 3})).Load();
  EXPECT_EQ(p.q.shape(), Dims({2, 1, 6, 3}));
  EXPECT_EQ(p.reading, "read as batch 2, tokens 6, dim 3; q = k = v = inputs; not causal; scale 1");
  EXPECT_EQ(p.FileShape("context", {2, 1, 6, 3}), Dims({2, 6, 3}));
  EXPECT_EQ(p.FileShape("weights", {2, 1, 6, 6}), Dims({2, 6, 6}));
}

TEST(ProblemLoaderTest, InputsSplitIntoHeads) {
  const Tensor x = Numbers({6, 8});
  const Problem p = ProblemFile().Add("inputs", x).Load({.num_heads = 2});
  EXPECT_EQ(p.q.shape(), Dims({1, 2, 6, 4}));
  EXPECT_EQ(p.q(0, 1, 5, 2), x(5, 6));
  EXPECT_EQ(p.FileShape("context", {1, 2, 6, 4}), Dims({2, 6, 4}));
}

TEST(ProblemLoaderTest, ProjectionsAreThoseOfTheLibrary) {
  const Tensor x = Numbers({2, 5, 6}, 1), wq = Numbers({8, 6}, 2), wk = Numbers({4, 6}, 3), wv = Numbers({6, 6}, 4),
               wo = Numbers({7, 12}, 5);
  const Tensor bq = Numbers({8}, 6), bk = Numbers({4}, 7), bv = Numbers({6}, 8), bo = Numbers({7}, 9);
  const Problem p = ProblemFile()
                        .Add("x", x)
                        .Add("w_query", wq)
                        .Add("w_key", wk)
                        .Add("w_value", wv)
                        .Add("w_out", wo)
                        .Add("b_query", bq)
                        .Add("b_key", bk)
                        .Add("b_value", bv)
                        .Add("b_out", bo)
                        .Add("num_heads", Scalar<std::int16_t>(4))
                        .Add("num_kv_heads", Scalar(2.0))
                        .Load();
  const Projected expected = Project(
      x,
      {.w_query = wq, .w_key = wk, .w_value = wv, .b_query = bq, .b_key = bk, .b_value = bv, .num_heads = 4, .num_kv_heads = 2});
  ExpectEqualElements(p.q, expected.q);
  ExpectEqualElements(p.k, expected.k);
  ExpectEqualElements(p.v, expected.v);
  EXPECT_EQ(p.scale, static_cast<float>(1 / std::sqrt(2.0)));
  EXPECT_TRUE(p.HasProjections());
  EXPECT_TRUE(p.projections.w_out && p.projections.b_out);
  EXPECT_EQ(p.reading,
            "read as batch 2, heads 4 (kv_heads 2), tokens 5, dim 2, v_dim 3; q, k, v projected from inputs 2×5×6; not causal; "
            "scale 1/√2");
  EXPECT_EQ(p.FileShape("context", {2, 4, 5, 3}), Dims({2, 4, 5, 3}));
  EXPECT_EQ(p.FileShape("projected", {2, 5, 7}), Dims({2, 5, 7}));
}

TEST(ProblemLoaderTest, WhatIsNotFiniteIsNoted) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(Name(dtype));
    Tensor q = Numbers({1, 2, 3, 4}), k = Numbers({1, 2, 3, 4});
    for (const std::int64_t i : {17, 19, 23}) q.MutableAs<float>()[i] = i == 19 ? -inf : nan;
    k.MutableAs<float>()[0] = inf;
    Tensor v = Numbers({1, 2, 3, 4});
    v.MutableAs<float>()[5] = 60000;
    const Problem p = ProblemFile()
                          .Add("query", Tensor::CopyOf(q, dtype))
                          .Add("k", Tensor::CopyOf(k, dtype))
                          .Add("v", Tensor::CopyOf(v, dtype))
                          .Load();
    ASSERT_GE(p.notes.size(), 2u);
    EXPECT_EQ(p.notes[0], "query holds 3 values that are not finite (first at [0, 1, 1, 1])");
    EXPECT_EQ(p.notes[1], "k holds a value that is not finite (first at [0, 0, 0, 0])");
    EXPECT_EQ(p.notes.size(), dtype == DType::kF64 ? 3u : 2u) << "with the one on precision";
  }
  Tensor x = Numbers({4, 3});
  x.MutableAs<float>()[11] = nan;
  EXPECT_EQ(ProblemFile().Add("layers.3.x", x).Add("sinks", Tensor::Of<float>({1}, {-inf})).Load().notes,
            (std::vector<std::string>{"layers.3.x holds a value that is not finite (first at [3, 2])"}));
}

TEST(ProblemLoaderTest, AMissingProjectionIsNoted) {
  const Problem p =
      ProblemFile().Add("x", Numbers({5, 6})).Add("w_query", Numbers({6, 6}, 2)).Add("w_key", Numbers({6, 6}, 3)).Load();
  EXPECT_EQ(p.notes, (std::vector<std::string>{"w_value: not given; inputs are used as they are in its place"}));
}

TEST(ProblemFilesTest, LayersOfTheSameShapesAreToldByTheHeaders) {
  ProblemFile file;
  for (const auto& [layer, keys] : {std::pair(0, 5), std::pair(1, 5), std::pair(3, 7)}) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    file.Add(prefix + (layer == 1 ? "query" : "q"), Numbers({4, 3}, layer));
    file.Add(prefix + "k", Numbers({keys, 3}, 1)).Add(prefix + "v", Numbers({keys, 3}, 2));
    file.Add(prefix + "causal", Scalar(layer == 0));
  }
  const ProblemFiles files({file.path()});
  EXPECT_TRUE(files.HaveSameShapes(0, 1));
  EXPECT_FALSE(files.HaveSameShapes(0, 3));
  EXPECT_FALSE(files.HaveSameShapes(0, 2)) << "which is not there";
}

// ------------------------------------------------------------------------------------------------------------ third stage

TEST(ProblemLoaderTest, WeightsAndValuesAlone) {
  const Problem p = ProblemFile().Add("attn_weights", Numbers({4, 6}, 1)).Add("v", Numbers({6, 3}, 2)).Load();
  EXPECT_EQ(p.kind, Problem::Kind::kThirdStage);
  EXPECT_EQ(p.weights.shape(), Dims({1, 1, 4, 6}));
  EXPECT_EQ(p.v.shape(), Dims({1, 1, 6, 3}));
  EXPECT_FALSE(static_cast<bool>(p.q));
  EXPECT_TRUE(p.observed.empty());
  EXPECT_EQ(p.reading, "read as q_len 4, kv_len 6, v_dim 3; third stage only: weights and v");
  EXPECT_EQ(p.FileShape("context", {1, 1, 4, 3}), Dims({4, 3}));
}

TEST(ProblemLoaderTest, WeightsOfEveryRank) {
  const auto load = [](const Dims& weights, const char* name, const Dims& values) {
    return ProblemFile().Add("weights", Numbers(weights, 1)).Add(name, Numbers(values, 2)).Load();
  };
  EXPECT_EQ(load({2, 4, 6}, "v", {6, 3}).weights.shape(), Dims({1, 2, 4, 6}));  // heads share v
  EXPECT_EQ(load({2, 4, 6}, "v", {6, 3}).FileShape("context", {1, 2, 4, 3}), Dims({2, 4, 3}));
  EXPECT_EQ(load({2, 4, 6}, "inputs", {2, 6, 3}).weights.shape(), Dims({2, 1, 4, 6}));  // batches
  EXPECT_EQ(load({2, 4, 6}, "inputs", {2, 6, 3}).FileShape("context", {2, 1, 4, 3}), Dims({2, 4, 3}));
  EXPECT_EQ(load({2, 5, 4, 6}, "inputs", {2, 6, 3}).weights.shape(), Dims({2, 5, 4, 6}));
  EXPECT_EQ(load({2, 6, 4, 6}, "v", {2, 3, 6, 3}).shape.kv_heads, 3);
}

TEST(ProblemLoaderTest, WeightsBesideScoresAreObserved) {
  const Problem p =
      ProblemFile().Add("x", Numbers({4, 3})).Add("scores", Numbers({4, 4})).Add("pattern", Numbers({4, 4}, 1)).Load();
  EXPECT_EQ(p.kind, Problem::Kind::kSelfAttention);
  EXPECT_EQ(p.observed, (std::vector<std::string>{"scores", "weights"}));
}

TEST(ProblemLoaderTest, ObservedResultsAreReadOnDemand) {
  const Tensor y = Numbers({4, 3}, 7);
  const Problem p = ProblemFile().AddQkv().Add("Y", y).Add("lse", Numbers({4})).Load();
  EXPECT_EQ(p.observed, (std::vector<std::string>{"context", "lse"}));
  ExpectSameBits(p.ReadObserved("context"), y);
  ExpectError(ErrorCode::kInvalidArgument, "scores: no such result in the files; they hold context, lse",
              [&] { p.ReadObserved("scores"); });
}

// ------------------------------------------------------------------------------------------------------------------ past

TEST(ProblemLoaderTest, PastGoesBeforeKeysAndValues) {
  const Tensor k = Numbers({2, 3, 2, 4}, 1), v = Numbers({2, 3, 2, 5}, 2), past_k = Numbers({2, 3, 7, 4}, 3),
               past_v = Numbers({2, 3, 7, 5}, 4);
  ProblemFile file;
  file.Add("q", Numbers({2, 3, 2, 4}, 5)).Add("k", k).Add("v", v).Add("past_key", past_k).Add("past_value", past_v);
  const Problem p = file.Load({.causal = true});
  EXPECT_EQ(p.shape.kv_len, 9);
  EXPECT_EQ(p.past_len, 7);
  EXPECT_EQ(p.params.q_offset.value(), 7);
  ExpectEqualElements(p.k.Slice(2, 0, 7), past_k);
  ExpectEqualElements(p.k.Slice(2, 7, 9), k);
  ExpectEqualElements(p.v.Slice(2, 0, 7), past_v);
  ExpectEqualElements(p.v.Slice(2, 7, 9), v);
  EXPECT_EQ(p.reading,
            "read as batch 2, heads 3, q_len 2, kv_len 9 (7 of past_key), dim 4, v_dim 5; causal, q_offset 7; scale 1/√4");
  EXPECT_EQ(file.Load({.q_offset = QOffsetChoice{.number = 0}}).params.q_offset.value(), 0);
}

TEST(ProblemLoaderTest, PastInTheLayoutOfTheKeys) {
  const Tensor k = Numbers({2, 3}, 1), past = Numbers({4, 3}, 2);
  const Problem two = ProblemFile().Add("q", k).Add("k", k).Add("v", k).Add("past_key", past).Add("past_value", past).Load();
  ExpectEqualElements(two.k.Slice(2, 0, 4), past.view().Unsqueeze(0).Unsqueeze(0));
  const Tensor packed = Numbers({2, 5, 8}, 3), past4 = Numbers({2, 2, 6, 4}, 4), past3 = Numbers({2, 6, 8}, 5);
  for (const Tensor* before : {&past4, &past3}) {
    const Problem p = ProblemFile()
                          .Add("q", packed)
                          .Add("k", packed)
                          .Add("v", packed)
                          .Add("past_key", *before)
                          .Add("past_value", *before)
                          .Load({.layout = Layout::kBsd, .num_heads = 2});
    EXPECT_EQ(p.k(1, 1, 3, 2), before->rank() == 4 ? past4(1, 1, 3, 2) : past3(1, 3, 6));
    EXPECT_EQ(p.k(1, 1, 8, 2), packed(1, 2, 6));
  }
  const Tensor one = Numbers({1, 5, 8}, 6), past2 = Numbers({6, 8}, 7);
  const Problem single = ProblemFile()
                             .Add("q", one)
                             .Add("k", one)
                             .Add("v", one)
                             .Add("past_key", past2)
                             .Add("past_value", past2)
                             .Load({.layout = Layout::kBsd, .num_heads = 1});
  ExpectEqualElements(single.k.Slice(2, 0, 6), past2.view().Unsqueeze(0).Unsqueeze(0));
}

// ---------------------------------------------------------------------------------------------------------------- layers

TEST(ProblemLoaderTest, LayersAreSeparateProblems) {
  ProblemFile file;
  for (int layer : {10, 2}) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    file.Add(prefix + "q", Numbers({4, 3}, layer)).Add(prefix + "key", Numbers({4, 3}, 2)).Add(prefix + "v", Numbers({4, 3}, 3));
  }
  file.Add("layers.10.scale", Scalar(0.25f)).Add("causal", Scalar(true));
  const Problem first = file.Load(), tenth = file.Load({.layer = 10});
  EXPECT_EQ(first.layers, (std::vector<std::int64_t>{2, 10}));
  EXPECT_EQ(first.layer, 2);
  EXPECT_EQ(first.notes, (std::vector<std::string>{"layer 2 of 2 is read; --layer chooses another"}));
  EXPECT_EQ(first.reading, "read as layer 2, tokens 4, dim 3; causal; scale 1/√3");
  EXPECT_EQ(tenth.q(0, 0, 1, 1), Numbers({4, 3}, 10)(1, 1));
  EXPECT_EQ(tenth.reading, "read as layer 10, tokens 4, dim 3; causal; scale 0.25");
  EXPECT_TRUE(tenth.notes.empty());
}

TEST(ProblemLoaderTest, TheCommittedRealModel) {
  const Problem p = LoadProblem({"testdata/minilm/all_minilm_l6_v2.safetensors"}, {.layer = 3});
  EXPECT_EQ(p.layers.size(), 6u);
  EXPECT_EQ(p.reading, "read as layer 3, batch 1, heads 12, tokens 132, dim 32; not causal; scale 1/√32");
  EXPECT_EQ(p.q_tokens.length, 132);
  EXPECT_EQ(p.q.dtype(), DType::kF16);
}

TEST(ProblemLoaderTest, EmptyAxes) {
  EXPECT_EQ(ProblemFile().Add("inputs", Numbers({0, 3})).Load().shape.q_len, 0);
  EXPECT_EQ(ProblemFile().AddQkv(4, 0, 3).Load().shape.kv_len, 0);
}

}  // namespace
}  // namespace regard::io
