// Writes the pages that page_test.py opens, and what it expects to find in them. Everything comes from whole matrices of weights, in double,
// so that the page is compared with a plain computation and not with the code that usually fills it.
//
//     make_page text     text.html text.json          six layers of twelve heads of the committed real model, all exact
//     make_page rules    rules.html rules.json        every rule that decides weights: windows, mask, bias, ALiBi, soft cap, sinks, segments
//     make_page long     long.html                    32 heads × 16,384 made-up tokens, two of them exact
//     make_page hostile  hostile.html                 tokens and titles that would be markup
//     make_page plain    plain.html                   pooled maps alone: no tokens, no links, no exact heads
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "regard/io.h"
#include "regard/problem.h"
#include "report/html_page.h"

namespace {

using regard::DType;
using regard::Tensor;
using regard::TensorView;
using regard::report::HtmlPage;
using regard::report::PageHead;

// Owns what a page's views point at.
using Store = std::vector<Tensor>;

TensorView Keep(Store* store, Tensor tensor) {
  store->push_back(std::move(tensor));
  return store->back();
}

// The `count` largest of each row, or column, of weights [q_len, kv_len].
void AddLinks(const TensorView& weights, int count, Store* store, TensorView* index, TensorView* weight) {
  const std::int64_t rows = weights.dim(0), columns = weights.dim(1);
  Tensor indices(DType::kI32, {rows, count}), values(DType::kF32, {rows, count});
  std::vector<std::int32_t> order(static_cast<std::size_t>(columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return weights(r, a) > weights(r, b); });
    for (std::int64_t n = 0; n < count; ++n) {
      const bool has_link = n < columns && weights(r, order[static_cast<std::size_t>(n)]) > 0;
      indices.MutableAs<std::int32_t>()[r * count + n] = has_link ? order[static_cast<std::size_t>(n)] : -1;
      values.MutableAs<float>()[r * count + n] =
          has_link ? static_cast<float>(weights(r, order[static_cast<std::size_t>(n)])) : 0;
    }
  }
  *index = Keep(store, std::move(indices));
  *weight = Keep(store, std::move(values));
}

// Pooled to at most `bins` a side, as summary.h defines it but for empty rows.
Tensor Pooled(const TensorView& weights, std::int64_t bins) {
  const std::int64_t q_len = weights.dim(0), kv_len = weights.dim(1), rows = std::min(bins, q_len),
                     columns = std::min(bins, kv_len);
  Tensor pooled(DType::kF32, {rows, columns});
  float* values = pooled.MutableAs<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::int64_t i = r * q_len / rows; i < (r + 1) * q_len / rows; ++i) {
        for (std::int64_t j = c * kv_len / columns; j < (c + 1) * kv_len / columns; ++j) sum += weights(i, j);
      }
      values[r * columns + c] = static_cast<float>(sum / static_cast<double>((r + 1) * q_len / rows - r * q_len / rows));
    }
  }
  return pooled;
}

// A head with everything that follows from its weights.
PageHead HeadOf(const TensorView& weights, std::int64_t head, Store* store) {
  const std::int64_t q_len = weights.dim(0), kv_len = weights.dim(1);
  Tensor entropy(DType::kF32, {q_len}), mass(DType::kF32, {kv_len});
  double previous = 0, first = 0;
  for (std::int64_t i = 0; i < q_len; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < kv_len; ++j) {
      const double w = weights(i, j);
      sum -= w > 0 ? w * std::log(w) : 0;
      mass.MutableAs<float>()[j] += static_cast<float>(w);
    }
    entropy.MutableAs<float>()[i] = static_cast<float>(sum);
    previous += i > 0 && i <= kv_len ? weights(i, i - 1) : 0;
    first += weights(i, 0);
  }
  previous /= static_cast<double>(q_len);
  first /= static_cast<double>(q_len);
  PageHead entry{.head = head};
  entry.kind = previous > 0.5 ? "previous-token" : first > 0.5 ? "first-token" : "mixed";
  entry.score = std::max(previous, first);
  entry.pooled = Keep(store, Pooled(weights, 160));
  entry.entropy = Keep(store, std::move(entropy));
  entry.key_mass = Keep(store, std::move(mass));
  AddLinks(weights, 8, store, &entry.topk_index, &entry.topk_weight);
  AddLinks(weights.Transpose(0, 1), 8, store, &entry.key_topk_index, &entry.key_topk_weight);
  return entry;
}

