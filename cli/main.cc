// The command: reads the command line, calls a verb, and turns whatever happens into an exit status.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/streams.h"

namespace regard::cli {
namespace {

/// The one map from what went wrong to how the command ends.
ExitStatus ExitStatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return ExitStatus::kDone;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kShapeMismatch:
    case ErrorCode::kUnsupported:
    case ErrorCode::kCorruptFile:
    case ErrorCode::kIo:
      return ExitStatus::kBadInput;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kInternal:
      return ExitStatus::kFailed;
    case ErrorCode::kCancelled:
      return ExitStatus::kInterrupted;
  }
  return ExitStatus::kFailed;
}

// Says what went wrong: one line on standard error and, with --json, an object on standard output, unless results stand there already.
ExitStatus Fail(Streams& streams, bool json, std::string_view code, const std::string& text, ExitStatus status) noexcept {
  try {
    const std::string message = io::Printable(text);  // names of files are whatever they are
    streams.Fail(message);
    if (json && !streams.printed()) {
      const nlohmann::json object = {
          {"error", {{"code", code}, {"message", message}, {"exit_status", static_cast<int>(status)}}}};
      streams.Print(object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      streams.Flush();
    }
  } catch (const std::exception&) {
    // Standard output is what failed, or memory: the status still tells.
  }
  return status;
}

ExitStatus RunVerb(const Options& options, Streams& streams) {
  if (options.command == "run") return RunCommand(options, streams);
  if (options.command == "explain") return ExplainCommand(options, streams);
  if (options.command == "check") return CheckCommand(options, streams);
  if (options.command == "bench") return BenchCommand(options, streams);
  if (options.command == "map") return MapCommand(options, streams);
  return InfoCommand(options, streams);
}

ExitStatus Main(int argc, const char* const* argv, Streams& streams) {
  bool json = false;
  for (int i = 1; i < argc; ++i) json = json || std::string_view(argv[i]) == "--json";  // also when the rest is not understood
  try {
    Options options = ParseCommandLine(argc, argv);
    if (!options.text.empty()) {
      streams.Print(options.text);
      streams.Flush();
      return ExitStatus::kDone;
    }
    const InterruptWatcher interrupt;
    options.exec.stop_token = interrupt.token();
    options.exec.on_progress = [&streams](double fraction) { streams.Progress(fraction); };
    const ExitStatus status = RunVerb(options, streams);
    streams.EndProgress();
    streams.Flush();
    return status;
  } catch (const UsageError& error) {
    return Fail(streams, json, "usage", error.what(), ExitStatus::kUsage);
  } catch (const ReaderGone&) {
    return ExitStatusOf(ErrorCode::kIo);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) {
      return Fail(streams, json, Name(error.code()),
                  streams.printed() ? "interrupted; the results are incomplete" : "interrupted; nothing was written",
                  ExitStatus::kInterrupted);
    }
    return Fail(streams, json, Name(error.code()), error.what(), ExitStatusOf(error.code()));
  } catch (const std::bad_alloc&) {
    return Fail(streams, json, Name(ErrorCode::kOutOfMemory), "out of memory; give a smaller problem or free some memory",
                ExitStatus::kFailed);
  } catch (const std::exception& error) {
    return Fail(streams, json, Name(ErrorCode::kInternal),
                fmt::format("internal error: {}; please report it with this command line", error.what()), ExitStatus::kFailed);
  }
}

// A caller may have closed descriptor 0, 1 or 2. The next file to be opened would then take that number: results would be written into
// it, and standard input read from it. They get a file with the opposite direction instead, so that reading or writing fails.
void OccupyClosedDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    if (open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) != descriptor)
      std::_Exit(static_cast<int>(ExitStatus::kFailed));
  }
}

// Libraries may end the process: OpenMP's does when the system refuses it a thread, GCC's with status 1, Clang's by abort().
bool ended_by_main = false;
void OnExit() {
  if (ended_by_main) return;
  constexpr std::string_view kMessage =
      "regard: out of memory: a library ended the process; give it more memory, or --threads 1\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  std::_Exit(static_cast<int>(ExitStatus::kFailed));
}

// Ends the process without the destructors of libraries: under a limit of memory a thread of OpenBLAS asks for its buffer for ever, and
// OpenBLAS waits for it. Sanitizers and coverage, which report at the end, want the orderly way.
[[noreturn]] void End(ExitStatus status) {
  ended_by_main = true;
#ifdef REGARD_ORDERLY_EXIT
  std::exit(static_cast<int>(status));
#else
  std::_Exit(static_cast<int>(status));
#endif
}

}  // namespace
}  // namespace regard::cli

int main(int argc, char** argv) {
  regard::cli::OccupyClosedDescriptors();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write() instead
  std::signal(SIGXFSZ, SIG_IGN);  // and so is a file beyond `ulimit -f`
  std::atexit(regard::cli::OnExit);
#ifdef __clang__
  std::signal(SIGABRT, [](int) { regard::cli::OnExit(); });
#endif
  regard::cli::Streams streams;
  regard::cli::End(regard::cli::Main(argc, argv, streams));
}
