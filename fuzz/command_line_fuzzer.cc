// Any bytes as a command line: one word a line, without the program's name. It is read, or refused as a usage error or for a number out of range.
#include <string>
#include <vector>

#include "cli/options.h"
#include "fuzz/target.h"
#include "io/raw.h"

namespace regard::fuzz {
namespace {

std::vector<std::string> Words(std::span<const std::uint8_t> bytes) {
  std::vector<std::string> words = {"regard"};
  std::string word;
  for (const std::uint8_t byte : bytes) {
    if (byte == '\n') {
      words.push_back(word);
      word.clear();
    } else if (byte != 0) {  // ends a word of argv
      word += static_cast<char>(byte);
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

}  // namespace

std::string Outcome(std::span<const std::uint8_t> bytes) {
  const std::vector<std::string> words = Words(bytes);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    return OutcomeOf({ErrorCode::kInvalidArgument}, [&] {
      const cli::Options options = cli::ParseCommandLine(static_cast<int>(argv.size()), argv.data());
      Check(options.command.empty() != options.text.empty(), "a command line asks for a command or for a text");
      for (const std::string& source : options.sources) io::ParseRawSpecification(source);
      for (const io::Selection* selection : {&options.batch, &options.head, &options.row, &options.layers})
        Check(selection->Indices(40).size() <= 40, "a selection holds no index twice");
    });
  } catch (const cli::UsageError& error) {
    CheckMessage(error.what());
    return std::string("usage: ") + error.what();
  }
}

}  // namespace regard::fuzz
