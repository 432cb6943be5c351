// The .safetensors format.
//
//     file   = length header data
//     length = bytes of the header, u64 little-endian, at most 100 000 000
//     header = JSON object, first byte "{", trailing blanks allowed:
//                  name: {"dtype": type, "shape": [number…], "data_offsets": [begin, end]}
//                  "__metadata__": {string: string}                                                     may be missing
//     data   = elements of each tensor, C order, little-endian; offsets count from the start of data
//
// Every key once. The tensors fill the data without overlap, without hole and to its end; end − begin is what type and shape say.
//
// Types: F64 F32 F16 BF16, I64 I32 I16 I8, U64 U32 U16 U8, BOOL; F8_E4M3 (no infinities, largest 448) and F8_E5M2 (IEEE-like,
// largest 57344) become f32, in which each of their values is exact. C64 and the formats with shared or odd exponents
// (F8_E8M0, F8_…FNUZ, F6_…, F4) are not read, nor are shapes of more than kMaxRank axes: such tensors are listed as unreadable.
//
// The writer puts the metadata first, then tensors by falling element size in the order given, and pads the header with blanks so
// that every tensor is aligned to its element size, as the format's own writer does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/byte_source.h"
#include "io/file_impl.h"
#include "regard/error.h"

namespace regard::io {

/// How elements are stored. `f8` tells the 8-bit floats, whose dtype is the f32 that they become.
struct SafetensorsType {
  enum class F8 : std::uint8_t { kNone, kE4M3, kE5M2 };
  DType dtype = DType::kF32;
  F8 f8 = F8::kNone;

  std::uint64_t ItemBytes() const { return f8 == F8::kNone ? ItemSize(dtype) : 1; }
};

struct SafetensorsEntry {
  std::string name;
  SafetensorsType type = {};
  Dims shape = {};
  std::uint64_t begin = 0, end = 0;      // from the start of the data
  std::optional<Error> unreadable = {};  // then type means nothing
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the header
  std::map<std::string, std::string> metadata;
};

/// Parses a header and checks that its tensors fill `data_bytes` bytes exactly.
SafetensorsHeader ParseSafetensorsHeader(std::string_view json, std::uint64_t data_bytes, const std::string& path);

/// The value of an 8-bit float.
float FromE4M3(std::uint8_t bits);
float FromE5M2(std::uint8_t bits);

/// Whether a file that begins with these 9 bytes and has `size` bytes in all can be one.
bool LooksLikeSafetensors(std::string_view first_bytes, std::uint64_t size);

std::unique_ptr<File::Impl> OpenSafetensors(std::unique_ptr<ByteSource> source);

}  // namespace regard::io