void WriteText(const std::string& path, const std::string& text) {
  regard::io::AtomicFile file(path);
  file.Write(text);
  file.Commit();
}

void WritePage(const HtmlPage& page, const std::string& path) { WriteText(path, regard::report::BuildHtmlPage(page).html); }

// Appends every head of one attention problem, all exact, and its weights to `expected`.
void AddHeads(const TensorView& q, const TensorView& k, const TensorView& v, const regard::AttentionParams& params,
              std::optional<std::int64_t> layer, Store* store, HtmlPage* page, nlohmann::json* expected) {
  regard::Stages stages = regard::ComputeStages(q, k, v, params, {.path = regard::Path::kReference});
  const TensorView weights = Keep(store, std::move(stages.weights)), lse = Keep(store, std::move(stages.lse));
  std::vector<std::int64_t> heads(static_cast<std::size_t>(weights.dim(1)));
  std::iota(heads.begin(), heads.end(), 0);
  const auto exact = regard::report::ExactHeads(q, k, params, 0, heads);
  for (const std::int64_t h : heads) {
    const TensorView matrix = weights.Select(0, 0).Select(0, h);
    PageHead head = HeadOf(matrix, h, store);
    head.layer = layer;
    head.reading = page->readings.empty() ? 0 : page->readings.size() - 1;
    head.exact = exact[static_cast<std::size_t>(h)];
    head.exact->lse = lse.Select(0, 0).Select(0, h);
    page->heads.push_back(head);
    nlohmann::json rows = nlohmann::json::array();
    for (std::int64_t i = 0; i < matrix.dim(0); ++i) {
      nlohmann::json row = nlohmann::json::array();
      for (std::int64_t j = 0; j < matrix.dim(1); ++j) row.push_back(matrix(i, j));
      rows.push_back(row);
    }
    expected->push_back(rows);
  }
}

void MakeText(const std::string& html, const std::string& json) {
  Store store;
  store.reserve(10000);  // views must not move
  HtmlPage page{.title = "all_minilm_l6_v2.safetensors", .same_text = true};
  nlohmann::json expected = nlohmann::json::array();
  std::vector<regard::io::Problem> layers;
  for (std::int64_t layer = 0; layer < 6; ++layer) {
    layers.push_back(regard::io::LoadProblem({"testdata/minilm/all_minilm_l6_v2.safetensors"}, {.layer = layer}));
    const regard::io::Problem& p = layers.back();
    page.readings.push_back(p.reading);
    page.q_len = p.shape.q_len;
    page.kv_len = p.shape.kv_len;
    page.k_tokens = p.k_tokens.values;
    AddHeads(p.q, p.k, p.v, p.params, layer, &store, &page, &expected);
  }
  WritePage(page, html);
  WriteText(json, expected.dump());
}

Tensor Random(const regard::Dims& shape, double spread, std::mt19937* random) {
  Tensor tensor(DType::kF32, shape);
  std::normal_distribution<double> normal(0.0, spread);
  // Numbers that f16 holds, so that the page is exact.
  for (std::int64_t n = 0; n < tensor.num_elements(); ++n)
    tensor.MutableAs<float>()[n] = regard::ToFloat(regard::ToF16(normal(*random)));
  return tensor;
}

