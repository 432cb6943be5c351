// "Did you mean …?": the known word that a misspelt one is closest to.
#pragma once

#include <span>
#include <string_view>

namespace regard::io {

/// The candidate with the fewest insertions, deletions, replacements and swaps of neighbours between it and `word`, upper and lower case
/// alike; empty when none is near enough to be meant (one edit for every three letters, at least one). The first of equals.
std::string_view NearMiss(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace regard::io
