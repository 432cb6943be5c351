#include "cli/streams.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "io/file_error.h"

namespace regard::cli {
namespace {

constexpr std::size_t kFlushBytes = 1 << 16;
constexpr long kMostColumns = 10'000;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// 0, or errno.
int WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Of the terminal behind a descriptor; 80 when there is none.
int Columns(int descriptor) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Of results: what the environment states, as for other programs, else the terminal's.
int ResultColumns() {
  const char* const stated = std::getenv("COLUMNS");
  const long columns = stated != nullptr ? std::strtol(stated, nullptr, 10) : 0;
  return columns > 0 && columns <= kMostColumns ? static_cast<int>(columns) : Columns(STDOUT_FILENO);
}

}  // namespace

Streams::Streams()
    : is_terminal_(isatty(STDOUT_FILENO) != 0), errors_to_terminal_(isatty(STDERR_FILENO) != 0), width_(ResultColumns()) {}

void Streams::Print(std::string_view text) {
  if (text.empty()) return;
  EndProgress();
  printed_ = true;
  buffer_ += text;
  if (buffer_.size() >= kFlushBytes) Flush();
}

void Streams::Flush() {
  const std::string bytes = std::move(buffer_);
  buffer_.clear();
  const int error = WriteAll(STDOUT_FILENO, bytes);
  if (error == EPIPE) throw ReaderGone();
  if (error != 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("standard output: {}; the results are incomplete", std::generic_category().message(error)));
  }
}

void Streams::Note(std::string_view line) {
  EndProgress();
  WriteAll(STDERR_FILENO, fmt::format("regard: note: {}\n", io::Printable(line)));
}

void Streams::Fail(std::string_view message) {
  EndProgress();
  WriteAll(STDERR_FILENO, fmt::format("regard: {}\n", message));
}

void Streams::Progress(double fraction) {
  if (errors_to_terminal_) WriteAll(STDERR_FILENO, progress_.Update(fraction, Now(), Columns(STDERR_FILENO)));
}

void Streams::EndProgress() { WriteAll(STDERR_FILENO, progress_.Remove()); }

}  // namespace regard::cli
