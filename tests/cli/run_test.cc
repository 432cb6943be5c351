// `regard run` from files to what it prints, saves and refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "regard/attention.h"
#include "regard/io.h"
#include "regard/projections.h"
#include "tests/cli/scratch.h"
#include "tests/support/random.h"

namespace regard::tests {
namespace {

using nlohmann::json;

Tensor Random(std::uint64_t seed, const Dims& shape) {
  test::Random random(seed);
  Tensor tensor(DType::kF32, shape);
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) tensor.MutableAs<float>()[i] = static_cast<float>(random.Normal());
  return tensor;
}

json RunJson(const std::string& arguments) {
  const Outcome outcome = Regard("run " + arguments + " --json");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return json::parse(outcome.out);
}

const json& Stage(const json& report, const std::string& name) {
  for (const json& stage : report["stages"]) {
    if (stage["name"] == name) return stage;
  }
  static const json none;
  return none;
}

void ExpectRow(const json& row, std::initializer_list<double> expected) {
  ASSERT_EQ(row.size(), expected.size());
  std::size_t i = 0;
  for (const double value : expected) EXPECT_NEAR(row[i++].get<double>(), value, 5e-5);
}

void ExpectSameBits(const TensorView& a, const TensorView& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.num_elements()) * ItemSize(a.dtype())), 0);
}

class SixTokens : public testing::TestWithParam<const char*> {};

TEST_P(SixTokens, HaveTheCoursesNumbersByEveryPath) {
  const json report = RunJson(std::string("testdata/six_tokens.txt --path ") + GetParam());
  EXPECT_EQ(report["path"], GetParam());
  ExpectRow(report["tensors"]["scores"][1], {0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865});
  ExpectRow(report["tensors"]["weights"][1], {0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581});
  ExpectRow(report["tensors"]["context"][1], {0.4419, 0.6515, 0.5683});
  EXPECT_NEAR(report["tensors"]["weights"][0][1].get<double>(), 0.2006, 5e-5);
  const json& scores = Stage(report, "scores");
  EXPECT_EQ(scores["how"], "inputs 6×3 · inputsᵀ 3×6: 36 pairs, 3 summed away");
  EXPECT_NEAR(scores["first_mirrored_cells"]["value"].get<double>(), 0.9544, 5e-5);
  EXPECT_NEAR(scores["first_mirrored_cells"]["mirrored"].get<double>(), 0.9544, 5e-5);
  const json& weights = Stage(report, "weights");
  EXPECT_NEAR(weights["first_mirrored_cells"]["value"].get<double>(), 0.2006, 5e-5);
  EXPECT_NEAR(weights["first_mirrored_cells"]["mirrored"].get<double>(), 0.1385, 5e-5);
  EXPECT_EQ(Stage(report, "context")["how"], "weights 6×6 · inputs 6×3");
  EXPECT_TRUE(report["agreement"]["agrees"].get<bool>());
  EXPECT_EQ(report["agreement"]["sample"]["rows"], 6);
  EXPECT_GT(report["score_timing"]["loops_seconds"].get<double>(), 0);
  EXPECT_GT(report["score_timing"]["product_seconds"].get<double>(), 0);
}

TEST_P(SixTokens, AreShownToFourDecimals) {
  const Outcome outcome = Regard(std::string("run testdata/six_tokens.txt --path ") + GetParam());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* line : {
           "read as tokens 6, dim 3",
           "scores 6×6 = inputs 6×3 · inputsᵀ 3×6: 36 pairs, 3 summed away",
           "context 6×3 = weights 6×6 · inputs 6×3",
           "mirrored cells [0,1] 0.9544 / [1,0] 0.9544; symmetric",
           "mirrored cells [0,1] 0.2006 / [1,0] 0.1385; largest asymmetry 0.0877 at [1,4] 0.1082 / [4,1] 0.1958",
           "rows sum to 1.0000 1.0000 1.0000 1.0000 1.0000 1.0000",
           "columns sum to 0.9220 1.2970 1.2788 0.7974 0.7540 0.9508",
           "  1 journey  0.9544   1.4950   1.4754   0.8434   0.7070   1.0865",
           "  1 journey  0.1385   0.2379   0.2333   0.1240   0.1082   0.1581",
           "  1 journey 0.4419  0.6515  0.5683",
           "one token at a time in double: all 6 rows",
       }) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << "\nnot in\n" << outcome.out;
  }
  EXPECT_LT(outcome.out.find("\nscores\n"), outcome.out.find("\nweights\n"));
  EXPECT_LT(outcome.out.find("\nweights\n"), outcome.out.find("\ncontext\n"));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);  // no colours where nobody looks
}

