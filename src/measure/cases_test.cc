#include "measure/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "regard/info.h"

namespace regard::measure {
namespace {

std::vector<std::string> Names(const CaseSelection& selection) {
  std::vector<std::string> names;
  for (const BenchCase& c : SelectCases(selection)) names.push_back(c.name);
  return names;
}

TEST(Cases, NamesAreUniqueAndBaselinesComeFirst) {
  std::set<std::string> seen;
  for (const BenchCase& c : SelectCases({.name_part = "/"})) {
    EXPECT_TRUE(c.baseline.empty() || seen.contains(c.baseline)) << c.name << " is compared with " << c.baseline;
    EXPECT_TRUE(seen.insert(c.name).second) << c.name << " stands twice";
    EXPECT_GE(c.exec.threads, 1) << c.name;
  }
  EXPECT_GE(seen.size(), 40u);
}

TEST(Cases, ThoseOfOneBaselineStandTogether) {
  for (const CaseSelection& selection : {CaseSelection{}, {.quick = true}, {.name_part = "/"}}) {
    std::set<std::string> left;
    std::string current;
    for (const BenchCase& c : SelectCases(selection)) {
      if (c.baseline == current) continue;
      EXPECT_FALSE(left.contains(c.baseline)) << c.name << " stands apart from others compared with " << c.baseline;
      if (!current.empty()) left.insert(current);
      current = c.baseline;
    }
  }
}

TEST(Cases, QuickIsAPartOfTheDefault) {
  const std::vector<std::string> quick = Names({.quick = true}), all = Names({});
  EXPECT_LT(quick.size(), all.size() / 2);
  for (const std::string& name : quick) EXPECT_NE(std::ranges::find(all, name), all.end()) << name;
}

TEST(Cases, AWholeNameSelectsOneCaseAndAPartAllThatHaveIt) {
  EXPECT_EQ(Names({.name_part = "prefill/T2048/d64/full"}), std::vector<std::string>{"prefill/T2048/d64/full"});
  const std::vector<std::string> with_baseline = {"prefill/T2048/d64/full", "prefill/T2048/d64/full/soft-cap"};
  EXPECT_EQ(Names({.name_part = "prefill/T2048/d64/full/soft-cap"}), with_baseline);
  EXPECT_EQ(Names({.name_part = "soft-cap"}), with_baseline);
  EXPECT_EQ(Names({.name_part = "bf16/paged/batch"}),
            (std::vector<std::string>{"decode/kv32768/d128", "decode/kv32768/d128/bf16", "decode/kv32768/d128/bf16/paged",
                                      "decode/kv32768/d128/bf16/paged/batch"}));
  EXPECT_EQ(Names({.name_part = "decode/kv8192/d128"}), std::vector<std::string>{"decode/kv8192/d128"});
  EXPECT_TRUE(Names({.name_part = "no such case"}).empty());
}

TEST(Cases, TheLongestRunsOnlyWhenNamed) {
  const std::string longest = "prefill/T131072/d64/causal";
  const std::vector<std::string> all = Names({});
  EXPECT_EQ(std::ranges::find(all, longest), all.end());
  EXPECT_EQ(Names({.name_part = "T131072"}), (std::vector<std::string>{"prefill/T8192/d64/causal", longest}));
}

TEST(Cases, StatedThreadsAndTargetGoEverywhere) {
  const std::string isa = Targets().back().name;
  for (const BenchCase& c : SelectCases({.isa = isa, .threads = 3})) {
    EXPECT_EQ(c.exec.threads, 3) << c.name;
    EXPECT_EQ(c.exec.isa, c.exec.path == Path::kFused ? isa : "") << c.name;
    EXPECT_EQ(c.name.find("threads"), std::string::npos) << c.name;
  }
}

TEST(Cases, OptionsSayWhatTheNameMeans) {
  const auto options = [](const char* name) { return SelectCases({.name_part = name}).back().Options(); };
  EXPECT_EQ(options("prefill/T2048/d64/causal/window"), "8 heads, causal, window_left 256");
  EXPECT_EQ(options("decode/kv8192/d128"), "32 heads, 8 kv heads");
  EXPECT_EQ(options("prefill/T8192/d64/full"), "1 head");
  EXPECT_EQ(options("decode/kv8192/d128/paged"), "32 heads, 8 kv heads, paged cache");
  EXPECT_EQ(options("decode/kv32768/d128/paged-i8/batch"), "32 heads, 8 kv heads, 8 sequences, paged cache of i8");
  EXPECT_EQ(options("prefill/T512/kv8192/d128/causal"), "8 heads, 2 kv heads, causal");
  EXPECT_EQ(options("append/32x1/d128"), "8 kv heads, 32 sequences");
  EXPECT_EQ(options("append/1x512/d128/paged-i8"), "8 kv heads, paged cache of i8");
  EXPECT_EQ(options("prefill/T2048/d64/full/staged"), "8 heads, staged path");
  EXPECT_EQ(options("prefill/T2048/d64/full/rising/first-pass"), "8 heads, rising scores, entropy, top 8, row_max");
  EXPECT_EQ(options("backward/T2048/d64/causal"), "8 heads, causal, backward");
}

}  // namespace
}  // namespace regard::measure
