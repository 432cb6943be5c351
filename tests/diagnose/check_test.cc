// `regard check` as a user runs it, on the real data with one fault that the README uses; and the two ways to get tensors out.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "examples/npy_writer.h"
#include "regard/io.h"
#include "tests/cli/scratch.h"

namespace regard::tests {
namespace {

using nlohmann::json;

constexpr const char* kProblem = "check testdata/minilm/all_minilm_l6_v2.safetensors --observed testdata/broken/";

json Check(const std::string& name, int status) {
  const Outcome outcome = Regard(kProblem + name + ".safetensors --json");
  EXPECT_EQ(outcome.status, status) << outcome.err;
  return json::parse(outcome.out);
}

TEST(Check, NamesTheMissingScale) {
  const json d = Check("scale_missing", 3);
  EXPECT_EQ(d["verdict"], "fault");
  EXPECT_EQ(d["first_wrong_stage"], "scores");
  ASSERT_EQ(d["explanations"][0]["id"], "F01");
  EXPECT_LT(d["explanations"][0]["residual"].get<double>(), 1e-6);
  EXPECT_EQ(d["explanations"][0]["coverage"], 1.0);
  EXPECT_EQ(d["where"]["rows_compared"], 12 * 132);
  EXPECT_TRUE(d["ties"].empty());
}

TEST(Check, NamesTheMerge) { EXPECT_EQ(Check("heads_merged", 3)["explanations"][0]["id"], "F11"); }

TEST(Check, SaysWhichHeads) {
  const json d = Check("causal_in_heads_4_to_7", 3);
  EXPECT_EQ(d["explanations"][0]["id"], "F36");
  EXPECT_EQ(d["explanations"][0]["scope"], "only heads 4–7");
  EXPECT_EQ(d["where"]["heads"], (json{4, 5, 6, 7}));
}

TEST(Check, RoundingIsNoDifference) {
  const json d = Check("correct_in_bf16", 0);
  EXPECT_EQ(d["verdict"], "rounding");
  EXPECT_EQ(d["precision"], "bf16");
}

// docs/cli.md, section check.
TEST(Check, JsonIsAsDocumented) {
  const auto keys = [](const json& object) {
    std::set<std::string> names;
    for (const auto& [name, value] : object.items()) names.insert(name);
    return names;
  };
  for (const char* name : {"scale_missing", "heads_merged", "causal_in_heads_4_to_7", "correct_in_bf16"}) {
    const json d = Check(name, std::string(name) == "correct_in_bf16" ? 0 : 3);
    EXPECT_EQ(keys(d),
              (std::set<std::string>{"command", "coverage", "evidence", "explanations", "first_wrong_stage", "next_step", "notes",
                                     "precision", "reading", "summary", "tie_breaker", "ties", "verdict", "where"}));
    EXPECT_EQ(keys(d["where"]), (std::set<std::string>{"batches", "heads", "keys", "largest", "rows", "rows_compared",
                                                       "rows_wrong", "text", "worst"}));
    EXPECT_EQ(keys(d["where"]["worst"]),
              (std::set<std::string>{"batch", "column", "expected", "head", "observed", "row", "tensor"}));
    for (const json& e : d["explanations"]) {
      EXPECT_EQ(keys(e),
                (std::set<std::string>{"advice", "coverage", "formula", "id", "name", "params", "residual", "scope", "stage"}));
      EXPECT_TRUE(e["params"].is_object());
      EXPECT_TRUE(e["residual"].is_number());
    }
    for (const json& id : d["ties"]) EXPECT_TRUE(id.is_string());
    for (const json& sentence : d["evidence"]) EXPECT_TRUE(sentence.is_string());
  }
}

TEST(Check, ChosenHeads) {
  const Outcome right = Regard(std::string(kProblem) + "causal_in_heads_4_to_7.safetensors --head 0-3");
  EXPECT_EQ(right.status, 0);
  EXPECT_NE(right.out.find("all 528 rows of heads 0–3"), std::string::npos) << right.out;
  EXPECT_EQ(Regard(std::string(kProblem) + "causal_in_heads_4_to_7.safetensors --head 4").status, 3);
}

TEST(Check, RefusesWhatItCannotDo) {
  const std::pair<const char*, std::pair<int, const char*>> cases[] = {
      {"heads_merged.safetensors --path fused", {1, "computes every mistake from the definition"}},
      {"heads_merged.safetensors --max-memory 1K", {5, "--max-memory: the problem and hypotheses about it take"}},
      {"README.md", {2, "is not a number"}},
      {"nowhere.npz", {2, "cannot be opened"}},
      {"heads_merged.safetensors --observed-again testdata/six_tokens.npz",
       {2, "--observed-again: testdata/six_tokens.npz holds"}},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = Regard(std::string(kProblem) + arguments);
    EXPECT_EQ(outcome.status, expected.first) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(expected.second), std::string::npos) << outcome.err;
  }
}

TEST(Check, NamesAMisspeltResult) {
  const std::string file = Scratch("misspelt.npz");
  io::WriteNpz(file, {{.name = "contxt", .tensor = Tensor(DType::kF32, {6, 3})}});
  const Outcome outcome = Regard("check testdata/six_tokens.npz --observed " + file);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("is context meant?"), std::string::npos) << outcome.err;
}

