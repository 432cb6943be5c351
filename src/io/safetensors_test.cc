#include "io/safetensors.h"

#include <cmath>
#include <limits>
#include <map>

#include "io/test_support.h"

namespace regard::io {
namespace {

std::string Safetensors(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)).append(header).append(data);
}

constexpr std::string_view kEightBytes("\xDB\x0F\x49\x40\x00\x00\x00\xC0", 8);  // pi and -2 as f32

TEST(SafetensorsTest, HeadersAreRead) {
  const std::string bytes =
      Safetensors(R"( {"b":{"shape":[1],"data_offsets":[4,8],"dtype":"F32"},)"
                  R"("__metadata__":{"a":"1","b\u00e9":""},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  )",
                  kEightBytes);
  ExpectError(ErrorCode::kCorruptFile, "header begins with ' ', expected '{'", [&] { FromString(bytes, "x.safetensors"); });
  const std::string good =
      Safetensors(R"({"b":{"shape":[1],"data_offsets":[4,8],"dtype":"F32"},)"
                  R"("__metadata__":{"a":"1","b\u00e9":""},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  )",
                  kEightBytes);
  const File file = FromString(good, "any name");
  EXPECT_EQ(file.format(), Format::kSafetensors);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"a", "1"}, {"bé", ""}}));
  ASSERT_EQ(file.arrays().size(), 2u);
  EXPECT_EQ(file.arrays()[0].name, "b");
  EXPECT_EQ(file.Read("a")(), 3.14159274f);
  EXPECT_EQ(file.Read("b")(0), -2);
  EXPECT_TRUE(FromString(Safetensors("{}", ""), "x").arrays().empty());
}

TEST(SafetensorsTest, DamagedHeadersAreNamed) {
  struct Case {
    std::string header;
    ErrorCode code;
    const char* text;
  };
  const auto tensor = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string("{\"q\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  const ErrorCode corrupt = ErrorCode::kCorruptFile;
  const std::string q = R"("q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const Case cases[] = {
      {"{", corrupt, "header length 1 is not within 2 and 9"},
      {"{ ", corrupt, "header is not JSON at byte"},
      {"{}x", corrupt, "header is not JSON at byte"},
      {"{\"q\xFF\":{}}", corrupt, "header is not JSON at byte"},
      {"{}", corrupt, "tensors end at byte 0 of 8 bytes of data"},
      {"{\"q\":1}", corrupt, "header key 'q': 1 where {\"dtype\", \"shape\", \"data_offsets\"} belongs"},
      {"{\"q\":[]}", corrupt, "header key 'q': a list where"},
      {"{\"q\":null}", corrupt, "header key 'q': null where"},
      {"{\"q\":{}}", corrupt, "array 'q': needs dtype, shape and two data_offsets"},
      {"{\"__metadata__\":{\"a\":1}," + q + "}", corrupt, "metadata 'a': 1 where a string belongs"},
      {"{\"__metadata__\":{\"a\":{}}," + q + "}", corrupt, "metadata 'a': an object where a string belongs"},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}," + q + "}", corrupt, "key 'a' stands twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}," + q + "}", corrupt, "key '__metadata__' stands twice"},
      {"{" + q + "," + q + "}", corrupt, "key 'q' stands twice"},
      {R"({"q":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", corrupt, "key 'dtype' stands twice"},
      {R"({"q":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", corrupt, "key 'shape' stands twice"},
      {R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", corrupt, "array 'q': header has key 'x'"},
      {R"({"q":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", corrupt, "array 'q': dtype has 7 where a string belongs"},
      {tensor("F32", "\"2\"", "[0,8]"), corrupt, "array 'q': shape has '2' where a list"},
      {tensor("F32", "[-2]", "[0,8]"), corrupt, "array 'q': shape has -2 where whole numbers from 0 up belongs"},
      {tensor("F32", "[2.0]", "[0,8]"), corrupt, "array 'q': shape has 2.0 where whole numbers"},
      {tensor("F32", "[[2]]", "[0,8]"), corrupt, "array 'q': shape has a list where"},
      {tensor("F32", "[true]", "[0,8]"), corrupt, "array 'q': shape has a boolean where"},
      {tensor("F32", "[2]", "[0,8,8]"), corrupt, "needs dtype, shape and two data_offsets"},
      {tensor("F32", "[2]", "[0]"), corrupt, "needs dtype, shape and two data_offsets"},
      {tensor("F32", "[2]", "[8,0]"), corrupt, "data_offsets [8, 0] lie outside of 8 bytes of data"},
      {tensor("F32", "[2]", "[0,9]"), corrupt, "data_offsets [0, 9] lie outside of 8 bytes of data"},
      {tensor("F32", "[2]", "[0,18446744073709551615]"), corrupt, "lie outside of 8 bytes of data"},
      {tensor("F32", "[2]", "[0,18446744073709551616]"), corrupt, "where whole numbers"},
      {tensor("F32", "[3]", "[0,8]"), corrupt, "F32 3 needs 12 bytes, data_offsets [0, 8] hold 8"},
      {tensor("F32", "[4611686018427387904,2]", "[0,8]"), corrupt, "more than 2^63-1 elements"},
      {tensor("F64", "[1152921504606846976]", "[0,8]"), corrupt, "exceed 2^63-1 bytes"},
      {tensor("I8", "[4]", "[4,8]"), corrupt, "begins at byte 4 of the data, the one before ends at 0: a hole"},
      {tensor("I8", "[4]", "[0,4]"), corrupt, "tensors end at byte 4 of 8 bytes of data"},
      {R"({"a":{"dtype":"I8","shape":[6],"data_offsets":[0,6]},"b":{"dtype":"I8","shape":[4],"data_offsets":[4,8]}})", corrupt,
       "array 'b': begins at byte 4 of the data, the one before ends at 6: they overlap"},
      {tensor("C64", "[4611686018427387904,2]", "[0,8]"), corrupt, "more than 2^63-1 elements"},
      {tensor("C64", "[1]", "[0,9]"), corrupt, "data_offsets [0, 9] lie outside of 8 bytes of data"},
      {tensor("C64", "[1]", "[0,4]"), corrupt, "tensors end at byte 4 of 8 bytes of data"},
      {"{\"q\":" + std::string(100000, '{'), corrupt, "header is not JSON"},
      {"{\"q\":" + std::string(100000, '['), corrupt, "header key 'q': a list where"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.header.substr(0, 200));
    const std::string bytes = Safetensors(c.header, kEightBytes);
    ExpectError(c.code, c.text, [&] { FromString(bytes, "x.safetensors"); });
  }
}

