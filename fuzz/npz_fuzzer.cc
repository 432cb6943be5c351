// Any bytes as a .npz file.
#include "fuzz/target.h"

namespace regard::fuzz {

std::string Outcome(std::span<const std::uint8_t> bytes) { return OutcomeOfFile(bytes, "input.npz"); }

}  // namespace regard::fuzz
