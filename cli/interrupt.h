// Ctrl-C, and the signals by which others ask for the same: SIGTERM, SIGHUP. The first ends the run soon, through a stop token, and leaves no
// temporary file. The second, of any kind, ends the process at once, and so does the first after five seconds in which nobody asked the token:
// a command may wait for input that does not come, or for a reader of its output.
#pragma once

#include <stop_token>
#include <thread>

namespace regard::cli {

/// While it lives, these signals request a stop. One at a time.
class InterruptWatcher {
 public:
  InterruptWatcher();
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;
  ~InterruptWatcher();

  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::thread thread_;  // a signal handler may not request a stop itself; it writes to a pipe that this thread reads
};

}  // namespace regard::cli
