// Faults that no edit of the plan makes: they show in two runs, or between two observed tensors. evidence.cc finds them.
#include "diagnose/fault.h"

namespace regard::internal {
namespace {

constexpr Fault kFaults[] = {
    {"F74", "softmax in low precision", Stage::kWeights, slot::kSoftmax, "exp and sums in f16 or bf16",
     "row sums off by more than f32 rounding; the error grows with kv_len", "accumulate in f32; if it is meant, it is rounding",
     nullptr, true},
    {"F75", "dropout at inference", Stage::kWeights, slot::kReweigh, "weights zeroed, the rest divided by 1 − p",
     "two runs differ; nonzero weights are all larger by 1/(1−p)", "pass dropout 0 in evaluation (model.eval(), dropout_p = 0)",
     nullptr},
    {"F76", "returned weights are not the ones used", Stage::kWeights, slot::kReweigh,
     "a mean over heads, weights of another path or of another stage", "weights·v is not the context",
     "return the weights that the product with v used", nullptr},
    {"F90", "reduction order depends on the batch or the run", Stage::kContext, slot::kOutput, "another order of sums",
     "runs differ by a few units in the last place", "fix the order of the reduction if bits must repeat; otherwise harmless",
     nullptr, true},
    {"F91", "race between threads", Stage::kContext, slot::kOutput, "threads overwrite each other",
     "runs differ by more than rounding; one thread is exact", "run with one thread to confirm; give each thread its own buffer",
     nullptr},
    {"F93", "inputs that hide faults", Stage::kContext, slot::kOutput, "any weights give nearly this context",
     "the mean of v would pass; correlations near 0 within the tolerance",
     "test with signed data of a wide spread, q_len ≠ kv_len, several heads and kv heads", nullptr, true},
};

}  // namespace

std::span<const Fault> RunFaults() { return kFaults; }

}  // namespace regard::internal
