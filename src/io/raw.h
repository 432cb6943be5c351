// Raw elements, little-endian, C order, whose type and shape the caller states:
//
//     specification = path ":" type ":" dims        layer3.bin:f32:1x12x128x64
//     type          = f64 | f32 | f16 | bf16 | i64 | i32 | i16 | i8 | u64 | u32 | u16 | u8 | bool
//     dims          = number { "x" number }
//
// The file holds exactly the elements.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/byte_source.h"
#include "io/file_impl.h"

namespace regard::io {

struct RawSpecification {
  std::string path;
  DType dtype = DType::kF32;
  Dims shape;
};

/// Nothing if `text` ends neither in ":type…" nor in ":word:dims". Throws kInvalidArgument if the other half is wrong, missing or too large.
std::optional<RawSpecification> ParseRawSpecification(const std::string& text);

std::unique_ptr<File::Impl> OpenRawElements(std::unique_ptr<ByteSource> source, DType dtype, const Dims& shape);

}  // namespace regard::io
