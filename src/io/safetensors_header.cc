// The header of .safetensors files: safetensors.h has the grammar.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "io/elements.h"
#include "io/file_error.h"
#include "io/safetensors.h"

namespace regard::io {
namespace {

using nlohmann::json;

// One entry as the JSON has it.
struct RawEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape, offsets;
};

// Takes the parser's events. The levels are all the nesting the format has, so depth is bounded and nothing else is ever stored.
class HeaderEvents : public nlohmann::json_sax<json> {
 public:
  explicit HeaderEvents(const std::string& path) : path_(path) {}

  std::vector<RawEntry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { Unexpected("null"); }
  bool boolean(bool) override { Unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { Unexpected(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { Unexpected(text); }
  bool binary(binary_t&) override { Unexpected("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::kShape && level_ != Level::kOffsets) Unexpected(fmt::format("{}", value));
    auto& list = level_ == Level::kShape ? entries.back().shape : entries.back().offsets;
    list->push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) {
      if (!metadata.emplace(key_, value).second) Repeated();
    } else if (level_ == Level::kTensor && key_ == "dtype") {
      if (entries.back().dtype) Repeated();
      entries.back().dtype = std::move(value);
    } else {
      Unexpected(Quoted(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == Level::kOutside) {
      level_ = Level::kTop;
    } else if (level_ == Level::kTop && !names_.insert(key_).second) {
      Repeated();
    } else if (level_ == Level::kTop && key_ == "__metadata__") {
      level_ = Level::kMetadata;
    } else if (level_ == Level::kTop) {
      entries.push_back({.name = key_, .dtype = {}, .shape = {}, .offsets = {}});
      level_ = Level::kTensor;
    } else {
      Unexpected("an object");
    }
    return true;
  }
  bool end_object() override {
    level_ = level_ == Level::kTop ? Level::kOutside : Level::kTop;
    return true;
  }
  bool key(string_t& value) override {
    if (level_ == Level::kTensor && value != "dtype" && value != "shape" && value != "data_offsets") {
      Fail(ErrorCode::kCorruptFile, Where(), "header has key {}, expected dtype, shape or data_offsets; write the file again",
           Quoted(value));
    }
    key_ = std::move(value);
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::kTensor || key_ == "dtype") Unexpected("a list");
    auto& list = key_ == "shape" ? entries.back().shape : entries.back().offsets;
    if (list) Repeated();
    list.emplace();
    level_ = key_ == "shape" ? Level::kShape : Level::kOffsets;
    return true;
  }
  bool end_array() override {
    level_ = Level::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception&) override {
    Fail(ErrorCode::kCorruptFile, path_, "header is not JSON at byte {}, near {}; the file is damaged or no safetensors file",
         position, Quoted(token));
  }

 private:
  enum class Level : std::uint8_t { kOutside, kTop, kMetadata, kTensor, kShape, kOffsets };

  std::string Where() const {
    switch (level_) {
      case Level::kOutside:
        return path_;
      case Level::kTop:
        return path_ + ": header key " + Quoted(key_);
      case Level::kMetadata:
        return path_ + ": metadata " + Quoted(key_);
      default:
        return File::Impl::Where(path_, entries.back().name);
    }
  }
  [[noreturn]] void Unexpected(std::string_view found) const {
    const char* expected = "";
    switch (level_) {
      case Level::kOutside:
        expected = "an object of tensors";
        break;
      case Level::kTop:
        expected = "{\"dtype\", \"shape\", \"data_offsets\"}";
        break;
      case Level::kMetadata:
        expected = "a string";
        break;
      case Level::kTensor:
        expected = key_ == "dtype" ? "a string" : "a list of whole numbers from 0 up";
        break;
      case Level::kShape:
      case Level::kOffsets:
        expected = "whole numbers from 0 up";
        break;
    }
    const bool names_key = level_ >= Level::kTensor;
    Fail(ErrorCode::kCorruptFile, Where(), "{}{}{} where {} belongs; write the file again", names_key ? key_ : "",
         names_key ? " has " : "", found, expected);
  }
  [[noreturn]] void Repeated() const {
    Fail(ErrorCode::kCorruptFile, path_, "key {} stands twice in the header; write the file again with distinct names",
         Quoted(key_));
  }

  const std::string& path_;
  Level level_ = Level::kOutside;
  std::string key_;
  std::set<std::string> names_;
};

SafetensorsType TypeOf(std::string_view name, std::string_view where) {
  using F8 = SafetensorsType::F8;
  constexpr std::pair<std::string_view, SafetensorsType> kTypes[] = {{"F64", {DType::kF64}},
                                                                     {"F32", {DType::kF32}},
                                                                     {"F16", {DType::kF16}},
                                                                     {"BF16", {DType::kBF16}},
                                                                     {"I64", {DType::kI64}},
                                                                     {"I32", {DType::kI32}},
                                                                     {"I16", {DType::kI16}},
                                                                     {"I8", {DType::kI8}},
                                                                     {"U64", {DType::kU64}},
                                                                     {"U32", {DType::kU32}},
                                                                     {"U16", {DType::kU16}},
                                                                     {"U8", {DType::kU8}},
                                                                     {"BOOL", {DType::kBool}},
                                                                     {"F8_E4M3", {DType::kF32, F8::kE4M3}},
                                                                     {"F8_E5M2", {DType::kF32, F8::kE5M2}}};
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  Fail(ErrorCode::kUnsupported, where,
       "element type {} is not read; save as F64 F32 F16 BF16 F8_E4M3 F8_E5M2, I8-I64, U8-U64 or BOOL", Quoted(name));
}

SafetensorsEntry CheckedEntry(RawEntry raw, std::uint64_t data_bytes, const std::string& path) {
  const std::string where = File::Impl::Where(path, raw.name);
  if (!raw.dtype || !raw.shape || !raw.offsets || raw.offsets->size() != 2) {
    Fail(ErrorCode::kCorruptFile, where, "needs dtype, shape and two data_offsets; write the file again");
  }
  SafetensorsEntry entry{.name = std::move(raw.name), .begin = (*raw.offsets)[0], .end = (*raw.offsets)[1]};
  if (entry.begin > entry.end || entry.end > data_bytes) {
    Fail(ErrorCode::kCorruptFile, where,
         "data_offsets [{}, {}] lie outside of {} bytes of data; the file was cut short or is damaged", entry.begin, entry.end,
         data_bytes);
  }
  try {
    entry.shape = CheckedShape(where, *raw.shape);
    entry.type = TypeOf(*raw.dtype, where);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    entry.unreadable = error;
    return entry;
  }
  const std::uint64_t needed = CheckedBytes(where, entry.shape, entry.type.ItemBytes());
  if (entry.end - entry.begin != needed) {
    Fail(ErrorCode::kCorruptFile, where, "{} {} needs {} bytes, data_offsets [{}, {}] hold {}; write the file again", *raw.dtype,
         ToString(entry.shape), needed, entry.begin, entry.end, entry.end - entry.begin);
  }
  return entry;
}

// The tensors follow each other from the first byte of the data to the last.
void CheckCoverage(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes, const std::string& path) {
  std::vector<const SafetensorsEntry*> by_offset;
  for (const SafetensorsEntry& entry : entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  std::uint64_t end = 0;
  for (const SafetensorsEntry* entry : by_offset) {
    if (entry->begin != end) {
      Fail(ErrorCode::kCorruptFile, File::Impl::Where(path, entry->name),
           "begins at byte {} of the data, the one before ends at {}: {}", entry->begin, end,
           entry->begin < end ? "they overlap; write the file again" : "a hole; write the file again");
    }
    end = entry->end;
  }
  if (end != data_bytes) {
    Fail(ErrorCode::kCorruptFile, path, "tensors end at byte {} of {} bytes of data; write the file again", end, data_bytes);
  }
}

}  // namespace

SafetensorsHeader ParseSafetensorsHeader(std::string_view text, std::uint64_t data_bytes, const std::string& path) {
  HeaderEvents events(path);
  json::sax_parse(text, &events);
  SafetensorsHeader header;
  header.metadata = std::move(events.metadata);
  for (RawEntry& raw : events.entries) header.entries.push_back(CheckedEntry(std::move(raw), data_bytes, path));
  CheckCoverage(header.entries, data_bytes, path);
  return header;
}

}  // namespace regard::io