TEST(SafetensorsTest, OneUnreadableTensorTakesNothingFromTheOthers) {
  struct Case {
    const char* type_and_shape;
    const char* text;
    Dims shape;
  };
  const Case cases[] = {{R"("dtype":"C64","shape":[])", "array 'z': element type 'C64' is not read; save as", {}},
                        {R"("dtype":"F8_E8M0","shape":[4])", "array 'z': element type 'F8_E8M0' is not read", {4}},
                        {R"("dtype":"f32","shape":[1])", "array 'z': element type 'f32' is not read", {1}},
                        {R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1])", "array 'z': shape has 9 axes, more than 8", {}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.type_and_shape);
    const std::string header = std::string("{\"z\":{") + c.type_and_shape +
                               R"(,"data_offsets":[0,4]},"q":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
    const std::string bytes = Safetensors(header, kEightBytes);
    const File file = FromString(bytes, "x.safetensors");
    ASSERT_TRUE(file.Find("z")->unreadable.has_value());
    EXPECT_EQ(file.Find("z")->shape, c.shape);
    ExpectError(ErrorCode::kUnsupported, c.text, [&] { file.Read("z"); });
    EXPECT_FALSE(file.Find("q")->unreadable.has_value());
    EXPECT_EQ(file.Read("q")(0), -2);
  }
}

TEST(SafetensorsTest, AHeaderBeyondTheFormatsLimitIsNotWritten) {
  const TemporaryFolder folder;
  const Tensor tensor = Tensor::Of<float>({1}, {1});
  const std::string path = folder / "x.safetensors";
  ExpectError(ErrorCode::kUnsupported, path + ": header of 1000000", [&] {
    WriteSafetensors(path, {{.name = "q", .tensor = tensor}}, {{"note", std::string(100'000'000, 'x')}});
  });
  EXPECT_EQ(folder.CountFiles(), 0u);
}

