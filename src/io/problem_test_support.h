// Problems in files, for tests.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/test_support.h"
#include "regard/io.h"
#include "regard/problem.h"

namespace regard::io {

/// Signed, asymmetric, all different for small shapes.
inline Tensor Numbers(const Dims& shape, int seed = 0, DType dtype = DType::kF32) {
  Tensor tensor(DType::kF64, shape);
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    tensor.MutableAs<double>()[i] = static_cast<double>((37 * i + 11 + 13 * seed) % 1009 - 400) / 64;
  }
  return Tensor::CopyOf(tensor, dtype);
}

template <typename T>
Tensor Scalar(T value) {
  return Tensor::Of<T>({}, {value});
}

/// Arrays to be written to one file, which lives as long as this.
class ProblemFile {
 public:
  ProblemFile& Add(const std::string& name, Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    arrays_.push_back({.name = name, .tensor = tensors_.back()});
    return *this;
  }
  ProblemFile& AddStrings(const std::string& name, std::vector<std::string> strings) {
    arrays_.push_back({.name = name, .strings = std::move(strings)});
    return *this;
  }
  ProblemFile& AddMetadata(const std::string& name, const std::string& text) {
    metadata_[name] = text;
    return *this;
  }
  /// q, k, v of one head.
  ProblemFile& AddQkv(std::int64_t q_len = 4, std::int64_t kv_len = 4, std::int64_t dim = 3) {
    return Add("q", Numbers({q_len, dim}, 1)).Add("k", Numbers({kv_len, dim}, 2)).Add("v", Numbers({kv_len, dim}, 3));
  }

  /// Where it was written: "p.npz", or with metadata "p.safetensors".
  std::string path() const {
    const std::string path = folder_ / (metadata_.empty() ? "p.npz" : "p.safetensors");
    metadata_.empty() ? WriteNpz(path, arrays_) : WriteSafetensors(path, arrays_, metadata_);
    return path;
  }
  Problem Load(const ProblemOptions& options = {}) const { return LoadProblem({path()}, options); }
  const TemporaryFolder& folder() const { return folder_; }

  /// What loading throws, without the folder's name; "no error" otherwise.
  std::string Message(const ProblemOptions& options = {}) const {
    try {
      Load(options);
    } catch (const Error& error) {
      return WithoutFolder(error.what());
    }
    return "no error";
  }
  std::string WithoutFolder(std::string text) const {
    const std::string prefix = folder_.path() + "/";
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix)) text.erase(at, prefix.size());
    return text;
  }

 private:
  TemporaryFolder folder_;
  std::deque<Tensor> tensors_;
  std::vector<OutputArray> arrays_;
  std::map<std::string, std::string> metadata_;
};

/// Declares a tensor of a .safetensors file to be of a type that regard does not read. Its header must state F32 for it.
inline void MakeUnreadable(const std::string& path, const std::string& name) {
  std::string bytes = Slurp(path);
  const std::string type = "\"" + name + "\":{\"dtype\":\"";
  const std::size_t at = bytes.find(type + "F32");
  ASSERT_NE(at, std::string::npos) << name;
  bytes.replace(at + type.size(), 3, "C64");
  Spill(path, bytes);
}

inline void ExpectEqualElements(const TensorView& actual, const TensorView& expected) {
  ExpectSameBits(Tensor::CopyOf(actual), expected);
}

}  // namespace regard::io
