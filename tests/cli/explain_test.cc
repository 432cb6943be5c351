// `regard explain` and `regard info`.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "regard/info.h"
#include "regard/io.h"
#include "tests/cli/scratch.h"

namespace regard::tests {
namespace {

using nlohmann::json;

TEST(Explain, ResultFirstThenWhatMadeItThenTheTwoRoutes) {
  const Outcome outcome = Regard("explain testdata/six_tokens.txt --row 1");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::size_t at = 0;
  for (const char* part : {
           "context of query 1 journey\n  0.4419 0.6515 0.5683\n",
           "It is the sum of weight × inputs:",
           "  0 Your     0.138548    0.43  0.15  0.89         0.059575  0.020782  0.123307\n",
           "sum        1.000000                             0.441866  0.651482  0.568309\n",
           "weight = exp(score − max) / total: max 1.495000, total 4.203600",
           "  1 journey  1.495000   0.000000  1.000000  0.237891\n",
           "score = inputs·inputs of token 1:",
           "  0 Your     0.954400  0.55×0.43 + 0.87×0.15 + 0.66×0.89\n",
           "batched row (fused) 0.4419 0.6515 0.5683; per-token row (reference) 0.4419 0.6515 0.5683; difference ",
       }) {
    const std::size_t found = outcome.out.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\nnot, or not in its place, in\n" << outcome.out;
    at = found;
  }
  EXPECT_EQ(outcome.out.find('\n', at), outcome.out.size() - 1);  // the two routes are the last line
}

TEST(Explain, GradientsOfTheSumOrOfWhatTheFileSays) {
  const Outcome sum = Regard("explain testdata/six_tokens.txt --row 1 --grad");
  ASSERT_EQ(sum.status, 0) << sum.err;
  EXPECT_NE(sum.out.find("L is the sum of the context, so that d_context is 1 in every dim\n"), std::string::npos) << sum.out;
  // 0.138548 · (1.47 − 1.661657)
  EXPECT_NE(sum.out.find("  0 Your     0.138548  1.470000  -0.191657  -0.026554  "), std::string::npos) << sum.out;
  EXPECT_EQ(sum.out.rfind("batched row"), sum.out.rfind('\n', sum.out.size() - 2) + 1);  // the two routes stay the last line
  EXPECT_EQ(Regard("explain testdata/six_tokens.txt --row 1").out.find("d_weight"), std::string::npos);

  const std::string path = Scratch("grad.npz");
  const Tensor q = Tensor::Of({2, 2}, {1.0f, 2.0f, -3.0f, 4.0f}), v = Tensor::Of({2, 3}, {1.0f, 2.0f, 5.0f, 3.0f, -1.0f, 0.5f});
  const auto write = [&](const Tensor& d_context) {
    io::WriteNpz(path, {{.name = "q", .tensor = q},
                        {.name = "k", .tensor = q},
                        {.name = "v", .tensor = v},
                        {.name = "d_context", .tensor = d_context}});
  };
  write(Tensor::Of({2, 3}, {0.0f, 0.0f, 0.0f, 1.0f, -2.0f, 0.0f}));
  const Outcome outcome = Regard("explain --json --row 1 --grad " + path);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json gradient = json::parse(outcome.out)["rows"][0]["gradient"];
  EXPECT_FALSE(gradient["of_sum"].get<bool>());
  EXPECT_EQ(gradient["d_weights"], json({-3.0, 5.0}));
  EXPECT_EQ(gradient["d_q"].size(), 2u);
  EXPECT_NEAR(gradient["d_scores"][0].get<double>(), -gradient["d_scores"][1].get<double>(), 1e-12);
  write(Tensor::Of({1, 3}, {0.0f, 0.0f, 0.0f}));
  const Outcome wrong = Regard("explain --row 1 --grad " + path);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("d_context: shape 1×3, expected 2×3"), std::string::npos) << wrong.err;
  write(Tensor(DType::kI32, {2, 3}));
  EXPECT_EQ(Regard("explain --row 1 --grad " + path).err, "regard: d_context: element type i32; give a float type\n");
}

TEST(Explain, ListsOfRowsAndHeads) {
  const Outcome outcome = Regard("explain testdata/minilm/all_minilm_l6_v2.safetensors --row 0,4-5 --head 1,3 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  ASSERT_EQ(report["rows"].size(), 6u);
  EXPECT_EQ(report["rows"][2]["query"], 5);
  EXPECT_EQ(report["rows"][3]["head"], 3);
  EXPECT_EQ(report["rows"][4]["token"], "table");
  EXPECT_EQ(report["rows"][0]["weights"].size(), 132u);
  EXPECT_TRUE(report["rows"][0]["agrees"].get<bool>());
}

TEST(Explain, NaNHasNoSign) {
  const std::string path = Scratch("nan.npz");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of({2, 2}, {1.0f, 2.0f, std::copysign(nan, -1.0f), 4.0f});
  io::WriteNpz(path, {{.name = "q", .tensor = x}, {.name = "k", .tensor = x}, {.name = "v", .tensor = x}});
  const Outcome outcome = Regard("explain " + path + " --row 1");
  EXPECT_NE(outcome.out.find(" nan"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("-nan"), std::string::npos) << outcome.out;
}

TEST(Explain, RefusesWhatItCannotShow) {
  EXPECT_EQ(Regard("explain testdata/six_tokens.txt").status, 1);
  EXPECT_EQ(Regard("explain testdata/six_tokens.txt --row 6").status, 2);
  EXPECT_EQ(Regard("explain testdata/six_tokens.txt --row 1 --head 1").status, 2);
}

TEST(Explain, AsksWhatManyRowsWouldTake) {
  const std::string model = "testdata/minilm/all_minilm_l6_v2.safetensors --layer 2 --head 0-11 --row 0-131";
  const Outcome outcome = Regard("explain --json --max-memory 10MiB " + model);
  EXPECT_EQ(outcome.status, 5);
  EXPECT_EQ(outcome.err.find("regard: --max-memory: 1,584 rows of 132 keys take "), 0u) << outcome.err;
  EXPECT_EQ(Regard("explain --max-memory 10MiB " + model).status, 0);  // as text a row at a time
}

TEST(Explain, TokensCannotCommandTheTerminal) {
  const std::string input = Scratch("hostile.npz");
  io::WriteNpz(input, {{.name = "inputs", .tensor = Tensor::Of<float>({2, 1}, {1, 2})},
                       {.name = "tokens", .strings = {"\x1b[2J", "a\nb"}}});
  for (const char* command : {"run ", "explain --row 0 "}) {
    const Outcome outcome = Regard(command + input);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
    EXPECT_NE(outcome.out.find("\\x1b[2J"), std::string::npos);
  }
}

TEST(Info, SaysWhatTheLibrarySays) {
  const Outcome outcome = Regard("info --json");
  ASSERT_EQ(outcome.status, 0);
  const json info = json::parse(outcome.out);
  EXPECT_EQ(info["version"], Version());
  EXPECT_EQ(info["default_target"], BestTarget());
  EXPECT_EQ(info["targets"].size(), Targets().size());
  for (const char* key : {"cpu", "blas", "compiler", "default_threads"}) EXPECT_TRUE(info.contains(key)) << key;
  EXPECT_NE(Regard("info").out.find(BestTarget() + " (default)"), std::string::npos);
}

}  // namespace
}  // namespace regard::tests
