#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "io/test_support.h"

namespace regard::io {
namespace {

// Files may not grow beyond `bytes` until the end of the scope: writing more fails as on a full device.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = old_limit_.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) ADD_FAILURE() << "no limit";
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_limit_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_limit_ = {};
  void (*old_handler_)(int);
};

TEST(AtomicFileTest, TheFileAppearsWholeAtCommit) {
  const TemporaryFolder folder;
  Spill(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.Write("new ");
    file.Write("text");
    file.WriteAt(0, "N");
    EXPECT_EQ(Slurp(folder / "x"), "old");
    file.Commit();
  }
  EXPECT_EQ(Slurp(folder / "x"), "New text");
  EXPECT_EQ(folder.CountFiles(), 1u);
}

TEST(AtomicFileTest, WithoutCommitNothingHappens) {
  const TemporaryFolder folder;
  Spill(folder / "x", "old");
  {
    AtomicFile existing(folder / "x"), fresh(folder / "y");
    existing.Write("new");
    fresh.Write("new");
  }
  EXPECT_EQ(Slurp(folder / "x"), "old");
  EXPECT_EQ(folder.CountFiles(), 1u);
}

TEST(AtomicFileTest, AFullDeviceLeavesTheOldFile) {
  const TemporaryFolder folder;
  const Tensor small = Patterned(DType::kF32, {1}), tensor = Patterned(DType::kF32, {100, 100});
  const std::vector<OutputArray> arrays = {{.name = "small", .tensor = small}, {.name = "q", .tensor = tensor}};
  for (const char* name : {"x.npz", "x.safetensors", "x.npy"}) {
    Spill(folder / name, "old");
    const FileSizeLimit limit(20000);
    ExpectError(ErrorCode::kIo, folder / name + ": cannot be written at byte 20000: File too large; free some space",
                [&] { name == std::string("x.npy") ? WriteNpy(folder / name, tensor) : Write(folder / name, arrays); });
    EXPECT_EQ(Slurp(folder / name), "old");
  }
  EXPECT_EQ(folder.CountFiles(), 3u);
}

TEST(AtomicFileTest, FoldersAndFilesThatMayNotBeWritten) {
  const TemporaryFolder folder;
  Spill(folder / "kept", "old");
  ASSERT_EQ(chmod((folder / "kept").c_str(), 0444), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  ExpectError(ErrorCode::kIo, "missing/x: cannot be written, its folder takes no new file: No such file or directory",
              [&] { AtomicFile file(folder / "missing/x"); });
  ExpectError(ErrorCode::kIo, "exists and is not a regular file", [&] { AtomicFile file(folder.path()); });
  ExpectError(ErrorCode::kIo, "exists and is not a regular file", [] { AtomicFile file("/dev/null"); });
  const OrdinaryUser user;
  ExpectError(ErrorCode::kIo, "kept: may not be overwritten: Permission denied", [&] { AtomicFile file(folder / "kept"); });
  ExpectError(ErrorCode::kIo, "/x: cannot be written, its folder takes no new file: Permission denied",
              [] { AtomicFile file("/x"); });
}

TEST(AtomicFileTest, LinksAreFollowedAndPermissionsKept) {
  const TemporaryFolder folder;
  Spill(folder / "target", "old");
  ASSERT_EQ(chmod((folder / "target").c_str(), 0640), 0);
  std::filesystem::create_symlink("target", folder / "link");
  AtomicFile file(folder / "link");
  file.Write("new");
  file.Commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(Slurp(folder / "target"), "new");
  struct stat status = {};
  ASSERT_EQ(stat((folder / "target").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  ExpectError(ErrorCode::kIo, "link cannot be followed", [&] { AtomicFile dangling(folder / "dangling"); });
}

}  // namespace
}  // namespace regard::io
