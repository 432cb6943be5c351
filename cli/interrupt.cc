#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>

#include "regard/error.h"

namespace regard::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr char kQuit = 0;  // what comes through the pipe; else a signal
constexpr int kPatienceMs = 5000;
int pipe_ends[2] = {-1, -1};  // read, write

bool IsHandledBy(int signal, void (*handler)(int)) {
  struct sigaction current = {};
  return sigaction(signal, nullptr, &current) == 0 && current.sa_handler == handler;
}

// Calls only what a handler may.
extern "C" void OnInterrupt(int number) {
  const int saved = errno;
  for (const int other : kSignals) {
    if (IsHandledBy(other, OnInterrupt)) signal(other, SIG_DFL);  // the second has its default effect
  }
  const char byte = static_cast<char>(number);
  [[maybe_unused]] const ssize_t written = write(pipe_ends[1], &byte, 1);
  errno = saved;
}

// Until the watcher ends.
void Watch(std::stop_source source) {
  for (;;) {
    char byte = kQuit;
    const ssize_t count = read(pipe_ends[0], &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count != 1 || byte == kQuit) return;
    source.request_stop();
    pollfd more = {pipe_ends[0], POLLIN, 0};
    int ready;
    while ((ready = poll(&more, 1, kPatienceMs)) < 0 && errno == EINTR) continue;
    if (ready == 0) kill(getpid(), byte);
  }
}

}  // namespace

InterruptWatcher::InterruptWatcher() {
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kOutOfMemory,
                "the system refuses a pipe: " + std::generic_category().message(errno) + "; give the command more open files");
  }
  try {
    thread_ = std::thread(Watch, source_);
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kOutOfMemory, std::string("the system refuses a thread: ") + error.code().message() +
                                             "; give the command more memory or processes");
  }
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART;
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
