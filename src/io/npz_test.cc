#include "io/npz.h"

#include <cstdlib>

#include "io/test_support.h"

namespace regard::io {
namespace {

TEST(NpzTest, WhatIsWrittenIsReadBackBitByBit) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npz";
  const std::vector<Tensor> tensors = TensorsOfEveryType();
  std::vector<OutputArray> arrays;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    arrays.push_back({.name = "layers.0/ü" + std::to_string(i), .tensor = tensors[i]});
  arrays.push_back({.name = "turned", .tensor = tensors[0].view().Transpose(0, 2)});
  arrays.push_back({.name = "tokens", .strings = {"naïve", "", "🙂 a"}});
  WriteNpz(path, arrays);
  const File file = File::Open(path);
  ASSERT_EQ(file.arrays().size(), arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    SCOPED_TRACE(arrays[i].name);
    EXPECT_EQ(file.arrays()[i].name, arrays[i].name);
    if (arrays[i].tensor) ExpectSameBits(file.Read(arrays[i].name), arrays[i].tensor);
  }
  const StringArray tokens = file.ReadStrings("tokens");
  EXPECT_EQ(tokens.shape, Dims({3}));
  EXPECT_EQ(tokens.values, arrays.back().strings);
  EXPECT_EQ(folder.CountFiles(), 1u);
}

TEST(NpzTest, EmptyArchive) {
  const TemporaryFolder folder;
  WriteNpz(folder / "x.npz", {});
  EXPECT_TRUE(File::Open(folder / "x.npz").arrays().empty());
  WriteNpz(folder / "y.npz", {{.name = "tokens", .strings = {}}});
  EXPECT_TRUE(File::Open(folder / "y.npz").ReadStrings("tokens").values.empty());
}

TEST(NpzTest, EqualArraysGiveEqualBytesInAnyTimeZone) {
  const TemporaryFolder folder;
  const Tensor tensor = Patterned(DType::kF32, {4, 5});
  const char* const old_zone = std::getenv("TZ");
  const std::string saved = old_zone != nullptr ? old_zone : "";
  std::string first;
  for (const char* zone : {"UTC", "America/New_York", "Asia/Kathmandu"}) {
    setenv("TZ", zone, 1);
    tzset();
    WriteNpz(folder / "x.npz", {{.name = "q", .tensor = tensor}, {.name = "tokens", .strings = {"a"}}});
    if (first.empty()) first = Slurp(folder / "x.npz");
    EXPECT_EQ(Slurp(folder / "x.npz"), first) << zone;
  }
  old_zone != nullptr ? setenv("TZ", saved.c_str(), 1) : unsetenv("TZ");
  tzset();
}

TEST(NpzTest, ReadsInAnyOrderAndRepeatedly) {
  const File file = File::Open(kGoldens + "tokens_deflated.npz");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(file.Read("scale")(), -0.375);
    ExpectGoldenValues(file.Read("q"));
    EXPECT_EQ(file.ReadStrings("tokens").values[1], "journey");
  }
  File moved = File::Open(kGoldens + "numbers.npz");
  moved = File::Open(kGoldens + "tokens_deflated.npz");
  ExpectGoldenValues(moved.Read("q"));
}

TEST(NpzTest, WriterRefusesBadNamesAndTexts) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npz";
  const Tensor tensor = Tensor::Of<float>({1}, {1});
  const auto write = [&](std::vector<OutputArray> arrays) { return [&path, arrays] { WriteNpz(path, arrays); }; };
  ExpectError(ErrorCode::kInvalidArgument, "name '' of an array", write({{.name = "", .tensor = tensor}}));
  ExpectError(ErrorCode::kInvalidArgument, "name 'a\\x00b' of an array",
              write({{.name = std::string("a\0b", 3), .tensor = tensor}}));
  ExpectError(ErrorCode::kInvalidArgument, "name '\\xff' of an array", write({{.name = "\xFF", .tensor = tensor}}));
  ExpectError(ErrorCode::kInvalidArgument, "two arrays are named 'q'",
              write({{.name = "q", .tensor = tensor}, {.name = "q", .tensor = tensor}}));
  ExpectError(ErrorCode::kInvalidArgument, "string 1 '\\xc3' is not UTF-8",
              write({{.name = "tokens", .strings = {"a", "\xC3"}}}));
  EXPECT_EQ(folder.CountFiles(), 0u);
}

}  // namespace
}  // namespace regard::io