// A name before the file is said once, however many arrays there are, and before the file is looked at.
TEST(Check, NamesAResultThatIsNone) {
  const auto message = [](const std::string& observed) {
    const Outcome outcome = Regard("check testdata/six_tokens.npz --observed " + observed);
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_EQ(message("foo=testdata/six_tokens.npz"),
            "regard: --observed: foo is not a result; give one of scores, capped, masked_scores, weights, lse, context, "
            "projected\n");
  EXPECT_EQ(message("wieghts=testdata/six_tokens.npz"), "regard: --observed: wieghts is not a result; is weights meant?\n");
}

TEST(Check, AResultStandsOnce) {
  const std::string file = Scratch("twice.npz"), alone = Scratch("alone.npy");
  const Tensor context(DType::kF32, {6, 3});
  io::WriteNpz(file, {{.name = "context", .tensor = context}, {.name = "attn_output", .tensor = context}});
  io::WriteNpy(alone, context);
  const Outcome outcome = Regard("check testdata/six_tokens.npz --observed " + file);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "regard: --observed: context given twice, as 'context' in " + file + " and as 'attn_output' in " + file +
                             "; keep one\n");
  EXPECT_EQ(Regard("check testdata/six_tokens.npz --observed " + alone + "," + alone).err,
            "regard: --observed: context given twice, as " + alone + " and as " + alone + "; keep one\n");
}

TEST(Check, ResultsOfAnotherLayerAreNone) {
  const std::string file = "testdata/broken/scale_missing.safetensors";
  const Outcome outcome = Regard("check testdata/minilm/all_minilm_l6_v2.safetensors --layer 2 --observed " + file);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "regard: --observed: " + file + " holds nothing of layer 2; state the --layer that it is of\n");
}

// Every file is to hold a result; a name says what the one array of numbers is.
TEST(Check, FilesThatHoldNoResultOrTwo) {
  const std::string own = Scratch("own_two.npz"), words = Scratch("words.npz"), only = Scratch("only.npz");
  const std::string check = "check testdata/six_tokens.npz --observed ";
  ASSERT_EQ(Regard("run testdata/six_tokens.npz --save context,weights -o " + own).status, 0);
  io::WriteNpz(words, {{.name = "context", .strings = {"a"}}});
  io::WriteNpz(only, {{.name = "y", .tensor = Tensor(DType::kF32, {6, 3})}, {.name = "tokens", .strings = {"a"}}});
  EXPECT_EQ(Regard(check + "context=" + only).status, 3);
  EXPECT_EQ(Regard(check + "weights=" + own).err, "regard: --observed: " + own +
                                                      " holds 2 arrays of numbers, so that 'weights=' " +
                                                      "does not say which; give the file without a name\n");
  EXPECT_EQ(Regard(check + own + ",testdata/six_tokens.npz").err,
            "regard: --observed: testdata/six_tokens.npz holds nothing under the name of a result, but inputs, tokens; give one "
            "of scores, capped, "
            "masked_scores, weights, lse, context, projected\n");
  EXPECT_EQ(Regard(check + words).err,
            "regard: " + words + ": array 'context': holds strings where numbers are expected; save it as numbers\n");
}

TEST(Check, TwoRunsAreComparedInTheSameResult) {
  const std::string first = Scratch("first_run.npz"), second = Scratch("second_run.npz");
  io::WriteNpz(first, {{.name = "context", .tensor = Tensor(DType::kF32, {6, 3})}});
  io::WriteNpz(second, {{.name = "weights", .tensor = Tensor(DType::kF32, {6, 6})}});
  const Outcome outcome = Regard("check testdata/six_tokens.npz --observed " + first + " --observed-again " + second);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "regard: --observed-again: holds weights, the first run context; give the same results of both\n");
}

