// What standard output can show.
#pragma once

#include "cli/streams.h"
#include "report/heat_map.h"

namespace regard::cli {

/// 24-bit colours where COLORTERM promises them, 256 where the terminal's name does, else none; NO_COLOR is respected.
report::Colors ColorsOf(const Streams& streams);

}  // namespace regard::cli
