#include "io/npy.h"

#include "io/test_support.h"

namespace regard::io {
namespace {

// A version 1 file with this header and these elements.
std::string Npy(std::string_view header, std::string_view elements, int version = 1) {
  std::string bytes(kNpyMagic);
  bytes += {static_cast<char>(version), '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  if (version > 1) bytes += {'\0', '\0'};
  return bytes.append(header).append(elements);
}

// Two f4 of bytes 0x40490FDB (pi) and 0xC0000000 (-2).
constexpr std::string_view kTwoFloats("\xDB\x0F\x49\x40\x00\x00\x00\xC0", 8);

TEST(NpyTest, HeadersThatPythonReadsAreRead) {
  const char* const headers[] = {
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }  \n",
      "{\"descr\": \"<f4\", \"fortran_order\": True, \"shape\": (2,)}",
      "{'shape':(2,),'descr':'<f4','fortran_order':False}",
      "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 1)}",
      "{'descr': 'f4', 'fortran_order': False, 'shape': (1, 2,)}",
      "{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2L , ) }\n",
  };
  for (const char* header : headers) {
    for (int version : {1, 2, 3}) {
      SCOPED_TRACE(header);
      const std::string bytes = Npy(header, kTwoFloats, version);
      const Tensor tensor = FromString(bytes, "x.npy").Read("");
      EXPECT_EQ(tensor.num_elements(), 2);
      EXPECT_EQ(tensor.As<float>()[0], 3.14159274f);
      EXPECT_EQ(tensor.As<float>()[1], -2.0f);
    }
  }
}

TEST(NpyTest, BytesOfBoolsOtherThanOneAreTrue) {
  const std::string bytes =
      Npy("{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}", std::string_view("\x00\x01\x02\xFF", 4));
  const Tensor tensor = FromString(bytes, "x.npy").Read("");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(tensor.As<bool>()[i], i > 0);
}

TEST(NpyTest, DamagedHeadersAreNamed) {
  struct Case {
    const char* header;
    ErrorCode code;
    const char* text;
  };
  const std::string deep(2000, '(');
  const Case cases[] = {
      {"", ErrorCode::kCorruptFile, "npy header has its end at byte 0, expected '{'"},
      {"['descr']", ErrorCode::kCorruptFile, "npy header has '['descr']' at byte 0, expected '{'"},
      {"{}", ErrorCode::kCorruptFile, "npy header has no 'descr'"},
      {"{'descr': '<f4', 'fortran_order': False}", ErrorCode::kCorruptFile, "npy header has no 'shape'"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", ErrorCode::kCorruptFile,
       "at byte 17, expected 'descr'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", ErrorCode::kCorruptFile, "each once"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", ErrorCode::kCorruptFile, "expected True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", ErrorCode::kCorruptFile,
       "expected ',' after a single dimension"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", ErrorCode::kCorruptFile, "expected '('"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", ErrorCode::kCorruptFile, "expected a dimension (0 or more)"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", ErrorCode::kCorruptFile, "'.0,)}' at byte 52, expected ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", ErrorCode::kCorruptFile,
       "a dimension below 2^64"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", ErrorCode::kCorruptFile, "nothing but blanks"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", ErrorCode::kCorruptFile, "its end at byte 54, expected '}'"},
      {"{'descr': '<f4", ErrorCode::kCorruptFile, "a string that ends"},
      {"{'descr': '\\x3cf4'}", ErrorCode::kCorruptFile, "a string without backslashes"},
      {"{'descr': '', 'fortran_order': False, 'shape': (2,)}", ErrorCode::kUnsupported, "element type '' is not read"},
      {"{'descr': '<f', 'fortran_order': False, 'shape': (2,)}", ErrorCode::kUnsupported, "element type '<f' is not read"},
      {"{'descr': '<f4x', 'fortran_order': False, 'shape': (2,)}", ErrorCode::kUnsupported, "element type '<f4x' is not read"},
      {"{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}", ErrorCode::kUnsupported, "element type '<f16' is not read"},
      {"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (1,)}", ErrorCode::kUnsupported,
       "element type '<M8[ns]' is not read"},
      {"{'descr': '|V3', 'fortran_order': False, 'shape': (2,)}", ErrorCode::kUnsupported, "element type '|V3' is not read"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", ErrorCode::kUnsupported, "pickled Python objects"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", ErrorCode::kUnsupported, "records with named fields"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", ErrorCode::kCorruptFile,
       "shape 3 of 4-byte elements needs 12 bytes, 8 follow the header; the file was cut short"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", ErrorCode::kCorruptFile,
       "shape 1 of 4-byte elements needs 4 bytes, 8 follow the header; store one array a file"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,)}", ErrorCode::kCorruptFile,
       "needs 4611686018427387904 bytes, 8 follow the header"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}", ErrorCode::kCorruptFile,
       "exceed 2^63-1 bytes"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", ErrorCode::kCorruptFile,
       "more than 2^63-1 elements"},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (0, 4294967296, 4294967296)}", ErrorCode::kCorruptFile,
       "more than 2^63-1 elements"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", ErrorCode::kUnsupported,
       "shape has 9 axes, more than 8"},
      {"{'descr': '<U0', 'fortran_order': False, 'shape': (1152921504606846976,)}", ErrorCode::kUnsupported,
       "strings of length 0"},
      {"{'descr': '<U4611686018427387904', 'fortran_order': False, 'shape': (1,)}", ErrorCode::kCorruptFile,
       "characters cannot be"},
      {"{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}", ErrorCode::kCorruptFile,
       "0x40490fdb in a string is no Unicode character"},
      {deep.c_str(), ErrorCode::kCorruptFile, "expected '{'"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.header);
    ExpectError(c.code, c.text, [&] { ReadEverything(FromString(Npy(c.header, kTwoFloats), "x.npy")); });
  }
}

