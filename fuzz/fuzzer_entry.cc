// A fuzz target as libFuzzer calls it.
#include <cstddef>
#include <cstdint>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  regard::fuzz::Outcome({data, size});
  return 0;
}
