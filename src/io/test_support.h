// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io.h"

namespace regard::io {

inline const std::string kGoldens = "testdata/io/";

/// A folder of its own that is gone after the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = testing::TempDir() + "/regard_io_XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& path() const { return path_; }
  std::size_t CountFiles() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::string path_;
};

inline std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void Spill(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline File FromString(std::string_view bytes, const std::string& name) {
  return File::FromBytes(std::as_bytes(std::span(bytes.data(), bytes.size())), name);
}

/// Reads every array of a file.
inline void ReadEverything(const File& file) {
  for (const ArrayInfo& array : file.arrays()) {
    if (array.is_strings) {
      file.ReadStrings(array.name);
    } else {
      file.Read(array.name);
    }
  }
}

/// `act` must throw Error with this code and a message that contains `text`.
inline void ExpectError(ErrorCode code, std::string_view text, const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "no Error; expected " << Name(code) << ": …" << text;
  } catch (const Error& error) {
    EXPECT_STREQ(Name(error.code()), Name(code)) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(text), std::string_view::npos) << error.what() << "\nlacks: " << text;
  }
}

/// Element `i` of every numeric golden, as tools/make_io_goldens.py has it.
inline double GoldenValue(DType dtype, std::int64_t i) {
  const std::int64_t number = (37 * i + 11) % 101;
  if (dtype == DType::kBool) return i % 3 == 1;
  if (dtype == DType::kU64 || dtype == DType::kU32 || dtype == DType::kU16 || dtype == DType::kU8)
    return static_cast<double>(number);
  return static_cast<double>(number - 47) / (IsFloat(dtype) ? 8 : 1);
}

inline void ExpectGoldenValues(const Tensor& tensor) {
  const TensorView flat = tensor.view().Reshape({tensor.num_elements()});
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    ASSERT_EQ(flat(i), GoldenValue(tensor.dtype(), i)) << Name(tensor.dtype()) << " element " << i;
  }
}

/// Other bits for every element and type: signs, extremes and NaN payloads as they come.
inline Tensor Patterned(DType dtype, const Dims& shape) {
  Tensor tensor(dtype, shape);
  auto* bytes = static_cast<unsigned char*>(tensor.mutable_view().mutable_data());
  const std::size_t count = static_cast<std::size_t>(tensor.num_elements()) * ItemSize(dtype);
  std::uint32_t state = 12345;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    bytes[i] = static_cast<unsigned char>(dtype == DType::kBool ? state >> 31 : state >> 24);
  }
  return tensor;
}

inline constexpr DType kAllDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kI16,
                                       DType::kI8,  DType::kU64, DType::kU32, DType::kU16,  DType::kU8,  DType::kBool};

/// For each element type a tensor of rank 3, a scalar and an empty one.
inline std::vector<Tensor> TensorsOfEveryType() {
  std::vector<Tensor> tensors;
  for (DType dtype : kAllDTypes) {
    for (const Dims& shape : {Dims{2, 3, 5}, Dims{}, Dims{3, 0}}) tensors.push_back(Patterned(dtype, shape));
  }
  return tensors;
}

inline void ExpectSameBits(const Tensor& actual, const TensorView& expected) {
  ASSERT_EQ(actual.dtype(), expected.dtype());
  ASSERT_EQ(actual.shape(), expected.shape());
  const Tensor copy = Tensor::CopyOf(expected);
  const std::size_t bytes = static_cast<std::size_t>(actual.num_elements()) * ItemSize(actual.dtype());
  ASSERT_EQ(std::string_view(static_cast<const char*>(actual.view().data()), bytes),
            std::string_view(static_cast<const char*>(copy.view().data()), bytes));
}

/// Gives up the rights of root until the end of the scope, since root may read and write everything.
class OrdinaryUser {
 public:
  OrdinaryUser() : was_root_(geteuid() == 0) {
    if (was_root_ && seteuid(65534) != 0) ADD_FAILURE() << "cannot give up the rights of root";
  }
  ~OrdinaryUser() {
    if (was_root_ && seteuid(0) != 0) ADD_FAILURE() << "cannot take back the rights of root";
  }

 private:
  bool was_root_;
};

}  // namespace regard::io
