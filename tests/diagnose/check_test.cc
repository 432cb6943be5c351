// `regard check` as a user runs it, on the real data with one fault that the README uses; and the two ways to get tensors out.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
}

TEST(Check, SaysWhatIsMissing) {
  const Outcome nothing = Regard("check testdata/six_tokens.npz");
  EXPECT_EQ(nothing.status, 1);
  EXPECT_NE(nothing.err.find("--observed: missing"), std::string::npos) << nothing.err;
  const Outcome no_result = Regard("check testdata/six_tokens.npz --observed testdata/six_tokens.npz");
  EXPECT_EQ(no_result.status, 2);
  EXPECT_NE(no_result.err.find("no result"), std::string::npos) << no_result.err;
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
