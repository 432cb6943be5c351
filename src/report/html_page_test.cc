#include "report/html_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "regard/error.h"
#include "report/page/page_template.h"

namespace regard::report {
namespace {

using nlohmann::json;

// Everything a head can have, over 4 queries and 5 keys.
struct Example {
  Tensor pooled = Tensor::Of<float>({2, 2}, {0.5f, 0.25f, 0.125f, 1});
  Tensor entropy = Tensor::Of<float>({4}, {0.1f, 0.2f, 0.3f, 0.4f});
  Tensor key_mass = Tensor::Of<float>({5}, {1, 0.5f, 0.25f, 2, 0.25f});
  Tensor topk_index = Tensor::Of<std::int64_t>({4, 2}, {0, 1, 3, 2, 4, 0, 1, -1});
  Tensor topk_weight = Tensor::Of<float>({4, 2}, {0.5f, 0.25f, 0.5f, 0.25f, 0.5f, 0.25f, 1, 0});
  Tensor key_topk_index = Tensor::Of<std::int32_t>({5, 1}, {0, 1, 2, 3, -1});
  Tensor key_topk_weight = Tensor::Of<float>({5, 1}, {1, 0.5f, 0.25f, 0.125f, 0});
  Tensor q = Tensor::Of<float>({1, 2, 4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6});
  Tensor k = Tensor::Of<float>({1, 1, 5, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6});
  Tensor lse = Tensor::Of<float>({4}, {1, 2, 3, 4});

