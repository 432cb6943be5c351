#include "diagnose/other_layout.h"

#include "diagnose/case.h"
#include "regard/error.h"

namespace regard::internal {

namespace {

constexpr std::int64_t kMostElements = 100'000'000;  // each is held a second time, as a double

}  // namespace

std::vector<Candidate> MatchInOtherLayout(const DiagnosisProblem& problem, const ObservedTensors& observed,
                                          const DiagnoseOptions& options) {
  for (const TensorView* const tensor : {&problem.q, &problem.k, &problem.v, &observed.context}) {
    if (!*tensor || tensor->rank() != 4) return {};
  }
  if (problem.k.dim(1) <= 1) return {};  // one key: the context would be v, whatever q and k are
  if (problem.q.num_elements() + problem.k.num_elements() + problem.v.num_elements() > kMostElements) return {};
  const DiagnosisProblem other{.q = problem.q.Transpose(1, 2),
                               .k = problem.k.Transpose(1, 2),
                               .v = problem.v.Transpose(1, 2),
                               .params = problem.params};
  DiagnoseOptions all_heads = options;
  all_heads.heads.clear();  // those were of the other axis
  // A context is recognised by its shape, whichever way it lies, unless there are as many heads as tokens.
  for (const TensorView& context : {observed.context.Transpose(1, 2), observed.context}) {
    try {
      const Case c(other, {.context = context}, all_heads);
      if (!c.Unedited().Matches()) continue;
      Candidate candidate{{FindFault("F100")}, {{"matches_as", 0, "[batch, tokens, heads, dim]"}}, [](Variant&) {}};
      candidate.fit = c.Unedited();
      candidate.coverage = 1;
      return {candidate};
    } catch (const Error& error) {
      // These shapes, or the mask's, do not go together that way.
      if (error.code() != ErrorCode::kShapeMismatch && error.code() != ErrorCode::kInvalidArgument) throw;
    }
  }
  return {};
}

}  // namespace regard::internal
