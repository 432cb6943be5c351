#include "tests/support/diagnosis.h"

#include <algorithm>
#include <vector>

#ifdef REGARD_TEST_DIAGNOSIS
#include "regard/diagnose.h"
#endif

namespace regard::test {

#ifdef REGARD_TEST_DIAGNOSIS
namespace {

// The numbers of a result in the type that they were stored in.
Tensor ToTensor(const Grid& grid, const Dims& shape) {
  Tensor values(DType::kF64, shape);
  std::copy(grid.values.begin(), grid.values.end(), values.MutableAs<double>());
  return Tensor::CopyOf(values, grid.dtype);
}

}  // namespace

std::string DiagnosisOf(const TestProblem& p, const RunResult& result) {
  if (p.params.dropout > 0) return "no diagnosis: dropout\n";
  const Dims stage{p.batch, p.heads, p.q_len, p.kv_len};
  std::vector<Tensor> tensors;
  tensors.reserve(6);
  const auto view = [&](const Grid& grid, const Dims& shape) -> TensorView {
    if (grid.values.empty()) return {};
    tensors.push_back(ToTensor(grid, shape));
    return tensors.back();
  };
  const ObservedTensors observed{.scores = view(result.scores, stage),
                                 .capped = view(result.capped, stage),
                                 .masked_scores = view(result.masked_scores, stage),
                                 .weights = view(result.weights, stage),
                                 .lse = view(result.lse, {p.batch, p.heads, p.q_len}),
                                 .context = view(result.context, {p.batch, p.heads, p.q_len, p.v_dim})};
  const Diagnosis d = Diagnose({.q = p.q, .k = p.k, .v = p.v, .params = p.params}, observed);
  std::string text = "diagnosis: " + d.summary + "\n";
  if (!d.explanations.empty()) text += "change: " + d.explanations[0].advice + "\n";
  text += "where: " + d.where.text + "\n";
  for (const std::string& sentence : d.evidence) text += "  - " + sentence + "\n";
  return text;
}
#else
std::string DiagnosisOf(const TestProblem&, const RunResult&) {
  return "diagnosis: this build has none; build with REGARD_BUILD_TOOLS";
}
#endif

}  // namespace regard::test
