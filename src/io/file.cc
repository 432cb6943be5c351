#include <algorithm>
#include <array>
#include <utility>

#include "io/byte_source.h"
#include "io/file_error.h"
#include "io/file_impl.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/raw.h"
#include "io/safetensors.h"
#include "io/text_rows.h"
#include "regard/io.h"

namespace regard::io {
namespace {

// The formats are told by their first bytes; an ending counts where those say nothing.
std::unique_ptr<File::Impl> OpenSource(std::unique_ptr<ByteSource> source) {
  const std::string name = source->name();
  if (source->size() == 0) Fail(ErrorCode::kCorruptFile, name, "is empty; write it again");
  std::array<char, 9> buffer;
  const std::string_view first(buffer.data(), std::min<std::uint64_t>(source->size(), buffer.size()));
  source->ReadAt(0, buffer.data(), first.size());

  if (first.starts_with(kNpyMagic)) return OpenNpy(std::move(source));
  if (first.starts_with("PK\x03\x04") || first.starts_with("PK\x05\x06")) return OpenNpz(std::move(source));
  if (name.ends_with(".safetensors") || LooksLikeSafetensors(first, source->size())) return OpenSafetensors(std::move(source));
  if (first.starts_with("GGUF")) Fail(ErrorCode::kUnsupported, name, "gguf is not read; convert it to safetensors");
  if (name.ends_with(".npy")) return OpenNpy(std::move(source));  // which will say what is wrong
  if (name.ends_with(".npz")) return OpenNpz(std::move(source));
  return OpenTextRows(std::move(source));
}

std::size_t IndexOf(const File::Impl& impl, std::string_view name) {
  const auto found = impl.index_of.find(name);
  if (found != impl.index_of.end()) return found->second;
  constexpr std::size_t kMaxListed = 20;
  std::string names;
  for (std::size_t i = 0; i < std::min(impl.arrays.size(), kMaxListed); ++i)
    names += (i > 0 ? ", " : "") + Quoted(impl.arrays[i].name);
  if (impl.arrays.size() > kMaxListed) names += fmt::format(" and {} more", impl.arrays.size() - kMaxListed);
  Fail(ErrorCode::kInvalidArgument, impl.path, "no array is named {}; it holds {}", Quoted(name), names.empty() ? "none" : names);
}

}  // namespace

std::string_view Name(Format format) noexcept {
  switch (format) {
    case Format::kNpy:
      return "npy";
    case Format::kNpz:
      return "npz";
    case Format::kSafetensors:
      return "safetensors";
    case Format::kRaw:
      return "raw";
    case Format::kText:
      return "text";
  }
  return "";
}

void File::Impl::Add(ArrayInfo info) {
  if (!index_of.emplace(info.name, arrays.size()).second) {
    Fail(ErrorCode::kCorruptFile, path, "two arrays are named {}; write the file again with distinct names", Quoted(info.name));
  }
  arrays.push_back(std::move(info));
}

StringArray File::Impl::ReadStrings(std::size_t index) const {
  Fail(ErrorCode::kInternal, Where(path, arrays[index].name), "is said to hold strings, but {} has no reader of strings",
       Name(format));
}

std::string File::Impl::Where(const std::string& path, std::string_view array) { return path + ": array " + Quoted(array); }

File::File(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

File File::Open(const std::string& path) {
  if (path == "-") return File(OpenSource(StandardInputSource()));
  if (const auto raw = ParseRawSpecification(path)) return OpenRaw(raw->path, raw->dtype, raw->shape);
  return File(OpenSource(OpenFileSource(path)));
}

File File::FromBytes(std::span<const std::byte> bytes, const std::string& name) {
  return File(OpenSource(MemorySource(bytes, name)));
}

File File::OpenRaw(const std::string& path, DType dtype, const Dims& shape) {
  return File(OpenRawElements(OpenFileSource(path), dtype, shape));
}

const std::string& File::path() const noexcept { return impl_->path; }
Format File::format() const noexcept { return impl_->format; }
const std::vector<ArrayInfo>& File::arrays() const noexcept { return impl_->arrays; }
const std::map<std::string, std::string>& File::metadata() const noexcept { return impl_->metadata; }

const ArrayInfo* File::Find(std::string_view name) const noexcept {
  const auto found = impl_->index_of.find(name);
  return found == impl_->index_of.end() ? nullptr : &impl_->arrays[found->second];
}

Tensor File::Read(std::string_view name) const {
  const std::size_t index = IndexOf(*impl_, name);
  const ArrayInfo& array = impl_->arrays[index];
  if (array.unreadable) throw *array.unreadable;
  if (array.is_strings) {
    Fail(ErrorCode::kInvalidArgument, Impl::Where(path(), name), "holds strings where numbers are expected; save it as numbers");
  }
  return impl_->ReadTensor(index);
}

StringArray File::ReadStrings(std::string_view name) const {
  const std::size_t index = IndexOf(*impl_, name);
  const ArrayInfo& array = impl_->arrays[index];
  if (array.unreadable) throw *array.unreadable;
  if (!array.is_strings) {
    Fail(ErrorCode::kInvalidArgument, Impl::Where(path(), name), "holds numbers where strings are expected; save it as strings");
  }
  return impl_->ReadStrings(index);
}

std::map<std::string, Tensor> ReadTensors(const File& file, std::string_view prefix) {
  std::map<std::string, Tensor> tensors;
  for (const ArrayInfo& array : file.arrays()) {
    if (array.is_strings || !array.name.starts_with(prefix)) continue;
    tensors.emplace(array.name.substr(prefix.size()), file.Read(array.name));
  }
  return tensors;
}

std::string ReadAll(const std::string& path) { return ReadWhole(path == "-" ? *StandardInputSource() : *OpenFileSource(path)); }

}  // namespace regard::io
