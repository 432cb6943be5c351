// How a call ends that somebody asked to stop.
#pragma once

#include <stop_token>

#include "regard/error.h"

namespace regard::internal {

/// Throws Error kCancelled if somebody asked to stop.
inline void ThrowIfStopped(const std::stop_token& stop) {
  if (stop.stop_requested()) throw Error(ErrorCode::kCancelled, "stopped on request");
}

}  // namespace regard::internal
