// A packed sequence has the bits that it has alone: attended in a call of its own, without segments (docs/numerics.md, section 11).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "regard/backward.h"
#include "regard/summary.h"
#include "tests/support/paths.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"

namespace regard::test {
namespace {

// Queries and keys of one text in batch entry b. A query segment may lack its keys, a segment of keys its queries.
struct Text {
  std::int64_t b, first_query, q_len, first_key, kv_len;
};

// Lengths and counts to draw from.
struct Sizes {
  std::int64_t texts, max_q_len, max_kv_len;
  std::int64_t max_kv_heads = 2;
  bool decodes = true;  // heads in groups, so that some texts go to one kernel and some to the other
};

struct Packing {
  Packing(std::uint64_t seed, const Sizes& sizes) : random(seed) {
    kv_heads = random.Int(1, sizes.max_kv_heads);
    heads = kv_heads * (sizes.decodes ? random.OneOf({1, 2, 3, 5}) : 1);
    head_dim = random.OneOf({3, 8, 17, 32});
    v_dim = random.OneOf({1, 8, 19, 32});
    dtype = random.OneOf({DType::kF32, DType::kF32, DType::kF16, DType::kBF16});
    std::vector<std::vector<std::int64_t>> q_numbers(2), kv_numbers(2);
    for (std::int64_t b = 0; b < 2; ++b)
      Pack(b, sizes, &q_numbers[static_cast<std::size_t>(b)], &kv_numbers[static_cast<std::size_t>(b)]);
    q_len = Pad(q_numbers, &q_segments);
    kv_len = Pad(kv_numbers, &kv_segments);
    q = Normal({2, heads, q_len, head_dim}, dtype, 2);
    k = Normal({2, kv_heads, kv_len, head_dim}, dtype, 1);
    v = Normal({2, kv_heads, kv_len, v_dim}, dtype, 1);
    d_context = Normal({2, heads, q_len, v_dim}, DType::kF32, 1);
    MakeParams();
  }

  // Numbers in any order on either side, padding between them.
  void Pack(std::int64_t b, const Sizes& sizes, std::vector<std::int64_t>* q_numbers, std::vector<std::int64_t>* kv_numbers) {
    std::vector<Text> of_entry;
    for (std::int64_t n = 0; n < sizes.texts; ++n) {
      Text text{b, 0, random.Int(1, sizes.max_q_len), 0, random.Int(1, sizes.max_kv_len)};
      if (random.Chance(0.3)) text.q_len = std::min(text.q_len, random.Int(1, 3));
      if (random.Chance(0.2)) text.kv_len = text.q_len;
      if (random.Chance(0.05)) text.q_len = 0;
      if (random.Chance(0.05)) text.kv_len = 0;
      if (random.Chance(0.3)) q_numbers->insert(q_numbers->end(), static_cast<std::size_t>(random.Int(1, 3)), -1);
      text.first_query = static_cast<std::int64_t>(q_numbers->size());
      q_numbers->insert(q_numbers->end(), static_cast<std::size_t>(text.q_len), n);
      of_entry.push_back(text);
    }
    std::vector<std::size_t> order;
    for (std::size_t n = 0; n < of_entry.size(); ++n) order.push_back(n);
    if (random.Chance(0.5)) {
      for (std::size_t n = order.size() - 1; n > 0; --n)
        std::swap(order[n], order[static_cast<std::size_t>(random.Int(0, static_cast<std::int64_t>(n)))]);
    }
    for (const std::size_t n : order) {
      if (random.Chance(0.3)) kv_numbers->insert(kv_numbers->end(), static_cast<std::size_t>(random.Int(1, 3)), -1);
      of_entry[n].first_key = static_cast<std::int64_t>(kv_numbers->size());
      kv_numbers->insert(kv_numbers->end(), static_cast<std::size_t>(of_entry[n].kv_len), static_cast<std::int64_t>(n));
    }
    texts.insert(texts.end(), of_entry.begin(), of_entry.end());
  }

