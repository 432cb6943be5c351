// Any bytes as a .safetensors file.
#include "fuzz/target.h"

namespace regard::fuzz {

std::string Outcome(std::span<const std::uint8_t> bytes) { return OutcomeOfFile(bytes, "input.safetensors"); }

}  // namespace regard::fuzz
