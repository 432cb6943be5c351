// Files by the formats' own writers, and damaged ones: testdata/io/README.md says how they were made.
#include <cmath>
#include <cstring>
#include <map>

#include "io/test_support.h"

namespace regard::io {
namespace {

const Dims kShape = {2, 3, 5};
const std::vector<std::string> kStrings = {"Your", "journey", "", "naïve", "東京", "🙂 a"};

TEST(GoldenTest, EveryNumericTypeByteOrderAndElementOrder) {
  const std::map<std::string, DType> types = {{"f2", DType::kF16}, {"f4", DType::kF32}, {"f8", DType::kF64}, {"i1", DType::kI8},
                                              {"i2", DType::kI16}, {"i4", DType::kI32}, {"i8", DType::kI64}, {"u1", DType::kU8},
                                              {"u2", DType::kU16}, {"u4", DType::kU32}, {"u8", DType::kU64}, {"b1", DType::kBool},
                                              {"V2", DType::kBF16}};
  for (const char* name : {"numbers.npz", "numbers_deflated.npz"}) {
    const File file = File::Open(kGoldens + name);
    EXPECT_EQ(file.format(), Format::kNpz);
    ASSERT_EQ(file.arrays().size(), 44u);
    for (const ArrayInfo& array : file.arrays()) {
      SCOPED_TRACE(std::string(name) + " " + array.name);
      EXPECT_EQ(array.dtype, types.at(array.name.substr(0, 2)));
      EXPECT_EQ(array.shape, kShape);
      const Tensor tensor = file.Read(array.name);
      EXPECT_EQ(tensor.dtype(), array.dtype);
      EXPECT_EQ(tensor.shape(), array.shape);
      ExpectGoldenValues(tensor);
    }
  }
}

TEST(GoldenTest, NpyVersionsOrdersAndRanks) {
  struct Case {
    const char* name;
    DType dtype;
    Dims shape;
  };
  const Case cases[] = {{"f4_version1.npy", DType::kF32, kShape}, {"f4_version2.npy", DType::kF32, kShape},
                        {"f4_version3.npy", DType::kF32, kShape}, {"f4_fortran.npy", DType::kF32, kShape},
                        {"f8_big.npy", DType::kF64, kShape},      {"f4_rank1.npy", DType::kF32, {7}},
                        {"f4_empty.npy", DType::kF32, {3, 0, 2}}, {"bfloat16.npy", DType::kBF16, kShape}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const File file = File::Open(kGoldens + c.name);
    EXPECT_EQ(file.format(), Format::kNpy);
    const Tensor tensor = file.Read("");
    EXPECT_EQ(tensor.dtype(), c.dtype);
    EXPECT_EQ(tensor.shape(), c.shape);
    ExpectGoldenValues(tensor);
  }
  EXPECT_EQ(File::Open(kGoldens + "f4_scalar.npy").Read("")(), -4.5);
}

TEST(GoldenTest, Strings) {
  for (const char* name : {"strings.npy", "strings_big_fortran.npy", "strings_utf8.npy"}) {
    SCOPED_TRACE(name);
    const File file = File::Open(kGoldens + name);
    EXPECT_TRUE(file.arrays()[0].is_strings);
    const StringArray strings = file.ReadStrings("");
    EXPECT_EQ(strings.shape, Dims({2, 3}));
    EXPECT_EQ(strings.values, kStrings);
    ExpectError(ErrorCode::kInvalidArgument, "holds strings where numbers are expected", [&] { file.Read(""); });
  }
  const File tokens = File::Open(kGoldens + "tokens_deflated.npz");
  EXPECT_EQ(tokens.ReadStrings("tokens").values, kStrings);
  EXPECT_EQ(tokens.Read("scale")(), -0.375);
  ExpectError(ErrorCode::kInvalidArgument, "holds numbers where strings are expected", [&] { tokens.ReadStrings("q"); });
  ExpectError(ErrorCode::kInvalidArgument, "no array is named 'k'; it holds 'q', 'tokens', 'scale'", [&] { tokens.Read("k"); });
}

TEST(GoldenTest, SafetensorsOfEveryType) {
  const File file = File::Open(kGoldens + "types.safetensors");
  EXPECT_EQ(file.format(), Format::kSafetensors);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"tokens", R"(["Your", "東京"])"}}));
  ASSERT_EQ(file.arrays().size(), 15u);
  const std::map<std::string, DType> types = {{"float64", DType::kF64},   {"float32", DType::kF32}, {"float16", DType::kF16},
                                              {"bfloat16", DType::kBF16}, {"int64", DType::kI64},   {"int32", DType::kI32},
                                              {"int16", DType::kI16},     {"int8", DType::kI8},     {"uint64", DType::kU64},
                                              {"uint32", DType::kU32},    {"uint16", DType::kU16},  {"uint8", DType::kU8},
                                              {"bool", DType::kBool}};
  for (const auto& [name, dtype] : types) {
    SCOPED_TRACE(name);
    const Tensor tensor = file.Read(name);
    EXPECT_EQ(tensor.dtype(), dtype);
    EXPECT_EQ(tensor.shape(), kShape);
    ExpectGoldenValues(tensor);
  }
  EXPECT_EQ(file.Read("scalar")(), -4.5);
  EXPECT_EQ(file.Read("empty").shape(), Dims({4, 0}));
}

