#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/elements.h"
#include "io/file_error.h"
#include "io/output_arrays.h"
#include "io/utf8.h"

namespace regard::io {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// sign, `exponent_bits`, `mantissa_bits`, without the special values.
float SmallFloat(std::uint8_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = (bits & 0x7F) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int significand = exponent == 0 ? mantissa : mantissa | 1 << mantissa_bits;
  const float magnitude = std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - bias - mantissa_bits);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

Tensor ReadF8(ByteStream& stream, const Dims& shape, float (*convert)(std::uint8_t)) {
  std::array<float, 256> value_of;
  for (int bits = 0; bits < 256; ++bits) value_of[static_cast<std::size_t>(bits)] = convert(static_cast<std::uint8_t>(bits));
  Tensor tensor = Tensor::Uninitialized(DType::kF32, shape);
  float* to = tensor.MutableAs<float>();
  std::array<std::uint8_t, 1 << 16> buffer;
  for (std::int64_t left = tensor.num_elements(); left > 0;) {
    const auto count = std::min<std::int64_t>(left, buffer.size());
    stream.Read(buffer.data(), static_cast<std::uint64_t>(count));
    for (std::int64_t i = 0; i < count; ++i) *to++ = value_of[buffer[static_cast<std::size_t>(i)]];
    left -= count;
  }
  return tensor;
}

std::string_view TypeName(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "F64";
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI16:
      return "I16";
    case DType::kI8:
      return "I8";
    case DType::kU64:
      return "U64";
    case DType::kU32:
      return "U32";
    case DType::kU16:
      return "U16";
    case DType::kU8:
      return "U8";
    case DType::kBool:
      return "BOOL";
  }
  return "";
}

struct SafetensorsFile : File::Impl {
  explicit SafetensorsFile(std::unique_ptr<ByteSource> source_in)
      : Impl(source_in->name(), Format::kSafetensors), source(std::move(source_in)) {
    SourceStream stream(*source);
    std::string text(ReadLength(stream), '\0');
    stream.Read(text.data(), text.size());
    if (text[0] != '{')
      Fail(ErrorCode::kCorruptFile, path, "header begins with {}, expected '{{'; the file is damaged", Quoted(text.substr(0, 1)));
    data_begin = kLengthBytes + text.size();
    SafetensorsHeader header = ParseSafetensorsHeader(text, source->size() - data_begin, path);
    entries = std::move(header.entries);
    metadata = std::move(header.metadata);
    for (const SafetensorsEntry& entry : entries) {
      Add({.name = entry.name, .shape = entry.shape, .dtype = entry.type.dtype, .unreadable = entry.unreadable});
    }
  }

  std::uint64_t ReadLength(SourceStream& stream) const {
    std::uint64_t length = 0;
    if (source->size() < kLengthBytes) {
      Fail(ErrorCode::kCorruptFile, path, "has {} bytes, a safetensors file has 10 or more; the file was cut short",
           source->size());
    }
    stream.Read(&length, kLengthBytes);
    if (length < 2 || length > kMaxHeaderBytes || length > source->size() - kLengthBytes) {
      Fail(ErrorCode::kCorruptFile, path,
           "header length {} is not within 2 and {}; the file was cut short or is no safetensors file", length,
           std::min(kMaxHeaderBytes, source->size() - kLengthBytes));
    }
    return length;
  }

  Tensor ReadTensor(std::size_t index) const override {
    const SafetensorsEntry& entry = entries[index];
    SourceStream stream(*source, data_begin + entry.begin);
    switch (entry.type.f8) {
      case SafetensorsType::F8::kE4M3:
        return ReadF8(stream, entry.shape, &FromE4M3);
      case SafetensorsType::F8::kE5M2:
        return ReadF8(stream, entry.shape, &FromE5M2);
      case SafetensorsType::F8::kNone:
        break;
    }
    return ReadElements(stream, entry.type.dtype, entry.shape);
  }

  std::unique_ptr<ByteSource> source;
  std::uint64_t data_begin = 0;
  std::vector<SafetensorsEntry> entries;
};

void CheckWritable(const std::string& path, const std::vector<OutputArray>& arrays,
                   const std::map<std::string, std::string>& metadata) {
  for (const OutputArray& array : arrays) {
    if (!array.tensor) {
      Fail(ErrorCode::kUnsupported, path, "{} holds strings; put them into the metadata as a JSON list, or write .npz",
           Quoted(array.name));
    }
    if (array.name == "__metadata__") Fail(ErrorCode::kInvalidArgument, path, "no array can be named __metadata__; rename it");
  }
  for (const auto& [key, value] : metadata) {
    if (!IsUtf8(key) || !IsUtf8(value))
      Fail(ErrorCode::kInvalidArgument, path, "metadata {} is not UTF-8; convert it", Quoted(key));
  }
}

}  // namespace

float FromE4M3(std::uint8_t bits) {
  if ((bits & 0x7F) == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  return SmallFloat(bits, 4, 3);
}

float FromE5M2(std::uint8_t bits) {
  if ((bits & 0x7F) > 0x7C) return std::numeric_limits<float>::quiet_NaN();
  if ((bits & 0x7F) == 0x7C)
    return (bits & 0x80) != 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  return SmallFloat(bits, 5, 2);
}

bool LooksLikeSafetensors(std::string_view first_bytes, std::uint64_t size) {
  if (first_bytes.size() <= kLengthBytes || first_bytes[kLengthBytes] != '{') return false;
  std::uint64_t length = 0;
  first_bytes.copy(reinterpret_cast<char*>(&length), kLengthBytes);
  return length >= 2 && length <= size - kLengthBytes;
}

std::unique_ptr<File::Impl> OpenSafetensors(std::unique_ptr<ByteSource> source) {
  return std::make_unique<SafetensorsFile>(std::move(source));
}

void WriteSafetensors(const std::string& path, const std::vector<OutputArray>& arrays,
                      const std::map<std::string, std::string>& metadata) {
  const OutputArrays checked(path, arrays);
  CheckWritable(path, arrays, metadata);
  std::vector<std::size_t> order(arrays.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ItemSize(arrays[a].tensor.dtype()) > ItemSize(arrays[b].tensor.dtype());
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (std::size_t i : order) {
    const TensorView& tensor = arrays[i].tensor;
    const std::uint64_t begin = std::exchange(end, end + checked.Bytes(i).size());
    header[arrays[i].name] = {{"dtype", TypeName(tensor.dtype())},
                              {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
                              {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  const std::uint64_t length = text.size();
  if (length > kMaxHeaderBytes)
    Fail(ErrorCode::kUnsupported, path, "header of {} bytes exceeds {}; write fewer names or less metadata", length,
         kMaxHeaderBytes);

  AtomicFile file(path);
  file.Write({reinterpret_cast<const char*>(&length), kLengthBytes});
  file.Write(text);
  for (std::size_t i : order) file.Write(checked.Bytes(i));
  file.Commit();
}

}  // namespace regard::io
