// ONNX's Attention cases of opsets 23–25, exported by tools/onnx_cases.py (whose head comment maps each attribute to our terms): context on
// every path and target, checkpoints on the reference and staged paths, and the command on the files as they are.
//
// Expected values were computed by the reference implementation of the onnx package in the case's own type, so the bound is a few
// roundings of that type: the largest differences between those values and the definition in double are 3.0, 1.04 and 1.27 units of
// 2^−24 (f32), 2^−11 (f16) and 2^−8 (bf16) times max(1, |value|).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/problem.h"
#include "regard/attention.h"
#include "regard/info.h"
#include "regard/io.h"
#include "regard/problem.h"
#include "tests/cli/command.h"
#include "tests/cli/scratch.h"

namespace regard::tests {
namespace {

struct Case {
  std::string name, path, layout, dtype;
  std::vector<std::string> expected;
};

std::vector<Case> Cases() {
  const std::string folder = REGARD_ONNX_CASES;
  std::ifstream file(folder + "/manifest.json");
  std::vector<Case> cases;
  if (!file) return cases;
  const nlohmann::json manifest = nlohmann::json::parse(file);
  for (const auto& entry : manifest["cases"]) {
    cases.push_back(
        {entry["name"], folder + "/" + std::string(entry["file"]), entry["layout"], entry["dtype"], entry["expected"]});
  }
  return cases;
}

// In units of the type's roundoff times max(1, |value|); paths in f32 add their own few roundings to f32 cases.
double Bound(const std::string& dtype) { return dtype == "f32" ? 16 * 0x1p-24 : dtype == "f16" ? 2 * 0x1p-11 : 2 * 0x1p-8; }

// Returns the largest error in units of the bound. Infinities and NaNs have to be where they are expected.
double Compare(const TensorView& actual, const TensorView& expected, double bound) {
  EXPECT_EQ(ToString(actual.shape()), ToString(expected.shape()));
  if (!(actual.shape() == expected.shape())) return INFINITY;
  const Tensor a = Tensor::CopyOf(actual, DType::kF64), e = Tensor::CopyOf(expected, DType::kF64);
  double worst = 0;
  for (std::int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = a.As<double>()[i], y = e.As<double>()[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double error = std::fabs(x - y) / (bound * std::fmax(1, std::fabs(y)));
    worst = std::isnan(error) ? INFINITY : std::fmax(worst, error);
  }
  return worst;
}

TensorView StageOf(const Stages& stages, const std::string& name) {
  if (name == "scores") return stages.scores;
  if (name == "capped") return stages.capped;
  if (name == "masked_scores") return stages.masked_scores;
  if (name == "weights") return stages.weights;
  return stages.context;
}

class OnnxTest : public testing::Test {
 protected:
  void SetUp() override {
    cases_ = Cases();
    if (cases_.empty()) GTEST_SKIP() << "no cases: tools/onnx_cases.py needs the onnx package";
    ASSERT_GE(cases_.size(), 90u);
  }

  // The expected array, in the shape that regard gives the result.
  static Tensor Expected(const Case& c, const std::string& name) { return io::File::Open(c.path).Read("expected." + name); }

  std::vector<Case> cases_;
};

TEST_F(OnnxTest, ContextByEveryPathAndTarget) {
  std::vector<ExecOptions> paths = {{.path = Path::kReference}, {.path = Path::kStaged}};
  for (const Target& target : Targets()) {
    if (target.supported) paths.push_back({.path = Path::kFused, .isa = target.name});
  }
  ASSERT_GE(paths.size(), 3u);
  double largest = 0;
  for (const Case& c : cases_) {
    io::Layout layout;
    ASSERT_TRUE(io::ParseLayout(c.layout, &layout));
    const io::Problem problem = io::LoadProblem({c.path}, {.layout = layout});
    const Tensor expected = Expected(c, "context");
    for (const ExecOptions& exec : paths) {
      SCOPED_TRACE(c.name + ", " + Name(exec.path) + " " + exec.isa);
      const AttentionResult result = Attention(problem.q, problem.k, problem.v, problem.params, exec);
      const double error = Compare(problem.ToFileShape("context", result.context), expected, Bound(c.dtype));
      EXPECT_LE(error, 1);
      largest = std::fmax(largest, error);
    }
  }
  EXPECT_GT(largest, 0.05) << "the bound is too loose to test anything";
}

TEST_F(OnnxTest, CheckpointsOfReferenceAndStaged) {
  int compared = 0;
  for (const Case& c : cases_) {
    io::Layout layout;
    ASSERT_TRUE(io::ParseLayout(c.layout, &layout));
    const io::Problem problem = io::LoadProblem({c.path}, {.layout = layout});
    for (const Path path : {Path::kReference, Path::kStaged}) {
      const Stages stages = ComputeStages(problem.q, problem.k, problem.v, problem.params, {.path = path});
      for (const std::string& name : c.expected) {
        if (name == "context") continue;
        SCOPED_TRACE(c.name + ", " + name + ", " + Name(path));
        EXPECT_LE(Compare(StageOf(stages, name), Expected(c, name), Bound(c.dtype)), 1);
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 30);
}

TEST_F(OnnxTest, ThroughTheCommand) {
  const std::string output = Scratch("out.npz");
  for (const Case& c : cases_) {
    SCOPED_TRACE(c.name);
    std::string save;
    for (const std::string& name : c.expected) save += (save.empty() ? "" : ",") + name;
    const Outcome outcome = RunRegard({"run", c.path, "--layout", c.layout, "--path", "staged", "--save", save, "-o", output});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const io::File file = io::File::Open(output);
    for (const std::string& name : c.expected) EXPECT_LE(Compare(file.Read(name), Expected(c, name), Bound(c.dtype)), 1) << name;
  }
}

}  // namespace
}  // namespace regard::tests
