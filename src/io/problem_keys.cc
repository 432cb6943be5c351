#include "io/problem_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

#include "io/near_miss.h"
#include "regard/problem.h"

namespace regard::io {
namespace {

using enum KeyKind;

constexpr Key kKeys[] = {
    {"q", kTensor, {"Q", "query", "query_states"}},
    {"k", kTensor, {"K", "key", "key_states"}},
    {"v", kTensor, {"V", "value", "value_states"}},
    {"qkv", kTensor},  // all three side by side
    {"inputs", kTensor, {"x", "hidden_states"}},
    {"w_query", kTensor},
    {"w_key", kTensor},
    {"w_value", kTensor},
    {"w_out", kTensor},
    {"b_query", kTensor},
    {"b_key", kTensor},
    {"b_value", kTensor},
    {"b_out", kTensor},
    {"mask", kTensor},
    {"bias", kTensor},
    {"attn_mask", kTensor},  // mask or bias, by its element type
    {"kv_lens", kTensor, {"nonpad_kv_seqlen"}},
    {"q_segments", kTensor},
    {"kv_segments", kTensor},
    {"segments", kTensor},
    {"alibi_slopes", kTensor},
    {"sinks", kTensor},
    {"past_key", kTensor},
    {"past_value", kTensor},
    {"weights", kObserved, {"attn_weights", "attentions", "pattern"}},
    {"context", kObserved, {"Y", "out", "output", "attn_output", "z"}},
    {"scores", kObserved},
    {"capped", kObserved},
    {"masked_scores", kObserved},
    {"lse", kObserved},
    {"projected", kObserved},
    {"d_context", kObserved},  // a loss's gradient
    {"tokens", kStrings},
    {"q_tokens", kStrings},
    {"k_tokens", kStrings},
    {"scale", kScalar},
    {"causal", kScalar},
    {"q_offset", kScalar},
    {"window_left", kScalar},
    {"window_right", kScalar},
    {"soft_cap", kScalar},
    {"num_heads", kScalar},
    {"num_kv_heads", kScalar},
};

constexpr std::string_view kOnProjection = "[out, in], the heads side by side along out, or along in for w_out";

// A word of other libraries that is not read, because its meaning or its values may differ, but whose intent is clear.
struct ForeignKey {
  std::string_view name, ours;
  std::string_view give = {}, because = {};  // where its values or shape are others: what to give instead, and how they differ
};

constexpr ForeignKey kForeign[] = {
    {"is_causal", "causal"},
    {"softcap", "soft_cap"},
    {"logits_soft_cap", "soft_cap"},
    {"attn_logit_softcapping", "soft_cap"},
    {"sm_scale", "scale"},
    {"softmax_scale", "scale"},
    {"scaling", "scale"},
    {"sliding_window", "window_left", "window_left W−1", kOnSlidingWindow},
    {"window_size", "window_left", "window_left and window_right", kOnWindowPair},
    {"left_window_size", "window_left", "window_left", kOnWindowPair},
    {"right_window_size", "window_right", "window_right", kOnWindowPair},
    {"n_head", "num_heads"},
    {"heads", "num_heads"},
    {"q_num_heads", "num_heads"},
    {"num_attention_heads", "num_heads"},
    {"kv_heads", "num_kv_heads"},
    {"kv_num_heads", "num_kv_heads"},
    {"num_key_value_heads", "num_kv_heads"},
    {"attention_mask", "mask", "", kOnPaddingMask},
    {"key_padding_mask", "mask", "", kOnPaddingMask},
    {"queries", "q"},
    {"keys", "k"},
    {"values", "v"},
    {"embeddings", "inputs"},
    {"W_Q", "w_query", "w_query", kOnProjection},
    {"W_K", "w_key", "w_key", kOnProjection},
    {"W_V", "w_value", "w_value", kOnProjection},
    {"W_O", "w_out", "w_out", kOnProjection},
    {"slopes", "alibi_slopes"},
};

const ForeignKey* FindForeign(std::string_view name) {
  const ForeignKey* key = std::ranges::find(kForeign, name, &ForeignKey::name);
  return key == std::end(kForeign) ? nullptr : key;
}

bool Matches(const Key& key, std::string_view text) {
  return key.name == text || (!text.empty() && std::ranges::find(key.aliases, text) != key.aliases.end());
}

}  // namespace

std::span<const Key> Keys() noexcept { return kKeys; }

const Key* FindKey(std::string_view name) noexcept {
  const Key* key = std::ranges::find(kKeys, name, &Key::name);
  return key == std::end(kKeys) ? nullptr : key;
}

ParsedKey ParseKey(std::string_view text) noexcept {
  ParsedKey parsed;
  constexpr std::string_view kPrefix = "layers.";
  if (text.starts_with(kPrefix)) {
    std::int64_t layer = 0;
    const char* begin = text.data() + kPrefix.size();
    const char* end = text.data() + text.size();
    const auto [after, error] = std::from_chars(begin, end, layer);
    if (error != std::errc{} || layer < 0 || after == end || *after != '.') return {};
    parsed.layer = layer;
    text.remove_prefix(static_cast<std::size_t>(after + 1 - text.data()));
  }
  for (const Key& key : kKeys) {
    if (!Matches(key, text)) continue;
    parsed.key = &key;
    return parsed;
  }
  return {};
}

std::string Spellings(const Key& key) {
  std::string aliases;
  for (const std::string_view alias : key.aliases) {
    if (!alias.empty()) aliases.append(aliases.empty() ? " (or " : ", ").append(alias);
  }
  return std::string(key.name) + aliases + (aliases.empty() ? "" : ")");
}

std::string_view LikelyKey(std::string_view unknown) {
  if (const ForeignKey* foreign = FindForeign(unknown)) return foreign->ours;
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) {
    names.push_back(key.name);
    for (const std::string_view alias : key.aliases) {
      if (!alias.empty()) names.push_back(alias);
    }
  }
  const ParsedKey parsed = ParseKey(NearMiss(unknown, names));
  return parsed.key == nullptr ? std::string_view() : parsed.key->name;
}

std::string AdviceOn(std::string_view unknown) {
  if (const ForeignKey* foreign = FindForeign(unknown); foreign != nullptr && !foreign->because.empty())
    return foreign->give.empty() ? std::string(foreign->because) : fmt::format("give {}: {}", foreign->give, foreign->because);
  const std::string_view likely = LikelyKey(unknown);
  return likely.empty() ? std::string() : fmt::format("did you mean {}?", likely);
}

bool IsForeignScalar(std::string_view name) noexcept {
  const ForeignKey* foreign = FindForeign(name);
  return foreign != nullptr && FindKey(foreign->ours)->kind == kScalar;
}

std::string_view CanonicalName(std::string_view key) noexcept {
  const ParsedKey parsed = ParseKey(key);
  return parsed.key == nullptr || parsed.layer ? std::string_view() : parsed.key->name;
}

}  // namespace regard::io
