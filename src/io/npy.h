// NumPy's .npy format.
//
//     file    = magic version length header elements
//     magic   = 93 'N' 'U' 'M' 'P' 'Y'
//     version = 01 00 | 02 00 | 03 00
//     length  = bytes of the header: u16 in version 1, u32 in 2 and 3, little-endian
//     header  = "{" entry { "," entry } [","] "}" { blank | newline }    Latin-1; UTF-8 in version 3
//     entry   = "'descr'" ":" type  |  "'fortran_order'" ":" ("True" | "False")  |  "'shape'" ":" dims      each exactly once
//     type    = "'" [ "<" | ">" | "=" | "|" ] kind digits "'"
//     dims    = "(" [ number { "," number } [","] ] ")"                  a number may end in "L", as Python 2 wrote it
//     elements  the product of dims many, and nothing after them
//
// Kinds: f2 f4 f8, i1 i2 i4 i8, u1 u2 u4 u8, b1 (bool), S<n> (n bytes, padded with NUL), U<n> (n UTF-32 characters, padded with NUL).
// V2 is two bytes without a meaning. NumPy writes arrays of ml_dtypes.bfloat16 so, and nothing else that holds numbers; V2 is
// therefore read as bf16 and bf16 is written as "<V2". V1 is not read: it is either of two 8-bit float types.
// Blanks may stand between any two symbols, and strings may be in single or double quotes.
//
// The writer aligns the elements at 64 bytes and gives the bytes that NumPy gives (version 1, C order).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/byte_source.h"
#include "io/elements.h"
#include "io/file_impl.h"
#include "regard/io.h"

namespace regard::io {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct NpyHeader {
  enum class Kind : std::uint8_t { kNumbers, kBytes, kUtf32 };
  Kind kind = Kind::kNumbers;
  DType dtype = DType::kF32;  // of numbers
  ByteOrder byte_order = ByteOrder::kLittle;
  ElementOrder element_order = ElementOrder::kC;
  Dims shape;
  std::uint64_t item_size = 0;     // bytes an element
  std::uint64_t header_bytes = 0;  // from the start to the first element

  ArrayInfo Info(std::string name) const;
};

/// Reads the header at the start of `stream` and checks that it describes exactly `size` bytes, itself included.
NpyHeader ReadNpyHeader(ByteStream& stream, std::uint64_t size, std::string_view where);

/// The elements that follow the header. ReadNpyNumbers for Kind::kNumbers, else ReadNpyStrings.
Tensor ReadNpyNumbers(ByteStream& stream, const NpyHeader& header);
StringArray ReadNpyStrings(ByteStream& stream, const NpyHeader& header, std::string_view where);

std::unique_ptr<File::Impl> OpenNpy(std::unique_ptr<ByteSource> source);

/// The bytes before the elements of a C-order array.
std::string NpyHeaderBytes(DType dtype, const Dims& shape);
/// The same for `count` strings of at most `characters` characters each.
std::string NpyStringHeaderBytes(std::size_t characters, std::int64_t count);
/// A whole .npy file that holds `strings` [n] as U. Throws kInvalidArgument for what is not UTF-8.
std::string NpyStringBytes(const std::vector<std::string>& strings, std::string_view where);

}  // namespace regard::io
