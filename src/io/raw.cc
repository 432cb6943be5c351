#include "io/raw.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "io/elements.h"
#include "io/file_error.h"

namespace regard::io {
namespace {

// "1x12x64" as numbers; nothing if it is anything else. Numbers beyond 2⁶⁴ become 2⁶⁴−1, which no file has.
std::optional<std::vector<std::uint64_t>> ParseDims(std::string_view text) {
  std::vector<std::uint64_t> dims;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::uint64_t value = 0;
    const auto [rest, error] = std::from_chars(at, end, value);
    if (error == std::errc::invalid_argument) return std::nullopt;
    dims.push_back(error == std::errc() ? value : ~std::uint64_t{0});
    if (rest == end) return dims;
    if (*rest != 'x') return std::nullopt;
    at = rest + 1;
  }
}

struct RawFile : File::Impl {
  RawFile(std::unique_ptr<ByteSource> source_in, DType dtype, const Dims& shape)
      : Impl(source_in->name(), Format::kRaw), source(std::move(source_in)) {
    const std::uint64_t needed = CheckedBytes(path, shape, ItemSize(dtype));
    if (source->size() != needed) {
      Fail(ErrorCode::kCorruptFile, path, "has {} bytes, {} {} needs {}; check type and shape", source->size(),
           regard::Name(dtype), ToString(shape), needed);
    }
    Add({.name = "", .shape = shape, .dtype = dtype});
  }

  Tensor ReadTensor(std::size_t index) const override {
    SourceStream stream(*source);
    return ReadElements(stream, arrays[index].dtype, arrays[index].shape);
  }

  std::unique_ptr<ByteSource> source;
};

}  // namespace

std::optional<RawSpecification> ParseRawSpecification(const std::string& text) {
  const std::size_t last_colon = text.rfind(':');
  if (last_colon == std::string::npos || last_colon == 0) return std::nullopt;
  DType ignored;
  if (ParseDType(text.substr(last_colon + 1), &ignored)) {
    Fail(ErrorCode::kInvalidArgument, Printable(text),
         "a type without dims; write the lengths of the axes after it, such as :1x12x128x64");
  }
  const std::size_t type_colon = text.rfind(':', last_colon - 1);
  if (type_colon == std::string::npos) return std::nullopt;
  const std::string type = text.substr(type_colon + 1, last_colon - type_colon - 1), dims_text = text.substr(last_colon + 1);
  RawSpecification specification;
  specification.path = text.substr(0, type_colon);
  const bool is_type = ParseDType(type, &specification.dtype);
  const auto dims = ParseDims(dims_text);
  if (!dims && !is_type) return std::nullopt;
  if (!is_type) {
    Fail(ErrorCode::kInvalidArgument, Printable(text),
         "element type {} is not known; use f64 f32 f16 bf16, i8-i64, u8-u64 or bool", Quoted(type));
  }
  if (!dims) {
    Fail(ErrorCode::kInvalidArgument, Printable(text),
         "dims {} are not whole numbers joined by x; write the lengths of the axes, such as 1x12x128x64", Quoted(dims_text));
  }
  try {
    specification.shape = CheckedShape(text, *dims);
    CheckedBytes(text, specification.shape, ItemSize(specification.dtype));
  } catch (const Error&) {  // which speaks of a file's header; here it is the caller who is wrong
    Fail(ErrorCode::kInvalidArgument, Printable(text),
         "dims {} are beyond {} axes or 2^63-1 bytes; write the lengths of the axes, such as 1x12x128x64", Quoted(dims_text),
         kMaxRank);
  }
  return specification;
}

std::unique_ptr<File::Impl> OpenRawElements(std::unique_ptr<ByteSource> source, DType dtype, const Dims& shape) {
  return std::make_unique<RawFile>(std::move(source), dtype, shape);
}

}  // namespace regard::io
