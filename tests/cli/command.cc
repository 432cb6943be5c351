#include "tests/cli/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace regard::tests {
namespace {

// What is written to one end is read from the other. Both close when it dies, or before.
class Pipe {
 public:
  /// A terminal of so many columns, whose screen is the end to read; 0: a pipe.
  explicit Pipe(int columns = 0) {
    if (columns == 0) {
      if (pipe2(ends_, O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
      return;
    }
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    if (openpty(&ends_[0], &ends_[1], nullptr, nullptr, &size) != 0) ADD_FAILURE() << "no terminal";
    for (const int end : ends_) fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void CloseRead() { Close(0); }
  void CloseWrite() { Close(1); }

 private:
  void Close(int end) {
    if (ends_[end] >= 0) close(ends_[end]);
    ends_[end] = -1;
  }
  int ends_[2] = {-1, -1};
};

std::string ReadToEnd(int descriptor, const std::string& awaited, std::atomic<bool>* has_come) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(descriptor, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
    if (!awaited.empty() && text.find(awaited) != std::string::npos) *has_come = true;
  }
  return text;
}

// In the child: from here to exec only what is safe after a fork of a program with threads.
[[noreturn]] void Become(char* const* argv, const RunOptions& options, int in, int out, int err) {
  if (!options.output_file.empty()) out = open(options.output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out >= 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2) {
    for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP})
      signal(number, SIG_DFL);                 // whoever started the tests may ignore some
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);  // and have given them files
    for (int descriptor = 0; descriptor < 3; ++descriptor) {
      if (options.closed[descriptor]) close(descriptor);
    }
    const auto limit = [](auto resource, std::uint64_t most) {
      const rlimit limits = {most, most};
      return most == 0 || setrlimit(resource, &limits) == 0;
    };
    if (limit(RLIMIT_AS, options.address_space) && limit(RLIMIT_FSIZE, options.file_size) && limit(RLIMIT_STACK, options.stack) &&
        limit(RLIMIT_NOFILE, options.open_files)) {
      execv(argv[0], argv);
    }
  }
  _exit(127);
}

}  // namespace

Outcome RunRegard(const std::vector<std::string>& arguments, const RunOptions& options) {
  std::vector<std::string> words = {REGARD_COMMAND};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  Pipe in, out, err(options.terminal_columns);
  if (options.close_output) out.CloseRead();
  const pid_t child = fork();
  if (child == 0) Become(argv.data(), options, in.read_end(), out.write_end(), err.write_end());
  if (child < 0) {
    ADD_FAILURE() << "no process";
    return {};
  }
  in.CloseRead();
  out.CloseWrite();
  err.CloseWrite();

  Outcome outcome;
  std::atomic<bool> ended = false, has_come = false;
  std::thread read_out([&] {
    if (!options.close_output) outcome.out = ReadToEnd(out.read_end(), {}, nullptr);
  });
  std::thread read_err([&] { outcome.err = ReadToEnd(err.read_end(), options.interrupt_when, &has_come); });
  std::chrono::steady_clock::time_point signal_time;
  std::thread watch([&] {
    const auto start = std::chrono::steady_clock::now();
    bool interrupted = false;
    while (!ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto passed = std::chrono::steady_clock::now() - start;
      const bool is_time = options.interrupt_after_ms > 0 && passed >= std::chrono::milliseconds(options.interrupt_after_ms);
      if (!interrupted && (is_time || has_come)) {
        signal_time = std::chrono::steady_clock::now();
        kill(child, options.interrupt_by);
        interrupted = true;
      }
      if (passed > std::chrono::minutes(5)) {
        ADD_FAILURE() << "still running after five minutes";
        kill(child, SIGKILL);
        return;
      }
    }
  });
  // What is fed in is shorter than a pipe holds, so that this cannot wait for a command that does not read.
  if (!options.input.empty() && write(in.write_end(), options.input.data(), options.input.size()) < 0)
    ADD_FAILURE() << "no input";
  if (!options.input_stays_open) in.CloseWrite();

  int status = 0;
  siginfo_t waited;
  waitid(P_PID, static_cast<id_t>(child), &waited, WEXITED | WNOWAIT);  // its number stays taken while `watch` may use it
  const auto end = std::chrono::steady_clock::now();
  ended = true;
  watch.join();
  if (signal_time != std::chrono::steady_clock::time_point()) {
    outcome.ms_after_interrupt =
        static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(end - signal_time).count());
  }
  waitpid(child, &status, 0);
  read_out.join();
  read_err.join();
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace regard::tests
