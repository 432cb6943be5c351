// Scalars, masks, offsets and labels: what LoadRules and LoadTokens make of a file.
#include "io/problem_test_support.h"

namespace regard::io {
namespace {

TEST(ProblemRulesTest, ScalarsOfAnyElementType) {
  for (const DType dtype : kAllDTypes) {
    Tensor one(dtype, {1});
    one = dtype == DType::kBool ? Scalar(true)
          : IsFloat(dtype)      ? Tensor::CopyOf(Scalar(1.0), dtype)
                                : [&] {
                               Tensor t(dtype, {1, 1});
                               static_cast<unsigned char*>(t.mutable_view().mutable_data())[0] = 1;  // little-endian
                               return t;
                             }();
    const Problem p =
        ProblemFile().AddQkv(3, 5).Add("causal", one).Add("q_offset", one).Add("window_left", one).Add("scale", one).Load();
    EXPECT_TRUE(p.params.causal) << Name(dtype);
    EXPECT_EQ(p.params.q_offset.value(), 1) << Name(dtype);
    EXPECT_EQ(p.params.window_left, 1) << Name(dtype);
    EXPECT_EQ(p.scale, 1) << Name(dtype);
  }
}

TEST(ProblemRulesTest, MetadataSpellings) {
  for (const char* yes : {"true", "True", "TRUE", "1", "yes", "on", " true "}) {
    EXPECT_TRUE(ProblemFile().AddQkv().AddMetadata("causal", yes).Load().params.causal) << yes;
  }
  for (const char* no : {"false", "False", "0", "no", "off", "None", "null"}) {
    EXPECT_FALSE(ProblemFile().AddQkv().AddMetadata("causal", no).Load().params.causal) << no;
  }
  const Problem p = ProblemFile()
                        .AddQkv()
                        .AddMetadata("scale", "0.125")
                        .AddMetadata("soft_cap", "30.0")
                        .AddMetadata("window_right", "2")
                        .AddMetadata("window_left", "None")
                        .AddMetadata("licence", "anything")
                        .Load();
  EXPECT_EQ(p.scale, 0.125f);
  EXPECT_EQ(p.params.soft_cap, 30.0f);
  EXPECT_EQ(p.params.window_right, 2);
  EXPECT_FALSE(p.params.window_left.has_value());
  EXPECT_TRUE(p.notes.empty());
  EXPECT_EQ(p.reading, "read as tokens 4, dim 3; not causal, window_right 2; scale 0.125; soft_cap 30");
}

TEST(ProblemRulesTest, OptionsOverrideWithANote) {
  ProblemFile file;
  file.AddQkv(3, 5).Add("scale", Scalar(0.5f)).Add("causal", Scalar(true)).Add("q_offset", Scalar<std::int64_t>(0));
  const Problem p =
      file.Load({.causal = false, .q_offset = QOffsetChoice{.rule = QOffsetChoice::Rule::kBottomRight}, .scale = 0.25f});
  EXPECT_FALSE(p.params.causal);
  EXPECT_EQ(p.params.q_offset.value(), 2);
  EXPECT_EQ(p.scale, 0.25f);
  EXPECT_EQ(p.notes, (std::vector<std::string>{"--scale 0.25 overrides the file's scale 0.5",
                                               "--causal=false overrides the file's causal true",
                                               "--q-offset bottom-right overrides the file's q_offset 0"}));
  EXPECT_TRUE(file.Load({.causal = true, .scale = 0.5f}).notes.empty()) << "the same value is no change";
}

TEST(ProblemRulesTest, QOffsetOfEachSequence) {
  ProblemFile file;
  file.Add("q", Numbers({2, 1, 3, 4})).Add("k", Numbers({2, 1, 5, 4})).Add("v", Numbers({2, 1, 5, 4}));
  file.Add("q_offset", Tensor::Of<std::int64_t>({2}, {1, -2})).Add("causal", Scalar(true));
  const Problem p = file.Load();
  EXPECT_EQ(p.params.q_offset.per_sequence()(1), -2);
  EXPECT_EQ(p.reading, "read as batch 2, heads 1, q_len 3, kv_len 5, dim 4; causal, q_offset of each sequence; scale 1/√4");
  EXPECT_EQ(file.Load({.q_offset = QOffsetChoice{.rule = QOffsetChoice::Rule::kTopLeft}}).notes,
            (std::vector<std::string>{"--q-offset top-left overrides the file's q_offset of each sequence"}));
}

TEST(ProblemRulesTest, AttnMaskIsMaskOrBiasByItsType) {
  const Problem mask = ProblemFile().AddQkv().Add("attn_mask", Tensor(DType::kBool, {4, 4})).Load();
  EXPECT_TRUE(mask.params.mask && !mask.params.bias);
  EXPECT_EQ(mask.reading, "read as tokens 4, dim 3; not causal; scale 1/√3; mask 4×4");
  const Problem bias = ProblemFile().AddQkv().Add("attn_mask", Numbers({1, 4}, 0, DType::kF16)).Load();
  EXPECT_TRUE(bias.params.bias && !bias.params.mask);
  const Problem both = ProblemFile().AddQkv().Add("attn_mask", Numbers({4, 4})).Add("mask", Tensor(DType::kBool, {4})).Load();
  EXPECT_TRUE(both.params.bias && both.params.mask);
}

TEST(ProblemRulesTest, SegmentsStandForBothSides) {
  const Problem p = ProblemFile().AddQkv().Add("segments", Tensor::Of<std::int32_t>({4}, {0, 0, 1, 1})).Load();
  EXPECT_EQ(p.params.q_segments.data(), p.params.kv_segments.data());
  EXPECT_EQ(p.reading, "read as tokens 4, dim 3; not causal; scale 1/√3; segments");
}

TEST(ProblemRulesTest, EverythingElseIsBound) {
  const Problem p = ProblemFile()
                        .AddQkv()
                        .Add("nonpad_kv_seqlen", Tensor::Of<std::int64_t>({1}, {3}))
                        .Add("alibi_slopes", Tensor::Of<float>({1}, {0.5f}))
                        .Add("sinks", Tensor::Of<float>({1}, {-1.0f}))
                        .Load({.causal = true});
  EXPECT_EQ(p.params.kv_lens(0), 3);
  EXPECT_EQ(p.params.alibi_slopes(0), 0.5);
  EXPECT_EQ(p.params.sinks(0), -1);
  EXPECT_EQ(p.reading, "read as tokens 4, dim 3; causal, q_offset kv_lens − q_len; scale 1/√3; kv_lens; alibi_slopes; sinks");
}

TEST(ProblemRulesTest, QueriesBeforeTheFirstKeyAreNoted) {
  const auto notes = [](std::initializer_list<std::int64_t> kv_lens, const ProblemOptions& options) {
    return ProblemFile()
        .Add("q", Numbers({3, 1, 4, 3}))
        .Add("k", Numbers({3, 1, 4, 3}))
        .Add("v", Numbers({3, 1, 4, 3}))
        .Add("kv_lens", Tensor::Of<std::int64_t>({3}, kv_lens))
        .Load(options)
        .notes;
  };
  const std::vector<std::string> none,
      noted = {"q_offset is kv_lens − q_len: query 0 stands at −3 in sequence 1; for padded prefill pass --q-offset 0"};
  EXPECT_EQ(notes({4, 1, 2}, {.causal = true}), noted);
  EXPECT_EQ(notes({4, 1, 2}, {.window_left = 1}), noted);
  EXPECT_EQ(notes({4, 1, 2}, {.window_right = 1}), noted);
  EXPECT_EQ(notes({4, 1, 2}, {}), none) << "positions are not asked for";
  EXPECT_EQ(notes({4, 1, 2}, {.causal = true, .q_offset = QOffsetChoice{}}), none);
  EXPECT_EQ(notes({4, 0, 4}, {.causal = true}), none);
}

TEST(ProblemRulesTest, TheThirdStageSaysWhatItDoesNotUse) {
  const Problem p =
      ProblemFile().Add("weights", Numbers({4, 4})).Add("v", Numbers({4, 3})).Add("scale", Scalar(2.0f)).Load({.causal = true});
  EXPECT_EQ(p.notes, (std::vector<std::string>{"scale, --causal: not used, since the weights are given"}));
}

TEST(ProblemRulesTest, PrecisionIsNoted) {
  const Problem p = ProblemFile().Add("inputs", Numbers({4, 3}, 0, DType::kF64)).Load();
  EXPECT_EQ(p.notes, (std::vector<std::string>{"q, k, v: f64; staged and fused compute in f32, the reference path in f64"}));
}

TEST(ProblemRulesTest, UnknownKeysAreNoted) {
  const Problem p = ProblemFile()
                        .AddQkv()
                        .Add("is_causal", Scalar(true))
                        .Add("attention_mask", Tensor(DType::kI64, {1, 4}))
                        .Add("expected.context", Numbers({1}))
                        .Add("zebra", Numbers({1}))
                        .Load();
  ASSERT_EQ(p.notes.size(), 3u);
  EXPECT_NE(p.notes[0].find("not read: 'is_causal' in "), std::string::npos);
  EXPECT_NE(p.notes[0].find("; did you mean causal?"), std::string::npos);
  EXPECT_NE(p.notes[1].find("not read: 'attention_mask' in "), std::string::npos);
  EXPECT_NE(p.notes[1].find("give bool [batch, 1, 1, kv_len] with true = may attend as mask"), std::string::npos) << p.notes[1];
  EXPECT_EQ(p.notes[2], "not read: 'expected.context', 'zebra'");
}

// ------------------------------------------------------------------------------------------------------------- labels

TEST(ProblemTokensTest, OneListNamesBothSides) {
  const Problem p = ProblemFile().AddQkv(4, 4).AddStrings("tokens", {"a", "b", "c", "d"}).Load();
  EXPECT_EQ(p.q_tokens.At(0, 3), "d");
  EXPECT_EQ(p.k_tokens.At(0, 1), "b");
}

TEST(ProblemTokensTest, TokensOfTheKeysNameTheQueriesBehindTheOffset) {
  ProblemFile file;
  file.AddQkv(2, 4).AddStrings("tokens", {"a", "b", "c", "d"});
  EXPECT_FALSE(static_cast<bool>(file.Load().q_tokens)) << "where the queries stand is not known";
  const Problem p = file.Load({.q_offset = QOffsetChoice{.number = 1}});
  EXPECT_EQ(p.q_tokens.values, (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(p.k_tokens.length, 4);
  EXPECT_FALSE(static_cast<bool>(file.Load({.q_offset = QOffsetChoice{.number = 3}}).q_tokens))
      << "the last query is beyond the keys";
  EXPECT_FALSE(static_cast<bool>(file.Load({.q_offset = QOffsetChoice{.number = -1}}).q_tokens));
}

TEST(ProblemTokensTest, EachSideByItself) {
  const Problem p = ProblemFile().AddQkv(2, 3).AddStrings("q_tokens", {"x", "y"}).AddStrings("k_tokens", {"a", "b", "c"}).Load();
  EXPECT_EQ(p.q_tokens.values, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(p.k_tokens.values, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(ProblemTokensTest, MetadataListsForAllOrForEachSequence) {
  ProblemFile file;
  file.Add("x", Numbers({2, 3, 4}));
  EXPECT_EQ(ProblemFile().Add("x", Numbers({2, 3, 4})).AddMetadata("tokens", R"(["a","ü","c"])").Load().q_tokens.At(1, 1), "ü");
  const Problem p = file.AddMetadata("tokens", R"([["a","b","c"],["d","e","f"]])").Load();
  EXPECT_EQ(p.q_tokens.At(0, 1), "b");
  EXPECT_EQ(p.k_tokens.At(1, 2), "f");
}

TEST(ProblemTokensTest, FromAFileOfTheirOwn) {
  ProblemFile file;
  file.AddQkv(3, 3).AddStrings("tokens", {"a", "b", "c"});
  Spill(file.folder() / "t.txt", "one\r\n\ntwo words");
  Spill(file.folder() / "t.json", " [\"1\", \"2\", \"3\"]\n");
  EXPECT_EQ(file.Load({.tokens = file.folder() / "t.txt"}).q_tokens.values, (std::vector<std::string>{"one", "", "two words"}));
  const Problem p = file.Load({.tokens = file.folder() / "t.json"});
  EXPECT_EQ(p.q_tokens.values, (std::vector<std::string>{"1", "2", "3"}));
  ASSERT_EQ(p.notes.size(), 1u);
  EXPECT_EQ(file.WithoutFolder(p.notes[0]), "--tokens t.json overrides the file's tokens");
}

TEST(ProblemTokensTest, NumbersAreNoLabels) {
  const Problem p = ProblemFile().AddQkv().Add("tokens", Tensor(DType::kI64, {4})).Load();
  EXPECT_FALSE(static_cast<bool>(p.q_tokens));
  EXPECT_EQ(p.notes, (std::vector<std::string>{"tokens: numbers, not used as labels; give strings"}));
}

}  // namespace
}  // namespace regard::io
