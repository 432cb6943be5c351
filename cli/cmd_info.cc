// regard info: what this build is and what this machine offers it.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "regard/info.h"

namespace regard::cli {
namespace {

// The processor's own name, from the kernel's list; "unknown" where there is none.
std::string CpuModel() {
  std::ifstream list("/proc/cpuinfo");
  for (std::string line; std::getline(list, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string Compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#else
  return "unknown";
#endif
}

}  // namespace

ExitStatus InfoCommand(const Options& options, Streams& streams) {
  const std::vector<Target> targets = Targets();
  if (options.json) {
    nlohmann::ordered_json json = {{"command", "info"},
                                   {"version", Version()},
                                   {"cpu", CpuModel()},
                                   {"default_target", BestTarget()},
                                   {"default_threads", DefaultThreads()},
                                   {"blas", BlasDescription()},
                                   {"compiler", Compiler()}};
    json["targets"] = nlohmann::ordered_json::array();
    for (const Target& target : targets) json["targets"].push_back({{"name", target.name}, {"supported", target.supported}});
    streams.Print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
    return ExitStatus::kDone;
  }
  std::string names;
  for (const Target& target : targets) {
    const std::string note = target.name == BestTarget() ? " (default)" : target.supported ? "" : " (not on this CPU)";
    names += (names.empty() ? "" : ", ") + target.name + note;
  }
  streams.Print(fmt::format("version   {}\ncpu       {}\ntargets   {}\nthreads   {}\nblas      {}\ncompiler  {}\n", Version(),
                            CpuModel(), names, DefaultThreads(), BlasDescription(), Compiler()));
  return ExitStatus::kDone;
}

}  // namespace regard::cli
