#include "io/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_error.h"

namespace regard::io {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

class FileSource : public ByteSource {
 public:
  FileSource(std::string name, std::uint64_t size, Descriptor descriptor)
      : ByteSource(std::move(name), size), descriptor_(std::move(descriptor)) {}

  void ReadAt(std::uint64_t offset, void* to, std::uint64_t count) const override {
    auto* at = static_cast<char*>(to);
    while (count > 0) {
      const std::size_t wanted = std::min<std::uint64_t>(count, std::size_t{1} << 30);  // Linux reads at most 2 GiB at a time
      const ssize_t got = pread(descriptor_.get(), at, wanted, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) FailIo(name(), fmt::format("cannot be read at byte {}", offset), errno);
      if (got == 0) {
        Fail(ErrorCode::kIo, name(), "had {} bytes when opened and now ends at byte {}; try again when nobody writes to it",
             size(), offset);
      }
      at += got;
      offset += static_cast<std::uint64_t>(got);
      count -= static_cast<std::uint64_t>(got);
    }
  }

 private:
  Descriptor descriptor_;
};

class BorrowedSource : public ByteSource {
 public:
  BorrowedSource(std::string name, std::span<const std::byte> bytes) : ByteSource(std::move(name), bytes.size()), bytes_(bytes) {}

  void ReadAt(std::uint64_t offset, void* to, std::uint64_t count) const override {
    if (count > 0) std::memcpy(to, bytes_.data() + offset, count);
  }

 private:
  std::span<const std::byte> bytes_;
};

class OwnedSource : public ByteSource {
 public:
  OwnedSource(std::string name, std::string bytes) : ByteSource(std::move(name), bytes.size()), bytes_(std::move(bytes)) {}

  void ReadAt(std::uint64_t offset, void* to, std::uint64_t count) const override {
    if (count > 0) std::memcpy(to, bytes_.data() + offset, count);
  }

 private:
  std::string bytes_;
};

std::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

std::unique_ptr<ByteSource> OpenFileSource(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait.
  Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) FailIo(path, "cannot be opened", errno);
  struct stat status = {};
  if (fstat(descriptor.get(), &status) != 0) FailIo(path, "cannot be examined", errno);
  if (!S_ISREG(status.st_mode)) {
    Fail(ErrorCode::kIo, path, "is {}, not a file; give a file, or - to read standard input", KindOf(status.st_mode));
  }
  return std::make_unique<FileSource>(path, static_cast<std::uint64_t>(status.st_size), std::move(descriptor));
}

std::unique_ptr<ByteSource> MemorySource(std::span<const std::byte> bytes, std::string name) {
  return std::make_unique<BorrowedSource>(std::move(name), bytes);
}

std::unique_ptr<ByteSource> StandardInputSource() {
  const std::string name = "standard input";
  std::string bytes;
  std::vector<char> buffer(std::size_t{1} << 16);
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) FailIo(name, "cannot be read", errno);
    if (got == 0) break;
    bytes.append(buffer.data(), static_cast<std::size_t>(got));
  }
  if (bytes.empty()) Fail(ErrorCode::kCorruptFile, name, "nothing came; pipe one file into it, and name - once");
  return std::make_unique<OwnedSource>(name, std::move(bytes));
}

std::string ReadWhole(const ByteSource& source) {
  std::string bytes(source.size(), '\0');
  source.ReadAt(0, bytes.data(), source.size());
  return bytes;
}

void SourceStream::Read(void* to, std::uint64_t count) {
  if (count > source_.size() - offset_) {
    Fail(ErrorCode::kCorruptFile, source_.name(), "ends at byte {} where {} more bytes were expected; the file was cut short",
         source_.size(), count - (source_.size() - offset_));
  }
  source_.ReadAt(offset_, to, count);
  offset_ += count;
}

}  // namespace regard::io
