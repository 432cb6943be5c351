#include "kernels/targets.h"

#include "kernels/kernel_case.h"

namespace regard::internal {
namespace {

TEST(Targets, EndWithOneThatRunsEverywhere) {
  const std::vector<TargetInfo> targets = CompiledTargets();
  ASSERT_FALSE(targets.empty());
  EXPECT_TRUE(targets.back().supported);
}

TEST(Targets, TheDefaultIsTheFirstSupported) {
  const KernelTable* best = FindKernels("");
  ASSERT_NE(best, nullptr);
  for (const TargetInfo& target : CompiledTargets()) {
    if (!target.supported) continue;
    EXPECT_EQ(target.name, best->target);
    break;
  }
}

TEST(Targets, UnknownNamesHaveNoKernels) {
  EXPECT_EQ(FindKernels("AVX99"), nullptr);
  EXPECT_EQ(FindKernels("avx2"), nullptr);
}

// Were two tables to share code, one of the targets would not be tested at all.
TEST(Targets, NoTwoShareCode) {
  std::vector<const KernelTable*> tables;
  for (const std::string& name : CompiledTargetNames()) {
    if (const KernelTable* table = FindKernels(name)) tables.push_back(table);
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    EXPECT_EQ(FindKernels(tables[i]->target), tables[i]);
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(tables[i]->prefill, tables[j]->prefill) << tables[i]->target << ", " << tables[j]->target;
      if (std::string(tables[j]->target) == "AVX3_BF16") continue;  // beside its own kernels it has AVX3's
      EXPECT_NE(tables[i]->decode, tables[j]->decode) << tables[i]->target << ", " << tables[j]->target;
      EXPECT_NE(tables[i]->peak_flops, tables[j]->peak_flops) << tables[i]->target << ", " << tables[j]->target;
    }
  }
}

class LimitsTest : public PerTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, LimitsTest, testing::ValuesIn(CompiledTargetNames()), CaseName);

// x → x/2 + 1 leads every chain to 2: the loop ran, and in every chain.
TEST_P(LimitsTest, PeakFlopsComputes) {
  EXPECT_GE(kernels().peak_flops_per_step, 24);
  EXPECT_FLOAT_EQ(kernels().peak_flops(100), 24.0f);
}

TEST_P(LimitsTest, ReadBytesReads) {
  alignas(64) std::uint32_t words[256] = {};
  const float nothing = kernels().read_bytes(words, sizeof(words));
  EXPECT_EQ(nothing, 0.0f);
  words[192] = 5;  // lane 0 of some vector on every target
  EXPECT_EQ(kernels().read_bytes(words, sizeof(words)), 5.0f);
  EXPECT_EQ(kernels().read_bytes(words, 512), 0.0f);
}

}  // namespace
}  // namespace regard::internal
