// How regard reports that something is wrong.
//
// Functions that take input from outside (making a Plan, opening a file, a one-line call such as Attention) throw Error.
// Plan::Run is noexcept and allocates nothing: it returns a Status instead. Both carry one of the same codes and a message that
// names the argument, its value, what was expected and a next step:
//
//     k: kv_heads=3 does not divide heads=8; use 1, 2, 4 or 8
//
// The library never prints and never exits.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "regard/export.h"

namespace regard {

enum class ErrorCode : std::uint8_t {
  kOk = 0,
  kInvalidArgument,  // a value that the contract excludes: scale 0, an integer mask, kv_lens beyond kv_len
  kShapeMismatch,    // two tensors that do not fit together
  kUnsupported,      // legal elsewhere, not here: complex numbers, an ISA this CPU lacks
  kCorruptFile,      // bytes that break their format's grammar
  kIo,               // the operating system refused: not found, permission, disk full
  kOutOfMemory,      // an allocation was refused, by the system or by a stated limit
  kCancelled,        // ExecOptions::stop_token was triggered
  kInternal,         // a defect in regard
};

/// The code's name as it appears in JSON and logs, for example "shape_mismatch".
REGARD_API const char* Name(ErrorCode code);

class REGARD_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// What Plan::Run returns. Holds its message in place, so that reporting a fault allocates nothing.
class [[nodiscard]] REGARD_API Status {
 public:
  Status() noexcept = default;  // ok
  /// printf-style message, cut to fit.
  static Status Failure(ErrorCode code, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

  bool ok() const noexcept { return code_ == ErrorCode::kOk; }
  ErrorCode code() const noexcept { return code_; }
  const char* message() const noexcept { return message_; }
  /// Throws Error with this code and message unless ok.
  void ThrowIfFailed() const;

 private:
  ErrorCode code_ = ErrorCode::kOk;
  char message_[255] = {};
};

}  // namespace regard
