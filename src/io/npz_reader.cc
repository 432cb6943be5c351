#include <zip.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "io/file_error.h"
#include "io/npy.h"
#include "io/npz.h"

namespace regard::io {
namespace {

constexpr std::string_view kSuffix = ".npy";

// A ByteSource as libzip reads it. An Error in the callback waits in `failure` until libzip has returned.
struct ZipInput {
  explicit ZipInput(const ByteSource& source_in) : source(source_in) { zip_error_init(&error); }
  ZipInput(const ZipInput&) = delete;
  ZipInput& operator=(const ZipInput&) = delete;
  ~ZipInput() { zip_error_fini(&error); }

  zip_int64_t Read(void* to, zip_uint64_t count) noexcept {
    try {
      const std::uint64_t n = std::min<std::uint64_t>(count, source.size() - position);
      source.ReadAt(position, to, n);
      position += n;
      return static_cast<zip_int64_t>(n);
    } catch (...) {
      failure = std::current_exception();
      zip_error_set(&error, ZIP_ER_READ, 0);
      return -1;
    }
  }

  static zip_int64_t Callback(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    ZipInput& input = *static_cast<ZipInput*>(self);
    switch (command) {
      case ZIP_SOURCE_OPEN:
        input.position = 0;
        return 0;
      case ZIP_SOURCE_READ:
        return input.Read(data, length);
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE:
        return 0;
      case ZIP_SOURCE_STAT: {
        auto* const status = static_cast<zip_stat_t*>(data);
        zip_stat_init(status);
        status->size = input.source.size();
        status->valid = ZIP_STAT_SIZE;
        return sizeof(*status);
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&input.error, data, length);
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t position =
            zip_source_seek_compute_offset(input.position, input.source.size(), data, length, &input.error);
        if (position < 0) return -1;
        input.position = static_cast<std::uint64_t>(position);
        return 0;
      }
      case ZIP_SOURCE_TELL:
        return static_cast<zip_int64_t>(input.position);
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT,
                                              ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL,
                                              ZIP_SOURCE_SUPPORTS, -1);
      default:
        zip_error_set(&input.error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  const ByteSource& source;
  std::uint64_t position = 0;
  std::exception_ptr failure;
  zip_error_t error;
};

[[noreturn]] void FailZip(const ZipInput& input, std::string_view where, zip_error_t* error, std::string_view next_step) {
  if (input.failure) std::rethrow_exception(input.failure);
  const int code = zip_error_code_zip(error);
  if (code == ZIP_ER_MEMORY) Fail(ErrorCode::kOutOfMemory, where, "no memory left to read the archive; free some");
  Fail(ErrorCode::kCorruptFile, where, "{}; {}", zip_error_strerror(error), next_step);
}

// One member's bytes, unpacked.
class MemberStream : public ByteStream {
 public:
  MemberStream(zip_t* archive, zip_uint64_t index, const ZipInput& input, std::string where)
      : input_(input), where_(std::move(where)), member_(zip_fopen_index(archive, index, 0)) {
    if (member_ == nullptr) FailZip(input_, where_, zip_get_error(archive), "the archive is damaged; write it again");
  }
  MemberStream(const MemberStream&) = delete;
  MemberStream& operator=(const MemberStream&) = delete;
  ~MemberStream() override { zip_fclose(member_); }

  void Read(void* to, std::uint64_t count) override {
    auto* at = static_cast<char*>(to);
    while (count > 0) {
      const std::uint64_t got = ReadSome(at, count);
      if (got == 0) Fail(ErrorCode::kCorruptFile, where_, "ends {} bytes early; the archive is damaged, write it again", count);
      at += got;
      count -= got;
    }
  }

  // To be called behind the last byte: libzip verifies the checksum when it meets the end.
  void ExpectEnd() {
    char extra = 0;
    if (ReadSome(&extra, 1) != 0) {
      Fail(ErrorCode::kCorruptFile, where_, "is longer than the archive states; the archive is damaged, write it again");
    }
  }

 private:
  std::uint64_t ReadSome(char* to, std::uint64_t count) {
    const zip_int64_t got = zip_fread(member_, to, std::min<std::uint64_t>(count, std::uint64_t{1} << 30));
    if (got < 0) FailZip(input_, where_, zip_file_get_error(member_), "the archive is damaged; write it again");
    return static_cast<std::uint64_t>(got);
  }

