#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/byte_source.h"
#include "io/file_impl.h"
#include "io/test_support.h"

namespace regard::io {
namespace {

TEST(FileTest, WhatIsNoReadableFileIsNamed) {
  const TemporaryFolder folder;
  const std::string missing = folder / "missing.npz", pipe = folder / "pipe", secret = folder / "secret.npy",
                    empty = folder / "empty.npz";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Spill(secret, "x");
  Spill(empty, "");
  ASSERT_EQ(chmod(secret.c_str(), 0), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  ExpectError(ErrorCode::kIo, missing + ": cannot be opened: No such file or directory; check the path",
              [&] { File::Open(missing); });
  ExpectError(ErrorCode::kIo, "is a directory, not a file", [&] { File::Open(folder.path()); });
  ExpectError(ErrorCode::kIo, "is a pipe, not a file; give a file, or - to read standard input", [&] { File::Open(pipe); });
  ExpectError(ErrorCode::kIo, "is a device, not a file", [&] { File::Open("/dev/zero"); });
  ExpectError(ErrorCode::kCorruptFile, empty + ": is empty; write it again", [&] { File::Open(empty); });
  ExpectError(ErrorCode::kIo, "cannot be opened: No such file", [&] { File::Open(missing + ":f32:2x3"); });
  const OrdinaryUser user;
  ExpectError(ErrorCode::kIo, "cannot be opened: Permission denied; check the permissions", [&] { File::Open(secret); });
}

TEST(FileTest, FirstBytesSayMoreThanTheEnding) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kGoldens + "numbers.npz", folder / "a.bin");
  std::filesystem::copy_file(kGoldens + "f4_scalar.npy", folder / "b.npz");
  std::filesystem::copy_file(kGoldens + "types.safetensors", folder / "c");
  EXPECT_EQ(File::Open(folder / "a.bin").format(), Format::kNpz);
  EXPECT_EQ(File::Open(folder / "b.npz").format(), Format::kNpy);
  EXPECT_EQ(File::Open(folder / "c").format(), Format::kSafetensors);
  ExpectError(ErrorCode::kCorruptFile, "a.npy: does not begin like an npy file", [] { FromString("1 2 3 4 5 6\n", "a.npy"); });
  ExpectError(ErrorCode::kCorruptFile, "a.npz: no readable zip archive", [] { FromString("1 2 3 4 5 6\n", "a.npz"); });
  ExpectError(ErrorCode::kUnsupported, "a.gguf: gguf is not read; convert it", [] { FromString("GGUF\3\0\0\0", "a.gguf"); });
}

TEST(FileTest, AFileThatIsCutWhileItIsReadIsAnError) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  WriteNpy(path, Patterned(DType::kF32, {64, 64}));
  const File file = File::Open(path);
  ASSERT_EQ(truncate(path.c_str(), 1000), 0);
  ExpectError(ErrorCode::kIo, "had 16512 bytes when opened and now ends at byte 1000", [&] { file.Read(""); });
}

// As a disk does that fails: the system refuses the call, here for the memory that it is to fill.
TEST(FileTest, WhatTheSystemCannotReadIsAnError) {
  const std::unique_ptr<ByteSource> source = OpenFileSource(kGoldens + "numbers.npz");
  ExpectError(ErrorCode::kIo, kGoldens + "numbers.npz: cannot be read at byte 5: Bad address",
              [&] { source->ReadAt(5, nullptr, 1); });
}

TEST(FileTest, AStreamEndsWithItsSource) {
  const std::string bytes = "abc";
  const std::unique_ptr<ByteSource> source = MemorySource(std::as_bytes(std::span(bytes)), "x.bin");
  SourceStream stream(*source, 1);
  char read[3] = {};
  stream.Read(read, 1);
  EXPECT_EQ(read[0], 'b');
  ExpectError(ErrorCode::kCorruptFile, "x.bin: ends at byte 3 where 2 more bytes were expected; the file was cut short",
              [&] { stream.Read(read, 3); });
}

TEST(FileTest, StandardInputIsAnyFormat) {
  const int saved = dup(STDIN_FILENO);
  for (const auto& [path, format] : {std::pair<std::string, Format>{kGoldens + "numbers_deflated.npz", Format::kNpz},
                                     {kGoldens + "f4_version1.npy", Format::kNpy},
                                     {kGoldens + "types.safetensors", Format::kSafetensors},
                                     {"testdata/six_tokens.txt", Format::kText}}) {
    SCOPED_TRACE(path);
    const int descriptor = open(path.c_str(), O_RDONLY);
    ASSERT_GE(descriptor, 0);
    ASSERT_EQ(dup2(descriptor, STDIN_FILENO), STDIN_FILENO);
    close(descriptor);
    const File file = File::Open("-");
    EXPECT_EQ(file.path(), "standard input");
    EXPECT_EQ(file.format(), format);
    ReadEverything(file);
  }
  dup2(saved, STDIN_FILENO);
  close(saved);
}

TEST(FileTest, FindAndNamesOfFormats) {
  const File file = File::Open("testdata/six_tokens.npz");
  ASSERT_NE(file.Find("inputs"), nullptr);
  EXPECT_EQ(file.Find("inputs")->shape, Dims({6, 3}));
  EXPECT_EQ(file.Find("input"), nullptr);
  EXPECT_EQ(Name(Format::kSafetensors), "safetensors");
  EXPECT_EQ(ReadAll("testdata/six_tokens.txt"), Slurp("testdata/six_tokens.txt"));
}

// A format that calls an array one of strings and cannot read them is a defect, and shows as one.
TEST(FileTest, StringsThatNoFormatReadsAreNoEmptyList) {
  struct Numbers : File::Impl {
    Numbers() : Impl("x.bin", Format::kRaw) { Add({.name = "tokens", .is_strings = true}); }
    Tensor ReadTensor(std::size_t) const override { return {}; }
  };
  ExpectError(ErrorCode::kInternal, "x.bin: array 'tokens': is said to hold strings, but raw has no reader of strings",
              [] { Numbers().ReadStrings(0); });
}

TEST(FileTest, WriteGoesByTheEnding) {
  const TemporaryFolder folder;
  const Tensor tensor = Patterned(DType::kF32, {2, 3});
  const std::vector<OutputArray> one = {{.name = "q", .tensor = tensor}};
  const std::vector<OutputArray> two = {{.name = "q", .tensor = tensor}, {.name = "k", .tensor = tensor}};
  Write(folder / "a.npz", two);
  Write(folder / "a.safetensors", two);
  Write(folder / "a.npy", one);
  EXPECT_EQ(File::Open(folder / "a.npz").format(), Format::kNpz);
  EXPECT_EQ(File::Open(folder / "a.safetensors").format(), Format::kSafetensors);
  ExpectSameBits(File::Open(folder / "a.npy").Read(""), tensor);
  ExpectError(ErrorCode::kInvalidArgument, "b.npy: .npy holds one tensor, not 2 arrays", [&] { Write(folder / "b.npy", two); });
  ExpectError(ErrorCode::kInvalidArgument, "ending is not known", [&] { Write(folder / "b.txt", one); });
  ExpectError(ErrorCode::kInvalidArgument, "no tensor to write", [&] { WriteNpy(folder / "b.npy", TensorView()); });
  EXPECT_EQ(folder.CountFiles(), 3u);
}

}  // namespace
}  // namespace regard::io
