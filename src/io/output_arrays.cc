#include "io/output_arrays.h"

#include <set>

#include "io/file_error.h"
#include "io/npy.h"
#include "io/utf8.h"

namespace regard::io {

std::string_view BytesOf(const TensorView& tensor) {
  return {static_cast<const char*>(tensor.data()), static_cast<std::size_t>(tensor.num_elements()) * ItemSize(tensor.dtype())};
}

OutputArrays::OutputArrays(const std::string& path, const std::vector<OutputArray>& arrays) {
  constexpr std::size_t kMaxNameBytes = 1000;  // zip ends at 65535; nobody means a name that long
  std::set<std::string_view> names;
  for (const OutputArray& array : arrays) {
    if (array.name.empty() || array.name.size() > kMaxNameBytes || array.name.find('\0') != std::string::npos ||
        !IsUtf8(array.name)) {
      Fail(ErrorCode::kInvalidArgument, path, "name {} of an array; use 1 to {} bytes of UTF-8 without NUL", Quoted(array.name),
           kMaxNameBytes);
    }
    if (!names.insert(array.name).second) {
      Fail(ErrorCode::kInvalidArgument, path, "two arrays are named {}; rename one", Quoted(array.name));
    }
    TensorView tensor = array.tensor;
    if (tensor && !tensor.IsContiguous()) tensor = copies_.emplace_back(Tensor::CopyOf(tensor));
    bytes_.push_back(tensor ? BytesOf(tensor) : std::string_view());
  }
}

void WriteNpy(const std::string& path, const TensorView& tensor) {
  if (!tensor) Fail(ErrorCode::kInvalidArgument, path, "no tensor to write; pass one");
  const OutputArrays checked(path, {{.name = "array", .tensor = tensor}});
  AtomicFile file(path);
  file.Write(NpyHeaderBytes(tensor.dtype(), tensor.shape()));
  file.Write(checked.Bytes(0));
  file.Commit();
}

void WriteTensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<OutputArray> arrays;
  for (const auto& [name, tensor] : tensors) arrays.push_back({.name = name, .tensor = tensor});
  WriteSafetensors(path, arrays, metadata);
}

void Write(const std::string& path, const std::vector<OutputArray>& arrays) {
  if (path.ends_with(".npz")) return WriteNpz(path, arrays);
  if (path.ends_with(".safetensors")) return WriteSafetensors(path, arrays);
  if (!path.ends_with(".npy")) {
    Fail(ErrorCode::kInvalidArgument, path, "ending is not known; use .npz, .safetensors, or .npy for a single array");
  }
  if (arrays.size() != 1 || !arrays[0].tensor) {
    Fail(ErrorCode::kInvalidArgument, path, ".npy holds one tensor, not {} arrays; use .npz", arrays.size());
  }
  WriteNpy(path, arrays[0].tensor);
}

}  // namespace regard::io
