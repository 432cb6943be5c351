#include "io/problem_sources.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/file_error.h"
#include "io/raw.h"

namespace regard::io {
namespace {

using enum ErrorCode;

// The name in `name=file`, when the source is of that form and the name is one that regard reads.
std::string_view NameBeforeFile(std::string_view source) {
  const std::size_t equals = source.find('=');
  if (equals == std::string_view::npos) return {};
  const std::string_view name = source.substr(0, equals);
  if (ParseKey(name).key != nullptr) return name;
  std::error_code ignored;
  if (std::filesystem::exists(std::string(source), ignored)) return {};
  const std::string advice = AdviceOn(name);
  Fail(kInvalidArgument, source, "{} is not a name that regard reads; {}", Quoted(name),
       advice.empty() ? "use one such as q, k, v or inputs" : advice);
}

// Refuses a list of files in one word, as --observed takes them.
void CheckNoList(const std::string& path) {
  if (path.find(',') == path.npos) return;
  const auto raw = ParseRawSpecification(path);
  std::error_code ignored;
  if (std::filesystem::exists(raw ? raw->path : path, ignored)) return;
  Fail(kIo, path, "no such file; check the path, and separate several files by spaces, not by commas");
}

// What the words that begin the rows of a text file are, when its numbers are called `name`.
std::string_view NameOfRowWords(std::string_view name) {
  const ParsedKey parsed = ParseKey(name);
  if (parsed.key->name == "inputs") return "tokens";
  if (parsed.key->name == "q") return "q_tokens";
  if (parsed.key->name == "k") return "k_tokens";
  return {};
}

}  // namespace

ProblemSources::ProblemSources(const std::vector<std::string>& sources) {
  if (sources.empty()) throw Error(kInvalidArgument, "sources: none; give a file such as layer.npz, or - for standard input");
  for (const std::string& source : sources) Open(source);
  std::ranges::sort(layers_);
  layers_.erase(std::unique(layers_.begin(), layers_.end()), layers_.end());
}

void ProblemSources::Open(const std::string& source) {
  const std::string name(NameBeforeFile(source));
  if (source.size() == name.size() + (name.empty() ? 0 : 1)) {
    Fail(kInvalidArgument, "sources", "{} names no file; write {}FILE", Quoted(source), source);
  }
  const std::string path = name.empty() ? source : source.substr(name.size() + 1);
  CheckNoList(path);
  files_.push_back(std::make_shared<const File>(File::Open(path)));
  AddArrays(files_.size() - 1, source, name);
  AddMetadata(files_.size() - 1);
}

void ProblemSources::AddArrays(std::size_t file, const std::string& source, const std::string& renamed) {
  const std::vector<ArrayInfo>& arrays = files_[file]->arrays();
  const std::string& path = files_[file]->path();
  const bool text = files_[file]->format() == Format::kText;
  if (!renamed.empty() && arrays.size() != 1 && !text) {
    Fail(kInvalidArgument, path, "holds {} arrays, so that '{}=' does not say which; give the file without a name", arrays.size(),
         renamed);
  }
  for (const ArrayInfo& array : arrays) {
    std::string name = array.name;
    if (!renamed.empty()) name = text && array.is_strings ? NameOfRowWords(renamed) : renamed;
    if (name.empty() && renamed.empty()) {
      Fail(kInvalidArgument, path, "holds one array without a name; say which it is, as in q={}", source);
    }
    const ParsedKey parsed = ParseKey(name);
    if (parsed.key == nullptr) {
      if (!name.empty()) unknown_.emplace_back(name, file);
      continue;
    }
    Add({.key = parsed.key, .layer = parsed.layer, .spelling = name, .file = file, .array = array.name, .info = &array});
  }
}

void ProblemSources::AddMetadata(std::size_t file) {
  for (const auto& [name, text] : files_[file]->metadata()) {
    const ParsedKey parsed = ParseKey(name);
    const bool reads = parsed.key != nullptr && (parsed.key->kind == KeyKind::kScalar || parsed.key->kind == KeyKind::kStrings);
    // Metadata describes a file in any words; only those that look like a rule of the problem are worth a note.
    if (!reads && IsForeignScalar(name)) unknown_.emplace_back(name, file);
    const bool stated = text != "null" && text != "None";
    if (reads && stated) Add({.key = parsed.key, .layer = parsed.layer, .spelling = name, .file = file, .text = text});
  }
}

void ProblemSources::Add(Entry entry) {
  if (entry.layer) layers_.push_back(*entry.layer);
  entries_.push_back(std::move(entry));
}

void ProblemSources::ChooseLayer(std::optional<std::int64_t> layer) {
  for (const Entry& entry : entries_) {
    if (entry.layer && entry.layer != layer) continue;
    if (const Entry* other = Find(entry.key->name)) {
      throw Error(kInvalidArgument,
                  fmt::format("{}: given twice, as {} and as {}; keep one", entry.key->name, Where(*other), Where(entry)));
    }
    chosen_.push_back(entry);
  }
}

bool ProblemSources::HaveSameShapes(std::int64_t layer_a, std::int64_t layer_b) const {
  const auto shapes_of = [this](std::int64_t layer) {
    std::map<std::string_view, Dims> shapes;
    for (const Entry& entry : entries_) {
      if (entry.layer == layer && entry.info != nullptr) shapes.emplace(entry.key->name, entry.info->shape);
    }
    return shapes;
  };
  return shapes_of(layer_a) == shapes_of(layer_b);
}

const Entry* ProblemSources::Find(std::string_view name) const {
  const auto found = std::ranges::find_if(chosen_, [&](const Entry& entry) { return entry.key->name == name; });
  return found == chosen_.end() ? nullptr : &*found;
}

Tensor ProblemSources::Read(const Entry& entry) const { return files_[entry.file]->Read(entry.array); }

StringArray ProblemSources::ReadStrings(const Entry& entry) const {
  return entry.info != nullptr ? files_[entry.file]->ReadStrings(entry.array) : ParseStringList(Where(entry), entry.text);
}

std::string ProblemSources::Where(const Entry& entry) const {
  return fmt::format("{} in {}", Quoted(entry.spelling), files_[entry.file]->path());
}

std::string ProblemSources::Found() const {
  constexpr std::size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const Entry& entry : chosen_) {
    if (entry.info != nullptr) names.push_back(Quoted(entry.spelling));
  }
  for (const auto& [name, file] : unknown_) names.push_back(Quoted(name));
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) list += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMostNames) list += fmt::format(" and {} more", names.size() - kMostNames);
  const std::string where = files_.size() == 1 ? files_[0]->path() : fmt::format("{} files", files_.size());
  return names.empty() ? fmt::format("found no array in {}", where) : fmt::format("found {} in {}", list, where);
}

