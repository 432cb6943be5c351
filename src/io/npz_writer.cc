#include <zip.h>

#include <deque>
#include <exception>

#include "io/file_error.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/output_arrays.h"

namespace regard::io {
namespace {

// An AtomicFile as libzip writes it. An Error in the callback waits in `failure` until libzip has returned.
struct ZipOutput {
  explicit ZipOutput(AtomicFile& file_in) : file(file_in) { zip_error_init(&error); }
  ZipOutput(const ZipOutput&) = delete;
  ZipOutput& operator=(const ZipOutput&) = delete;
  ~ZipOutput() { zip_error_fini(&error); }

  zip_int64_t Write(const void* data, zip_uint64_t count) noexcept {
    try {
      file.WriteAt(position, {static_cast<const char*>(data), count});
      position += count;
      end = std::max(end, position);
      return static_cast<zip_int64_t>(count);
    } catch (...) {
      failure = std::current_exception();
      zip_error_set(&error, ZIP_ER_WRITE, 0);
      return -1;
    }
  }

  static zip_int64_t Callback(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    ZipOutput& output = *static_cast<ZipOutput*>(self);
    switch (command) {
      case ZIP_SOURCE_BEGIN_WRITE:
        output.position = output.end = 0;
        return 0;
      case ZIP_SOURCE_WRITE:
        return output.Write(data, length);
      case ZIP_SOURCE_SEEK_WRITE: {
        const zip_int64_t position = zip_source_seek_compute_offset(output.position, output.end, data, length, &output.error);
        if (position < 0) return -1;
        output.position = static_cast<std::uint64_t>(position);
        return 0;
      }
      case ZIP_SOURCE_TELL_WRITE:
        return static_cast<zip_int64_t>(output.position);
      case ZIP_SOURCE_OPEN:
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_COMMIT_WRITE:
      case ZIP_SOURCE_ROLLBACK_WRITE:
      case ZIP_SOURCE_REMOVE:
      case ZIP_SOURCE_FREE:
        return 0;  // the AtomicFile begins, commits and removes
      case ZIP_SOURCE_READ:
      case ZIP_SOURCE_SEEK:
      case ZIP_SOURCE_TELL:
        return 0;  // nothing was there before
      case ZIP_SOURCE_STAT: {
        auto* const status = static_cast<zip_stat_t*>(data);
        zip_stat_init(status);
        status->size = 0;
        status->valid = ZIP_STAT_SIZE;
        return sizeof(*status);
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&output.error, data, length);
      case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_WRITABLE;
      default:
        zip_error_set(&output.error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  AtomicFile& file;
  std::uint64_t position = 0, end = 0;
  std::exception_ptr failure;
  zip_error_t error;
};

// An archive under construction; what it reads must outlive Close.
class Archive {
 public:
  Archive(const std::string& path, AtomicFile& file) : path_(path), output_(file) {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* const source = zip_source_function_create(&ZipOutput::Callback, &output_, &error);
    if (source != nullptr) archive_ = zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error);
    if (archive_ == nullptr) {
      zip_source_free(source);
      const std::string reason = zip_error_strerror(&error);
      zip_error_fini(&error);
      Fail(ErrorCode::kInternal, path_, "archive cannot be begun: {}", reason);
    }
    zip_error_fini(&error);
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive() {
    if (archive_ != nullptr) zip_discard(archive_);
  }

  // Adds member `name` made of two pieces of memory.
  void Add(const std::string& name, std::string_view head, std::string_view body) {
    const auto fragment = [](std::string_view bytes) {
      return zip_buffer_fragment_t{.data = reinterpret_cast<zip_uint8_t*>(const_cast<char*>(bytes.data())),
                                   .length = bytes.size()};
    };
    const zip_buffer_fragment_t fragments[] = {fragment(head), fragment(body)};
    zip_source_t* const source = zip_source_buffer_fragment_create(fragments, body.empty() ? 1 : 2, 0, zip_get_error(archive_));
    const zip_int64_t index = source != nullptr ? zip_file_add(archive_, name.c_str(), source, ZIP_FL_ENC_UTF_8) : -1;
    if (index < 0) {
      zip_source_free(source);
      FailNow();
    }
    constexpr zip_uint16_t kMidnight = 0, kFirstOfJanuary1980 = 1 << 5 | 1;  // zip's dates count from 1980
    const auto member = static_cast<zip_uint64_t>(index);
    if (zip_set_file_compression(archive_, member, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(archive_, member, kMidnight, kFirstOfJanuary1980, 0) != 0) {
      FailNow();
    }
  }

  // Writes everything.
  void Close() {
    if (zip_close(archive_) != 0) FailNow();
    archive_ = nullptr;
  }

 private:
  [[noreturn]] void FailNow() const {
    if (output_.failure) std::rethrow_exception(output_.failure);
    Fail(ErrorCode::kInternal, path_, "archive cannot be written: {}", zip_error_strerror(zip_get_error(archive_)));
  }

  const std::string& path_;
  ZipOutput output_;
  zip_t* archive_ = nullptr;
};

}  // namespace

void WriteNpz(const std::string& path, const std::vector<OutputArray>& arrays) {
  const OutputArrays checked(path, arrays);
  AtomicFile file(path);
  if (arrays.empty()) {
    file.Write({"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22});  // libzip leaves no file for an archive without members
    file.Commit();
    return;
  }
  std::deque<std::string> heads;  // keeps its elements in place
  Archive archive(path, file);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const OutputArray& array = arrays[i];
    if (array.tensor) {
      heads.push_back(NpyHeaderBytes(array.tensor.dtype(), array.tensor.shape()));
    } else {
      heads.push_back(NpyStringBytes(array.strings, path + ": " + array.name));
    }
    archive.Add(array.name + ".npy", heads.back(), checked.Bytes(i));
  }
  archive.Close();
  file.Commit();
}

}  // namespace regard::io
