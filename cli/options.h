// What the command line says. One list of options (options.cc) gives the flags of every command, their help and their parsing.
//
//     const regard::cli::Options options = regard::cli::ParseCommandLine(argc, argv);
//     if (options.command == "run") return regard::cli::RunCommand(options, streams);
//
// A flag known from elsewhere (--is-causal, --softcap, …) is refused with regard's spelling and any change of meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_error.h"
#include "regard/attention.h"
#include "regard/problem.h"

namespace regard::cli {

/// How the command ends. The one place that maps errors to it is ExitStatusOf in main.cc.
enum class ExitStatus : int {
  kDone = 0,
  kUsage = 1,          // the command line cannot be understood
  kBadInput = 2,       // a file, or a value in it or in a flag
  kDifference = 3,     // `check` found one
  kPathsDisagree = 4,  // regard's own paths differ by more than their bounds
  kFailed = 5,         // internal, or out of memory
  kInterrupted = 130,
};

/// Thrown for command lines that cannot be understood. The message is printable, whatever the words hold.
class UsageError : public std::runtime_error {
 public:
  explicit UsageError(const std::string& message) : runtime_error(io::Printable(message)) {}
};

/// What --save may name.
inline constexpr std::string_view kSavable[] = {"context", "lse",       "scores", "capped", "masked_scores",
                                                "weights", "projected", "q",      "k",      "v"};

struct Options {
  std::string command;               // "run", "explain", "check", "map", "bench", "info"; empty when text is set
  std::vector<std::string> sources;  // IN …
  io::ProblemOptions problem;

  std::optional<Path> path;  // --path; also in exec
  ExecOptions exec;          // path, isa, threads; the stop token is set by main

  std::string output;                    // -o
  std::string observed, observed_again;  // --observed, --observed-again
  std::vector<std::string> save;         // --save; empty: the command's default
  bool json = false;
  io::Selection batch, head, row;
  io::Selection layers;                                   // --layer of run and map
  std::string html;                                       // --html
  int top_k = 8;                                          // --top-k
  std::pair<std::int64_t, std::int64_t> bins = {64, 64};  // --bins: rows, columns
  std::optional<std::int64_t> last_queries;               // --last-queries
  std::optional<int> dim;                                 // --dim: softmax along another axis; negative counts from the end

  bool grad = false;  // --grad

  bool quick = false, stages = false;  // --quick, --stages
  std::string bench_case;              // --case: part of a name; empty: all

  std::uint64_t max_memory = std::uint64_t{1} << 30;

  std::string text;  // not empty: print this instead of running (--help, --version, --man, --completion)
};

/// One flag of a command, for manuals.
struct FlagFacts {
  std::string name;   // with its dashes
  std::string value;  // what stands for its value in help; in brackets when it may be left out, empty when there is none
  std::string help;
};
struct CommandFacts {
  std::string name, purpose, example;
  std::vector<FlagFacts> flags;
};
std::vector<CommandFacts> AllCommands();
/// What IN may be, as help says it.
std::string SourceKinds();

/// Throws UsageError for what cannot be understood, Error kInvalidArgument for numbers out of range.
Options ParseCommandLine(int argc, const char* const* argv);

/// "512MiB", "2G", "1.5e9", "1000": K, M, G, T are powers of 1024, with or without iB or B. Throws likewise, naming `flag`.
std::uint64_t ParseSize(const std::string& flag, const std::string& text);

}  // namespace regard::cli
