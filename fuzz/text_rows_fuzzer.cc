// Any bytes as rows of text.
#include "fuzz/target.h"

namespace regard::fuzz {

std::string Outcome(std::span<const std::uint8_t> bytes) { return OutcomeOfFile(bytes, "input.txt"); }

}  // namespace regard::fuzz
