// What is said about files that are no problem: every message whole.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string_view>

#include "io/problem_test_support.h"

namespace regard::io {
namespace {

Tensor Bools(const Dims& shape) { return Tensor(DType::kBool, shape); }

struct Case {
  const char* name;
  std::function<void(ProblemFile&)> fill;
  ProblemOptions options;
  const char* message;
};

// GoogleTest would print its bytes, those between its members among them.
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

class ProblemErrorsTest : public testing::TestWithParam<Case> {};

TEST_P(ProblemErrorsTest, Message) {
  ProblemFile file;
  GetParam().fill(file);
  EXPECT_EQ(file.Message(GetParam().options), GetParam().message);
}

const Case kMissing[] = {
    {"nothing",
     [](ProblemFile& f) { f.Add("zebra", Numbers({2})); },
     {},
     "q, k, v: missing; found 'zebra' in p.npz; give q, k and v, or inputs, or weights and v"},
    {"q",
     [](ProblemFile& f) {
       f.Add("k", Numbers({4, 3})).Add("v", Numbers({4, 3})).Add("quary", Numbers({4, 3}));
     },
     {},
     "q: missing; found 'k', 'v', 'quary' in p.npz; name it q (or Q, query, query_states); is 'quary' meant?"},
    {"v_of_weights",
     [](ProblemFile& f) {
       f.Add("weights", Numbers({4, 4}));
     },
     {},
     "v: missing; found 'weights' in p.npz; name it v (or V, value, value_states)"},
    {"misspelt_inputs",
     [](ProblemFile& f) {
       f.Add("X", Numbers({4, 3}));
     },
     {},
     "q, k, v: missing; found 'X' in p.npz; give q, k and v, or inputs, or weights and v; is 'X' meant to be inputs?"},
    {"past_value",
     [](ProblemFile& f) {
       f.AddQkv().Add("past_key", Numbers({2, 3}));
     },
     {},
     "past_value: missing; found 'q', 'k', 'v', 'past_key' in p.npz; name it past_value"},
    {"layer", [](ProblemFile& f) { f.AddQkv(); }, {.layer = 2}, "--layer: 2, but no key begins with 'layers.'; leave it out"},
    {"this_layer",
     [](ProblemFile& f) {
       f.Add("layers.0.x", Numbers({4, 3})).Add("layers.3.x", Numbers({4, 3}));
     },
     {.layer = 2},
     "--layer: 2 is not in the files; choose from 0, 3"},
};

const Case kDoubled[] = {
    {"aliases",
     [](ProblemFile& f) {
       f.AddQkv().Add("query", Numbers({4, 3}));
     },
     {},
     "q: given twice, as 'q' in p.npz and as 'query' in p.npz; keep one"},
    {"layer_and_none",
     [](ProblemFile& f) {
       f.AddQkv().Add("layers.0.k", Numbers({4, 3}));
     },
     {},
     "k: given twice, as 'k' in p.npz and as 'layers.0.k' in p.npz; keep one"},
    {"mask_and_attn_mask",
     [](ProblemFile& f) {
       f.AddQkv().Add("mask", Bools({4, 4})).Add("attn_mask", Bools({4, 4}));
     },
     {},
     "mask: given twice, as mask and as attn_mask, which is bool; keep one"},
    {"segments",
     [](ProblemFile& f) { f.AddQkv().Add("segments", Numbers({4})).Add("q_segments", Numbers({4})); },
     {},
     "segments: given together with q_segments; give segments alone, or q_segments and kv_segments"},
};

const Case kShapes[] = {
    {"rank_1",
     [](ProblemFile& f) { f.Add("q", Numbers({4})).Add("k", Numbers({4})).Add("v", Numbers({4})); },
     {},
     "q: shape 4 has 1 axis; give [tokens, dim], [batch, heads, tokens, dim], or 3 axes with --layout"},
    {"rank_3",
     [](ProblemFile& f) {
       f.Add("q", Numbers({2, 4, 8})).Add("k", Numbers({2, 4, 8})).Add("v", Numbers({2, 4, 8}));
     },
     {},
     "q: shape 2×4×8 can be read in three ways; state --layout hsd (heads 2, tokens 4, dim 8), shd (tokens 2, heads 4, dim 8) or "
     "bsd (batch 2, tokens 4, heads·dim 8) with --num-heads"},
    {"rank_5",
     [](ProblemFile& f) {
       f.Add("q", Numbers({1, 1, 1, 2, 2})).Add("k", Numbers({2, 2})).Add("v", Numbers({2, 2}));
     },
     {},
     "q: shape 1×1×1×2×2 has 5 axes; give [tokens, dim], [batch, heads, tokens, dim], or 3 axes with --layout"},
    {"layout_of_rank_2",
     [](ProblemFile& f) { f.AddQkv(); },
     {.layout = Layout::kBshd},
     "q: shape 4×3 has 2 axes, but --layout bshd names 4; leave it out for [tokens, dim]"},
    {"layout_of_rank_4",
     [](ProblemFile& f) {
       f.Add("q", Numbers({1, 2, 3, 4})).Add("k", Numbers({2, 2})).Add("v", Numbers({2, 2}));
     },
     {.layout = Layout::kHsd},
     "q: shape 1×2×3×4 has 4 axes, but --layout hsd names 3; use bhsd or bshd"},
    {"ranks_differ",
     [](ProblemFile& f) {
       f.Add("q", Numbers({1, 1, 4, 3})).Add("k", Numbers({4, 3})).Add("v", Numbers({4, 3}));
     },
     {},
     "k: shape 4×3, but q has 4 axes; give q, k and v alike"},
    {"dim",
     [](ProblemFile& f) {
       f.Add("q", Numbers({4, 3})).Add("k", Numbers({4, 2})).Add("v", Numbers({4, 3}));
     },
     {},
     "k: dim=2, expected q's 3; check the axis order"},
    {"kv_len",
     [](ProblemFile& f) {
       f.Add("q", Numbers({4, 3})).Add("k", Numbers({4, 3})).Add("v", Numbers({5, 3}));
     },
     {},
     "v: tokens=5, expected k's 4; check the axis order"},
    {"looks_like_bshd",
     [](ProblemFile& f) {
       f.Add("q", Numbers({2, 3, 4, 5})).Add("k", Numbers({2, 7, 2, 5})).Add("v", Numbers({2, 7, 2, 5}));
     },
     {},
     "k: heads=7 does not divide q's heads=3; --layout bshd would fit"},
    {"heads",
     [](ProblemFile& f) {
       f.Add("q", Numbers({2, 4, 6, 5})).Add("k", Numbers({2, 3, 5, 5})).Add("v", Numbers({2, 3, 5, 5}));
     },
     {},
     "k: heads=3 does not divide q's heads=4; check the axis order"},
    {"bsd_without_heads",
     [](ProblemFile& f) {
       f.Add("q", Numbers({2, 4, 8})).Add("k", Numbers({2, 4, 8})).Add("v", Numbers({2, 4, 8}));
     },
     {.layout = Layout::kBsd},
     "num_heads: not stated, and --layout bsd needs it to split 8 of q; give --num-heads N"},
    {"bsd_heads",
     [](ProblemFile& f) {
       f.Add("q", Numbers({2, 4, 8})).Add("k", Numbers({2, 4, 8})).Add("v", Numbers({2, 4, 8}));
     },
     {.layout = Layout::kBsd, .num_heads = 3},
     "q: shape 2×4×8, whose last axis 8 does not divide into 3 heads; check --num-heads"},
    {"bsd_kv_heads",
     [](ProblemFile& f) {
       f.Add("q", Numbers({2, 4, 8})).Add("k", Numbers({2, 4, 4})).Add("v", Numbers({2, 4, 4}));
     },
     {.layout = Layout::kBsd, .num_heads = 4},
     "k: dim=1, expected q's 2; --num-kv-heads 2 would fit"},
    {"num_heads",
     [](ProblemFile& f) { f.AddQkv(); },
     {.num_heads = 4},
     "num_heads: 4, but q has tokens 4, dim 3; check the layout, or leave it out"},
    {"inputs_rank",
     [](ProblemFile& f) { f.Add("x", Numbers({4})); },
     {},
     "inputs: shape 4 has 1 axis; give [tokens, dim] or [batch, tokens, dim]"},
    {"inputs_layout",
     [](ProblemFile& f) {
       f.Add("x", Numbers({4, 3}));
     },
     {.layout = Layout::kBhsd},
     "--layout: bhsd, but inputs are [tokens, dim] or [batch, tokens, dim]; leave it out"},
    {"inputs_heads",
     [](ProblemFile& f) {
       f.Add("x", Numbers({4, 3}));
     },
     {.num_heads = 2},
     "inputs: dim 3 does not divide into num_heads 2; give a divisor of it"},
    {"inputs_kv_heads",
     [](ProblemFile& f) {
       f.Add("x", Numbers({4, 4}));
     },
     {.num_heads = 2, .num_kv_heads = 1},
     "num_kv_heads: 1, but without w_key and w_value the inputs have num_heads 2; leave it out"},
    {"w_query_transposed",
     [](ProblemFile& f) {
       f.Add("x", Numbers({4, 3})).Add("w_query", Numbers({3, 2}));
     },
     {},
     "w_query: shape 3×2, expected [out, in] with in=3; transpose it"},
    {"bias_alone",
     [](ProblemFile& f) {
       f.Add("x", Numbers({4, 3})).Add("b_query", Numbers({3}));
     },
     {},
     "b_query: given without w_query; give both or neither"},
    {"past_heads",
     [](ProblemFile& f) {
       f.Add("q", Numbers({1, 2, 4, 3})).Add("k", Numbers({1, 2, 4, 3})).Add("v", Numbers({1, 2, 4, 3}));
       f.Add("past_key", Numbers({1, 1, 4, 3})).Add("past_value", Numbers({1, 1, 4, 3}));
     },
     {},
     "past_key: [batch, heads, dim] = 1×1×3, but k has 1×2×3; give both alike"},
    {"past_lengths",
     [](ProblemFile& f) {
       f.AddQkv().Add("past_key", Numbers({2, 3})).Add("past_value", Numbers({1, 3}));
     },
     {},
     "past_value: 1 tokens, but past_key has 2; give both alike"},
    {"past_rank",
     [](ProblemFile& f) {
       f.AddQkv().Add("past_key", Numbers({1, 2, 3})).Add("past_value", Numbers({1, 2, 3}));
     },
     {},
     "past_key: shape 1×2×3 has 3 axes; give [batch, kv_heads, tokens, dim]"},
    {"past_width",
     [](ProblemFile& f) {
       f.Add("q", Numbers({1, 4, 6})).Add("k", Numbers({1, 4, 6})).Add("v", Numbers({1, 4, 6}));
       f.Add("past_key", Numbers({1, 2, 5})).Add("past_value", Numbers({1, 2, 6}));
     },
     {.layout = Layout::kBsd, .num_heads = 2},
     "past_key: last axis 5 does not divide into 2 heads; check --num-kv-heads"},
    {"weights_rank",
     [](ProblemFile& f) {
       f.Add("weights", Numbers({1, 1, 4, 4})).Add("v", Numbers({4, 3}));
     },
     {},
     "weights: shape 1×1×4×4 has 4 axes, expected 2 to go with v 4×3; give [.., heads, q_len, kv_len]"},
    {"weights_kv_len",
     [](ProblemFile& f) {
       f.Add("weights", Numbers({4, 5})).Add("v", Numbers({4, 3}));
     },
     {},
     "weights: kv_len=5, but v has 4 tokens; give one column a key"},
    {"weights_heads",
     [](ProblemFile& f) {
       f.Add("weights", Numbers({1, 3, 4, 4})).Add("v", Numbers({1, 2, 4, 3}));
     },
     {},
     "weights: heads=3 is no multiple of v's heads=2; check the axis order"},
};

const Case kValues[] = {
    {"integers",
     [](ProblemFile& f) {
       f.Add("inputs", Tensor(DType::kI64, {4, 3}));
     },
     {},
     "inputs: element type i64 is not a float type; convert it to f32, f16, bf16 or f64"},
    {"strings",
     [](ProblemFile& f) { f.AddStrings("inputs", {"a"}); },
     {},
     "inputs: 'inputs' in p.npz holds strings; give numbers"},
    {"integer_mask",
     [](ProblemFile& f) {
       f.AddQkv().Add("mask", Tensor(DType::kI64, {4, 4}));
     },
     {},
     "mask: element type i64, expected bool (true = may attend); convert it, minding which value means attend"},
    {"integer_attn_mask",
     [](ProblemFile& f) {
       f.AddQkv().Add("attn_mask", Tensor(DType::kU8, {4, 4}));
     },
     {},
     "attn_mask: element type u8, expected bool (true = may attend) or a float type (added to the scores); convert it, minding "
     "which value means attend"},
    {"float_mask",
     [](ProblemFile& f) {
       f.AddQkv().Add("mask", Numbers({4, 4}));
     },
     {},
     "mask: element type f32, expected bool (true = may attend); pass an additive mask as bias"},
    {"bool_bias",
     [](ProblemFile& f) {
       f.AddQkv().Add("bias", Bools({4, 4}));
     },
     {},
     "bias: element type bool, expected a float type; pass a bool tensor as mask"},
    {"scale_zero",
     [](ProblemFile& f) { f.AddQkv().Add("scale", Scalar(0.0)); },
     {},
     "scale: 0; give a finite number other than 0, or leave it out for 1/sqrt(head_dim)"},
    {"scale_nan",
     [](ProblemFile& f) { f.AddQkv().AddMetadata("scale", "nan"); },
     {},
     "scale: nan; give a finite number other than 0, or leave it out for 1/sqrt(head_dim)"},
    {"scale_beyond_f32",
     [](ProblemFile& f) { f.AddQkv().Add("scale", Scalar(1e300)); },
     {},
     "scale: 1e+300 in the file is out of f32's range; give 1.4e-45 to 3.4e38 in size"},
    {"soft_cap_below_f32",
     [](ProblemFile& f) { f.AddQkv().Add("soft_cap", Scalar(1e-60)); },
     {},
     "soft_cap: 1e-60 in the file is out of f32's range; give 1.4e-45 to 3.4e38 in size"},
    {"scale_word", [](ProblemFile& f) { f.AddQkv().AddMetadata("scale", "1/8"); }, {}, "scale: '1/8' in the file; give a number"},
    {"scale_list", [](ProblemFile& f) { f.AddQkv().Add("scale", Numbers({2})); }, {}, "scale: shape 2; give one number"},
    {"scale_string",
     [](ProblemFile& f) { f.AddQkv().AddStrings("scale", {"1"}); },
     {},
     "scale: shape 1 of strings; give one number"},
    {"scale_flag",
     [](ProblemFile& f) { f.AddQkv(); },
     {.scale = std::numeric_limits<float>::infinity()},
     "scale: inf; give a finite number other than 0, or leave it out for 1/sqrt(head_dim)"},
    {"causal_two",
     [](ProblemFile& f) { f.AddQkv().Add("causal", Scalar<std::int32_t>(2)); },
     {},
     "causal: 2 in the file; give true or false"},
    {"causal_word",
     [](ProblemFile& f) { f.AddQkv().AddMetadata("causal", "maybe"); },
     {},
     "causal: 'maybe' in the file; give true or false"},
    {"window_fraction",
     [](ProblemFile& f) { f.AddQkv().Add("window_left", Scalar(1.5)); },
     {},
     "window_left: 1.5 in the file; give a whole number"},
    {"window_huge",
     [](ProblemFile& f) { f.AddQkv().Add("window_left", Scalar(1e30)); },
     {},
     "window_left: 1e+30 in the file is beyond ±4e18; give a smaller number"},
    {"window_nan",
     [](ProblemFile& f) { f.AddQkv().Add("window_left", Scalar(std::nan(""))); },
     {},
     "window_left: nan in the file; give a whole number"},
    {"window_negative",
     [](ProblemFile& f) { f.AddQkv(); },
     {.window_left = -1},
     "window_left: -1 is negative; give 0 or more, or leave it out for unlimited"},
    {"soft_cap_negative",
     [](ProblemFile& f) { f.AddQkv(); },
     {.soft_cap = -1.0f},
     "soft_cap: -1; give a positive number, or 0 for none"},
    {"num_heads_zero", [](ProblemFile& f) { f.AddQkv(); }, {.num_heads = 0}, "num_heads: 0 is not positive; give 1 or more"},
    {"num_kv_heads",
     [](ProblemFile& f) { f.AddQkv(); },
     {.num_heads = 4, .num_kv_heads = 3},
     "num_kv_heads: 3 does not divide num_heads 4; give a divisor of it"},
    {"past_type",
     [](ProblemFile& f) {
       f.AddQkv().Add("past_key", Numbers({2, 3}, 0, DType::kF16)).Add("past_value", Numbers({2, 3}));
     },
     {},
     "past_key: element type f16, but k is f32; give both alike"},
    {"past_and_kv_lens",
     [](ProblemFile& f) {
       f.AddQkv()
           .Add("past_key", Numbers({2, 3}))
           .Add("past_value", Numbers({2, 3}))
           .Add("kv_lens", Tensor::Of<std::int64_t>({1}, {5}));
     },
     {},
     "q_offset: not stated, and past_key (offset 2) and kv_lens (kv_lens − q_len) differ in what it is; give --q-offset N"},
    {"dim_zero",
     [](ProblemFile& f) {
       f.Add("inputs", Numbers({4, 0}));
     },
     {},
     "head_dim: 0 is not positive; give 1 or more"},
};

const Case kLabels[] = {
    {"too_few",
     [](ProblemFile& f) { f.AddQkv().AddStrings("tokens", {"a"}); },
     {},
     "tokens: 1, but there are 4; give one a token"},
    {"too_few_of_two",
     [](ProblemFile& f) { f.AddQkv(2, 5).AddStrings("tokens", {"a"}); },
     {},
     "tokens: 1, but there are 2 queries and 5 keys; give one a token"},
    {"q_tokens",
     [](ProblemFile& f) { f.AddQkv(2, 5).AddStrings("q_tokens", {"a"}); },
     {},
     "q_tokens: 1, but there are 2; give one a token"},
    {"not_json",
     [](ProblemFile& f) { f.AddQkv().AddMetadata("tokens", "a b c d"); },
     {},
     "'tokens' in p.safetensors: not a JSON list of strings; write it as [\"one\", \"two\"]"},
    {"json_numbers",
     [](ProblemFile& f) { f.AddQkv().AddMetadata("tokens", "[1, 2, 3, 4]"); },
     {},
     "'tokens' in p.safetensors: not a JSON list of strings; write it as [\"one\", \"two\"]"},
    {"ragged",
     [](ProblemFile& f) { f.AddQkv().AddMetadata("tokens", R"([["a"], ["b", "c"]])"); },
     {},
     "'tokens' in p.safetensors: lists of different lengths; give every sequence as many tokens"},
    {"batches",
     [](ProblemFile& f) { f.AddQkv().AddMetadata("tokens", R"([["a","b","c","d"], ["a","b","c","d"]])"); },
     {},
     "tokens: shape 2×4; give one a token, [tokens] or [batch, tokens] with batch 1"},
    {"no_file",
     [](ProblemFile& f) { f.AddQkv(); },
     {.tokens = "/nonexistent/tokens.txt"},
     "/nonexistent/tokens.txt: cannot be opened: No such file or directory; check the path"},
};

std::string CaseName(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Missing, ProblemErrorsTest, testing::ValuesIn(kMissing), CaseName);
INSTANTIATE_TEST_SUITE_P(Doubled, ProblemErrorsTest, testing::ValuesIn(kDoubled), CaseName);
INSTANTIATE_TEST_SUITE_P(Shapes, ProblemErrorsTest, testing::ValuesIn(kShapes), CaseName);
INSTANTIATE_TEST_SUITE_P(Values, ProblemErrorsTest, testing::ValuesIn(kValues), CaseName);
INSTANTIATE_TEST_SUITE_P(Labels, ProblemErrorsTest, testing::ValuesIn(kLabels), CaseName);

std::string MessageOf(const std::vector<std::string>& sources) {
  try {
    LoadProblem(sources);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ProblemSourcesTest, Messages) {
  const TemporaryFolder folder;
  ProblemFile file;
  WriteNpy(folder / "a.npy", Numbers({4, 3}));
  WriteNpz(folder / "two.npz", {{.name = "x", .tensor = Numbers({4, 3})}, {.name = "y", .tensor = Numbers({4, 3})}});
  const std::string a = folder / "a.npy", two = folder / "two.npz";
  EXPECT_EQ(MessageOf({}), "sources: none; give a file such as layer.npz, or - for standard input");
  EXPECT_EQ(MessageOf({""}), "sources: '' names no file; write FILE");
  EXPECT_EQ(MessageOf({"q="}), "sources: 'q=' names no file; write q=FILE");
  EXPECT_EQ(MessageOf({a}), a + ": holds one array without a name; say which it is, as in q=" + a);
  const std::string raw = a + ":f32:44x1";  // any file's bytes: a header of 128 and 48 of numbers
  EXPECT_EQ(MessageOf({raw}), a + ": holds one array without a name; say which it is, as in q=" + raw);
  EXPECT_EQ(MessageOf({"q=" + two}), two + ": holds 2 arrays, so that 'q=' does not say which; give the file without a name");
  EXPECT_EQ(MessageOf({"quary=" + a}), "quary=" + a + ": 'quary' is not a name that regard reads; did you mean q?");
  EXPECT_EQ(MessageOf({"sliding_window=" + a}), "sliding_window=" + a +
                                                    ": 'sliding_window' is not a name that regard reads; give window_left W−1: "
                                                    "regard counts the earlier keys that a query sees "
                                                    "besides its own, so a sliding window of W keys is W−1");
  EXPECT_EQ(MessageOf({"zebra=" + a}),
            "zebra=" + a + ": 'zebra' is not a name that regard reads; use one such as q, k, v or inputs");
  const std::string list = a + "," + two;
  for (const std::string name : {"", "q="}) {
    EXPECT_EQ(MessageOf({name + list}),
              list + ": no such file; check the path, and separate several files by spaces, not by commas");
  }
  WriteNpy(folder / "with,comma.npy", Numbers({4, 3}));
  EXPECT_EQ(MessageOf({"x=" + (folder / "with,comma.npy")}), "no error");
  EXPECT_EQ(MessageOf({"x=" + (folder / "with,comma.npy") + ":f32:44x1"}), "no error");
  EXPECT_EQ(MessageOf({"x=" + a, two}), "inputs: given twice, as 'x' in " + a + " and as 'x' in " + two + "; keep one");
}

// A file in which every array but those named `unreadable` can be read: attention in two layers, and results of it.
std::string FileWithUnreadable(const ProblemFile& file, const std::vector<std::string>& unreadable) {
  const std::string path = file.folder() / "p.safetensors";
  std::vector<Tensor> tensors;
  std::vector<OutputArray> arrays;
  for (const char* name : {"layers.0.q", "layers.0.k", "layers.0.v", "layers.1.q", "layers.1.k", "layers.1.v", "layers.0.context",
                           "mask", "bias", "scale", "q_offset", "tokens", "sinks", "zebra"}) {
    const bool needed = std::string_view(name).ends_with(".q") || std::string_view(name).ends_with(".k") ||
                        std::string_view(name).ends_with(".v") || name == std::string_view("layers.0.context");
    if (needed || std::ranges::find(unreadable, name) != unreadable.end()) arrays.push_back({.name = name});
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) tensors.push_back(Numbers({4, 4}, static_cast<int>(i)));
  for (std::size_t i = 0; i < arrays.size(); ++i) arrays[i].tensor = tensors[i];
  WriteSafetensors(path, arrays);
  for (const std::string& name : unreadable) MakeUnreadable(path, name);
  return path;
}

TEST(UnreadableTest, WhatIsUsedIsAnErrorThatNamesTheArray) {
  for (const char* name : {"layers.0.q", "layers.0.v", "mask", "bias", "scale", "q_offset", "tokens", "sinks"}) {
    const ProblemFile file;
    const std::string path = FileWithUnreadable(file, {name});
    EXPECT_EQ(MessageOf({path}), path + ": array '" + name +
                                     "': element type 'C64' is not read; save as F64 F32 F16 BF16 F8_E4M3 F8_E5M2, I8-I64, "
                                     "U8-U64 or BOOL");
  }
}

TEST(UnreadableTest, WhatIsNotUsedIsAtMostANote) {
  const ProblemFile file;
  const Problem p = LoadProblem({FileWithUnreadable(file, {"layers.1.k", "layers.0.context", "zebra"})});
  std::vector<std::string> notes;
  for (const std::string& note : p.notes) notes.push_back(file.WithoutFolder(note));
  EXPECT_EQ(notes, (std::vector<std::string>{
                       "layer 0 of 2 is read; --layer chooses another",
                       "not read: p.safetensors: array 'layers.0.context': element type 'C64' is not read; save as F64 F32 F16 "
                       "BF16 F8_E4M3 F8_E5M2, I8-I64, U8-U64 or BOOL",
                       "not read: 'zebra'"}));
  ExpectEqualElements(p.k, Numbers({4, 4}, 1).view().Unsqueeze(0).Unsqueeze(0));
  ExpectError(ErrorCode::kUnsupported, "array 'layers.0.context': element type 'C64'", [&] { p.ReadObserved("context"); });
}

}  // namespace
}  // namespace regard::io
