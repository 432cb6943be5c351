#include "regard/error.h"

#include <cstdarg>
#include <cstdio>

namespace regard {

const char* Name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kShapeMismatch:
      return "shape_mismatch";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorruptFile:
      return "corrupt_file";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

Status Status::Failure(ErrorCode code, const char* format, ...) noexcept {
  Status status;
  status.code_ = code;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(status.message_, sizeof(status.message_), format, arguments);
  va_end(arguments);
  return status;
}

void Status::ThrowIfFailed() const {
  if (!ok()) throw Error(code_, message_);
}

}  // namespace regard
