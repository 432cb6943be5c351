// The verbs. Each parses nothing and computes little: it loads the problem, calls the library, prints. Errors are thrown.
#pragma once

#include "cli/options.h"
#include "cli/streams.h"

namespace regard::cli {

ExitStatus RunCommand(const Options& options, Streams& streams);      // cmd_run.cc
ExitStatus ExplainCommand(const Options& options, Streams& streams);  // cmd_explain.cc
ExitStatus BenchCommand(const Options& options, Streams& streams);    // cmd_bench.cc
ExitStatus CheckCommand(const Options& options, Streams& streams);    // cmd_check.cc
ExitStatus MapCommand(const Options& options, Streams& streams);      // cmd_map.cc
ExitStatus InfoCommand(const Options& options, Streams& streams);     // cmd_info.cc

}  // namespace regard::cli