TEST(Check, TheThirdStage) {
  const std::string file = Scratch("third.npz"), theirs = Scratch("third_context.npy");
  const Tensor w = Tensor::Of<float>({2, 2}, {0.25f, 0.75f, 0.5f, 0.5f}), v = Tensor::Of<float>({2, 1}, {4, 8});
  io::WriteNpz(file, {{.name = "weights", .tensor = w}, {.name = "v", .tensor = v}});
  io::WriteNpy(theirs, Tensor::Of<float>({2, 1}, {7, 6}));
  EXPECT_EQ(Regard("check " + file + " --observed " + theirs).status, 0);
  io::WriteNpy(theirs, Tensor::Of<float>({2, 1}, {5, 7}));  // weightsᵀ·v
  const Outcome wrong = Regard("check " + file + " --observed " + theirs + " --json");
  EXPECT_EQ(wrong.status, 3);
  EXPECT_EQ(json::parse(wrong.out)["explanations"][0]["id"], "F95") << wrong.out;
}

TEST(Check, SpeaksToPeople) {
  const Outcome outcome = Regard(std::string(kProblem) + "scale_missing.safetensors");
  EXPECT_EQ(outcome.status, 3);
  for (const char* part :
       {"read as layer 3, batch 1, heads 12", "fault: scale missing (F01)", "change   multiply q·k by the scale",
        "over all 1,584 rows", "difference over bound, by head and query"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\nnot in\n" << outcome.out;
  }
}

TEST(Check, AgreesWithTheCommandsOwnResults) {
  const std::string own = Scratch("own.npz");
  ASSERT_EQ(Regard("run testdata/six_tokens.npz --save context,weights,lse -o " + own).status, 0);
  const Outcome outcome = Regard("check testdata/six_tokens.npz --json --observed " + own);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["verdict"], "match");
  EXPECT_EQ(RunRegard({"check", "testdata/six_tokens.npz", "--json", "--observed", "-"}, {.input = ReadFile(own)}).out,
            outcome.out);
}

// Nothing fits, so that all pairs of mistakes are tried, which takes seconds; the line of progress is removed at the end.
TEST(Check, AnInterruptEndsTheSearch) {
  const auto noise = [](double frequency) {
    Tensor t(DType::kF32, {1, 4, 512, 64});
    for (std::int64_t n = 0; n < t.num_elements(); ++n)
      t.MutableAs<float>()[n] =
          static_cast<float>(std::sin(frequency * static_cast<double>(n % 8191) * static_cast<double>(n % 127)));
    return t;
  };
  const std::string file = Scratch("search.npz"), theirs = Scratch("search_context.npy");
  io::WriteNpz(file,
               {{.name = "q", .tensor = noise(0.7)}, {.name = "k", .tensor = noise(1.3)}, {.name = "v", .tensor = noise(2.9)}});
  io::WriteNpy(theirs, noise(0.37));
  const Outcome outcome =
      RunRegard({"check", file, "--observed", theirs, "--threads", "1"}, {.interrupt_when = "█", .terminal_columns = 80});
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_LT(outcome.ms_after_interrupt, 10000);
  EXPECT_TRUE(outcome.err.ends_with(" \rregard: interrupted; nothing was written\r\n")) << outcome.err;
}

TEST(Check, SaysWhatIsMissing) {
  const Outcome nothing = Regard("check testdata/six_tokens.npz");
  EXPECT_EQ(nothing.status, 1);
  EXPECT_NE(nothing.err.find("--observed: missing"), std::string::npos) << nothing.err;
  const Outcome no_result = Regard("check testdata/six_tokens.npz --observed testdata/six_tokens.npz");
  EXPECT_EQ(no_result.status, 2);
  EXPECT_NE(no_result.err.find("holds nothing under the name of a result"), std::string::npos) << no_result.err;
}

TEST(NpyWriter, WritesWhatTheReaderReads) {
  const float values[] = {1, -2.5f, 3, 4, 5, 1e-30f};
  const std::string path = Scratch("pasted.npy");
  ASSERT_TRUE(WriteNpy(path, values, {2, 1, 3}));
  const Tensor read = io::File::Open(path).Read("");
  EXPECT_EQ(read.shape(), (Dims{2, 1, 3}));
  for (int n = 0; n < 6; ++n) EXPECT_EQ(read.As<float>()[n], values[n]);
  EXPECT_FALSE(WriteNpy(Scratch("no/such/folder.npy"), values, {6}));
}

}  // namespace
}  // namespace regard::tests