TEST(SafetensorsTest, LengthsAreChecked) {
  const auto of_length = [](std::uint64_t length) { return std::string(reinterpret_cast<const char*>(&length), 8) + "{}"; };
  ExpectError(ErrorCode::kCorruptFile, "has 3 bytes, a safetensors file has 10 or more",
              [] { FromString("abc", "x.safetensors"); });
  for (std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    const std::string bytes = of_length(length);
    ExpectError(ErrorCode::kCorruptFile, "is not within 2 and 2", [&] { FromString(bytes, "x.safetensors"); });
  }
}

TEST(SafetensorsTest, TensorsByNameGoOutAndComeBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "state.safetensors";
  const std::map<std::string, Tensor> state = {{"h.0.w", Tensor::Of<float>({2, 1}, {1.5f, -2})},
                                               {"h.0.n", Tensor::Of<double>({1}, {0.1})}};
  WriteTensors(path, state, {{"step", "7"}});
  const File file = File::Open(path);
  EXPECT_EQ(file.metadata().at("step"), "7");
  EXPECT_EQ(ReadTensors(file).size(), 2u);
  const std::map<std::string, Tensor> part = ReadTensors(file, "h.0.");
  ASSERT_EQ(part.size(), 2u);
  EXPECT_EQ(part.at("w")(1, 0), -2);
  EXPECT_EQ(part.at("n").dtype(), DType::kF64);
  EXPECT_TRUE(ReadTensors(file, "h.1").empty());
}

TEST(SafetensorsTest, WhatIsWrittenIsReadBackBitByBit) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::vector<Tensor> tensors = TensorsOfEveryType();
  std::vector<OutputArray> arrays;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    arrays.push_back({.name = "layers.0/ü\"" + std::to_string(i), .tensor = tensors[i]});
  const TensorView turned = tensors[0].view().Transpose(0, 2);
  arrays.push_back({.name = "turned", .tensor = turned});
  const std::map<std::string, std::string> metadata = {{"tokens", R"(["a","\"b\""])"}, {"", "empty key"}, {"nl", "a\nb"}};
  WriteSafetensors(path, arrays, metadata);
  const File file = File::Open(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.arrays().size(), arrays.size());
  for (const OutputArray& array : arrays) {
    SCOPED_TRACE(array.name);
    ExpectSameBits(file.Read(array.name), array.tensor);
  }
  // Every tensor is aligned to its element size, from the start of the file.
  const std::string bytes = Slurp(path);
  std::uint64_t length = 0;
  bytes.copy(reinterpret_cast<char*>(&length), 8);
  EXPECT_EQ(length % 8, 0u);
  const SafetensorsHeader header = ParseSafetensorsHeader(bytes.substr(8, length), bytes.size() - 8 - length, path);
  for (const SafetensorsEntry& entry : header.entries) EXPECT_EQ(entry.begin % entry.type.ItemBytes(), 0u) << entry.name;
}

TEST(SafetensorsTest, WriterRefusesWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const Tensor tensor = Tensor::Of<float>({1}, {1});
  ExpectError(ErrorCode::kUnsupported, "'tokens' holds strings; put them into the metadata",
              [&] { WriteSafetensors(path, {{.name = "tokens", .strings = {"a"}}}); });
  ExpectError(ErrorCode::kInvalidArgument, "no array can be named __metadata__",
              [&] { WriteSafetensors(path, {{.name = "__metadata__", .tensor = tensor}}); });
  ExpectError(ErrorCode::kInvalidArgument, "metadata 'k' is not UTF-8", [&] {
    WriteSafetensors(path, {{.name = "q", .tensor = tensor}}, {{"k", "\xFF"}});
  });
  EXPECT_EQ(folder.CountFiles(), 0u);
}

TEST(SafetensorsTest, EightBitFloats) {
  EXPECT_EQ(FromE4M3(0x7E), 448);
  EXPECT_EQ(FromE4M3(0x81), -0x1p-9f);
  EXPECT_EQ(FromE4M3(0x38), 1);
  EXPECT_TRUE(std::isnan(FromE4M3(0xFF)));
  EXPECT_EQ(FromE5M2(0x7B), 57344);
  EXPECT_EQ(FromE5M2(0xFC), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(FromE5M2(0x01), 0x1p-16f);
  EXPECT_TRUE(std::isnan(FromE5M2(0x7D)));
}

}  // namespace
}  // namespace regard::io
