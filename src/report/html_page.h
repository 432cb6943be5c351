// The page of `regard map --html`: one file that opens from disk, without a network, and holds everything it shows.
//
//     regard::report::HtmlPage page{.title = "layer3.npz", .readings = {problem.reading}, .q_len = 132, .kv_len = 132, .same_text = true};
//     page.k_tokens = tokens;
//     for (std::int64_t h = 0; h < heads; ++h) {
//       page.heads.push_back({.head = h, .kind = "previous-token", .score = 0.93, .pooled = summary.pooled.view().Select(0, 0).Select(0, h)});
//     }
//     std::vector<regard::report::ExactHead> exact = regard::report::ExactHeads(q, k, params, /*batch=*/0, {3});
//     exact[0].lse = lse.view().Select(0, 0).Select(0, 3);
//     page.heads[3].exact = exact[0];
//     regard::report::BuiltPage built = regard::report::BuildHtmlPage(page);
//     regard::io::AtomicFile file("map.html"); file.Write(built.html); file.Commit();
//
// Layers × heads of pooled maps; one of them enlarged, with key mass and entropy beside it; the strongest links of every token; and, for
// heads with `exact`, the weight of any pair, which the page computes from q, k and lse. What a head does not give, its part of the page
// does without: a page of pooled maps alone is a page.
//
// Everything that comes from outside (title, tokens, notes) is data: it stands in the page as JSON without a "<" and is shown as text only.
//
// Precision: pooled maps have 254 levels, even in the square root; tracks and links are f16; q and k are f16 and lse is f32. When f16 is
// not what q or k were, the page says that its weights are those of the rounded ones.
//
// Size: base64 of one byte a pooled cell, two a query (entropy), two a key (mass), four or six a link, and 2·head_dim + 4 a token of exact
// heads. Links are kept as far as HtmlPage::max_bytes allows, fewer for every token alike, and the page says how many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/row_keys.h"
#include "regard/attention.h"
#include "regard/tensor.h"

namespace regard::report {

/// What it takes to compute any weight of one head: exp(masked_scores − lse), by the rules of attention.h. Sinks are in the lse.
struct ExactHead {
  TensorView q = {};    // [q_len, head_dim], float
  TensorView k = {};    // [kv_len, head_dim], float
  TensorView lse = {};  // [q_len], natural log
  float scale = 1;
  float soft_cap = 0;  // 0 is off
  float alibi_slope = 0;
  TensorView mask = {};  // bool [q_len, kv_len], true = may attend; axes that do not matter have stride 0
  TensorView bias = {};  // float, likewise
  /// One a query: the keys that the positional rules leave, and where it stands. Null: all keys, query i at i.
  std::shared_ptr<const std::vector<internal::RowKeys>> visible = {};
};

/// Everything of these heads but lse, which the caller adds. Views borrow from q, k and params. Throws Error as a Plan would.
std::vector<ExactHead> ExactHeads(const TensorView& q, const TensorView& k, const AttentionParams& params, std::int64_t batch,
                                  const std::vector<std::int64_t>& heads);

/// One cell of the overview. Float views of any float type, index views i32 or i64, padded with −1; leave out what there is not.
struct PageHead {
  std::optional<std::int64_t> layer = {};
  std::int64_t head = 0;
  std::size_t reading = 0;  // which of HtmlPage::readings is about it
  std::string kind = {};    // what it does, as summary.h names it; empty: not measured
  double score = 0;
  TensorView pooled = {};                                // [R, C], bins as in summary.h
  TensorView entropy = {};                               // [q_len], nats
  TensorView key_mass = {};                              // [kv_len]
  TensorView topk_index = {}, topk_weight = {};          // [q_len, K], largest first
  TensorView key_topk_index = {}, key_topk_weight = {};  // [kv_len, K]
  std::optional<ExactHead> exact = {};
};

struct HtmlPage {
  std::string title = {};                  // the name of the input
  std::vector<std::string> readings = {};  // how it was read: one for all heads, or one a layer
  std::vector<std::string> notes = {};     // whatever else a reader should know
  std::int64_t q_len = 0, kv_len = 0;

  /// Queries and keys are the same tokens: query i is key i + q_offset. Else they are two texts, and q_offset only numbers the queries.
  bool same_text = false;
  std::int64_t q_offset = 0;
  std::vector<std::string> q_tokens = {}, k_tokens = {};  // each empty or as long as its axis; of one text, k_tokens are enough

  std::vector<PageHead> heads = {};

  /// What the page may take without exact heads; links give way.
  std::size_t max_bytes = 10'000'000;
};

struct BuiltPage {
  std::string html;
  /// What did not fit, one line each; the page shows them too.
  std::vector<std::string> notes;
};

/// Throws Error kShapeMismatch when a view or list does not fit q_len and kv_len, kInvalidArgument for a wrong element type. Strings that
/// are not UTF-8 get replacement characters.
BuiltPage BuildHtmlPage(const HtmlPage& page);

}  // namespace regard::report