std::string ProblemSources::LikelyMisspelling(std::string_view name) const {
  for (const auto& [unknown, file] : unknown_) {
    if (LikelyKey(unknown) == name) return unknown;
  }
  return {};
}

std::vector<std::string> ProblemSources::Notes() const {
  std::vector<std::string> notes;
  std::string ignored;
  for (const auto& [name, file] : unknown_) {
    const std::string advice = AdviceOn(name);
    if (advice.empty()) {
      ignored += (ignored.empty() ? "" : ", ") + Quoted(name);
    } else {
      notes.push_back(fmt::format("not read: {} in {}; {}", Quoted(name), files_[file]->path(), advice));
    }
  }
  if (!ignored.empty()) notes.push_back("not read: " + ignored);
  return notes;
}

StringArray ParseStringList(std::string_view where, std::string_view json) {
  const nlohmann::json list = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto fail = [&]() { Fail(kCorruptFile, where, "not a JSON list of strings; write it as [\"one\", \"two\"]"); };
  if (!list.is_array()) fail();
  StringArray strings;
  const bool nested = !list.empty() && list[0].is_array();
  strings.shape = nested ? Dims{static_cast<std::int64_t>(list.size()), static_cast<std::int64_t>(list[0].size())}
                         : Dims{static_cast<std::int64_t>(list.size())};
  for (const nlohmann::json& item : list) {
    if (nested && (!item.is_array() || item.size() != list[0].size())) {
      Fail(kCorruptFile, where, "lists of different lengths; give every sequence as many tokens");
    }
    if (!nested && !item.is_string()) fail();
    if (!nested) strings.values.push_back(item.get<std::string>());
    for (const nlohmann::json& token : nested ? item : nlohmann::json::array()) {
      if (!token.is_string()) fail();
      strings.values.push_back(token.get<std::string>());
    }
  }
  return strings;
}

}  // namespace regard::io