TEST(GoldenTest, EveryEightBitFloatExactly) {
  const File codes = File::Open(kGoldens + "f8.safetensors");
  const File expected = File::Open(kGoldens + "f8_as_f4.npz");
  for (const char* name : {"e4m3", "e5m2"}) {
    const Tensor actual = codes.Read(name), values = expected.Read(name);
    ASSERT_EQ(actual.shape(), Dims({256}));
    for (int i = 0; i < 256; ++i) {
      const float a = actual.As<float>()[i], b = values.As<float>()[i];
      EXPECT_TRUE(std::isnan(a) ? std::isnan(b) : std::memcmp(&a, &b, sizeof(a)) == 0)
          << name << " " << i << ": " << a << " " << b;
    }
  }
}

TEST(GoldenTest, WritersGiveTheBytesOfTheFormatsOwn) {
  const TemporaryFolder folder;
  for (const char* name : {"f4_version1.npy", "f4_scalar.npy", "f4_empty.npy", "f4_rank1.npy", "bfloat16.npy"}) {
    WriteNpy(folder / name, File::Open(kGoldens + name).Read(""));
    EXPECT_EQ(Slurp(folder / name), Slurp(kGoldens + name)) << name;
  }
  const File types = File::Open(kGoldens + "types.safetensors");
  std::vector<Tensor> tensors;
  for (const ArrayInfo& array : types.arrays()) tensors.push_back(types.Read(array.name));
  std::vector<OutputArray> arrays;
  for (std::size_t i = 0; i < tensors.size(); ++i) arrays.push_back({.name = types.arrays()[i].name, .tensor = tensors[i]});
  WriteSafetensors(folder / "types.safetensors", arrays, types.metadata());
  EXPECT_EQ(Slurp(folder / "types.safetensors"), Slurp(kGoldens + "types.safetensors"));
}

TEST(GoldenTest, OneUnreadableMemberTakesNothingFromTheOthers) {
  const File file = File::Open(kGoldens + "some_unreadable.npz");
  const std::map<std::string, const char*> unreadable = {
      {"objects", "array 'objects': holds pickled Python objects; save numbers"},
      {"records", "array 'records': holds records with named fields; save each field"},
      {"complex", "array 'complex': element type '<c16' is not read; save as"},
      {"readme.txt", "array 'readme.txt': does not begin like an npy file"},
      {"cut", "array 'cut': shape 2×3×5 of 4-byte elements needs 120 bytes, 119 follow the header"},
      {"packed", "array 'packed': is packed by zip method 14; store it or deflate it"}};
  ASSERT_EQ(file.arrays().size(), unreadable.size() + 3);
  for (const ArrayInfo& array : file.arrays()) {
    SCOPED_TRACE(array.name);
    const auto reason = unreadable.find(array.name);
    ASSERT_EQ(array.unreadable.has_value(), reason != unreadable.end());
    if (!array.unreadable) continue;
    ExpectError(array.unreadable->code(), reason->second, [&] { file.Read(array.name); });
    ExpectError(array.unreadable->code(), file.path() + ": array", [&] { file.ReadStrings(array.name); });
  }
  ExpectGoldenValues(file.Read("q"));
  ExpectGoldenValues(file.Read("k"));
  EXPECT_EQ(file.ReadStrings("tokens").values, kStrings);
}

TEST(GoldenTest, DamagedFilesAreNamed) {
  struct Case {
    const char* name;
    ErrorCode code;
    const char* text;
  };
  const Case cases[] = {
      {"beyond_file.npz", ErrorCode::kCorruptFile,
       "array 'q': states 1073741824 bytes, packed into 1073741824, in an archive of 356"},
      {"bzip2.npz", ErrorCode::kUnsupported, "is packed by zip method 12"},
      {"deflate_bomb.npz", ErrorCode::kCorruptFile, "states 4026531840 bytes, packed into"},
      {"deflate_ends_early.npz", ErrorCode::kCorruptFile, "ends 4096 bytes early"},
      {"deflate_size_lies.npz", ErrorCode::kCorruptFile,
       "shape 2×3×5 of 4-byte elements needs 120 bytes, 4872 follow the header"},
      {"duplicate_names.npz", ErrorCode::kCorruptFile, "two arrays are named 'q'"},
      {"duplicate_without_suffix.npz", ErrorCode::kCorruptFile, "two arrays are named 'q'"},
      {"encrypted.npz", ErrorCode::kUnsupported, "array 'q': is encrypted"},
      {"not_npy.npz", ErrorCode::kCorruptFile, "array 'readme.txt': has 8 bytes, an npy header needs 10"},
      {"pytorch.npz", ErrorCode::kUnsupported, "is a PyTorch checkpoint; convert it with safetensors.torch.save_file"},
      {"stored_size_lies.npz", ErrorCode::kCorruptFile, "states 5000 bytes, packed into 248"},
      {"trillion_members.npz", ErrorCode::kCorruptFile, "no readable zip archive"},
      {"wrong_checksum.npz", ErrorCode::kCorruptFile, "array 'q': CRC error"},
      {"complex.npy", ErrorCode::kUnsupported, "element type '<c16' is not read"},
      {"float8.npy", ErrorCode::kUnsupported, "element type '<V1' is not read"},
      {"latin1.npy", ErrorCode::kUnsupported, "string '\\xe9' is not UTF-8"},
      {"objects.npy", ErrorCode::kUnsupported, "holds pickled Python objects"},
      {"records.npy", ErrorCode::kUnsupported, "holds records with named fields"},
  };
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens + "damaged")) files += entry.is_regular_file();
  EXPECT_EQ(files, std::size(cases)) << "every damaged file has its line here";
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string path = kGoldens + "damaged/" + c.name;
    ExpectError(c.code, c.text, [&] { ReadEverything(File::Open(path)); });
    ExpectError(c.code, path + ": ", [&] { ReadEverything(File::Open(path)); });
  }
}

}  // namespace
}  // namespace regard::io