  const ZipInput& input_;
  std::string where_;
  zip_file_t* member_;
};

struct Member {
  zip_uint64_t index = 0;
  NpyHeader header;  // not of unreadable arrays
};

struct NpzFile : File::Impl {
  explicit NpzFile(std::unique_ptr<ByteSource> source_in)
      : Impl(source_in->name(), Format::kNpz), source(std::move(source_in)), input(*source) {
    OpenArchive();
    try {
      const zip_int64_t entries = zip_get_num_entries(archive, 0);
      for (zip_int64_t i = 0; i < entries; ++i) AddMember(static_cast<zip_uint64_t>(i));
    } catch (...) {
      zip_discard(archive);
      throw;
    }
  }
  ~NpzFile() override { zip_discard(archive); }

  void OpenArchive() {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* const zip_source = zip_source_function_create(&ZipInput::Callback, &input, &error);
    if (zip_source != nullptr) archive = zip_open_from_source(zip_source, ZIP_RDONLY, &error);
    if (archive != nullptr) {
      zip_error_fini(&error);
      return;
    }
    zip_source_free(zip_source);
    const std::string reason = zip_error_strerror(&error);
    const bool is_multi_disk = zip_error_code_zip(&error) == ZIP_ER_MULTIDISK;
    zip_error_fini(&error);
    if (input.failure) std::rethrow_exception(input.failure);
    if (is_multi_disk) Fail(ErrorCode::kUnsupported, path, "{}; write one archive", reason);
    Fail(ErrorCode::kCorruptFile, path, "no readable zip archive ({}); it was cut short or damaged, write it again", reason);
  }

  void AddMember(zip_uint64_t index) {
    zip_stat_t status;
    zip_stat_init(&status);
    if (zip_stat_index(archive, index, 0, &status) != 0) {
      FailZip(input, path, zip_get_error(archive), "the archive is damaged; write it again");
    }
    std::string name = status.name != nullptr ? status.name : "";
    if (name.ends_with('/') && status.size == 0) return;
    if (name.ends_with("/data.pkl")) {
      Fail(ErrorCode::kUnsupported, path, "is a PyTorch checkpoint; convert it with safetensors.torch.save_file");
    }
    if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
    Member member{.index = index, .header = {}};
    ArrayInfo info{.name = name, .shape = {}};
    try {
      member.header = ReadMemberHeader(status, Where(path, name));
      info = member.header.Info(std::move(name));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kCorruptFile) throw;
      info.unreadable = error;
    }
    Add(std::move(info));
    members.push_back(std::move(member));
  }

  NpyHeader ReadMemberHeader(const zip_stat_t& status, const std::string& where) const {
    CheckMember(status, where);
    MemberStream stream(archive, status.index, input, where);
    return ReadNpyHeader(stream, status.size, where);
  }

  void CheckMember(const zip_stat_t& status, const std::string& where) const {
    constexpr zip_uint64_t kMaxDeflateRatio = 1032;  // 258 bytes in the 2 bits of the shortest length and distance codes
    if ((status.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && status.encryption_method != ZIP_EM_NONE) {
      Fail(ErrorCode::kUnsupported, where, "is encrypted; write it without a password");
    }
    if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
      Fail(ErrorCode::kUnsupported, where, "is packed by zip method {}; store it or deflate it (numpy.savez)",
           status.comp_method);
    }
    const bool stored = status.comp_method == ZIP_CM_STORE;
    if (status.comp_size > source->size() || (stored && status.comp_size != status.size) ||
        status.size / kMaxDeflateRatio > status.comp_size) {
      Fail(ErrorCode::kCorruptFile, where, "states {} bytes, packed into {}, in an archive of {}; the archive is damaged",
           status.size, status.comp_size, source->size());
    }
  }

  // Opens the member of array `index`, passes its header and hands the rest to `read`.
  template <typename Result>
  Result ReadMember(std::size_t index, Result (*read)(ByteStream&, const NpyHeader&, std::string_view)) const {
    const Member& member = members[index];
    const std::string where = Where(path, arrays[index].name);
    MemberStream stream(archive, member.index, input, where);
    std::vector<char> header(member.header.header_bytes);
    stream.Read(header.data(), header.size());
    Result result = read(stream, member.header, where);
    stream.ExpectEnd();
    return result;
  }

  Tensor ReadTensor(std::size_t index) const override {
    return ReadMember<Tensor>(
        index, [](ByteStream& stream, const NpyHeader& header, std::string_view) { return ReadNpyNumbers(stream, header); });
  }
  StringArray ReadStrings(std::size_t index) const override { return ReadMember<StringArray>(index, &ReadNpyStrings); }

  std::unique_ptr<ByteSource> source;
  ZipInput input;
  zip_t* archive = nullptr;
  std::vector<Member> members;  // one an array
};

}  // namespace

std::unique_ptr<File::Impl> OpenNpz(std::unique_ptr<ByteSource> source) { return std::make_unique<NpzFile>(std::move(source)); }

}  // namespace regard::io
