#include "io/text_rows.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_error.h"
#include "io/utf8.h"

namespace regard::io {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool IsSeparator(char c) { return c == ',' || c == ';'; }

struct Field {
  std::string text;
  bool quoted = false;
};

enum class NumberResult : std::uint8_t { kNumber, kNoNumber, kTooLarge };

// A decimal as the nearest f32. Values that round to zero are numbers, values that round to infinity are not.
NumberResult ParseNumber(std::string_view text, float* value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+') text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc::invalid_argument || rest != end) return NumberResult::kNoNumber;
  if (error == std::errc()) return NumberResult::kNumber;
  // from_chars does not say on which side of f32's range the value lies; a wider type tells.
  long double wide = 0;
  const auto [wide_rest, wide_error] = std::from_chars(text.data(), end, wide);
  if (wide_error != std::errc() || std::abs(wide) > 1) return NumberResult::kTooLarge;
  *value = static_cast<float>(wide);
  return NumberResult::kNumber;
}

class RowParser {
 public:
  RowParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  std::vector<float> numbers;
  std::vector<std::string> words;
  std::int64_t rows = 0, columns = 0;

  void Parse() {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
    while (!text_.empty()) {
      ++line_number_;
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      ParseLine(text_.substr(0, end));
      text_.remove_prefix(std::min(end + 1, text_.size()));
    }
    if (rows == 0) Fail(ErrorCode::kCorruptFile, path_, "holds no rows of numbers; write `[word] number…` a line");
  }

 private:
  template <typename... T>
  [[noreturn]] void FailLine(fmt::format_string<T...> format, const T&... arguments) const {
    Fail(ErrorCode::kCorruptFile, path_, "line {}: {}", line_number_, fmt::vformat(format, fmt::make_format_args(arguments...)));
  }

  void ParseLine(std::string_view line) {
    if (line.find('\0') != std::string_view::npos || !IsUtf8(line)) {
      FailLine("neither text nor a known format (npy, npz, safetensors); name raw elements as file.bin:f32:2x3");
    }
    const std::vector<Field> fields = Split(line);
    if (fields.empty()) return;
    float value = 0;
    const bool has_word = fields[0].quoted || ParseNumber(fields[0].text, &value) == NumberResult::kNoNumber;
    const auto count = static_cast<std::int64_t>(fields.size()) - has_word;
    if (rows == 0) {
      columns = count;
      first_line_ = line_number_;
      has_words_ = has_word;
    }
    for (std::size_t i = has_word; i < fields.size(); ++i) numbers.push_back(NumberOf(fields[i]));
    if (mixes_separators_) FailLine("both , and ; between numbers; use one of them, and a point in decimals (1.5, not 1,5)");
    if (count == 0)
      FailLine("word {} without numbers; write `word number…`, or put '# ' before a comment", Quoted(fields[0].text));
    if (has_word != has_words_) {
      FailLine("begins with a {}, line {} with a {}; begin all rows with a word or none (quote words like \"7\")",
               has_word ? "word" : "number", first_line_, has_words_ ? "word" : "number");
    }
    if (count != columns) {
      FailLine("{} number{}, line {} has {}; make all rows equally long", count, count == 1 ? "" : "s", first_line_, columns);
    }
    if (has_word) words.push_back(fields[0].text);
    ++rows;
  }

  float NumberOf(const Field& field) const {
    float value = 0;
    const NumberResult result = field.quoted ? NumberResult::kNoNumber : ParseNumber(field.text, &value);
    if (result == NumberResult::kNoNumber) {
      FailLine("{} is not a number; write `[word] number…`, or put '# ' before a heading", Quoted(field.text));
    }
    if (result == NumberResult::kTooLarge) FailLine("{} is beyond the range of f32; scale it", Quoted(field.text));
    return value;
  }

  std::vector<Field> Split(std::string_view line) {
    std::vector<Field> fields;
    mixes_separators_ = false;
    bool separated = false;  // whether a comma or semicolon stands before the field
    char separator = 0;      // which of them the line has
    std::size_t at = 0;
    for (;;) {
      while (at < line.size() && IsBlank(line[at])) ++at;
      if (at == line.size() || (line[at] == '#' && (at + 1 == line.size() || IsBlank(line[at + 1])))) break;
      if (IsSeparator(line[at])) {
        if (separated || fields.empty()) FailLine("field {} is empty; write a number there", fields.size() + 1);
        mixes_separators_ = mixes_separators_ || (separator != 0 && line[at] != separator);
        separated = true;
        separator = line[at];
        ++at;
        continue;
      }
      separated = false;
      fields.push_back(line[at] == '"' ? QuotedField(line, &at) : PlainField(line, &at));
    }
    if (separated) FailLine("field {} is empty; write a number there", fields.size() + 1);
    return fields;
  }

  static Field PlainField(std::string_view line, std::size_t* at) {
    const std::size_t begin = *at;
    while (*at < line.size() && !IsBlank(line[*at]) && !IsSeparator(line[*at])) ++*at;
    return {.text = std::string(line.substr(begin, *at - begin))};
  }

  Field QuotedField(std::string_view line, std::size_t* at) const {
    Field field{.text = {}, .quoted = true};
    for (++*at; *at < line.size(); ++*at) {
      if (line[*at] == '"') {
        ++*at;
        if (*at == line.size() || IsBlank(line[*at]) || IsSeparator(line[*at])) return field;
        if (line[*at] != '"') break;
      }
      field.text += line[*at];
    }
    FailLine("quoted word {} does not end in a quote and a separator; close it (\"\" stands for a quote)", Quoted(field.text));
  }

  std::string_view text_;
  const std::string& path_;
  std::int64_t line_number_ = 0, first_line_ = 0;
  bool has_words_ = false;
  bool mixes_separators_ = false;  // of the line that was split last
};

struct TextFile : File::Impl {
  explicit TextFile(const ByteSource& source) : Impl(source.name(), Format::kText) {
    const std::string text = ReadWhole(source);
    RowParser parser(text, path);
    parser.Parse();
    numbers = std::move(parser.numbers);
    words = std::move(parser.words);
    Add({.name = "inputs", .shape = {parser.rows, parser.columns}, .dtype = DType::kF32});
    if (!words.empty()) Add({.name = "tokens", .shape = {parser.rows}, .is_strings = true});
  }

  Tensor ReadTensor(std::size_t index) const override { return Tensor::CopyOf(View(numbers.data(), arrays[index].shape)); }
  StringArray ReadStrings(std::size_t index) const override { return {.shape = arrays[index].shape, .values = words}; }

  std::vector<float> numbers;
  std::vector<std::string> words;
};

}  // namespace

std::unique_ptr<File::Impl> OpenTextRows(std::unique_ptr<ByteSource> source) { return std::make_unique<TextFile>(*source); }

}  // namespace regard::io