void MakeRules(const std::string& html, const std::string& json) {
  std::mt19937 random(7);
  Store store;
  store.reserve(1000);
  const std::int64_t heads = 4, q_len = 29, kv_len = 37, dim = 24;
  const TensorView q = Keep(&store, Random({1, heads, q_len, dim}, 1.5, &random)),
                   k = Keep(&store, Random({1, 2, kv_len, dim}, 1.5, &random));
  Tensor mask(DType::kBool, {1, heads, q_len, kv_len});
  for (std::int64_t n = 0; n < mask.num_elements(); ++n) mask.MutableAs<bool>()[n] = random() % 8 != 0;
  for (std::int64_t j = 0; j < kv_len; ++j) mask.MutableAs<bool>()[3 * kv_len + j] = false;  // an empty row
  Tensor bias = Random({q_len, kv_len}, 1, &random);
  bias.MutableAs<float>()[5] = -INFINITY;
  Tensor q_segments(DType::kI32, {1, q_len}), kv_segments(DType::kI32, {1, kv_len});
  for (std::int64_t i = 0; i < q_len; ++i) q_segments.MutableAs<std::int32_t>()[i] = i < 12 ? 4 : i < 27 ? 9 : -1;
  for (std::int64_t j = 0; j < kv_len; ++j) kv_segments.MutableAs<std::int32_t>()[j] = j < 16 ? 4 : j < 35 ? 9 : -1;
  const std::vector<regard::AttentionParams> rules = {
      {},
      {.scale = 0.4f, .causal = true, .q_offset = 8},
      {.q_offset = 8, .window_left = 6, .window_right = 3, .soft_cap = 5},
      {.q_offset = 3, .alibi_slopes = Keep(&store, Tensor::Of<float>({heads}, {0.5f, 0.25f, 0.125f, -0.1f}))},
      {.mask = Keep(&store, std::move(mask)), .bias = Keep(&store, std::move(bias))},
      {.kv_lens = Keep(&store, Tensor::Of<std::int32_t>({1}, {21})),
       .sinks = Keep(&store, Tensor::Of<float>({heads}, {0.5f, -1, 2, 0}))},
      {.causal = true,
       .q_offset = 2,
       .q_segments = Keep(&store, std::move(q_segments)),
       .kv_segments = Keep(&store, std::move(kv_segments)),
       .alibi_slopes = Keep(&store, Tensor::Of<float>({heads}, {0.5f, 0.25f, 0.125f, -0.1f}))},
  };
  HtmlPage page{.title = "rules", .readings = {"two texts"}, .q_len = q_len, .kv_len = kv_len};
  for (std::int64_t i = 0; i < q_len; ++i) page.q_tokens.push_back("q" + std::to_string(i));
  for (std::int64_t j = 0; j < kv_len; ++j) page.k_tokens.push_back("k" + std::to_string(j));
  nlohmann::json expected = nlohmann::json::array();
  for (std::size_t n = 0; n < rules.size(); ++n)
    AddHeads(q, k, k, rules[n], static_cast<std::int64_t>(n), &store, &page, &expected);
  WritePage(page, html);
  WriteText(json, expected.dump());
}

// Numbers as large as real ones, not results of attention: it is the page's size and speed that matter here.
void MakeLong(const std::string& html) {
  constexpr std::int64_t kTokens = 16384, kHeads = 32, kBins = 128, kDim = 64, kLinks = 8;
  std::mt19937 random(11);
  std::uniform_real_distribution<double> uniform(0, 1);
  Store store;
  store.reserve(1000);
  HtmlPage page{.title = "long.npz",
                .readings = {"read as heads 32, tokens 16384, dim 64; causal; scale 1/8"},
                .q_len = kTokens,
                .kv_len = kTokens};
  page.same_text = true;
  const char* kWords[] = {"the", " of", "and", " attention", "ing", " long", ",", " a", "\n", " text", " é", "漢字"};
  for (std::int64_t t = 0; t < kTokens; ++t) page.k_tokens.push_back(kWords[random() % std::size(kWords)]);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    Tensor pooled(DType::kF32, {kBins, kBins}), entropy(DType::kF32, {kTokens}), mass(DType::kF32, {kTokens});
    const double width = 0.5 + 6 * uniform(random), first = uniform(random) * 0.6;
    for (std::int64_t r = 0; r < kBins; ++r) {
      double sum = 0;
      float* row = pooled.MutableAs<float>() + r * kBins;
      for (std::int64_t c = 0; c <= r; ++c)
        sum += row[c] = static_cast<float>(std::exp(-static_cast<double>(r - c) / width) + 0.02 * uniform(random));
      for (std::int64_t c = 0; c <= r; ++c) row[c] = static_cast<float>(row[c] / sum * (1 - first) + (c == 0 ? first : 0));
    }
    Tensor index(DType::kI32, {kTokens, kLinks}), weight(DType::kF32, {kTokens, kLinks});
    for (std::int64_t t = 0; t < kTokens; ++t) {
      entropy.MutableAs<float>()[t] = static_cast<float>(std::log1p(static_cast<double>(t)) * (0.3 + 0.5 * uniform(random)));
      mass.MutableAs<float>()[t] = static_cast<float>(t == 0 ? first * kTokens : -std::log(uniform(random) + 1e-9));
      for (std::int64_t n = 0; n < kLinks; ++n) {
        index.MutableAs<std::int32_t>()[t * kLinks + n] = n <= t ? static_cast<std::int32_t>(n == 0 ? 0 : t - n + 1) : -1;
        weight.MutableAs<float>()[t * kLinks + n] = n <= t ? static_cast<float>(0.5 * std::exp2(-static_cast<double>(n))) : 0;
      }
    }
    PageHead head{.head = h, .kind = first > 0.5 ? "first-token" : width < 2 ? "local" : "mixed", .score = 0.5};
    head.pooled = Keep(&store, std::move(pooled));
    head.entropy = Keep(&store, std::move(entropy));
    head.key_mass = Keep(&store, std::move(mass));
    head.topk_index = head.key_topk_index = Keep(&store, std::move(index));
    head.topk_weight = head.key_topk_weight = Keep(&store, std::move(weight));
    page.heads.push_back(head);
  }
  const TensorView q = Keep(&store, Random({1, 2, kTokens, kDim}, 1, &random)),
                   k = Keep(&store, Random({1, 1, kTokens, kDim}, 1, &random));
  const regard::AttentionParams params{.causal = true};
  const TensorView lse = Keep(&store, regard::Attention(q, k, k, params).lse);
  const auto exact = regard::report::ExactHeads(q, k, params, 0, {0, 1});
  // Without exact heads first: that is the size that is bounded.
  std::printf("%zu bytes without exact heads\n", regard::report::BuildHtmlPage(page).html.size());
  for (std::size_t h = 0; h < 2; ++h) {
    page.heads[h].exact = exact[h];
    page.heads[h].exact->lse = lse.Select(0, 0).Select(0, static_cast<std::int64_t>(h));
  }
  WritePage(page, html);
}