TEST(NpyTest, EmptyArraysOfHugeItemsTakeNoMemory) {
  const std::string bytes = Npy("{'descr': '<U1152921504606846975', 'fortran_order': False, 'shape': (0,)}", "");
  EXPECT_TRUE(FromString(bytes, "x.npy").ReadStrings("").values.empty());
}

TEST(NpyTest, PreamblesAreChecked) {
  ExpectError(ErrorCode::kUnsupported, "npy version 4.0 is not known", [] { FromString(Npy("{}", "", 4), "x"); });
  ExpectError(ErrorCode::kUnsupported, "npy version 0.0 is not known", [] { FromString(Npy("{}", "", 0), "x"); });
  const std::string long_header("\x93NUMPY\x02\x00\x00\x00\x20\x00", 12);
  ExpectError(ErrorCode::kCorruptFile, "has 12 bytes, an npy header needs 2097164", [&] { FromString(long_header, "x"); });
  ExpectError(ErrorCode::kCorruptFile, "npy header of 2097152 bytes is longer than 1048576",
              [&] { FromString(long_header + std::string(2097152, ' '), "x"); });
}

TEST(NpyTest, WhatIsWrittenIsReadBackBitByBit) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  for (DType dtype : kAllDTypes) {
    for (const Dims& shape : {Dims{}, Dims{1}, Dims{0}, Dims{7}, Dims{3, 0, 5}, Dims{2, 3, 5}, Dims{1, 2, 1, 3, 1, 2, 1, 3}}) {
      SCOPED_TRACE(std::string(Name(dtype)) + " " + ToString(shape));
      const Tensor tensor = Patterned(dtype, shape);
      WriteNpy(path, tensor);
      ExpectSameBits(File::Open(path).Read(""), tensor);
    }
    const Tensor tensor = Patterned(dtype, {3, 4, 5});
    WriteNpy(path, tensor.view().Transpose(0, 2).Slice(1, 1, 3));
    ExpectSameBits(File::Open(path).Read(""), tensor.view().Transpose(0, 2).Slice(1, 1, 3));
  }
  EXPECT_EQ(folder.CountFiles(), 1u);
}

TEST(NpyTest, FortranOrderBeyondOneChunk) {
  // 3 × 100003 doubles are more than the megabyte that is reordered at a time, and no multiple of it.
  const Dims shape = {3, 100003};
  std::string elements(static_cast<std::size_t>(NumElements(shape)) * 8, '\0');
  auto* values = reinterpret_cast<double*>(elements.data());
  for (std::int64_t j = 0; j < shape[1]; ++j) {
    for (std::int64_t i = 0; i < shape[0]; ++i) *values++ = static_cast<double>(i * 1000000 - j);
  }
  const std::string bytes = Npy("{'descr': '<f8', 'fortran_order': True, 'shape': (3, 100003)}", elements);
  const Tensor tensor = FromString(bytes, "x.npy").Read("");
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      ASSERT_EQ(tensor.As<double>()[i * shape[1] + j], static_cast<double>(i * 1000000 - j)) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace regard::io
