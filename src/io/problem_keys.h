// The names under which arrays of a problem are known: regard's own and other libraries'.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace regard::io {

enum class KeyKind : std::uint8_t { kTensor, kObserved, kStrings, kScalar };

struct Key {
  std::string_view name;  // regard's
  KeyKind kind;
  std::array<std::string_view, 5> aliases = {};  // others'; unused ones are empty
};

/// All of them, once.
std::span<const Key> Keys() noexcept;

/// The key called `name` by regard; null if there is none.
const Key* FindKey(std::string_view name) noexcept;

/// What a name in a file stands for.
struct ParsedKey {
  const Key* key = nullptr;                // null: unknown
  std::optional<std::int64_t> layer = {};  // of `layers.N.`
};
ParsedKey ParseKey(std::string_view text) noexcept;

/// "q (or Q, query, query_states)"
std::string Spellings(const Key& key);

/// What somebody who wrote an unknown key probably meant, as regard spells it; empty if that cannot be guessed.
std::string_view LikelyKey(std::string_view unknown);

/// What to do instead, for the end of a message: "did you mean causal?" or, where values or shapes change with the name, what to give. Empty if
/// that cannot be guessed.
std::string AdviceOn(std::string_view unknown);

// How regard's values differ from those of other libraries' words, in messages on keys and on flags.
inline constexpr std::string_view kOnSlidingWindow =
    "regard counts the earlier keys that a query sees besides its own, so a sliding window of W keys is W−1";
inline constexpr std::string_view kOnWindowPair = "keys besides the query's own; leave out what is -1 elsewhere";
inline constexpr std::string_view kOnPaddingMask =
    "which value means attend differs between libraries; give bool [batch, 1, 1, kv_len] with true = may attend as mask, an "
    "additive float "
    "as bias, or the number of valid keys of each sequence, [batch], as kv_lens";

/// Whether `name` is another library's word for one of our scalars, such as is_causal.
bool IsForeignScalar(std::string_view name) noexcept;

}  // namespace regard::io
