// What each format implements behind regard::io::File.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "regard/io.h"

namespace regard::io {

struct File::Impl {
  Impl(std::string path_in, Format format_in) : path(std::move(path_in)), format(format_in) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  virtual ~Impl() = default;

  /// Array `index` of `arrays`, of numbers or of strings as its ArrayInfo says; not for unreadable ones.
  virtual Tensor ReadTensor(std::size_t index) const = 0;
  virtual StringArray ReadStrings(std::size_t index) const;  // of a format that has none: Error kInternal

  /// Appends an array. Throws kCorruptFile when one of that name is there.
  void Add(ArrayInfo info);
  /// "<path>: array <name>", for messages.
  static std::string Where(const std::string& path, std::string_view array);

  const std::string path;
  const Format format;
  std::vector<ArrayInfo> arrays;
  std::map<std::string, std::size_t, std::less<>> index_of;
  std::map<std::string, std::string> metadata;
};

}  // namespace regard::io
