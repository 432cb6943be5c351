// regard info: what this build is and what this machine offers it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "measure/machine.h"
#include "regard/info.h"

namespace regard::cli {

ExitStatus InfoCommand(const Options& options, Streams& streams) {
  const std::vector<Target> targets = Targets();
  const measure::Machine machine = measure::DescribeMachine();
  if (options.json) {
    nlohmann::ordered_json json = {{"command", "info"},
                                   {"version", machine.version},
                                   {"cpu", machine.cpu},
                                   {"default_target", BestTarget()},
                                   {"default_threads", DefaultThreads()},
                                   {"blas", machine.blas},
                                   {"compiler", machine.compiler}};
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
  if (names.find("AVX3") != std::string::npos) names += "; AVX3 is AVX-512";
  streams.Print(fmt::format("version   {}\ncpu       {}\ntargets   {}\nthreads   {}\nblas      {}\ncompiler  {}\n",
                            machine.version, machine.cpu, names, DefaultThreads(), machine.blas, machine.compiler));
  return ExitStatus::kDone;
}

}  // namespace regard::cli