  static std::int64_t Pad(const std::vector<std::vector<std::int64_t>>& numbers, Tensor* segments) {
    const auto length = static_cast<std::int64_t>(std::max({numbers[0].size(), numbers[1].size(), std::size_t{1}}));
    *segments = Tensor(DType::kI64, {2, length});
    std::fill_n(segments->MutableAs<std::int64_t>(), 2 * length, -1);
    for (std::size_t b = 0; b < 2; ++b) {
      std::copy(numbers[b].begin(), numbers[b].end(),
                segments->MutableAs<std::int64_t>() + static_cast<std::int64_t>(b) * length);
    }
    return length;
  }

  Tensor Normal(const Dims& shape, DType type, double size) {
    Tensor tensor(DType::kF32, shape);
    for (std::int64_t n = 0; n < tensor.num_elements(); ++n)
      tensor.MutableAs<float>()[n] = static_cast<float>(size * random.Normal());
    return type == DType::kF32 ? std::move(tensor) : Tensor::CopyOf(tensor, type);
  }

  void MakeParams() {
    params.q_segments = q_segments;
    params.kv_segments = kv_segments;
    params.causal = random.Chance(0.5);
    params.q_offset = random.OneOf({0, 0, 2, -1});
    if (random.Chance(0.3)) params.window_left = random.Int(0, 200);
    if (random.Chance(0.3)) params.soft_cap = 3;
    if (random.Chance(0.3)) params.alibi_slopes = slopes = Normal({heads}, DType::kF32, 0.2);
    if (random.Chance(0.3)) params.sinks = sinks = Normal({heads}, DType::kF32, 1);
    if (random.Chance(0.3)) params.bias = bias = Normal(AnyBroadcast(), random.OneOf({DType::kF32, DType::kF16}), 1);
    if (random.Chance(0.3)) {
      mask = Tensor(DType::kBool, AnyBroadcast());
      for (std::int64_t n = 0; n < mask.num_elements(); ++n) mask.MutableAs<bool>()[n] = random.Chance(0.8);
      params.mask = mask;
    }
    if (random.Chance(0.2)) {
      kv_lens = Tensor::Of<std::int64_t>({2}, {random.Int(0, kv_len), random.Int(0, kv_len)});
      params.kv_lens = kv_lens;
    }
  }
  Dims AnyBroadcast() {
    return {random.OneOf<std::int64_t>({1, 2}), random.OneOf<std::int64_t>({1, heads}), random.OneOf<std::int64_t>({1, q_len}),
            random.Chance(0.2) ? 1 : kv_len};
  }

  Random random;
  std::int64_t heads, kv_heads, head_dim, v_dim, q_len, kv_len;
  DType dtype;
  std::vector<Text> texts;
  Tensor q, k, v, d_context, q_segments, kv_segments, slopes, sinks, bias, mask, kv_lens;
  AttentionParams params;
};

// Rows of a text in a tensor [2, heads, q_len(, n)].
TensorView Queries(const TensorView& view, const Text& text) {
  return view.Slice(0, text.b, text.b + 1).Slice(2, text.first_query, text.first_query + text.q_len);
}
TensorView Keys(const TensorView& view, const Text& text) {
  return view.Slice(0, text.b, text.b + 1).Slice(2, text.first_key, text.first_key + text.kv_len);
}

TensorView OfText(const TensorView& option, const Text& text) {
  TensorView part = option;
  if (!part) return part;
  if (part.dim(0) > 1) part = part.Slice(0, text.b, text.b + 1);
  if (part.dim(2) > 1) part = part.Slice(2, text.first_query, text.first_query + text.q_len);
  if (part.dim(3) > 1) part = part.Slice(3, text.first_key, text.first_key + text.kv_len);
  return part;
}

// The same text in a call of its own.
struct Alone {
  Alone(const Packing& p, const Text& text)
      : q(Queries(p.q, text)), k(Keys(p.k, text)), v(Keys(p.v, text)), params(p.params), kv_lens(DType::kI64, {1}) {
    params.q_segments = params.kv_segments = {};
    params.mask = OfText(p.params.mask, text);
    params.bias = OfText(p.params.bias, text);
    if (!p.params.kv_lens) return;
    kv_lens.MutableAs<std::int64_t>()[0] =
        std::clamp<std::int64_t>(p.kv_lens.As<std::int64_t>()[text.b] - text.first_key, 0, text.kv_len);
    params.kv_lens = kv_lens;
  }

