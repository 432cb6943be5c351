// Which instruction-set targets the room compiles. Include first in every file of the room that includes Highway, so that all
// of them agree.
//
// Left out: SSSE3 (SSE4 is as old in practice), AVX3_DL (its additions serve no f32 kernel), and the targets whose vector length
// is unknown to the compiler, since accumulators live in arrays of vectors. EMU128, too, which GCC before 12.3 cannot compile, so that the portable
// target is SCALAR with every compiler.
#pragma once

#define HWY_BROKEN_EMU128 1

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_RVV | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <cstddef>
#include <cstdint>

#include "hwy/targets.h"
#include "kernels/kernels.h"

// AVX3_BF16, a target of our own: AVX3 with the bf16 dot products that Highway 1.0.3 does not know; see bf16_target-inl.h.
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3) != 0 && (HWY_COMPILER_GCC_ACTUAL >= 1100 || HWY_COMPILER_CLANG >= 1100)
#define REGARD_HAVE_BF16_TARGET 1
#else
#define REGARD_HAVE_BF16_TARGET 0
#endif

namespace regard::internal {

/// Where Highway's dispatch tables keep the entry of one target: a bit out of HWY_TARGETS.
inline std::size_t DispatchIndex(std::int64_t target) {
  hwy::ChosenTarget chosen;  // local: nothing is switched for anybody else
  chosen.Update(target);
  return chosen.GetIndex();
}

/// What each kernel file contributes to the table of one target.
void AddPrefillF32(std::int64_t target, KernelTable& table);
void AddDecodeF32(std::int64_t target, KernelTable& table);
void AddBackwardF32(std::int64_t target, KernelTable& table);
void AddScoreGradientsF32(std::int64_t target, KernelTable& table);
void AddSummaryPrefillF32(std::int64_t target, KernelTable& table);
void AddSummaryReduceF32(std::int64_t target, KernelTable& table);
void AddSummaryStreamF32(std::int64_t target, KernelTable& table);
void AddSoftmaxF32(std::int64_t target, KernelTable& table);
void AddStoreRow(std::int64_t target, KernelTable& table);
void AddMachineLimits(std::int64_t target, KernelTable& table);

#if REGARD_HAVE_BF16_TARGET
/// What AVX3_BF16 has instead of AVX3's; called when the table holds those. The kernels hand on what is not stored as bf16.
void AddDecodeBf16(KernelTable& table);
void AddPrefillBf16(KernelTable& table);
void AddSummaryPassesBf16(KernelTable& table);
void AddMachineLimitsBf16(KernelTable& table);

/// AVX3's own.
const KernelTable& Avx3Kernels();
#endif

}  // namespace regard::internal
