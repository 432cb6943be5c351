// A case made ready to be called: its data, plan and scratch in memory, and what one call does.
#pragma once

#include <functional>
#include <stop_token>

#include "measure/cases.h"
#include "measure/verify.h"

namespace regard::measure {

/// Of one call.
struct Work {
  double flops = 0, bytes = 0;
  double pairs = 0;  // of a query and a key that it sees; tokens appended
};

/// Lives as long as one of its functions: they own what they work on.
struct PreparedCase {
  BenchCase bench_case;
  Work work;
  std::function<void()> call;            // what is timed
  std::function<Verification()> verify;  // calls once, and looks at the result
};

/// The longest take a gigabyte. `stop` ends calls as well. Throws Error kOutOfMemory, kCancelled, kUnsupported.
PreparedCase PrepareCase(const BenchCase& bench_case, const std::stop_token& stop);

}  // namespace regard::measure