void MakeHostile(const std::string& html) {
  Store store;
  store.reserve(100);
  HtmlPage page{.title = "</title><script>window.broken = 1</script>",
                .readings = {"<img src=x onerror='window.broken = 2'>"},
                .q_len = 7,
                .kv_len = 7};
  page.same_text = true;
  page.notes = {"</script><img src=x onerror='window.broken = 3'>"};
  page.k_tokens = {"</script><img src=x onerror='window.broken = 4'>",
                   "<!--<script>",
                   "\xff\xfe",
                   "a\nb\u202e",
                   "",
                   "{{script}} ${x} '\"\\",
                   std::string(100'000, 'x')};
  Tensor weights(DType::kF64, {7, 7});
  for (std::int64_t n = 0; n < 49; ++n) weights.MutableAs<double>()[n] = 1.0 / 7;
  page.heads.push_back(HeadOf(weights, 0, &store));
  page.heads[0].kind = "<b>bold</b>";
  WritePage(page, html);
}

void MakePlain(const std::string& html) {
  Store store;
  store.reserve(100);
  HtmlPage page{.title = "plain.npz", .readings = {"read as tokens 5 and 300"}, .q_len = 5, .kv_len = 300};
  for (std::int64_t h = 0; h < 3; ++h) {
    Tensor pooled(DType::kF32, {5, 60});
    for (std::int64_t n = 0; n < 300; ++n) pooled.MutableAs<float>()[n] = static_cast<float>((n * (h + 3)) % 17) / 100;
    if (h == 2) pooled.MutableAs<float>()[7] = NAN;
    page.heads.push_back({.head = h, .kind = "mixed", .score = h == 2 ? NAN : 0.004, .pooled = Keep(&store, std::move(pooled))});
  }
  WritePage(page, html);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string what = arguments.empty() ? "" : arguments[0];
  const bool has_expected = what == "text" || what == "rules";
  if (arguments.size() != (has_expected ? 3u : 2u)) return 1;
  if (what == "text")
    MakeText(arguments[1], arguments[2]);
  else if (what == "rules")
    MakeRules(arguments[1], arguments[2]);
  else if (what == "long")
    MakeLong(arguments[1]);
  else if (what == "hostile")
    MakeHostile(arguments[1]);
  else if (what == "plain")
    MakePlain(arguments[1]);
  else
    return 1;
  return 0;
}
