// Where bytes come from: a file read in place, or memory. Files are read with pread rather than mapped, so that a file which
// somebody cuts while it is read is an Error and not a fault of the process, and elements go straight into their tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace regard::io {

/// Bytes of known number at random access.
class ByteSource {
 public:
  ByteSource(std::string name, std::uint64_t size) : name_(std::move(name)), size_(size) {}
  virtual ~ByteSource() = default;

  /// Exactly `count` bytes from `offset`; offset + count ≤ size(). Throws Error kIo.
  virtual void ReadAt(std::uint64_t offset, void* to, std::uint64_t count) const = 0;

  std::uint64_t size() const { return size_; }
  const std::string& name() const { return name_; }  // for messages

 private:
  std::string name_;
  std::uint64_t size_;
};

/// A regular file. Throws Error kIo for what cannot be read and for directories, pipes and devices.
std::unique_ptr<ByteSource> OpenFileSource(const std::string& path);
/// Memory that the caller keeps alive.
std::unique_ptr<ByteSource> MemorySource(std::span<const std::byte> bytes, std::string name);
/// Everything that standard input holds.
std::unique_ptr<ByteSource> StandardInputSource();

/// All bytes of a source.
std::string ReadWhole(const ByteSource& source);

/// Bytes one after the other.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Exactly the next `count` bytes; Error kCorruptFile when they end early.
  virtual void Read(void* to, std::uint64_t count) = 0;
};

/// The bytes of a source from `offset` on.
class SourceStream : public ByteStream {
 public:
  explicit SourceStream(const ByteSource& source, std::uint64_t offset = 0) : source_(source), offset_(offset) {}
  void Read(void* to, std::uint64_t count) override;

 private:
  const ByteSource& source_;
  std::uint64_t offset_;
};

}  // namespace regard::io
