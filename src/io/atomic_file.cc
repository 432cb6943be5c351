#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "io/file_error.h"
#include "regard/io.h"

namespace regard::io {
namespace {

// The file that `path` leads to, links followed. `mode` gets the permissions of an existing one.
std::string Resolve(const std::string& path, bool* exists, mode_t* mode) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) FailIo(path, "cannot be written", errno);
    *exists = false;
    return path;
  }
  std::error_code error;
  const std::string target = std::filesystem::canonical(path, error).string();
  if (error) FailIo(path, "link cannot be followed", error.value());
  if (stat(target.c_str(), &status) != 0) FailIo(path, "cannot be examined", errno);
  if (!S_ISREG(status.st_mode)) {
    Fail(ErrorCode::kIo, path, "exists and is not a regular file, so it cannot be replaced; choose another path");
  }
  // Renaming would get around the protection of a file that may not be written.
  if (faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) FailIo(path, "may not be overwritten", errno);
  *exists = true;
  *mode = status.st_mode & 07777;
  return target;
}

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  bool exists = false;
  mode_t mode = 0;
  target_ = Resolve(path, &exists, &mode);
  static std::atomic<unsigned> counter = 0;
  do {  // the name is free unless an earlier process of the same number left its file
    temporary_ = fmt::format("{}/.regard-{}-{}.tmp", FolderOf(target_), getpid(), counter++);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) FailIo(path_, "cannot be written, its folder takes no new file", errno);
  if (exists && fchmod(descriptor_, mode) != 0) {
    const int error = errno;
    close(descriptor_);
    unlink(temporary_.c_str());
    FailIo(path_, "permissions cannot be kept", error);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Write(std::string_view bytes) { WriteAt(end_, bytes); }

void AtomicFile::WriteAt(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), std::size_t{1} << 30);  // Linux writes at most 2 GiB at a time
    const ssize_t written = pwrite(descriptor_, bytes.data(), wanted, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) FailIo(path_, fmt::format("cannot be written at byte {}", offset), errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
    end_ = std::max(end_, offset);
  }
}

void AtomicFile::Commit() {
  // EINVAL: a file system that has nothing to flush.
  if (fsync(descriptor_) != 0 && errno != EINVAL) FailIo(path_, "cannot be flushed to the device", errno);
  if (close(std::exchange(descriptor_, -1)) != 0) FailIo(path_, "cannot be written", errno);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) FailIo(path_, "cannot be put in its place", errno);
  temporary_.clear();
  // So that the new name survives a power cut. The file is complete either way, hence no error.
  const int folder = open(FolderOf(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
}

}  // namespace regard::io