  PageHead Head(std::int64_t number) const {
    return {.layer = 2,
            .head = number,
            .kind = "mixed",
            .score = 0.25,
            .pooled = pooled,
            .entropy = entropy,
            .key_mass = key_mass,
            .topk_index = topk_index,
            .topk_weight = topk_weight,
            .key_topk_index = key_topk_index,
            .key_topk_weight = key_topk_weight};
  }
  HtmlPage Page() const {
    HtmlPage page{.title = "in.npz", .readings = {"read as 4 by 5"}, .q_len = 4, .kv_len = 5};
    page.heads = {Head(0), Head(1)};
    return page;
  }
  // Both heads exact, under `params`.
  HtmlPage ExactPage(const AttentionParams& params) const {
    HtmlPage page = Page();
    const std::vector<ExactHead> exact = ExactHeads(q, k, params, 0, {0, 1});
    for (std::size_t h = 0; h < 2; ++h) {
      page.heads[h].exact = exact[h];
      page.heads[h].exact->lse = lse;
    }
    return page;
  }
};

std::string Between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return {};
  return text.substr(at + begin.size(), text.find(end, at + begin.size()) - at - begin.size());
}

json FactsOf(const std::string& html) {
  return json::parse(Between(html, "<script type=\"application/json\" id=\"page-facts\">", "</script>"));
}

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string MessageOf(const HtmlPage& page, ErrorCode code) {
  try {
    BuildHtmlPage(page);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(HtmlPage, HoldsWhatItWasGiven) {
  const Example example;
  HtmlPage page = example.Page();
  page.q_offset = 7;
  page.k_tokens = {"a", "b", "c", "d", "é"};
  page.notes = {"a note"};
  const BuiltPage built = BuildHtmlPage(page);
  EXPECT_TRUE(built.notes.empty());
  const json facts = FactsOf(built.html);
  EXPECT_EQ(facts["title"], "in.npz");
  EXPECT_EQ(facts["readings"], json({"read as 4 by 5"}));
  EXPECT_EQ(facts["heads"][1]["reading"], 0);
  EXPECT_EQ(facts["notes"], json({"a note"}));
  EXPECT_EQ(facts["queries"], 4);
  EXPECT_EQ(facts["keys"], 5);
  EXPECT_EQ(facts["sameText"], false);
  EXPECT_EQ(facts["qOffset"], 7);
  EXPECT_EQ(facts["kTokens"], json({"a", "b", "c", "d", "é"}));
  EXPECT_TRUE(facts["qTokens"].empty());
  ASSERT_EQ(facts["heads"].size(), 2u);
  const json& head = facts["heads"][1];
  EXPECT_EQ(head["layer"], 2);
  EXPECT_EQ(head["head"], 1);
  EXPECT_EQ(head["kind"], "mixed");
  EXPECT_EQ(head["score"], 0.25);
  EXPECT_EQ(head["pooled"]["shape"], json({2, 2}));
  EXPECT_EQ(head["topk"]["index"]["shape"], json({4, 2}));
  EXPECT_EQ(head["keyTopk"]["weight"]["shape"], json({5, 1}));
  EXPECT_FALSE(head.contains("exact"));
  // 7 arrays of each head, every one of them there under its name.
  EXPECT_EQ(Count(built.html, "<script type=\"application/octet-stream\" id=\"a"), 14u);
  for (const char* name : {"pooled", "entropy", "keyMass"}) {
    EXPECT_EQ(Count(built.html, "id=\"" + head[name]["id"].get<std::string>() + "\""), 1u) << name;
  }
}

TEST(HtmlPage, EqualInputGivesEqualBytes) {
  const Example a, b;
  EXPECT_EQ(BuildHtmlPage(a.ExactPage({})).html, BuildHtmlPage(b.ExactPage({})).html);
}

TEST(HtmlPage, IsSelfContained) {
  const std::string html = BuildHtmlPage(Example().Page()).html;
  EXPECT_EQ(html.find("http:"), std::string::npos);
  EXPECT_EQ(html.find("https:"), std::string::npos);
  EXPECT_EQ(html.find("{{"), std::string::npos) << "a place in page.html was not filled";
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(html.find("innerHTML"), std::string::npos);
  EXPECT_EQ(html.rfind("<!DOCTYPE html>", 0), 0u);
  // Scripts and style are whole: from the first line of the first file to the last of the last.
  EXPECT_NE(html.find("const FACTS = JSON.parse"), std::string::npos);
  EXPECT_NE(html.find("const page = HEADS.length"), std::string::npos);
  EXPECT_NE(html.find("@media (forced-colors: active)"), std::string::npos);
}

TEST(HtmlPage, DataNeverBecomesMarkup) {
  const std::string hostile = "</script><img onerror=\"x\"><!--<script>&amp;{{data}}";
  const Example example;
  HtmlPage page = example.Page();
  page.title = page.readings[0] = page.heads[0].kind = hostile;
  page.notes = {hostile};
  page.k_tokens = {hostile, "\xff", "\n", "", "\xe2\x80\xa8"};
  const std::string html = BuildHtmlPage(page).html;
  EXPECT_EQ(Count(html, "<img"), 0u);
  EXPECT_EQ(Count(html, "{{data}}"), 6u) << "text that looks like a place of the template is text";
  EXPECT_EQ(Count(html, "<script"), Count(html, "</script>"));
  EXPECT_EQ(Between(html, "<title>", "</title>"),
            "&lt;/script>&lt;img onerror=\"x\">&lt;!--&lt;script>&amp;amp;{{data}} · regard map");
  const json facts = FactsOf(html);
  EXPECT_EQ(facts["title"], hostile);
  EXPECT_EQ(facts["kTokens"][0], hostile);
  EXPECT_EQ(facts["kTokens"][1], "\xef\xbf\xbd") << "what is not UTF-8 becomes the replacement character";
  EXPECT_EQ(facts["heads"][0]["kind"], hostile);
}

TEST(HtmlPage, LinksGiveWayToTheSize) {
  const Example example;
  HtmlPage page = example.Page();
  page.max_bytes = 1;
  const BuiltPage without = BuildHtmlPage(page);
  ASSERT_EQ(without.notes.size(), 1u);
  EXPECT_NE(without.notes[0].find("no links"), std::string::npos);
  EXPECT_EQ(FactsOf(without.html)["notes"], json(without.notes));
  EXPECT_TRUE(FactsOf(without.html)["heads"][0]["topk"].is_null());

  // Eight links of each of 300 keys, of which more fit the more room there is. One of each takes 300·4 bytes, in base64 1600.
  const Tensor index(DType::kI32, {300, 8}), weight(DType::kF32, {300, 8});
  HtmlPage links{.q_len = 1, .kv_len = 300};
  links.heads.push_back({.key_topk_index = index, .key_topk_weight = weight});
  std::int64_t before = 0;
  for (links.max_bytes = without.html.size(); links.max_bytes < without.html.size() + 20'000; links.max_bytes += 500) {
    const BuiltPage some = BuildHtmlPage(links);
    const json entry = FactsOf(some.html)["heads"][0]["keyTopk"];
    const std::int64_t kept = entry.is_null() ? 0 : entry["index"]["shape"][1].get<std::int64_t>();
    EXPECT_GE(kept, before);
    before = kept;
    if (kept > 0) {
      EXPECT_LE(some.html.size(), links.max_bytes);
    }
    if (kept < 8) {  // what is left would not have held another
      EXPECT_GT(some.html.size() + 1600 + 1500, links.max_bytes) << kept;
    }
    if (kept > 0 && kept < 8) {
      EXPECT_EQ(some.notes, std::vector<std::string>{std::to_string(kept) +
                                                     " of 8 strongest links of each token kept, to bound the size of the page"});
    }
  }
  EXPECT_EQ(before, 8);
}

TEST(HtmlPage, ExactHeadsCarryTheRules) {
  const Example example;
  const Tensor slopes = Tensor::Of<float>({2}, {0.5f, 0.25f});
  const BuiltPage built =
      BuildHtmlPage(example.ExactPage({.scale = 0.75f, .causal = true, .q_offset = 1, .soft_cap = 3, .alibi_slopes = slopes}));
  const json heads = FactsOf(built.html)["heads"];
  EXPECT_EQ(heads[1]["exact"]["scale"], 0.75);
  EXPECT_EQ(heads[1]["exact"]["softCap"], 3.0);
  EXPECT_EQ(heads[1]["exact"]["alibiSlope"], 0.25);
  EXPECT_EQ(heads[1]["exact"]["q"]["shape"], json({4, 3}));
  EXPECT_EQ(heads[1]["exact"]["q"]["rounded"], false);
  // Grouped heads share k, and all share the visible keys: [0, 2), [0, 3), … of queries at 1, 2, …
  EXPECT_EQ(heads[0]["exact"]["k"], heads[1]["exact"]["k"]);
  EXPECT_NE(heads[0]["exact"]["q"], heads[1]["exact"]["q"]);
  EXPECT_EQ(heads[0]["exact"]["visible"], heads[1]["exact"]["visible"]);
  EXPECT_EQ(heads[0]["exact"]["visible"]["shape"], json({12}));
}

TEST(HtmlPage, MasksAreBitsAndRepetitionIsDropped) {
  const Example example;
  const Tensor mask = Tensor::Of<bool>({5}, {true, true, false, true, true}), bias = Tensor::Of<float>({4, 1}, {1, 2, 3, 4});
  const json heads = FactsOf(BuildHtmlPage(example.ExactPage({.mask = mask, .bias = bias})).html)["heads"];
  EXPECT_EQ(heads[0]["exact"]["mask"]["type"], "bits");
  EXPECT_EQ(heads[0]["exact"]["mask"]["shape"], json({1, 5}));
  EXPECT_EQ(heads[0]["exact"]["bias"]["shape"], json({4, 1}));
  EXPECT_EQ(heads[0]["exact"]["mask"], heads[1]["exact"]["mask"]);
}

TEST(HtmlPage, AMaskTooLargeLeavesTheHeadPooled) {
  constexpr std::int64_t kTokens = 6000;  // 36 million bits
  const Tensor q(DType::kF32, {1, 1, kTokens, 1}), lse(DType::kF32, {kTokens}), mask(DType::kBool, {kTokens, kTokens});
  HtmlPage page{.q_len = kTokens, .kv_len = kTokens};
  page.heads.push_back({.head = 0, .exact = ExactHeads(q, q, {.mask = mask}, 0, {0})[0]});
  page.heads[0].exact->lse = lse;
  const BuiltPage built = BuildHtmlPage(page);
  ASSERT_EQ(built.notes.size(), 1u);
  EXPECT_EQ(built.notes[0], "head 0: no exact weights, since its mask takes 4.3 MiB, more than 4.0 MiB");
  EXPECT_TRUE(FactsOf(built.html)["heads"][0]["exact"].is_null());
}

TEST(HtmlPage, RefusesWhatDoesNotFit) {
  const Example example;
  HtmlPage page = example.Page();
  page.heads[0].entropy = example.key_mass;
  EXPECT_EQ(MessageOf(page, ErrorCode::kShapeMismatch), "entropy: shape 5 where the page has 4");
  page = example.Page();
  page.heads[1].topk_weight = TensorView();
  EXPECT_EQ(MessageOf(page, ErrorCode::kInvalidArgument), "topk: index without weight or the reverse; give both or neither");
  page = example.Page();
  page.heads[1].topk_index = example.topk_weight;
  EXPECT_EQ(MessageOf(page, ErrorCode::kInvalidArgument), "topk_index: element type f32; use i32 or i64");
  page = example.Page();
  page.k_tokens = {"a"};
  EXPECT_EQ(MessageOf(page, ErrorCode::kShapeMismatch), "k_tokens: 1 tokens for 5 positions");
  page = example.Page();
  page.same_text = true;
  page.q_offset = 2;
  EXPECT_EQ(MessageOf(page, ErrorCode::kInvalidArgument),
            "q_offset: 2 puts queries of the same text outside the keys; expected 0 to 1");
  page = example.ExactPage({});
  page.heads[0].exact->lse = TensorView();
  EXPECT_EQ(MessageOf(page, ErrorCode::kInvalidArgument), "exact: q, k or lse is missing; give all three");
  page = example.ExactPage({});
  const Tensor mask(DType::kBool, {4, 4});
  page.heads[0].exact->mask = mask;
  EXPECT_EQ(MessageOf(page, ErrorCode::kShapeMismatch), "exact.mask: bool 4×4; expected bool 4×5");
  page = example.ExactPage({});
  page.heads[0].exact->visible = std::make_shared<const std::vector<internal::RowKeys>>(3);
  EXPECT_EQ(MessageOf(page, ErrorCode::kShapeMismatch), "exact.visible: 3 rows for 4 queries; give one of each");
  page = example.Page();
  page.heads[1].reading = 2;
  EXPECT_EQ(MessageOf(page, ErrorCode::kInvalidArgument), "reading: 2 of 1; give its index in readings");
  EXPECT_THROW(ExactHeads(example.q, example.k, {}, 0, {2}), Error);
  EXPECT_THROW(ExactHeads(example.q, example.k, {}, 1, {0}), Error);
  EXPECT_THROW(ExactHeads(example.q, example.k, {.causal = true}, 0, {0}), Error) << "q_offset is not stated";
}

TEST(HtmlPage, NothingToShowIsAPage) {
  const BuiltPage built = BuildHtmlPage({.title = "empty"});
  EXPECT_EQ(FactsOf(built.html)["heads"], json::array());
}

}  // namespace
}  // namespace regard::report
