#include "fuzz/target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "io/npy.h"
#include "io/utf8.h"

namespace regard::fuzz {
namespace {

constexpr std::size_t kLongestMessage = 4000;  // twenty names of sixty characters, and what is said of them

io::File FromString(std::string_view bytes, const std::string& name) {
  return io::File::FromBytes(std::as_bytes(std::span(bytes.data(), bytes.size())), name);
}

bool SameBits(const Tensor& a, const Tensor& b) {
  const std::size_t bytes = static_cast<std::size_t>(a.num_elements()) * ItemSize(a.dtype());
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (bytes == 0 || std::memcmp(a.view().data(), b.view().data(), bytes) == 0);
}

// A .npy file of the tensor, read again.
void CheckWrittenAndRead(const Tensor& tensor) {
  std::string bytes = io::NpyHeaderBytes(tensor.dtype(), tensor.shape());
  bytes.append(static_cast<const char*>(tensor.view().data()),
               static_cast<std::size_t>(tensor.num_elements()) * ItemSize(tensor.dtype()));
  Check(SameBits(FromString(bytes, "again.npy").Read(""), tensor), "an array comes back as it was written");
}

void CheckArrays(const io::File& file) {
  for (const io::ArrayInfo& array : file.arrays()) {
    Check(file.Find(array.name) == &array, "an array is found by its name", array.name);
    if (array.unreadable) {
      CheckMessage(array.unreadable->what());
      continue;
    }
    if (array.is_strings) {
      const io::StringArray strings = file.ReadStrings(array.name);
      Check(strings.shape == array.shape && static_cast<std::int64_t>(strings.values.size()) == NumElements(array.shape),
            "strings have the shape that was listed", array.name);
      Check(std::ranges::all_of(strings.values, io::IsUtf8), "strings are UTF-8", array.name);
      continue;
    }
    const Tensor tensor = file.Read(array.name);
    Check(tensor.shape() == array.shape && tensor.dtype() == array.dtype, "an array has the shape and type that were listed",
          array.name);
    CheckWrittenAndRead(tensor);
  }
}

}  // namespace

void Check(bool kept, std::string_view promise, std::string_view detail) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s: %s\n", std::string(promise).c_str(), std::string(detail).c_str());
  std::abort();
}

void CheckMessage(std::string_view message) {
  Check(!message.empty() && message.size() <= kLongestMessage, "a message is short", message);
  Check(io::IsUtf8(message), "a message is UTF-8", message);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  Check(std::ranges::none_of(message, is_control), "a message is one line of printable characters", message);
}

std::string OutcomeOf(std::initializer_list<ErrorCode> codes, const std::function<void()>& act) {
  try {
    act();
    return "ok";
  } catch (const Error& error) {
    CheckMessage(error.what());
    const std::string text = std::string(Name(error.code())) + ": " + error.what();
    Check(std::ranges::find(codes, error.code()) != codes.end(), "an error has one of the codes that are documented", text);
    return text;
  }
}

std::string OutcomeOfFile(std::span<const std::uint8_t> bytes, const std::string& name) {
  return OutcomeOf({ErrorCode::kCorruptFile, ErrorCode::kUnsupported},
                   [&] { CheckArrays(io::File::FromBytes(std::as_bytes(bytes), name)); });
}

}  // namespace regard::fuzz
