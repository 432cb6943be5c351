// Cut and altered files: whatever the bytes, the outcome is arrays or an Error, and a cut file is always an Error.
#include <algorithm>

#include "io/test_support.h"

namespace regard::io {
namespace {

std::vector<std::string> Goldens() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kGoldens)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".npy" || ending == ".npz" || ending == ".safetensors") names.push_back(entry.path().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether the bytes were accepted. Anything but an Error of the codes that blame a file fails the test.
bool Accepts(std::string_view bytes, const std::string& name) {
  try {
    ReadEverything(FromString(bytes, name));
    return true;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kCorruptFile || error.code() == ErrorCode::kUnsupported)
        << Name(error.code()) << ": " << error.what();
    EXPECT_EQ(std::string_view(error.what()).find('\0'), std::string_view::npos);
    return false;
  }
}

TEST(RobustnessTest, EveryCutIsAnError) {
  for (const std::string& path : Goldens()) {
    const std::string whole = Slurp(path);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      // A copy of exactly that size, so that a sanitizer sees a read beyond it.
      const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_FALSE(Accepts({cut.data(), cut.size()}, path)) << path << " cut to " << length << " bytes";
    }
  }
}

TEST(RobustnessTest, EveryAlteredByteIsReadOrAnError) {
  constexpr std::size_t kLongest = 2500;  // beyond are archives of many alike members; the small ones have every field of zip
  // Besides single bits and the extremes, what means something to one of the grammars.
  constexpr std::string_view kSymbols("\0\xFF '\"\\(){}[],:-+.0129<>=|LTUVOS", 31);
  for (const std::string& path : Goldens()) {
    std::string bytes = Slurp(path);
    if (bytes.size() > kLongest) continue;
    const std::size_t end = path.ends_with(".safetensors") ? bytes.rfind("}}") + 2 : bytes.size();  // any data is good there
    for (std::size_t i = 0; i < end; ++i) {
      char& byte = bytes[i];
      const char original = byte;
      for (int bit = 0; bit < 8; ++bit) {
        byte = static_cast<char>(original ^ 1 << bit);
        Accepts(bytes, path);
      }
      for (char symbol : kSymbols) {
        byte = symbol;
        Accepts(bytes, path);
      }
      byte = original;
    }
  }
}

TEST(RobustnessTest, ByteAfterTheEndIsAnError) {
  for (const std::string& path : Goldens()) {
    if (path.ends_with(".npz")) continue;  // zip allows a comment there
    EXPECT_FALSE(Accepts(Slurp(path) + '\0', path)) << path;
  }
}

TEST(RobustnessTest, RandomBytesBehindEveryMagic) {
  std::uint32_t state = 7;
  for (const std::string magic : {"", "\x93NUMPY", "\x93NUMPY\x01", "PK\x03\x04", "PK\x05\x06"}) {
    for (const char* name : {"a.npy", "a.npz", "a.safetensors", "a.txt"}) {
      for (int trial = 0; trial < 500; ++trial) {
        std::string bytes = magic;
        for (int i = 0; i < trial % 97; ++i) {
          state = state * 1664525 + 1013904223;
          bytes += static_cast<char>(state >> 24);
        }
        Accepts(bytes, name);
      }
    }
  }
}

}  // namespace
}  // namespace regard::io
