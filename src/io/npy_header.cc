// The header of .npy files: npy.h has the grammar.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "io/file_error.h"
#include "io/npy.h"

namespace regard::io {
namespace {

// Reads one Python dictionary of the three known entries.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  void Parse(NpyHeader* header) {
    Expect('{');
    while (!Accept('}')) {
      ParseEntry(header);
      if (Accept(',')) continue;
      Expect('}');
      break;
    }
    SkipBlanks();
    if (at_ != text_.size()) Corrupt("nothing but blanks after the closing brace");
    for (const auto& [seen, key] : {std::pair{has_type_, "descr"}, {has_order_, "fortran_order"}, {has_shape_, "shape"}}) {
      if (!seen) Fail(ErrorCode::kCorruptFile, where_, "npy header has no '{}'; write the file again", key);
    }
  }

 private:
  [[noreturn]] void Corrupt(std::string_view expected) const {
    Fail(ErrorCode::kCorruptFile, where_, "npy header has {} at byte {}, expected {}; the file is damaged or no npy file",
         at_ < text_.size() ? Quoted(text_.substr(at_, 12)) : "its end", at_, expected);
  }

  void SkipBlanks() {
    while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool Accept(char symbol) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != symbol) return false;
    ++at_;
    return true;
  }
  void Expect(char symbol) {
    if (!Accept(symbol)) Corrupt(fmt::format("'{}'", symbol));
  }
  bool AcceptWord(std::string_view word) {
    SkipBlanks();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string_view ParseString() {
    const char quote = Accept('"') ? '"' : '\'';
    if (quote == '\'') Expect('\'');
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) Corrupt("a string that ends");
    const std::string_view value = text_.substr(at_, end - at_);
    if (value.find('\\') != std::string_view::npos) Corrupt("a string without backslashes");
    at_ = end + 1;
    return value;
  }

  std::uint64_t ParseNumber() {
    SkipBlanks();
    std::uint64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) Corrupt("a dimension below 2^64");
    if (error != std::errc()) Corrupt("a dimension (0 or more)");
    at_ += static_cast<std::size_t>(end - begin);
    Accept('L');
    return value;
  }

  void ParseEntry(NpyHeader* header) {
    SkipBlanks();
    const std::size_t key_at = at_;
    const std::string_view key = ParseString();
    Expect(':');
    bool* const seen = key == "descr"           ? &has_type_
                       : key == "fortran_order" ? &has_order_
                       : key == "shape"         ? &has_shape_
                                                : nullptr;
    if (seen == nullptr || *seen) {
      at_ = key_at;
      Corrupt("'descr', 'fortran_order' and 'shape', each once");
    }
    *seen = true;
    if (seen == &has_type_) {
      ParseType(header);
    } else if (seen == &has_order_) {
      const bool fortran = AcceptWord("True");
      if (!fortran && !AcceptWord("False")) Corrupt("True or False");
      header->element_order = fortran ? ElementOrder::kFortran : ElementOrder::kC;
    } else {
      ParseShape(header);
    }
  }

  void ParseShape(NpyHeader* header) {
    std::vector<std::uint64_t> dims;
    Expect('(');
    while (!Accept(')')) {
      dims.push_back(ParseNumber());
      if (Accept(',')) continue;
      const std::size_t end = at_;
      Expect(')');
      if (dims.size() == 1) {  // (3) is a number in Python, (3,) a shape
        at_ = end;
        Corrupt("',' after a single dimension");
      }
      break;
    }
    header->shape = CheckedShape(where_, dims);
  }

  void ParseType(NpyHeader* header) {
    SkipBlanks();
    if (at_ < text_.size() && text_[at_] == '[') {
      Fail(ErrorCode::kUnsupported, where_, "holds records with named fields; save each field as an array of its own");
    }
    const std::string_view descr = ParseString();
    std::string_view type = descr;
    if (!type.empty() && std::string_view("<>=|").find(type[0]) != std::string_view::npos) {
      header->byte_order = type[0] == '>' ? ByteOrder::kBig : ByteOrder::kLittle;
      type.remove_prefix(1);
    }
    const char kind = type.empty() ? '\0' : type[0];
    if (kind == 'O') {
      Fail(ErrorCode::kUnsupported, where_, "holds pickled Python objects; save numbers, or strings as array.astype(str)");
    }
    std::uint64_t size = 0;
    const char* const end = type.data() + type.size();
    const auto [rest, error] = std::from_chars(type.data() + (kind != '\0'), end, size);
    if (error != std::errc() || rest != end) UnknownType(descr);
    SetType(kind, size, descr, header);
  }

  void SetType(char kind, std::uint64_t size, std::string_view descr, NpyHeader* header) {
    header->item_size = size;
    if (kind == 'S' || kind == 'U') {
      header->kind = kind == 'S' ? NpyHeader::Kind::kBytes : NpyHeader::Kind::kUtf32;
      const bool fits = !__builtin_mul_overflow(size, kind == 'U' ? 4 : 1, &header->item_size);
      if (!fits) Fail(ErrorCode::kCorruptFile, where_, "strings of {} characters cannot be; the header is damaged", size);
      return;
    }
    struct Known {
      char kind;
      std::uint64_t size;
      DType dtype;
    };
    constexpr Known kKnown[] = {{'f', 2, DType::kF16}, {'f', 4, DType::kF32}, {'f', 8, DType::kF64}, {'V', 2, DType::kBF16},
                                {'i', 1, DType::kI8},  {'i', 2, DType::kI16}, {'i', 4, DType::kI32}, {'i', 8, DType::kI64},
                                {'u', 1, DType::kU8},  {'u', 2, DType::kU16}, {'u', 4, DType::kU32}, {'u', 8, DType::kU64},
                                {'b', 1, DType::kBool}};
    const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& candidate) {
      return candidate.kind == kind && candidate.size == size;
    });
    if (known == std::end(kKnown)) UnknownType(descr);
    header->dtype = known->dtype;
  }

  [[noreturn]] void UnknownType(std::string_view descr) const {
    Fail(ErrorCode::kUnsupported, where_,
         "element type {} is not read; save as f2 f4 f8, i1-i8, u1-u8, bool, U or S, for example array.astype('f4')",
         Quoted(descr));
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
  bool has_type_ = false, has_order_ = false, has_shape_ = false;
};

