// Any bytes as a .npy file.
#include "fuzz/target.h"

namespace regard::fuzz {

std::string Outcome(std::span<const std::uint8_t> bytes) { return OutcomeOfFile(bytes, "input.npy"); }

}  // namespace regard::fuzz