INSTANTIATE_TEST_SUITE_P(Paths, SixTokens, testing::Values("reference", "staged", "fused"));

TEST(Dim, OverQueriesIsNotAttention) {
  for (const char* arguments : {"testdata/six_tokens.txt --dim 0", "testdata/six_tokens.txt --dim -2 --path reference"}) {
    const json report = RunJson(arguments);
    const json& sums = Stage(report, "weights")["row_sums"]["each"];
    const double expected[] = {.922, 1.297, 1.279, .797, .754, .951};
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(sums[i].get<double>(), expected[i], 5e-4);
    EXPECT_NEAR(Stage(report, "weights")["column_sums"]["min"].get<double>(), 1, 1e-6);
    EXPECT_EQ(report["remarks"][0],
              "columns sum to 1.0000, rows sum to 0.7540 … 1.2970: these are not attention weights, whose rows sum to 1");
    EXPECT_TRUE(report["agreement"]["agrees"].get<bool>());
  }
}

TEST(Dim, OfTheKeysIsAttention) {
  const json report = RunJson("testdata/six_tokens.txt --dim 1");
  EXPECT_FALSE(report.contains("dim"));
  EXPECT_NEAR(report["tensors"]["context"][1][0].get<double>(), 0.4419, 5e-5);
}

TEST(Dim, RefusesWhatOnlyMakesSenseOverKeys) {
  for (const char* flags : {"--causal", "--window-left 1", "--soft-cap 2", "--path fused"}) {
    const Outcome outcome = Regard(std::string("run testdata/six_tokens.txt --dim 0 ") + flags);
    EXPECT_EQ(outcome.status, 2) << flags;
    EXPECT_NE(outcome.err.find("--dim: 0"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(Regard("run testdata/six_tokens.txt --dim 2").status, 2);
}

class Saved : public testing::Test {
 protected:
  void SetUp() override {
    io::WriteNpz(input_, {{.name = "q", .tensor = q_}, {.name = "k", .tensor = k_}, {.name = "v", .tensor = v_}});
  }
  const Tensor q_ = Random(1, {2, 4, 9, 5}), k_ = Random(2, {2, 2, 9, 5}), v_ = Random(3, {2, 2, 9, 7});
  const std::string input_ = Scratch("qkv.npz"), output_ = Scratch("result.npz");
};

TEST_F(Saved, ContextAndLseUnlessAskedOtherwise) {
  ASSERT_EQ(Regard("run " + input_ + " --causal -o " + output_).status, 0);
  const io::File file = io::File::Open(output_);
  ASSERT_EQ(file.arrays().size(), 2u);
  AttentionParams params;
  params.causal = true;
  const AttentionResult expected = Attention(q_, k_, v_, params);
  ExpectSameBits(file.Read("context"), expected.context);
  ExpectSameBits(file.Read("lse"), expected.lse);
}

TEST_F(Saved, StagesOnRequest) {
  const std::string output = Scratch("stages.safetensors");
  ASSERT_EQ(Regard("run " + input_ + " --soft-cap 3 --save scores,capped,masked_scores,weights,context,q -o " + output).status,
            0);
  const io::File file = io::File::Open(output);
  AttentionParams params;
  params.soft_cap = 3;
  const Stages expected = ComputeStages(q_, k_, v_, params);
  for (const auto& [name, tensor] :
       {std::pair{"scores", expected.scores}, {"capped", expected.capped}, {"weights", expected.weights}}) {
    const Tensor saved = file.Read(name);
    ASSERT_EQ(saved.shape(), tensor.shape());
    for (std::int64_t i = 0; i < saved.num_elements(); ++i) EXPECT_NEAR(saved.As<float>()[i], tensor.As<float>()[i], 1e-5);
  }
  ExpectSameBits(file.Read("q"), q_);
  EXPECT_EQ(file.Find("lse"), nullptr);
}

TEST_F(Saved, ReferenceStagesInDouble) {
  ASSERT_EQ(Regard("run " + input_ + " --path reference --save weights,lse -o " + output_).status, 0);
  const io::File file = io::File::Open(output_);
  EXPECT_EQ(file.Find("weights")->dtype, DType::kF64);
  EXPECT_EQ(file.Find("lse")->dtype, DType::kF64);
}

TEST_F(Saved, InTheLayoutOfTheInputs) {
  const std::string input = Scratch("bshd.npz");
  const Tensor q = Random(4, {2, 9, 4, 5}), k = Random(5, {2, 9, 2, 5}), v = Random(6, {2, 9, 2, 7});
  io::WriteNpz(input, {{.name = "q", .tensor = q}, {.name = "k", .tensor = k}, {.name = "v", .tensor = v}});
  ASSERT_EQ(Regard("run " + input + " --layout bshd -o " + output_).status, 0);
  const io::File file = io::File::Open(output_);
  const AttentionResult expected = Attention(q.view().Transpose(1, 2), k.view().Transpose(1, 2), v.view().Transpose(1, 2));
  ExpectSameBits(file.Read("context"), Tensor::CopyOf(expected.context.view().Transpose(1, 2)));
  ExpectSameBits(file.Read("lse"), expected.lse);
}

TEST_F(Saved, AboveTheLimitIsRefusedAndTheOldFileStays) {
  io::WriteNpz(output_, {{.name = "old", .tensor = v_}});
  const std::string before = ReadFile(output_);
  const Outcome outcome = Regard("run " + input_ + " --save weights --max-memory 1000 -o " + output_);
  EXPECT_EQ(outcome.status, 5);
  EXPECT_NE(outcome.err.find("--max-memory: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(" bytes"), std::string::npos) << outcome.err;
  EXPECT_EQ(ReadFile(output_), before);
}

TEST_F(Saved, NeverOverAnInput) {
  const std::string before = ReadFile(input_), raw = Scratch("raw.npy"), link = Scratch("link.npz");
  std::filesystem::create_symlink(input_, link);
  std::ofstream(raw) << std::string(48, '\0');
  for (const std::string& arguments : {input_ + " -o " + input_, link + " -o " + input_, input_ + " -o " + link,
                                       "x=" + raw + ":f32:4x3 --save context -o " + raw}) {
    const Outcome outcome = Regard("run " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_TRUE(outcome.err.ends_with("' is an input; name another file\n")) << outcome.err;
  }
  EXPECT_EQ(ReadFile(input_), before);
}

// Two names in a folder that cannot be entered are not the same file.
TEST_F(Saved, WhereNobodyCanLook) {
  const std::string loop = Scratch("loop");
  std::filesystem::create_symlink(loop, loop);
  const Outcome outcome = Regard("run " + loop + "/a.npz -o " + loop + "/b.npz");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err.find("is an input"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("Too many levels of symbolic links"), std::string::npos) << outcome.err;
}

TEST_F(Saved, OnlyWhereTheArraysFit) {
  EXPECT_EQ(Regard("run " + input_ + " -o x.txt").err,
            "regard: -o: 'x.txt' has no known ending; name a file .npz, .safetensors, or .npy for one array\n");
  EXPECT_EQ(Regard("run " + input_ + " -o /dev/null").err,
            "regard: /dev/null: exists and is not a regular file, so it cannot be replaced; choose another path\n");
  EXPECT_EQ(Regard("run " + input_ + " -o x.npy").err,
            "regard: -o: 'x.npy' can hold one array, not 2; name a file .npz or .safetensors\n");
  EXPECT_EQ(Regard("run " + input_ + " -o x.npy").status, 1);
  EXPECT_EQ(Regard("run " + input_ + " --save context -o " + Scratch("one.npy")).status, 0);
}

TEST_F(Saved, NamesAreCheckedBeforeAnythingRuns) {
  EXPECT_EQ(Regard("run " + input_ + " --save weights").status, 1);
  EXPECT_EQ(Regard("run " + input_ + " --save wieghts -o " + output_).status, 1);
  EXPECT_EQ(Regard("run " + input_ + " --save lse,lse -o " + output_).err, "regard: --save: 'lse' is given twice; keep one\n");
  EXPECT_EQ(Regard("run " + input_ + " --save projected -o " + output_).status, 2);
  EXPECT_EQ(Regard("run " + input_ + " --row 1").status, 1);
  EXPECT_EQ(Regard("run " + input_ + " --head 4").status, 2);
}

TEST(ThirdStage, IsWeightsTimesV) {
  const std::string input = Scratch("third.npz"), output = Scratch("third_out.npz");
  const Tensor v = Random(7, {2, 2, 9, 7});
  const Stages stages = ComputeStages(Random(8, {2, 4, 6, 5}), Random(9, {2, 2, 9, 5}), v);
  io::WriteNpz(input, {{.name = "weights", .tensor = stages.weights}, {.name = "v", .tensor = v}});
  const json report = RunJson(input + " -o " + output);
  EXPECT_EQ(report["problem"]["kind"], "third_stage");
  EXPECT_TRUE(report["agreement"]["agrees"].get<bool>());
  EXPECT_FALSE(report.contains("score_timing"));
  const Tensor saved = io::File::Open(output).Read("context");
  ASSERT_EQ(saved.shape(), stages.context.shape());
  for (std::int64_t i = 0; i < saved.num_elements(); ++i) EXPECT_NEAR(saved.As<float>()[i], stages.context.As<float>()[i], 1e-5);
  EXPECT_EQ(Regard("run " + input + " --path fused").status, 2);
  EXPECT_EQ(Regard("run " + input + " --dim 0").status, 2);
}

TEST(Projections, AreStagesOfTheirOwn) {
  const std::string input = Scratch("projected.npz"), output = Scratch("projected_out.npz");
  const Tensor x = Random(10, {5, 6}), wq = Random(11, {8, 6}), wk = Random(12, {4, 6}), wv = Random(13, {4, 6}),
               wo = Random(14, {3, 8});
  io::WriteNpz(input, {{.name = "inputs", .tensor = x},
                       {.name = "w_query", .tensor = wq},
                       {.name = "w_key", .tensor = wk},
                       {.name = "w_value", .tensor = wv},
                       {.name = "w_out", .tensor = wo}});
  const json report = RunJson(input + " --num-heads 4 --num-kv-heads 2 --causal --save projected,context -o " + output);
  EXPECT_EQ(Stage(report, "q")["how"], "inputs 5×6 · w_queryᵀ 6×8, cut into 4 heads");
  EXPECT_EQ(Stage(report, "scores")["how"],
            "q 5×2 · kᵀ 2×5 in each of 4 heads (2 of k and v, each read by 2): 100 pairs, 2 summed away, × 0.7071");
  EXPECT_EQ(Stage(report, "masked_scores")["how"], "scores; -inf where not visible: causal");
  Projections projections;
  projections.w_query = wq;
  projections.w_key = wk;
  projections.w_value = wv;
  projections.w_out = wo;
  projections.num_heads = 4;
  projections.num_kv_heads = 2;
  const Projected p = Project(x, projections);
  AttentionParams params;
  params.causal = true;
  const Tensor expected = ProjectContext(Attention(p.q, p.k, p.v, params).context, projections);
  const Tensor saved = io::File::Open(output).Read("projected");
  ASSERT_EQ(saved.num_elements(), expected.num_elements());
  EXPECT_EQ(saved.shape(), (Dims{5, 3}));
  for (std::int64_t i = 0; i < saved.num_elements(); ++i) EXPECT_NEAR(saved.As<float>()[i], expected.As<float>()[i], 1e-5);
}

TEST(Long, IsSampledAndSaysSo) {
  const std::string input = Scratch("long.npz");
  io::WriteNpz(input, {{.name = "inputs", .tensor = Random(15, {3000, 32})}});
  const json report = RunJson(input);
  EXPECT_FALSE(report["sample"]["everything"].get<bool>());
  EXPECT_EQ(report["sample"]["of"], 3000);
  EXPECT_TRUE(report["agreement"]["agrees"].get<bool>());
  EXPECT_FALSE(report.contains("tensors"));
  EXPECT_FALSE(Stage(report, "weights").contains("column_sums"));
  EXPECT_TRUE(Stage(report, "weights").contains("largest_asymmetry"));
  EXPECT_NE(Regard("run " + input).out.find("of 3,000 rows: first, last, block edges, evenly spaced"), std::string::npos);
}

// ---------------------------------------------------------------------------------------------------------------- layers

const std::string kModel = "testdata/minilm/all_minilm_l6_v2.safetensors";

TEST(RealModel, EveryLayerAgrees) {
  const json report = RunJson(kModel + " --layer 0-5");
  ASSERT_EQ(report["layers"].size(), 6u);
  for (const json& layer : report["layers"]) {
    EXPECT_TRUE(layer["agreement"]["agrees"].get<bool>());
    EXPECT_TRUE(layer["agreement"]["sample"]["everything"].get<bool>());
    EXPECT_EQ(layer["agreement"]["sample"]["rows"], 12 * 132);
  }
}

TEST(Layers, SeveralAreEachWhatTheyAreAlone) {
  const std::string output = Scratch("layers.npz"), alone = Scratch("layer.npz");
  const json report = RunJson(kModel + " --layer 4,1-2 --causal --save lse,context -o " + output);
  EXPECT_EQ(report["command"], "run");
  EXPECT_EQ(report["notes"], json{"--causal=true overrides the file's causal false"});  // once, though it holds for each
  ASSERT_EQ(report["layers"].size(), 3u);
  EXPECT_EQ(report["output"]["file"], output);
  EXPECT_EQ(report["output"]["saved"],
            (json{"layers.4.lse", "layers.4.context", "layers.1.lse", "layers.1.context", "layers.2.lse", "layers.2.context"}));
  const io::File file = io::File::Open(output);
  EXPECT_EQ(file.arrays().size(), 6u);
  const int expected[] = {4, 1, 2};
  for (std::size_t n = 0; n < 3; ++n) {
    const std::string layer = std::to_string(expected[n]);
    json one = RunJson(kModel + " --causal --layer " + layer + " -o " + alone);
    EXPECT_EQ(one["problem"]["layer"], expected[n]);
    for (const char* shared : {"command", "notes", "output"}) one.erase(shared);
    json other = report["layers"][n];
    for (json* timed : {&one, &other}) timed->erase("score_timing");
    EXPECT_EQ(other, one);
    const io::File single = io::File::Open(alone);
    for (const char* name : {"context", "lse"}) ExpectSameBits(file.Read("layers." + layer + "." + name), single.Read(name));
  }
}

TEST(Layers, AreShownOneAfterAnother) {
  const Outcome outcome = Regard("run " + kModel + " --layer 0-1 -o " + Scratch("shown.npz"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");  // no note that only one is read
  const std::size_t first = outcome.out.find("read as layer 0, "), second = outcome.out.find("\n\nread as layer 1, ");
  EXPECT_EQ(first, 0u);
  EXPECT_NE(second, std::string::npos);
  EXPECT_TRUE(outcome.out.ends_with("\n\nsaved 4 arrays to " + Scratch("shown.npz") + "\n"));
}

TEST(Layers, ComeFromStandardInputToo) {
  const Outcome outcome = RunRegard({"run", "-", "--layer", "5,3", "--json"}, {.input = ReadFile(kModel)});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["layers"][1]["problem"]["layer"], 3);
}

TEST(Layers, ThatAreNotThereAreRefused) {
  EXPECT_EQ(Regard("run " + kModel + " --layer 4-6").err,
            "regard: --layer: 6 is not in the files; choose from 0, 1, 2, 3, 4, 5\n");
  EXPECT_EQ(Regard("run " + kModel + " --layer 4-6").status, 2);
  EXPECT_EQ(Regard("run testdata/six_tokens.npz --layer 0").err,
            "regard: --layer: 0, but no key begins with 'layers.'; leave it out\n");
  EXPECT_EQ(Regard("run " + kModel + " --layer 2-1").status, 1);
}

TEST(Layers, OfWhichOneFailsWriteNothing) {
  const std::string input = Scratch("two_layers.npz"), output = Scratch("two_layers_out.npz");
  const Tensor good = Random(1, {3, 4}), other = Random(2, {3, 5});
  io::WriteNpz(input, {{.name = "layers.0.q", .tensor = good},
                       {.name = "layers.0.k", .tensor = good},
                       {.name = "layers.0.v", .tensor = good},
                       {.name = "layers.7.q", .tensor = good},
                       {.name = "layers.7.k", .tensor = other},
                       {.name = "layers.7.v", .tensor = good}});
  EXPECT_EQ(Regard("run " + input + " --layer 0 -o " + output).status, 0);
  const std::string before = ReadFile(output);
  const Outcome outcome = Regard("run " + input + " --layer 0,7 -o " + output);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(ReadFile(output), before);
}

TEST(Unreadable, ArraysMatterOnlyWhereTheyAreUsed) {
  const std::string bad = "testdata/io/some_unreadable.npz";  // q and k can be read, 'objects' and others cannot
  const std::string v = Scratch("v.npy"), text = Scratch("tokens.txt");
  io::WriteNpy(v, Random(1, {2, 3, 4}));
  std::ofstream(text) << "one\ntwo\n";
  const Outcome run = Regard("run " + bad + " v=" + v + " --layout shd --tokens " + text);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("note: not read: 'objects', 'records', 'complex'"), std::string::npos) << run.err;
  const Outcome used = Regard("run testdata/io/damaged/bzip2.npz k=" + v + " v=" + v + " --layout shd");
  EXPECT_EQ(used.status, 2);
  EXPECT_EQ(
      used.err,
      "regard: testdata/io/damaged/bzip2.npz: array 'q': is packed by zip method 12; store it or deflate it (numpy.savez)\n");
}

TEST(Empty, ProblemsHaveReportsToo) {
  const std::string input = Scratch("empty.npz");
  io::WriteNpz(input, {{.name = "q", .tensor = Random(1, {1, 2, 3, 4})},
                       {.name = "k", .tensor = Random(1, {1, 2, 0, 4})},
                       {.name = "v", .tensor = Random(1, {1, 2, 0, 4})}});
  EXPECT_EQ(RunJson(input)["empty_rows"], 6);
  const Outcome no_keys = Regard("run " + input);
  EXPECT_EQ(no_keys.status, 0);
  EXPECT_EQ(no_keys.out.find("\nweights, head 0\n"), std::string::npos) << no_keys.out;  // a table without columns
  EXPECT_NE(no_keys.out.find("\ncontext, head 0\n"), std::string::npos) << no_keys.out;
  io::WriteNpz(input, {{.name = "q", .tensor = Random(1, {1, 2, 0, 4})},
                       {.name = "k", .tensor = Random(1, {1, 2, 3, 4})},
                       {.name = "v", .tensor = Random(1, {1, 2, 3, 4})}});
  EXPECT_EQ(Regard("run " + input).status, 0);
  const Outcome explained = Regard("explain " + input + " --row 0");
  EXPECT_EQ(explained.status, 2);
  EXPECT_NE(explained.err.find("--row: the problem has no queries"), std::string::npos) << explained.err;
}

TEST(Overflow, IsNamed) {
  const std::string input = Scratch("huge.npz");
  const Tensor huge = Tensor::Of({2, 2}, {1e30f, 0.0f, 0.0f, -1e30f});
  io::WriteNpz(input, {{.name = "q", .tensor = huge}, {.name = "k", .tensor = huge}, {.name = "v", .tensor = huge}});
  const std::string output = Scratch("huge_out.npz");
  const Outcome outcome = Regard("run " + input + " --scale 1 -o " + output);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_EQ(io::File::Open(output).arrays().size(), 2u) << "written all the same";
  EXPECT_NE(outcome.out.find("scores reach 1.0e+60 in double and overflow f32"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace regard::tests
