#include "io/npy.h"

#include <algorithm>
#include <utility>

#include "io/file_error.h"
#include "io/utf8.h"

namespace regard::io {
namespace {

// One element of an S or U array as UTF-8, without the NULs that pad it.
std::string DecodeString(const char* bytes, const NpyHeader& header, std::string_view where) {
  std::string text;
  if (header.kind == NpyHeader::Kind::kBytes) {
    text.assign(bytes, header.item_size);
    text.resize(text.find_last_not_of('\0') + 1);
    if (!IsUtf8(text)) {
      Fail(ErrorCode::kUnsupported, where, "string {} is not UTF-8; save it as numpy.char.decode(array, encoding)", Quoted(text));
    }
    return text;
  }
  const auto* const units = reinterpret_cast<const unsigned char*>(bytes);
  const bool big = header.byte_order == ByteOrder::kBig;
  const auto code_point = [&](std::uint64_t i) {
    char32_t value = 0;
    for (unsigned byte = 0; byte < 4; ++byte)
      value |= static_cast<char32_t>(units[4 * i + (big ? 3 - byte : byte)]) << (8 * byte);
    return value;
  };
  std::uint64_t length = header.item_size / 4;
  while (length > 0 && code_point(length - 1) == 0) --length;
  for (std::uint64_t i = 0; i < length; ++i) {
    if (!AppendUtf8(code_point(i), &text)) {
      Fail(ErrorCode::kCorruptFile, where, "{:#x} in a string is no Unicode character; the file is damaged",
           static_cast<std::uint32_t>(code_point(i)));
    }
  }
  return text;
}

struct NpyFile : File::Impl {
  NpyFile(std::unique_ptr<ByteSource> source_in) : Impl(source_in->name(), Format::kNpy), source(std::move(source_in)) {
    SourceStream stream(*source);
    header = ReadNpyHeader(stream, source->size(), path);
    Add(header.Info(""));
  }

  Tensor ReadTensor(std::size_t) const override {
    SourceStream stream(*source, header.header_bytes);
    return ReadNpyNumbers(stream, header);
  }
  StringArray ReadStrings(std::size_t) const override {
    SourceStream stream(*source, header.header_bytes);
    return ReadNpyStrings(stream, header, path);
  }

  std::unique_ptr<ByteSource> source;
  NpyHeader header;
};

}  // namespace

ArrayInfo NpyHeader::Info(std::string name) const {
  return {.name = std::move(name), .shape = shape, .dtype = dtype, .is_strings = kind != Kind::kNumbers};
}

Tensor ReadNpyNumbers(ByteStream& stream, const NpyHeader& header) {
  return ReadElements(stream, header.dtype, header.shape, header.byte_order, header.element_order);
}

StringArray ReadNpyStrings(ByteStream& stream, const NpyHeader& header, std::string_view where) {
  const std::int64_t count = NumElements(header.shape);
  StringArray strings{.shape = header.shape, .values = {}};
  if (count == 0) return strings;  // then the file need not justify the item size
  std::vector<std::string> values;
  std::vector<char> item(header.item_size);
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    stream.Read(item.data(), item.size());
    values.push_back(DecodeString(item.data(), header, where));
  }
  if (header.element_order == ElementOrder::kC || header.shape.size() < 2) {
    strings.values = std::move(values);
    return strings;
  }
  const Dims strides = ContiguousStrides(header.shape);
  strings.values.resize(values.size());
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, offset = 0;
    for (int axis = 0; axis < header.shape.size(); ++axis) {  // the first axis runs fastest
      offset += rest % header.shape[axis] * strides[axis];
      rest /= header.shape[axis];
    }
    strings.values[static_cast<std::size_t>(offset)] = std::move(values[static_cast<std::size_t>(i)]);
  }
  return strings;
}

std::unique_ptr<File::Impl> OpenNpy(std::unique_ptr<ByteSource> source) { return std::make_unique<NpyFile>(std::move(source)); }

std::string NpyStringBytes(const std::vector<std::string>& strings, std::string_view where) {
  std::vector<std::u32string> decoded(strings.size());
  std::size_t longest = 1;  // U0 would leave the number of strings without a byte to answer for it
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (!DecodeUtf8(strings[i], &decoded[i])) {
      Fail(ErrorCode::kInvalidArgument, where, "string {} {} is not UTF-8; convert it first", i, Quoted(strings[i]));
    }
    longest = std::max(longest, decoded[i].size());
  }
  std::string bytes = NpyStringHeaderBytes(longest, static_cast<std::int64_t>(strings.size()));
  for (std::u32string& text : decoded) {
    text.resize(longest, U'\0');
    bytes.append(reinterpret_cast<const char*>(text.data()), text.size() * sizeof(char32_t));
  }
  return bytes;
}

}  // namespace regard::io
