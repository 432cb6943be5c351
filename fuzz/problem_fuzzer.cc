// Any list of arrays and scalars as the files of a problem: it is loaded and computed, or refused. The bytes are lines:
//
//     q f32 2x3x4x8          an array of that name, type and shape, with numbers made up
//     scale 0.5              metadata
//     -layout hsd            an option of LoadProblem
//
// which become a .safetensors file in memory, since bytes of such a file itself would mostly be refused before the keys are looked at.
#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "core/split_mix64.h"
#include "fuzz/target.h"
#include "io/utf8.h"
#include "regard/attention.h"
#include "regard/problem.h"

namespace regard::fuzz {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostElements = 4096;

struct Input {
  json header = json::object();
  std::map<std::string, std::string> metadata;
  std::string data;
  io::ProblemOptions options;
};

std::optional<std::int64_t> ToInteger(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

// "2x3" as axes; nothing when it is none or too much.
std::optional<std::vector<std::int64_t>> ToShape(const std::string& text) {
  std::vector<std::int64_t> shape;
  std::istringstream parts(text);
  std::int64_t count = 1;
  for (std::string part; std::getline(parts, part, 'x');) {
    const std::optional<std::int64_t> axis = ToInteger(part);
    if (!axis || *axis < 0 || *axis > kMostElements) return {};
    shape.push_back(*axis);
    count *= *axis;
    if (count > kMostElements || shape.size() > 9) return {};
  }
  return shape;
}

void SetOption(const std::string& name, const std::string& value, io::ProblemOptions* options) {
  const std::optional<std::int64_t> number = ToInteger(value);
  const auto as_float = [&]() -> std::optional<float> {
    if (!number) return {};
    return static_cast<float>(*number) / 4;
  };
  if (name == "-layout") {
    io::Layout layout;
    if (io::ParseLayout(value, &layout)) options->layout = layout;
  } else if (name == "-causal") {
    options->causal = value != "0";
  } else if (name == "-q_offset") {
    using Rule = io::QOffsetChoice::Rule;
    options->q_offset = {.rule = value == "top-left"       ? Rule::kTopLeft
                                 : value == "bottom-right" ? Rule::kBottomRight
                                                           : Rule::kNumber,
                         .number = number.value_or(0)};
  } else if (name == "-window_left") {
    options->window_left = number;
  } else if (name == "-window_right") {
    options->window_right = number;
  } else if (name == "-num_heads") {
    options->num_heads = number;
  } else if (name == "-num_kv_heads") {
    options->num_kv_heads = number;
  } else if (name == "-layer") {
    options->layer = number;
  } else if (name == "-scale") {
    options->scale = as_float();
  } else if (name == "-soft_cap") {
    options->soft_cap = as_float();
  }
}

// Numbers that are as good as any for floats, and for integers runs of three, as lengths, offsets and segments may be, with a wrong one now and then.
std::string MadeUp(const std::string& type, std::uint64_t bytes, internal::SplitMix64& bits) {
  std::string data;
  const bool is_integer = type[0] == 'I' || type[0] == 'U' || type == "BOOL";
  const std::size_t item = type.ends_with("64") ? 8 : type.ends_with("32") ? 4 : type.ends_with("16") ? 2 : 1;
  const std::int64_t first_run = static_cast<std::int64_t>(bits.Next() % 4) - 1;
  while (data.size() < bytes) {
    const std::uint64_t random = bits.Next();
    if (is_integer) {
      const std::int64_t run = first_run + static_cast<std::int64_t>(data.size() / item / 3);
      const std::int64_t value = type == "BOOL" ? static_cast<std::int64_t>(random & 1) : random % 64 == 0 ? -1 : run;
      data.append(reinterpret_cast<const char*>(&value), item);
    } else if (type == "F32") {
      const float value = static_cast<float>(random % 2001) / 500 - 2;
      data.append(reinterpret_cast<const char*>(&value), item);
    } else {
      data.append(reinterpret_cast<const char*>(&random), item);  // any bits: infinities and NaNs too
    }
  }
  data.resize(bytes);
  return data;
}

Input Parse(std::span<const std::uint8_t> bytes) {
  Input input;
  internal::SplitMix64 bits(bytes.size());
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  for (std::string line; std::getline(lines, line);) {
    if (!io::IsUtf8(line)) continue;
    std::istringstream words(line);
    std::string name, second, third;
    words >> name >> second >> third;
    DType dtype = DType::kF32;
    const std::optional<std::vector<std::int64_t>> shape = ToShape(third);
    if (name.starts_with('-')) {
      SetOption(name, second, &input.options);
    } else if (ParseDType(second, &dtype) && shape && !input.header.contains(name)) {
      std::string type(second);
      for (char& c : type) c = static_cast<char>(std::toupper(c));
      std::int64_t count = 1;
      for (const std::int64_t axis : *shape) count *= axis;
      const std::size_t begin = input.data.size();
      input.data += MadeUp(type, static_cast<std::uint64_t>(count) * ItemSize(dtype), bits);
      input.header[name] = {{"dtype", type}, {"shape", *shape}, {"data_offsets", {begin, input.data.size()}}};
    } else if (!name.empty()) {
      const std::size_t value = line.find_first_not_of(" \t", line.find(name) + name.size());
      input.metadata[name] = value == std::string::npos ? "" : line.substr(value);
    }
  }
  return input;
}

// A file in memory that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : descriptor_(memfd_create("input", MFD_CLOEXEC)) {
    Check(descriptor_ >= 0 && write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
          "a file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void LoadAndCompute(const std::string& path, const io::ProblemOptions& options) {
  const io::Problem p = io::LoadProblem({path}, options);
  CheckMessage(p.reading);
  for (const std::string& note : p.notes) CheckMessage(note);
  for (const std::string& name : p.observed) p.ReadObserved(name);
  if (p.kind == io::Problem::Kind::kThirdStage) return;
  const AttentionResult r = Attention(p.q, p.k, p.v, p.params, {.threads = 1});
  const Tensor context = p.ToFileShape("context", Tensor::CopyOf(r.context));
  Check(context.num_elements() == r.context.num_elements(), "a result has as many elements in the layout of the file");
}

}  // namespace

std::string Outcome(std::span<const std::uint8_t> bytes) {
  Input input = Parse(bytes);
  if (!input.metadata.empty()) input.header["__metadata__"] = input.metadata;
  const std::string header = input.header.dump();
  std::string file;
  const std::uint64_t length = header.size();
  file.append(reinterpret_cast<const char*>(&length), sizeof length);
  const MemoryFile memory(file + header + input.data);
  return OutcomeOf({ErrorCode::kCorruptFile, ErrorCode::kUnsupported, ErrorCode::kInvalidArgument, ErrorCode::kShapeMismatch},
                   [&] { LoadAndCompute(memory.path(), input.options); });
}

}  // namespace regard::fuzz
