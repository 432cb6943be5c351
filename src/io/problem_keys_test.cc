#include "io/problem_keys.h"

#include <limits>
#include <set>
#include <utility>

#include "io/near_miss.h"
#include "io/test_support.h"
#include "regard/problem.h"

namespace regard::io {
namespace {

TEST(ProblemKeysTest, EveryNameStandsForOneKey) {
  std::set<std::string_view> names;
  for (const Key& key : Keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_EQ(CanonicalName(key.name), key.name);
    for (const std::string_view alias : key.aliases) {
      if (alias.empty()) continue;
      EXPECT_TRUE(names.insert(alias).second) << alias;
      EXPECT_EQ(CanonicalName(alias), key.name);
    }
  }
  EXPECT_GE(names.size(), 60u);
}

TEST(ProblemKeysTest, CaseIsAsWritten) {
  EXPECT_EQ(CanonicalName("Q"), "q");
  EXPECT_EQ(CanonicalName("Y"), "context");
  for (const char* unknown : {"X", "y", "Z", "Query", "Weights", "", "layers.0.q"})
    EXPECT_EQ(CanonicalName(unknown), "") << unknown;
}

TEST(ProblemKeysTest, LayerPrefix) {
  const ParsedKey parsed = ParseKey("layers.12.query_states");
  ASSERT_NE(parsed.key, nullptr);
  EXPECT_EQ(parsed.key->name, "q");
  EXPECT_EQ(parsed.layer, 12);
  for (const char* bad : {"layers.q", "layers..q", "layers.-1.q", "layers.1", "layers.1.", "layers.1.qq",
                          "layers.99999999999999999999.q", "layers.1x.q", "model.layers.1.q"}) {
    EXPECT_EQ(ParseKey(bad).key, nullptr) << bad;
  }
}

TEST(ProblemKeysTest, GuessesWhatWasMeant) {
  EXPECT_EQ(LikelyKey("is_causal"), "causal");
  EXPECT_EQ(LikelyKey("quary"), "q");  // query
  EXPECT_EQ(LikelyKey("X"), "inputs");
  EXPECT_EQ(LikelyKey("wieghts"), "weights");
  EXPECT_EQ(LikelyKey("expected.context"), "");
  EXPECT_TRUE(IsForeignScalar("softcap"));
  EXPECT_FALSE(IsForeignScalar("queries"));
}

TEST(ProblemKeysTest, SaysWhatToGiveWhereValuesDiffer) {
  EXPECT_EQ(AdviceOn("is_causal"), "did you mean causal?");
  EXPECT_EQ(AdviceOn("expected.context"), "");
  EXPECT_EQ(AdviceOn("sliding_window"),
            "give window_left W−1: regard counts the earlier keys that a query sees besides its own, so a sliding window of W "
            "keys is W−1");
  EXPECT_EQ(AdviceOn("window_size"),
            "give window_left and window_right: keys besides the query's own; leave out what is -1 elsewhere");
  EXPECT_EQ(AdviceOn("W_Q"), "give w_query: [out, in], the heads side by side along out, or along in for w_out");
  for (const char* mask : {"attention_mask", "key_padding_mask"}) {
    EXPECT_EQ(AdviceOn(mask),
              "which value means attend differs between libraries; give bool [batch, 1, 1, kv_len] with true = may "
              "attend as mask, an additive float as bias, or the number of valid keys of each sequence, [batch], as kv_lens");
  }
}

TEST(NearMissTest, CountsEdits) {
  constexpr std::string_view kWords[] = {"--soft-cap", "--scale", "--save", "q"};
  EXPECT_EQ(NearMiss("--sotf-cap", kWords), "--soft-cap");  // one swap
  EXPECT_EQ(NearMiss("--SCALE", kWords), "--scale");
  EXPECT_EQ(NearMiss("--sale", kWords), "--scale");  // nearer than --save by the order of the list: both are one edit away
  EXPECT_EQ(NearMiss("z", kWords), "");
  EXPECT_EQ(NearMiss("Q", kWords), "q");
  EXPECT_EQ(NearMiss("", kWords), "");
  EXPECT_EQ(NearMiss(std::string(1000, 'a'), kWords), "");
}

TEST(SelectionTest, ListsAndRanges) {
  EXPECT_EQ(Selection::Parse("--row", "0,3-5").Indices(6), (std::vector<std::int64_t>{0, 3, 4, 5}));
  EXPECT_EQ(Selection::Parse("--row", "2,1-3,2").Indices(4), (std::vector<std::int64_t>{2, 1, 3}));
  EXPECT_EQ(Selection().Indices(3), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_TRUE(Selection().all());
  EXPECT_FALSE(Selection::Parse("--row", "0").all());
  EXPECT_TRUE(Selection().Indices(0).empty());
}

TEST(SelectionTest, RefusesWhatIsNoList) {
  for (const char* text : {"", ",", "1,", "-1", "1-", "3-1", "1--2", "a", "1 ,2", "1.5", "99999999999999999999", "+1"}) {
    ExpectError(ErrorCode::kInvalidArgument, "--row: '" + std::string(text) + "' is not a list of indices; write it as 0,3-5",
                [&] { Selection::Parse("--row", text); });
  }
}

TEST(SelectionTest, AmongIndicesWithGaps) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> present = {0, 3, 4, 7, kLargest};
  EXPECT_EQ(Selection::Parse("--layer", "3-4,0,4").Among(present), (std::vector<std::int64_t>{3, 4, 0}));
  EXPECT_EQ(Selection::Parse("--layer", "9223372036854775807").Among(present), (std::vector<std::int64_t>{kLargest}));
  EXPECT_EQ(Selection().Among(present), present);
  for (const auto& [text, absent] : {std::pair{"0-9223372036854775807", "1"}, {"3-5", "5"}, {"8", "8"}}) {
    ExpectError(ErrorCode::kInvalidArgument,
                std::string("--layer: ") + absent + " is not in the files; choose from 0, 3, 4, 7, 92",
                [&] { Selection::Parse("--layer", text).Among(present); });
  }
}

TEST(SelectionTest, RefusesWhatIsNotThere) {
  ExpectError(ErrorCode::kInvalidArgument, "--head: 4 is beyond the last; choose from 0…3",
              [] { Selection::Parse("--head", "4").Indices(4); });
  ExpectError(ErrorCode::kInvalidArgument, "--head: 4, but there is only 0; leave it out",
              [] { Selection::Parse("--head", "0,4").Indices(1); });
  ExpectError(ErrorCode::kInvalidArgument, "--head: 9223372036854775807 is beyond the last; choose from 0…3",
              [] { Selection::Parse("--head", "0-9223372036854775807").Indices(4); });
  ExpectError(ErrorCode::kInvalidArgument, "--head: 0, but there is none; leave it out",
              [] { Selection::Parse("--head", "0").Indices(0); });
}

}  // namespace
}  // namespace regard::io