  TensorView q, k, v;
  AttentionParams params;
  Tensor kv_lens;
};

// Fails unless both have the same bits; `added` is what indices of the packed run have in addition.
void ExpectSameBits(const std::string& what, const TensorView& packed, const TensorView& alone, std::int64_t added = 0) {
  Tensor a = Tensor::CopyOf(packed), b = Tensor::CopyOf(alone);
  ASSERT_EQ(a.num_elements(), b.num_elements()) << what;
  for (std::int64_t n = 0; added != 0 && n < b.num_elements(); ++n) {
    std::int64_t& index = b.MutableAs<std::int64_t>()[n];
    if (index >= 0) index += added;
  }
  const auto bytes = static_cast<std::size_t>(a.num_elements()) * ItemSize(a.dtype());
  EXPECT_TRUE(bytes == 0 || std::memcmp(a.view().data(), b.view().data(), bytes) == 0) << what << " has other bits than alone";
}

ExecOptions ExecOf(const PathCase& path, int threads) { return {.path = path.path, .isa = path.isa, .threads = threads}; }

class PackedSequences : public testing::TestWithParam<PathCase> {
 protected:
  // Calls check(packing, seed) for problems of the given sizes.
  template <class Check>
  void ForEachPacking(std::uint64_t count, const Sizes& sizes, const Check& check) {
    for (const std::uint64_t seed : Seeds(count)) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", up to " + std::to_string(sizes.max_q_len) + " queries and " +
                   std::to_string(sizes.max_kv_len) + " keys");
      check(Packing(seed, sizes), seed);
      if (HasFailure()) return;
    }
  }

  void CheckForward(const Packing& p, int threads) const {
    const AttentionResult packed = Attention(p.q, p.k, p.v, p.params, ExecOf(GetParam(), threads));
    std::int64_t empty_rows = 0, rows = 0;
    for (const Text& text : p.texts) {
      if (text.q_len == 0) continue;
      const Alone alone(p, text);
      const AttentionResult r = Attention(alone.q, alone.k, alone.v, alone.params, ExecOf(GetParam(), 1));
      ExpectSameBits("context", Queries(packed.context, text), r.context);
      ExpectSameBits("lse", Queries(packed.lse, text), r.lse);
      empty_rows += r.empty_rows;
      rows += p.heads * text.q_len;
    }
    EXPECT_EQ(packed.empty_rows, empty_rows + 2 * p.heads * p.q_len - rows);
  }

  void CheckBackward(const Packing& p, int threads) const {
    const AttentionResult packed = Attention(p.q, p.k, p.v, p.params, ExecOf(GetParam(), threads));
    const AttentionGrads grads =
        AttentionBackward(p.q, p.k, p.v, packed.context, packed.lse, p.d_context, p.params, ExecOf(GetParam(), threads));
    for (const Text& text : p.texts) {
      const Alone alone(p, text);
      const AttentionGrads g =
          AttentionBackward(alone.q, alone.k, alone.v, Queries(packed.context, text), Queries(packed.lse, text),
                            Queries(p.d_context, text), alone.params, ExecOf(GetParam(), 1));
      ExpectSameBits("d_q", Queries(grads.d_q, text), g.d_q);
      ExpectSameBits("d_k", Keys(grads.d_k, text), g.d_k);
      ExpectSameBits("d_v", Keys(grads.d_v, text), g.d_v);
    }
  }

