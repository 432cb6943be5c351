#include "tests/support/promises.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/fused.h"
#include "regard/info.h"
#include "regard/summary.h"
#include "tests/support/gradient_tolerance.h"
#include "tests/support/gradients.h"
#include "tests/support/same_bits.h"
#ifdef REGARD_TEST_DIAGNOSIS
#include "regard/diagnose.h"
#endif

namespace regard::test {
namespace {

// What a path gave, compared with the definition.
void CheckPaths(const TestProblem& p, Random& random, ErrorLedger& ledger) {
  const RunResult reference = RunPath(ReferencePath(), p);
  for (const PathCase& path : OptimizedPaths()) {
    const RunResult result = RunPath(path, p, {.layout = &random, .any_output_type = random.Chance(0.3), .threads = 1});
    ledger.Compare(path, p, result, reference, ErrorBounds(p, reference, path));
  }
}

// The gradients of every path, compared with theirs of the definition.
void CheckGradients(const TestProblem& p, Random& random, ErrorLedger& ledger) {
  if (!random.Chance(0.1)) return;
  SCOPED_TRACE("gradients, " + p.description);
  const GradientCase c(random.Next(), p);
  const GradientResult reference = RunBackward(ReferencePath(), p, c);
  const RunResult stages = RunPath(ReferencePath(), p);
  const GradientResult fused = GradientBounds(p, c, stages, Path::kFused), staged = GradientBounds(p, c, stages, Path::kStaged);
  for (const PathCase& path : OptimizedPaths()) {
    const GradientResult result = RunBackward(path, p, c, {.layout = &random, .threads = random.Chance(0.1) ? 3 : 1});
    const auto results = result.All(), references = reference.All(), bounds = (path.path == Path::kFused ? fused : staged).All();
    for (std::size_t n = 0; n < results.size(); ++n) {
      ledger.CompareGrid(path.Name() + " " + results[n].first, *results[n].second, *references[n].second, *bounds[n].second,
                         0x1p-24);
    }
  }
}

SummaryOptions AllSummaries(const TestProblem& p, Random& random) {
  SummaryOptions options{.row_max = true, .row_argmax = true, .entropy = true, .top_k = static_cast<int>(random.Int(0, 9))};
  options.key_mass = true;
  options.key_top_k = static_cast<int>(random.Int(0, 5));
  options.pooled_rows = random.Int(1, 9);
  options.pooled_cols = random.Int(1, 9);
  const bool positions_known = p.params.q_offset.is_stated() || p.params.kv_lens || p.q_len == p.kv_len;
  options.distance = positions_known;
  if (positions_known) options.window_share = random.Int(0, p.kv_len);
  return options;
}

// The fused path on every target: threads and summaries change no bit.
void CheckBits(const TestProblem& p, Random& random) {
  const SummaryOptions summaries = AllSummaries(p, random);
  const bool with_summaries = random.Chance(0.2);
  // Starting a team of threads takes longer than all the rest.
  const bool with_threads = random.Chance(0.1);
  for (const Target& target : Targets()) {
    if (!target.supported || !(with_summaries || with_threads)) continue;
    const AttentionResult plain = Attention(p.q, p.k, p.v, p.params, {.isa = target.name, .threads = 1});
    const auto expect_same = [&](const Tensor& context, const Tensor& lse, std::int64_t empty_rows, const char* what) {
      EXPECT_TRUE(SameBits(plain.context, context) && SameBits(plain.lse, lse) && plain.empty_rows == empty_rows)
          << p.description << ": other bits on " << target.name << " " << what;
    };
    for (int threads = 2; with_threads && threads <= 3; ++threads) {
      const AttentionResult r = Attention(p.q, p.k, p.v, p.params, {.isa = target.name, .threads = threads});
      expect_same(r.context, r.lse, r.empty_rows, threads == 2 ? "with 2 threads" : "with 3 threads");
    }
    if (!with_summaries) continue;
    const Summary s = Summarize(p.q, p.k, p.v, p.params, summaries, {.isa = target.name, .threads = with_threads ? 2 : 1});
    expect_same(s.context, s.lse, s.empty_rows, "beside summaries");
  }
}

#ifdef REGARD_TEST_DIAGNOSIS
// A copy of a result with some of its numbers spoilt.
Tensor Spoilt(const Tensor& right, Random& random) {
  Tensor wrong = Tensor::CopyOf(right, DType::kF32);
  const std::int64_t count = wrong.num_elements();
  for (int n = 0; n < 3 && count > 0; ++n) {
    float& x = wrong.MutableAs<float>()[random.Int(0, count - 1)];
    x = random.OneOf({std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0.0f, -x, x + 1, 1e30f});
  }
  return wrong;
}

void CheckDiagnosis(const TestProblem& p, Random& random) {
  if (!random.Chance(0.3) || p.params.dropout > 0) return;
  const std::vector<Target> targets = Targets();
  const Target& target = targets[static_cast<std::size_t>(random.Int(0, static_cast<std::int64_t>(targets.size()) - 1))];
  const std::string isa = target.supported ? target.name : std::string();
  const AttentionResult right = Attention(p.q, p.k, p.v, p.params, {.isa = isa, .threads = 1});
  const DiagnosisProblem problem{.q = p.q, .k = p.k, .v = p.v, .params = p.params};
  const DiagnoseOptions options{.pairs = false, .threads = 1};
  const Diagnosis d = Diagnose(problem, {.lse = right.lse, .context = right.context}, {}, options);
  // Where weights are rounded to bf16, that is what may be said.
  const bool rounds = internal::WeightRounding(PlanShape::Of(p.q, p.k, p.v), isa) > 0;
  EXPECT_TRUE(d.verdict == Verdict::kMatch || (rounds && d.verdict == Verdict::kRounding && d.precision == "bf16"))
      << p.description << ": a correct output of " << target.name << " is accused: " << d.summary;
  if (!random.Chance(0.03)) return;
  const Tensor context = Spoilt(right.context, random), lse = Spoilt(right.lse, random);
  EXPECT_FALSE(Diagnose(problem, {.lse = lse, .context = context}, {}, options).summary.empty()) << p.description;
}
#else
void CheckDiagnosis(const TestProblem&, Random&) {}
#endif

}  // namespace

void CheckPromises(const TestProblem& p, Random& random, ErrorLedger& ledger) {
  CheckPaths(p, random, ledger);
  CheckGradients(p, random, ledger);
  CheckBits(p, random);
  CheckDiagnosis(p, random);
}

}  // namespace regard::test
