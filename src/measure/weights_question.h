// Cases that ask about the weights: the call that is timed, and whether its answers are right.
#pragma once

#include "measure/verify.h"
#include "measure/workload.h"
#include "regard/summary.h"

namespace regard::measure {

/// One call as a user makes it, with the memory of its results: Summarize, or for Asked::kVisitor Attention and VisitWeights. Not for
/// Asked::kNothing. Throws Error.
void AskOnce(const Workload& workload, const ExecOptions& exec);

/// The answers of one such call. Those of Asked::kVisitor are what a visitor that adds up the tiles makes of them: key_mass.
Summary Answers(const Workload& workload, const ExecOptions& exec);

/// Compares answers, as far as they are there, with the reference path or with sums in double over q, k and the answers' lse:
///     context, lse, entropy, row_max, topk_*   of the rows that SampleRows names
///     key_mass, key_topk_*                     of kSampledKeys keys of each of at most kSampledHeads heads; key_mass moreover adds up to q_len
///     pooled                                   kSampledBins bins of each of those heads
/// Workloads without mask, bias, slopes, sinks, soft cap and segments only.
inline constexpr std::int64_t kSampledHeads = 3, kSampledKeys = 7, kSampledBins = 5;
Verification VerifyAnswers(const Workload& workload, const Summary& answers);

}  // namespace regard::measure
