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

/// Whether `name` is another library's word for one of our scalars, such as is_causal.
bool IsForeignScalar(std::string_view name) noexcept;

}  // namespace regard::io
