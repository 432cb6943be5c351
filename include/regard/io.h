// Arrays in files: NumPy's .npy and .npz, .safetensors, raw binary and rows of text. Part of regard::tools.
//
//     regard::io::File file = regard::io::File::Open("layer3.npz");     // headers only; no array is read yet
//     for (const regard::io::ArrayInfo& array : file.arrays()) …        // name, element type, shape
//     regard::Tensor q = file.Read("q");                                // straight into the tensor, no second copy
//     regard::io::WriteNpz("out.npz", {{.name = "context", .tensor = r.context}, {.name = "lse", .tensor = r.lse}});
//
// What may be opened, recognised by the first bytes and else by the ending (src/io/<format>.h holds each grammar):
//
//     .npy           versions 1-3, C and Fortran order, both byte orders; f2 f4 f8, i1-i8, u1-u8, bool; strings
//                    (U, and S as UTF-8). V2 is bf16, since that is how NumPy stores ml_dtypes.bfloat16. One array, named "".
//     .npz           zip of .npy members, stored or deflated, any size; an array's name is its member's without ".npy".
//     .safetensors   every element type of the format but complex and the sub-byte ones; F8_E4M3 and F8_E5M2 become f32, exactly.
//     file:f32:2x3   raw little-endian elements in C order, type and shape as stated; the size must match. One array, named "".
//     anything else  rows of text: `[word] number…` a line, separated by blanks, commas or semicolons; `# ` starts a comment. An
//                    f32 array "inputs" [rows, columns] and, if rows begin with words, a string array "tokens" [rows].
//     -              standard input, read to its end: any of the above but raw.
//
// Nothing in a file is trusted: every count, offset and product is checked before memory is allocated, and no more is allocated
// than the bytes of the file can justify. Whatever a file holds, the outcome is an array or an Error:
//     kIo           the system refused; the message ends with its reason
//     kCorruptFile  the bytes break the format's grammar
//     kUnsupported  legal in the format, not here: pickled objects, complex numbers, encrypted members
//     kInvalidArgument  a name that is not in the file, a raw specification that cannot be read
// Messages name the file, what is wrong with its value, what was expected and a next step.
//
// One array that cannot be read takes nothing from the others: a member of an .npz, or an array of a .safetensors file whose type or
// number of axes is not read here, is listed with the reason (ArrayInfo::unreadable), and reading it throws that. What is wrong with
// the file as a whole fails in Open: an archive's directory, a safetensors header, names that stand twice.
//
// A File is used by one thread at a time; distinct Files by distinct threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/error.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::io {

enum class Format : std::uint8_t { kNpy, kNpz, kSafetensors, kRaw, kText };
REGARD_API std::string_view Name(Format format) noexcept;  // "npy", "npz", "safetensors", "raw", "text"

/// What a file says about one of its arrays.
struct ArrayInfo {
  std::string name;
  Dims shape;  // of an unreadable array: empty unless known
  /// Element type as Read returns it; without meaning for strings.
  DType dtype = DType::kF32;
  bool is_strings = false;
  /// Set when it is known that the array cannot be read: what Read and ReadStrings throw, kUnsupported or kCorruptFile.
  std::optional<Error> unreadable = {};
};

/// An array of strings, UTF-8, in C order. A scalar has an empty shape and one value.
struct StringArray {
  Dims shape;
  std::vector<std::string> values;
};

/// An open file: what it holds, and its arrays on demand.
class REGARD_API File {
 public:
  /// `path` as in the table above, "-" and raw specifications included. Reads headers only (text and standard input: everything).
  static File Open(const std::string& path);
  /// The same from memory, which the caller keeps alive; `name` stands for the path in messages and for the ending.
  static File FromBytes(std::span<const std::byte> bytes, const std::string& name);
  /// Raw elements: exactly as many bytes as `shape` needs, little-endian.
  static File OpenRaw(const std::string& path, DType dtype, const Dims& shape);

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  const std::string& path() const noexcept;
  Format format() const noexcept;
  /// In the order of the file.
  const std::vector<ArrayInfo>& arrays() const noexcept;
  /// The strings of a safetensors header's "__metadata__"; empty for other formats.
  const std::map<std::string, std::string>& metadata() const noexcept;
  /// The array of that name, or null.
  const ArrayInfo* Find(std::string_view name) const noexcept;

  /// The numbers of an array, contiguous in C order and native byte order. Bools are 0 or 1 (any other byte counts as true).
  /// Error if there is no such array or it holds strings.
  Tensor Read(std::string_view name) const;
  /// The strings of an array. Error if there is no such array or it holds numbers.
  StringArray ReadStrings(std::string_view name) const;

  struct Impl;  // one a format, in src/io

 private:
  explicit File(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// Every array of numbers whose name begins with `prefix`, by the rest of its name: a model's state dict, as regard/nn.h takes it. Error if
/// one of them cannot be read.
REGARD_API std::map<std::string, Tensor> ReadTensors(const File& file, std::string_view prefix = {});

/// A whole file, or standard input for "-", as it is. For texts such as lists of tokens.
REGARD_API std::string ReadAll(const std::string& path);

// ------------------------------------------------------------------------------------------------------------ writing

/// One array to be written: a tensor, which is borrowed until the call returns, or strings (rank 1) when no tensor is given.
struct OutputArray {
  std::string name;
  TensorView tensor = {};
  std::vector<std::string> strings = {};
};

/// Writes all arrays, or Error and whatever was at `path` before is untouched. Equal arrays give equal bytes, whenever written.
/// Arrays that are not contiguous are copied first. Names must differ and not be empty. bf16 becomes V2 in .npy and .npz; in
/// Python, `np.load(path).view(ml_dtypes.bfloat16)`.
REGARD_API void WriteNpy(const std::string& path, const TensorView& tensor);
REGARD_API void WriteNpz(const std::string& path, const std::vector<OutputArray>& arrays);
/// Strings have no place among safetensors arrays; put them into the metadata.
REGARD_API void WriteSafetensors(const std::string& path, const std::vector<OutputArray>& arrays,
                                 const std::map<std::string, std::string>& metadata = {});
/// The same for tensors by name; the inverse of ReadTensors.
REGARD_API void WriteTensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                             const std::map<std::string, std::string>& metadata = {});
/// By the ending of `path`: .npz, .safetensors, or .npy for a single array. Error for other endings.
REGARD_API void Write(const std::string& path, const std::vector<OutputArray>& arrays);

/// A file that appears complete or not at all: written beside its path under a temporary name, flushed to the device and renamed.
/// Without Commit, or when anything throws, the path keeps what it held, and the destructor removes the temporary file.
///     regard::io::AtomicFile page("map.html");
///     page.Write(html);
///     page.Commit();
/// A symbolic link is followed; permissions of an existing file are kept. What exists and is no regular file is refused.
class REGARD_API AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void Write(std::string_view bytes);                          // at the end of what was written
  void WriteAt(std::uint64_t offset, std::string_view bytes);  // anywhere
  void Commit();

 private:
  std::string path_;       // as given, for messages
  std::string target_;     // links resolved
  std::string temporary_;  // beside target_
  int descriptor_ = -1;
  std::uint64_t end_ = 0;
};

}  // namespace regard::io
