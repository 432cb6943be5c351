#include "io/raw.h"

#include "io/test_support.h"

namespace regard::io {
namespace {

TEST(RawTest, Specifications) {
  const auto s = ParseRawSpecification("a:b/q.bin:bf16:1x12x128x64");
  ASSERT_TRUE(s);
  EXPECT_EQ(s->path, "a:b/q.bin");
  EXPECT_EQ(s->dtype, DType::kBF16);
  EXPECT_EQ(s->shape, Dims({1, 12, 128, 64}));
  for (const char* text : {"q.npz", "q.bin:fp32", "q.bin:fp32:", "q.bin:word:2,3", "a:b/q.npz", ":2", "2x3", ":", "::"}) {
    EXPECT_FALSE(ParseRawSpecification(text)) << text;
  }
  for (const char* dims : {"", "2x", "x2", "2,3", "-2", "2 x 3"}) {
    ExpectError(ErrorCode::kInvalidArgument,
                "q.bin:f32:" + std::string(dims) + ": dims '" + dims + "' are not whole numbers joined by x; write the lengths",
                [&] { ParseRawSpecification("q.bin:f32:" + std::string(dims)); });
  }
  ExpectError(ErrorCode::kInvalidArgument, "q.bin:f32: a type without dims; write the lengths",
              [] { ParseRawSpecification("q.bin:f32"); });
  ExpectError(ErrorCode::kInvalidArgument, "q.bin:fp32:2x3: element type 'fp32' is not known; use f64 f32",
              [] { ParseRawSpecification("q.bin:fp32:2x3"); });
  for (const char* dims : {"99999999999999999999", "4611686018427387904", "1x1x1x1x1x1x1x1x1"}) {
    ExpectError(ErrorCode::kInvalidArgument,
                "dims '" + std::string(dims) + "' are beyond 8 axes or 2^63-1 bytes; write the lengths",
                [&] { ParseRawSpecification("q.bin:f32:" + std::string(dims)); });
  }
}

TEST(RawTest, ElementsOfEveryTypeAreReadAsTheyLie) {
  const TemporaryFolder folder;
  for (DType dtype : kAllDTypes) {
    SCOPED_TRACE(Name(dtype));
    const Tensor tensor = Patterned(dtype, {3, 5});
    Spill(folder / "q.bin", {static_cast<const char*>(tensor.view().data()), 15 * ItemSize(dtype)});
    const File file = File::Open(folder / "q.bin" + ":" + std::string(Name(dtype)) + ":3x5");
    EXPECT_EQ(file.format(), Format::kRaw);
    ExpectSameBits(file.Read(""), tensor);
  }
}

TEST(RawTest, TheSizeMustMatch) {
  const TemporaryFolder folder;
  const std::string path = folder / "q.bin";
  Spill(path, std::string(23, 'x'));
  ExpectError(ErrorCode::kCorruptFile, path + ": has 23 bytes, f32 2×3 needs 24; check type and shape",
              [&] { File::Open(path + ":f32:2x3"); });
  ExpectError(ErrorCode::kCorruptFile, "has 23 bytes, u8 22 needs 22", [&] { File::OpenRaw(path, DType::kU8, {22}); });
  ExpectError(ErrorCode::kInvalidArgument, "are beyond 8 axes or 2^63-1 bytes",
              [&] { File::Open(path + ":f64:4611686018427387904"); });
  EXPECT_EQ(File::OpenRaw(path, DType::kU8, {23}).Read("")(22), 'x');
  Spill(path, "");
  EXPECT_EQ(File::OpenRaw(path, DType::kF32, {0, 4}).Read("").shape(), Dims({0, 4}));
}

}  // namespace
}  // namespace regard::io
