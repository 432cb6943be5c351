// The files of a problem, opened: which array or metadata string stands for which key. Nothing but headers is read here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/problem_keys.h"
#include "regard/io.h"

namespace regard::io {

/// One place where a key's value stands.
struct Entry {
  const Key* key = nullptr;
  std::optional<std::int64_t> layer = {};
  std::string spelling;             // as in the file
  std::size_t file = 0;             // into the opened files
  std::string array = {};           // its name there; unused for metadata
  const ArrayInfo* info = nullptr;  // null: metadata
  std::string text = {};            // the metadata string
};

/// Copies share the opened files, and choose a layer each for itself.
class ProblemSources {
 public:
  explicit ProblemSources(const std::vector<std::string>& sources);

  /// The layers that keys are prefixed with, ascending.
  const std::vector<std::int64_t>& layers() const { return layers_; }
  /// Leaves the keys of this layer and those without a prefix. Error if two of them stand for one thing.
  void ChooseLayer(std::optional<std::int64_t> layer);

  /// Whether both layers have the same keys in the same shapes; scalars are not compared.
  bool HaveSameShapes(std::int64_t layer_a, std::int64_t layer_b) const;

  /// After ChooseLayer: where the key called `name` stands; null if nowhere.
  const Entry* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  const std::vector<Entry>& entries() const { return chosen_; }

  Tensor Read(const Entry& entry) const;
  /// Strings of an array, or of a metadata JSON list.
  StringArray ReadStrings(const Entry& entry) const;

  /// "'query' in a.npz"
  std::string Where(const Entry& entry) const;
  /// "found 'query', 'kk' in a.npz", for messages about what is missing.
  std::string Found() const;
  /// A key in the files that probably was meant to be `name`; empty if there is none.
  std::string LikelyMisspelling(std::string_view name) const;
  /// One line for each thing in the files that is not read though it may have been meant to be.
  std::vector<std::string> Notes() const;

 private:
  void Open(const std::string& source);
  void AddArrays(std::size_t file, const std::string& source, const std::string& renamed);
  void AddMetadata(std::size_t file);
  void Add(Entry entry);

  std::vector<std::shared_ptr<const File>> files_;
  std::vector<Entry> entries_, chosen_;
  std::vector<std::pair<std::string, std::size_t>> unknown_;  // name, file
  std::vector<std::int64_t> layers_;
};

/// Strings as a JSON list, [length] or [batch, length]. `where` begins messages.
StringArray ParseStringList(std::string_view where, std::string_view json);

}  // namespace regard::io
