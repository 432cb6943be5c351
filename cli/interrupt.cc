#include "cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>

#include "regard/error.h"

namespace regard::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr char kInterrupted = 'i', kQuit = 'q';
int pipe_ends[2] = {-1, -1};  // read, write

extern "C" void OnInterrupt(int) {
  const int saved = errno;
  [[maybe_unused]] const ssize_t written = write(pipe_ends[1], &kInterrupted, 1);
  errno = saved;
}

bool IsHandledBy(int signal, void (*handler)(int)) {
  struct sigaction current = {};
  return sigaction(signal, nullptr, &current) == 0 && current.sa_handler == handler;
}

}  // namespace

InterruptWatcher::InterruptWatcher() {
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kOutOfMemory,
                "the system refuses a pipe: " + std::generic_category().message(errno) + "; give the command more open files");
  }
  try {
    thread_ = std::thread([source = source_]() mutable {
      char byte = 0;
      for (;;) {
        const ssize_t count = read(pipe_ends[0], &byte, 1);
        if (count < 0 && errno == EINTR) continue;
        if (count == 1 && byte == kInterrupted) {
          source.request_stop();
          continue;
        }
        return;
      }
    });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kOutOfMemory, std::string("the system refuses a thread: ") + error.code().message() +
                                             "; give the command more memory or processes");
  }
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // reset: the second one has its default effect
  for (const int signal : kSignals) {
    if (!IsHandledBy(signal, SIG_IGN)) sigaction(signal, &action, nullptr);  // ignored as nohup and `&` in scripts ask for
  }
}

InterruptWatcher::~InterruptWatcher() {
  for (const int signal : kSignals) {
    if (IsHandledBy(signal, OnInterrupt)) std::signal(signal, SIG_DFL);
  }
  while (write(pipe_ends[1], &kQuit, 1) < 0 && errno == EINTR) continue;
  thread_.join();
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace regard::cli