// The length of the header, after checking what stands before it.
std::uint64_t ReadPreamble(ByteStream& stream, std::uint64_t size, std::string_view where, std::uint64_t* preamble_bytes) {
  constexpr std::uint64_t kMaxHeaderBytes = 1 << 20;  // NumPy itself stops at 10 000 characters
  unsigned char bytes[12] = {};
  const auto cut = [&](std::uint64_t needed) {
    Fail(ErrorCode::kCorruptFile, where, "has {} bytes, an npy header needs {}; the file was cut short", size, needed);
  };
  if (size < 10) cut(10);
  stream.Read(bytes, 8);
  if (std::memcmp(bytes, kNpyMagic.data(), kNpyMagic.size()) != 0) {
    Fail(ErrorCode::kCorruptFile, where, "does not begin like an npy file, 93 'NUMPY'; save it with numpy.save");
  }
  const int major = bytes[6], minor = bytes[7];
  if (major < 1 || major > 3 || minor != 0) {
    Fail(ErrorCode::kUnsupported, where, "npy version {}.{} is not known; save as version 1.0, 2.0 or 3.0", major, minor);
  }
  *preamble_bytes = major == 1 ? 10 : 12;
  if (size < *preamble_bytes) cut(*preamble_bytes);
  stream.Read(bytes + 8, *preamble_bytes - 8);
  std::uint64_t length = bytes[8] | bytes[9] << 8;
  if (major > 1) length |= static_cast<std::uint64_t>(bytes[10]) << 16 | static_cast<std::uint64_t>(bytes[11]) << 24;
  if (length > size - *preamble_bytes) cut(*preamble_bytes + length);
  if (length > kMaxHeaderBytes) {
    Fail(ErrorCode::kCorruptFile, where, "npy header of {} bytes is longer than {}; the header is damaged", length,
         kMaxHeaderBytes);
  }
  return length;
}

std::string_view Descr(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "<f8";
    case DType::kF32:
      return "<f4";
    case DType::kF16:
      return "<f2";
    case DType::kBF16:
      return "<V2";
    case DType::kI64:
      return "<i8";
    case DType::kI32:
      return "<i4";
    case DType::kI16:
      return "<i2";
    case DType::kI8:
      return "|i1";
    case DType::kU64:
      return "<u8";
    case DType::kU32:
      return "<u4";
    case DType::kU16:
      return "<u2";
    case DType::kU8:
      return "|u1";
    case DType::kBool:
      return "|b1";
  }
  return "";
}

std::string HeaderBytes(std::string_view descr, const Dims& shape) {
  constexpr std::size_t kAlignment = 64, kPreambleBytes = 10;
  std::string dims = fmt::format("{}", fmt::join(shape.begin(), shape.end(), ", "));
  if (shape.size() == 1) dims += ',';
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, dims);
  const std::size_t unpadded = kPreambleBytes + text.size() + 1;
  text.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string bytes(kNpyMagic);
  bytes += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return bytes + text;
}

}  // namespace

NpyHeader ReadNpyHeader(ByteStream& stream, std::uint64_t size, std::string_view where) {
  NpyHeader header;
  std::uint64_t preamble_bytes = 0;
  std::string text(ReadPreamble(stream, size, where, &preamble_bytes), '\0');
  stream.Read(text.data(), text.size());
  header.header_bytes = preamble_bytes + text.size();
  HeaderParser(text, where).Parse(&header);

  const std::uint64_t needed = CheckedBytes(where, header.shape, header.item_size);
  if (header.item_size == 0 && NumElements(header.shape) > 0) {  // no byte of the file would answer for any number of elements
    Fail(ErrorCode::kUnsupported, where, "holds {} strings of length 0; save them with one character at least",
         ToString(header.shape));
  }
  if (needed != size - header.header_bytes) {
    Fail(ErrorCode::kCorruptFile, where, "shape {} of {}-byte elements needs {} bytes, {} follow the header; {}",
         ToString(header.shape), header.item_size, needed, size - header.header_bytes,
         needed > size - header.header_bytes ? "the file was cut short" : "store one array a file");
  }
  return header;
}

std::string NpyHeaderBytes(DType dtype, const Dims& shape) { return HeaderBytes(Descr(dtype), shape); }

std::string NpyStringHeaderBytes(std::size_t characters, std::int64_t count) {
  return HeaderBytes(fmt::format("<U{}", characters), {count});
}

}  // namespace regard::io
