// `regard map` from files to what it prints, saves and refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "regard/io.h"
#include "regard/problem.h"
#include "regard/stages.h"
#include "regard/summary.h"
#include "tests/cli/scratch.h"
#include "tests/support/random.h"

namespace regard::tests {
namespace {

using nlohmann::json;

const std::string kModel = "testdata/minilm/all_minilm_l6_v2.safetensors";

Tensor Random(std::uint64_t seed, const Dims& shape) {
  test::Random random(seed);
  Tensor tensor(DType::kF32, shape);
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) tensor.MutableAs<float>()[i] = static_cast<float>(random.Normal());
  return tensor;
}

// q, k and v of their own lengths, in a file.
std::string File(const std::string& name, const Dims& q, const Dims& k) {
  const Tensor queries = Random(1, q), keys = Random(2, k), values = Random(3, k);
  const std::string path = Scratch(name);
  io::WriteNpz(path, {{.name = "q", .tensor = queries}, {.name = "k", .tensor = keys}, {.name = "v", .tensor = values}});
  return path;
}

json MapJson(const std::string& arguments) {
  const Outcome outcome = Regard("map " + arguments + " --json");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return json::parse(outcome.out);
}

void ExpectSameBits(const io::File& file, const std::string& name, const TensorView& expected) {
  SCOPED_TRACE(name);
  ASSERT_NE(file.Find(name), nullptr);
  const Tensor saved = file.Read(name);
  ASSERT_EQ(saved.shape(), expected.shape());
  ASSERT_EQ(saved.dtype(), expected.dtype());
  const auto bytes = static_cast<std::size_t>(saved.num_elements()) * ItemSize(saved.dtype());
  EXPECT_EQ(std::memcmp(saved.view().data(), expected.data(), bytes), 0);
}

SummaryOptions Everything() {
  SummaryOptions options;
  options.row_max = options.row_argmax = options.entropy = options.distance = options.first_key_share = true;
  options.key_mass = options.key_mass_mean = options.pooled_max = options.head_kind = true;
  options.window_share = 8;
  options.top_k = options.key_top_k = 5;
  options.pooled_rows = 7;
  options.pooled_cols = 11;
  return options;
}

void ExpectSaved(const io::File& file, const std::string& prefix, const Summary& s) {
  ExpectSameBits(file, prefix + "lse", s.lse);
  ExpectSameBits(file, prefix + "row_max", s.row_max);
  ExpectSameBits(file, prefix + "row_argmax", s.row_argmax);
  ExpectSameBits(file, prefix + "entropy", s.entropy);
  ExpectSameBits(file, prefix + "topk_index", s.topk_index);
  ExpectSameBits(file, prefix + "topk_weight", s.topk_weight);
  ExpectSameBits(file, prefix + "topk_tail", s.topk_tail);
  ExpectSameBits(file, prefix + "distance_mean", s.distance_mean);
  ExpectSameBits(file, prefix + "distance_std", s.distance_std);
  ExpectSameBits(file, prefix + "first_key_share", s.first_key_share);
  ExpectSameBits(file, prefix + "window_share", s.window_share);
  ExpectSameBits(file, prefix + "key_mass", s.key_mass);
  ExpectSameBits(file, prefix + "key_mass_mean", s.key_mass_mean);
  ExpectSameBits(file, prefix + "key_topk_index", s.key_topk_index);
  ExpectSameBits(file, prefix + "key_topk_weight", s.key_topk_weight);
  ExpectSameBits(file, prefix + "pooled", s.pooled);
  ExpectSameBits(file, prefix + "pooled_max", s.pooled_max);
  ExpectSameBits(file, prefix + "head_score", s.head_score);
}

TEST(MapTest, SavesWhatSummarizeGives) {
  const std::string path = Scratch("layers.npz");
  const Outcome outcome = Regard("map " + kModel + " --layer 4,1 --top-k 5 --bins 7x11 -o " + path);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const io::File file = io::File::Open(path);
  for (const std::int64_t layer : {1, 4}) {
    const io::Problem p = io::LoadProblem({kModel}, {.layer = layer});
    const Summary s = Summarize(p.q, p.k, p.v, p.params, Everything());
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    ExpectSaved(file, prefix, s);
    const io::StringArray kinds = file.ReadStrings(prefix + "head_kind");
    ASSERT_EQ(kinds.values.size(), s.head_kind.size());
    EXPECT_EQ(kinds.shape.size(), 1);
    for (std::size_t h = 0; h < s.head_kind.size(); ++h) EXPECT_EQ(kinds.values[h], Name(s.head_kind[h]));
  }
  EXPECT_EQ(file.arrays().size(), 38u);
}

TEST(MapTest, SavesOneLayerWithoutPrefixAndKindsAsMetadata) {
  const std::string path = Scratch("layer.safetensors");
  ASSERT_EQ(Regard("map " + kModel + " --layer 2 --top-k 5 --bins 7x11 -o " + path).status, 0);
  const io::Problem p = io::LoadProblem({kModel}, {.layer = 2});
  const Summary s = Summarize(p.q, p.k, p.v, p.params, Everything());
  const io::File file = io::File::Open(path);
  ExpectSaved(file, "", s);
  const json kinds = json::parse(file.metadata().at("head_kind"));
  ASSERT_EQ(kinds.size(), 12u);
  for (std::size_t h = 0; h < 12; ++h) EXPECT_EQ(kinds[h], Name(s.head_kind[h]));
}

TEST(MapTest, LinksAndPicturesAreTheDefinitionsWeights) {
  const json report = MapJson(kModel + " --layer 2 --head 9,3 --bins 132x132");
  const io::Problem p = io::LoadProblem({kModel}, {.layer = 2});
  const Tensor weights = ComputeStages(p.q, p.k, p.v, p.params, {.path = Path::kReference}).weights;
  const Tensor lse = Attention(p.q, p.k, p.v, p.params).lse;
  // Scores up to 20 as f32 sums of 32 products: ln w is off by less than 32 · 2⁻²⁴ · 60.
  constexpr double kError = 1.2e-4;
  const json& heads = report["layers"][0]["each_head"];
  ASSERT_EQ(heads.size(), 12u);
  for (std::int64_t h = 0; h < 12; ++h) {
    const json& head = heads[static_cast<std::size_t>(h)];
    ASSERT_EQ(head["links"].size(), 8u);
    double largest = 0;
    for (std::int64_t i = 0; i < 132; ++i) {
      for (std::int64_t j = 0; j < 132; ++j) largest = std::max(largest, weights(0, h, i, j));
    }
    EXPECT_NEAR(head["links"][0]["weight"].get<double>(), largest, kError);
    for (const json& link : head["links"]) {
      const auto query = link["query"].get<std::int64_t>(), key = link["key"].get<std::int64_t>();
      EXPECT_NEAR(link["weight"].get<double>(), weights(0, h, query, key), kError);
      EXPECT_EQ(link["query_token"], p.q_tokens.At(0, query));
      EXPECT_EQ(link["key_token"], p.k_tokens.At(0, key));
    }
    ASSERT_EQ(head.contains("pooled"), h == 9 || h == 3);
    const Tensor exact = WeightRows(p.q, p.k, lse, p.params, {.head = h});
    for (std::int64_t i = 0; head.contains("pooled") && i < 132; ++i) {
      for (std::int64_t j = 0; j < 132; ++j) {
        const double cell = head["pooled"][static_cast<std::size_t>(i)][static_cast<std::size_t>(j)].get<double>();
        ASSERT_NEAR(cell, weights(0, h, i, j), kError) << h << ' ' << i << ' ' << j;
        ASSERT_FLOAT_EQ(static_cast<float>(cell), static_cast<float>(exact(i, j))) << h << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(MapTest, ChosenSequencesAndLastQueries) {
  const std::string path = File("batch.npz", {3, 2, 9, 8}, {3, 1, 9, 8}), saved = Scratch("last.npz");
  const json report = MapJson(path + " --causal --batch 2,0 --last-queries 4 -o " + saved);
  const json& layer = report["layers"][0];
  EXPECT_EQ(layer["q_len"], 4);
  EXPECT_EQ(layer["first_query"], 5);
  ASSERT_EQ(layer["each_head"].size(), 4u);
  EXPECT_EQ(layer["each_head"][0]["batch"], 2);
  EXPECT_EQ(layer["each_head"][3]["batch"], 0);
  for (const json& link : layer["each_head"][0]["links"]) {
    EXPECT_GE(link["query"], 5);
    EXPECT_LE(link["key"], link["query"]);
  }
  const io::Problem p = io::LoadProblem({path}, {.causal = true});
  const Tensor weights = ComputeStages(p.q, p.k, p.v, p.params, {.path = Path::kReference}).weights;
  const Tensor index = io::File::Open(saved).Read("topk_index"), weight = io::File::Open(saved).Read("topk_weight");
  ASSERT_EQ(index.shape(), (Dims{2, 2, 4, 8}));
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t n = 0; n < i + 6 && n < 8; ++n) {
      EXPECT_NEAR(weight(0, 1, i, n), weights(2, 1, 5 + i, static_cast<std::int64_t>(index(0, 1, i, n))), 1e-5);
    }
  }
}

TEST(MapTest, WithoutPositionsThereAreNoKinds) {
  const std::string path = File("cross.npz", {5, 8}, {9, 8});
  const Outcome outcome = Regard("map " + path + " --head 0");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("--q-offset"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out.find("kinds of heads"), std::string::npos);
  EXPECT_FALSE(MapJson(path)["layers"][0]["each_head"][0].contains("kind"));
  EXPECT_TRUE(MapJson(path + " --q-offset 4")["layers"][0]["each_head"][0].contains("kind"));
}

TEST(MapTest, TextHasOverviewTableAndPictures) {
  const Outcome all = Regard("map " + kModel);
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_NE(all.out.find("\nlayers 1, 2, 3, 4, 5 alike\n"), std::string::npos);
  EXPECT_NE(all.out.find("      0 U 93 U 93 P 98"), std::string::npos) << all.out;
  EXPECT_NE(all.out.find("95 table → 4 table 0.9065"), std::string::npos);
  EXPECT_EQ(all.out.find("██"), std::string::npos);
  const Outcome one = Regard("map " + kModel + " --layer 0 --head 2");
  EXPECT_NE(one.out.find("layer 0, head 2: 132 queries in 30 groups down"), std::string::npos) << one.out;
  EXPECT_EQ(one.out.find('\x1b'), std::string::npos);
}

TEST(MapTest, ThePageHoldsTokensAsDataAndChosenHeadsExactly) {
  const std::string plain = Scratch("plain.html"), exact = Scratch("exact.html"), tokens = Scratch("tokens.json");
  io::AtomicFile list(tokens);
  list.Write(json{"</script><img src=x onerror=alert(1)>", "b", "\x1b[31m", "d", "e", "f"}.dump());
  list.Commit();
  ASSERT_EQ(Regard("map testdata/six_tokens.npz --tokens " + tokens + " --html " + plain).status, 0);
  const Outcome outcome = Regard("map testdata/six_tokens.npz --tokens " + tokens + " --head 0 --html " + exact);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  const std::string page = ReadFile(exact);
  EXPECT_EQ(page.find("</script><img"), std::string::npos);
  EXPECT_NE(page.find("onerror=alert(1)"), std::string::npos);
  EXPECT_LT(ReadFile(plain).size(), page.size());
}

TEST(MapTest, RefusesWhatItCannotDo) {
  const std::string npz = Scratch("refused.npz"), html = Scratch("refused.html");
  const auto expect = [&](const std::string& arguments, int status, const std::string& words) {
    const Outcome outcome = Regard("map " + arguments + " -o " + npz + " --html " + html);
    EXPECT_EQ(outcome.status, status) << arguments;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(std::filesystem::exists(npz));
    EXPECT_FALSE(std::filesystem::exists(html));
  };
  expect(kModel + " --bins 8", 1, "--bins: '8'");
  expect(kModel + " --bins 0x8", 1, "--bins: '0x8'");
  expect(kModel + " --layer x", 1, "--layer: 'x'");
  expect(kModel + " --path staged", 1, "--path: not a flag of `regard map`");
  expect(kModel + " --layer 6", 2, "--layer: 6 is not in the files; choose from 0, 1, 2, 3, 4, 5");
  expect(kModel + " --head 12", 2, "--head: 12 is beyond the last; choose from 0…11");
  expect(kModel + " --top-k -1", 2, "top_k: -1 is negative");
  expect(kModel + " --last-queries 0", 2, "--last-queries: 0");
  expect(kModel + " --max-memory 100KiB", 5, "--max-memory: the map and its run take ");
  expect(kModel + " --isa none", 2, "isa");
  expect("testdata/six_tokens.npz --layer 0", 2, "--layer: 0, but no key begins with 'layers.'");
  expect("nothing.npz", 2, "nothing.npz");
  expect(kModel + " --top-k 1000000000", 5, "choose fewer layers or a smaller --top-k");
  expect(kModel + " --bins -1x4", 1, "--bins: '-1x4'");
  expect(kModel + " --head 3-1", 1, "--head: '3-1' is not a list of indices");
  const Outcome npy = Regard("map " + kModel + " -o " + Scratch("one.npy"));
  EXPECT_EQ(npy.status, 1);
  const Outcome run = Regard("run " + kModel + " --top-k 3");
  EXPECT_NE(run.err.find("--top-k: not a flag of `regard run`, but of `regard map`"), std::string::npos) << run.err;
}

// Found before anything is computed, so that the file which can be written is not left without the other.
TEST(MapTest, FilesThatCannotBeWritten) {
  const std::string npz = Scratch("beside.npz"), missing = Scratch("missing");
  Outcome outcome = Regard("map " + kModel + " -o " + npz + " --html " + missing + "/map.html");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("/map.html: cannot be written"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(npz));
  outcome = Regard("map " + kModel + " --html " + std::filesystem::path(npz).parent_path().string());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("not a regular file"), std::string::npos) << outcome.err;
  const std::filesystem::path path = npz;
  for (const std::string& same : {npz, (path.parent_path() / "." / path.filename()).string()}) {
    outcome = Regard("map " + kModel + " -o " + npz + " --html " + same);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find("is the file of -o, too; give two names"), std::string::npos) << outcome.err;
  }
  EXPECT_FALSE(std::filesystem::exists(npz));
}

TEST(MapTest, RowsWithoutKeysAndRowsThatAreNotNumbers) {
  Tensor q = Random(1, {2, 6, 4});
  q.MutableAs<float>()[2 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();  // head 0, query 2
  Tensor mask(DType::kBool, {6, 6});
  for (std::int64_t i = 0; i < 5; ++i) mask.MutableAs<bool>()[i * 6] = true;  // query 5 sees nothing
  const std::string path = Scratch("odd.npz"), html = Scratch("odd.html");
  io::WriteNpz(
      path,
      {{.name = "q", .tensor = q}, {.name = "k", .tensor = q}, {.name = "v", .tensor = q}, {.name = "mask", .tensor = mask}});
  const std::string arrays = Scratch("odd_out.npz");
  const Outcome outcome = Regard("map " + path + " --layout hsd --head 0,1 --html " + html + " -o " + arrays);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(
                "note: 1 of 12 rows have weights that are not numbers; look for NaN, Inf and too large numbers in q and k"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("note: 2 of 12 rows see no key, so that their weights are 0"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("\n   0  ?"), std::string::npos) << "nothing is known of its kind\n" << outcome.out;
  EXPECT_NE(outcome.out.find("\n   1  first-token"), std::string::npos) << outcome.out;
  EXPECT_EQ(io::File::Open(arrays).ReadStrings("head_kind").values, (std::vector<std::string>{"unknown", "first-token"}));
  const json heads = MapJson(path + " --layout hsd")["layers"][0]["each_head"];
  EXPECT_TRUE(heads[0]["kind"].is_null() && heads[0]["score"].is_null()) << heads[0];
  EXPECT_EQ(heads[1]["kind"], "first-token");
  EXPECT_EQ(outcome.out.find("nan"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("  2 ??          \n"), std::string::npos) << outcome.out;
}

TEST(MapTest, OneTokenAndNone) {
  EXPECT_NE(Regard("map " + File("one.npz", {1, 4}, {1, 4}) + " --head 0").out.find("1 query down, 1 key across"),
            std::string::npos);
  const std::string html = Scratch("none.html");
  for (const std::string& path : {File("no_keys.npz", {3, 4}, {0, 4}), File("no_queries.npz", {0, 4}, {3, 4})}) {
    const Outcome outcome = Regard("map " + path + " --q-offset 0 --head 0 --html " + html + " -o " + Scratch("none.npz"));
    EXPECT_EQ(outcome.status, 0) << path << ": " << outcome.err;
    EXPECT_TRUE(std::filesystem::exists(html));
  }
}

// Heads cost something even without tokens: a file of a few bytes may claim any number of them.
TEST(MapTest, HeadsWithoutQueriesHaveAPrice) {
  const std::string path = File("claims.npz", {1 << 20, 1 << 20, 0, 1}, {1 << 20, 1 << 20, 0, 1});
  const Outcome outcome = Regard("map " + path);
  EXPECT_EQ(outcome.status, 5);
  EXPECT_NE(outcome.err.find("--max-memory: the map and its run take "), std::string::npos) << outcome.err;
}

TEST(MapTest, LayersOfUnequalLengthHaveNoPage) {
  const Tensor six = Random(1, {6, 4}), three = Random(2, {3, 4});
  const std::string path = Scratch("unequal.npz"), html = Scratch("unequal.html");
  io::WriteNpz(path, {{.name = "layers.0.q", .tensor = six},
                      {.name = "layers.0.k", .tensor = six},
                      {.name = "layers.0.v", .tensor = six},
                      {.name = "layers.1.q", .tensor = three},
                      {.name = "layers.1.k", .tensor = three},
                      {.name = "layers.1.v", .tensor = three}});
  const Outcome text = Regard("map " + path);
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("read as layer 1, tokens 3"), std::string::npos) << text.out;
  const Outcome page = Regard("map " + path + " --html " + html);
  EXPECT_EQ(page.status, 2);
  EXPECT_NE(page.err.find("layer 1 has 3 queries and 3 keys, layer 0 has 6 and 6; give --layer those that are alike"),
            std::string::npos)
      << page.err;
  EXPECT_FALSE(std::filesystem::exists(html));
}

TEST(MapTest, ThirdStageHasNothingToMap) {
  const Tensor weights = Random(1, {3, 3}), v = Random(2, {3, 2});
  const std::string path = Scratch("third.npz");
  io::WriteNpz(path, {{.name = "weights", .tensor = weights}, {.name = "v", .tensor = v}});
  const Outcome outcome = Regard("map " + path);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("map: starts from q and k"), std::string::npos) << outcome.err;
}

TEST(MapTest, StandardInputHoldsAllLayers) {
  const Outcome all = RunRegard({"map", "-"}, {.input = ReadFile(kModel)});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(all.out, Regard("map " + kModel).out);
}

TEST(MapTest, NeverOverAnInput) {
  const std::string input = File("input.npz", {6, 4}, {6, 4}), tokens = Scratch("input_tokens.json"), before = ReadFile(input);
  std::ofstream(tokens) << R"(["a", "b", "c", "d", "e", "f"])";
  for (const std::string& arguments :
       {input + " -o " + input, input + " --html " + input, input + " --tokens " + tokens + " --html " + tokens}) {
    const Outcome outcome = Regard("map " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_TRUE(outcome.err.ends_with("' is an input; name another file\n")) << outcome.err;
  }
  EXPECT_EQ(ReadFile(input), before);
}

// Few tokens are within 8 of each other: to be local says nothing of a head whose weights are even.
TEST(MapTest, EvenWeightsOfShortTextsAreNotCalledLocal) {
  const auto kinds = [](std::int64_t tokens) {
    const json report = MapJson(File("short.npz", {2, tokens, 4}, {2, tokens, 4}) + " --layout hsd --causal --scale 0.01");
    return report["layers"][0]["each_head"][1]["kind"].get<std::string>();
  };
  for (const std::int64_t tokens : {9, 10, 24}) EXPECT_EQ(kinds(tokens), "uniform") << tokens;
}

// The largest layer a file can name; 2^63 is one more than any index.
TEST(MapTest, LayersOfAnyNumber) {
  const std::string largest = "9223372036854775807", path = Scratch("largest.npz");
  const Tensor x = Random(1, {6, 4});
  std::vector<io::OutputArray> arrays;
  for (const std::string& layer : {std::string("3"), largest}) {
    for (const char* name : {"q", "k", "v"}) arrays.push_back({.name = "layers." + layer + "." + name, .tensor = x});
  }
  io::WriteNpz(path, arrays);
  const Outcome one = Regard("map " + path + " --layer " + largest);
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_NE(one.out.find("read as layer " + largest), std::string::npos) << one.out;
  EXPECT_EQ(Regard("map " + path).status, 0);
  EXPECT_EQ(Regard("map " + path + " --layer 4").status, 2);
}

// A bar while it runs, gone when it ends; the signal is obeyed in the middle of it and nothing is half-written.
TEST(MapTest, AnInterruptLeavesNothing) {
  const std::string path = File("long.npz", {1, 32, 16384, 64}, {1, 1, 16384, 64});
  const std::filesystem::path folder = Scratch("interrupted");
  std::filesystem::create_directory(folder);
  const Outcome outcome =
      RunRegard({"map", path, "-o", folder / "map.npz", "--html", folder / "map.html", "--threads", "1", "--max-memory", "4GiB"},
                {.interrupt_when = " left", .terminal_columns = 80});
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  // A second is promised where nothing else runs; the whole map takes minutes, and many under a sanitizer.
  EXPECT_LT(outcome.ms_after_interrupt, 10000);
  EXPECT_NE(outcome.err.find("\r█"), std::string::npos) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with(" \rregard: interrupted; nothing was written\r\n")) << outcome.err;
}

TEST(MapTest, ProgressIsForTerminals) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::int64_t kTokens = 2048;  // where arithmetic is some 20 times slower
#else
  constexpr std::int64_t kTokens = 8192;
#endif
  const std::string path = File("seconds.npz", {1, 3, kTokens, 64}, {1, 1, kTokens, 64});
  EXPECT_EQ(RunRegard({"map", path, "--threads", "1"}, {}).err, "");
  const Outcome outcome = RunRegard({"map", path, "--threads", "1"}, {.terminal_columns = 50});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(" %"), std::string::npos) << "a run of more than half a second";
  EXPECT_TRUE(outcome.err.ends_with(" \r")) << "the line is removed";
}

}  // namespace
}  // namespace regard::tests