  void CheckSummaries(const Packing& p, int threads) const {
    SummaryOptions options{.row_max = true, .row_argmax = true, .entropy = true, .top_k = 3};
    options.distance = options.first_key_share = options.key_mass = options.key_mass_mean = true;
    options.window_share = 5;
    options.key_top_k = 2;
    options.pooled_rows = options.pooled_cols = 3;
    options.head_kind = true;
    const Summary packed = Summarize(p.q, p.k, p.v, p.params, options, ExecOf(GetParam(), threads));
    for (const Text& text : p.texts) {
      if (text.q_len == 0) continue;
      const Alone alone(p, text);
      const Summary s = Summarize(alone.q, alone.k, alone.v, alone.params, options, ExecOf(GetParam(), 1));
      const auto rows = [&](const char* what, const Tensor& a, const Tensor& b, std::int64_t added = 0) {
        ExpectSameBits(what, Queries(a, text), b, added);
      };
      const auto keys = [&](const char* what, const Tensor& a, const Tensor& b, std::int64_t added = 0) {
        ExpectSameBits(what, Keys(a, text), b, added);
      };
      rows("context", packed.context, s.context);
      rows("lse", packed.lse, s.lse);
      rows("row_max", packed.row_max, s.row_max);
      rows("row_argmax", packed.row_argmax, s.row_argmax, text.first_key);
      rows("entropy", packed.entropy, s.entropy);
      rows("topk_index", packed.topk_index, s.topk_index, text.first_key);
      rows("topk_weight", packed.topk_weight, s.topk_weight);
      rows("topk_tail", packed.topk_tail, s.topk_tail);
      rows("distance_mean", packed.distance_mean, s.distance_mean);
      rows("distance_std", packed.distance_std, s.distance_std);
      rows("first_key_share", packed.first_key_share, s.first_key_share);
      rows("window_share", packed.window_share, s.window_share);
      keys("key_mass", packed.key_mass, s.key_mass);
      keys("key_mass_mean", packed.key_mass_mean, s.key_mass_mean);
      keys("key_topk_index", packed.key_topk_index, s.key_topk_index, text.first_query);
      keys("key_topk_weight", packed.key_topk_weight, s.key_topk_weight);
      const std::int64_t h = text.first_query % p.heads;
      const WeightWindow window{.batch = text.b,
                                .head = h,
                                .rows = {text.first_query + text.q_len - 1},
                                .key_begin = text.first_key,
                                .key_end = text.first_key + text.kv_len};
      ExpectSameBits("weights", WeightRows(p.q, p.k, packed.lse, p.params, window),
                     WeightRows(alone.q, alone.k, s.lse, alone.params, {.head = h, .rows = {text.q_len - 1}}));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Deterministic, PackedSequences, testing::ValuesIn(DeterministicPaths()), TestName);

constexpr Sizes kMany = {.texts = 40, .max_q_len = 12, .max_kv_len = 12};
constexpr Sizes kLong = {.texts = 5, .max_q_len = 300, .max_kv_len = 300};
constexpr Sizes kSplit = {.texts = 4, .max_q_len = 4, .max_kv_len = 5000};
constexpr Sizes kTasks = {.texts = 3, .max_q_len = 1400, .max_kv_len = 300, .max_kv_heads = 1, .decodes = false};

TEST_P(PackedSequences, Forward) {
  const bool is_reference = GetParam().path == Path::kReference;
  const auto check = [&](const Packing& p, std::uint64_t seed) { CheckForward(p, static_cast<int>(seed % 4) + 1); };
  ForEachPacking(is_reference ? 4 : 12, kMany, check);
  if (is_reference) return;
  ForEachPacking(8, kLong, check);
  ForEachPacking(6, kSplit, check);
}

TEST_P(PackedSequences, Gradients) {
  const bool is_reference = GetParam().path == Path::kReference;
  const auto check = [&](const Packing& p, std::uint64_t seed) { CheckBackward(p, static_cast<int>(seed % 4) + 1); };
  ForEachPacking(is_reference ? 4 : 8, kMany, check);
  if (is_reference) return;
  ForEachPacking(6, kLong, check);
  ForEachPacking(4, kTasks, check);
}

TEST_P(PackedSequences, Summaries) {
  if (GetParam().path == Path::kReference) GTEST_SKIP() << "streams no weights";
  const auto check = [&](const Packing& p, std::uint64_t seed) { CheckSummaries(p, static_cast<int>(seed % 4) + 1); };
  ForEachPacking(8, kMany, check);
  ForEachPacking(4, kLong, check);
  ForEachPacking(3, kSplit, check);
  ForEachPacking(3, kTasks, check);
}

}  // namespace
}  // namespace regard::test
