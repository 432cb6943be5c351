#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "cli/foreign_flags.h"
#include "cli/manual.h"
#include "cli/option_values.h"
#include "io/near_miss.h"
#include "regard/info.h"

namespace regard::cli {
namespace {

// ------------------------------------------------------------------------------------------------------- commands

enum : unsigned { kRun = 1, kExplain = 2, kInfo = 4, kBench = 8, kCheck = 16, kMap = 32 };
constexpr unsigned kComputes = kRun | kExplain, kReadsFiles = kComputes | kCheck | kMap;

struct Command {
  std::string name;
  unsigned bit;
  std::string purpose;
  std::string example;
};

const Command kCommands[] = {
    {"run", kRun, "the stages of attention: a table of checkpoints, agreement of the paths, times",
     "regard run layer.npz --causal -o result.npz --save context,lse"},
    {"explain", kExplain, "one query in numbers: the result first, then what made it",
     "regard explain layer.npz --row 5 --head 3"},
    {"check", kCheck, "somebody else's results: do they match, where not, and which known mistake made the difference",
     "regard check layer.npz --observed theirs.npz --causal"},
    {"map", kMap, "who attends to whom: kinds of heads, strongest links, heat maps, a page",
     "regard map layer.npz --head 3 --html map.html"},
    {"bench", kBench, "this machine's limits, and what part of them attention reaches", "regard bench --quick"},
    {"info", kInfo, "version, instruction sets, threads and the BLAS that was loaded", "regard info --json"},
};

// -------------------------------------------------------------------------------------------------------- options

// One flag: everything that parsing, help and messages need.
struct Flag {
  std::string name;   // with its dashes
  std::string value;  // what stands for its value in help; empty: it has none
  std::string help;
  unsigned commands;
  std::string group;
  void (*set)(Options& options, const std::string& flag, const std::string& text);
};

const std::string kMaths = "The maths", kReading = "Reading the files", kComputing = "Computing", kShowing = "Results";

const Flag kFlags[] = {
    {"--causal", "[=false]", "key j is visible to query i only when j ≤ i + q_offset; =false overrides a file that says so",
     kReadsFiles, kMaths,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.causal = ParseBool(flag, text); }},
    {"--q-offset", "N|top-left|bottom-right", "keys that precede query 0; the words mean 0 and kv_len − q_len", kReadsFiles,
     kMaths, [](Options& o, const std::string& flag, const std::string& text) { o.problem.q_offset = ParseQOffset(flag, text); }},
    {"--window-left", "N", "a query sees N earlier keys besides its own", kReadsFiles, kMaths,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.window_left = ParseInteger(flag, text); }},
    {"--window-right", "N", "a query sees N later keys", kReadsFiles, kMaths,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.window_right = ParseInteger(flag, text); }},
    {"--scale", "X", "multiplier on q·k; default 1/√dim, and 1 for inputs without projections", kReadsFiles, kMaths,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.scale = ParseFloat(flag, text); }},
    {"--soft-cap", "X", "scores become X·tanh(scores/X)", kReadsFiles, kMaths,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.soft_cap = ParseFloat(flag, text); }},
    {"--dim", "N", "softmax along this axis of the scores instead of the keys' (-1)", kRun, kMaths,
     [](Options& o, const std::string& flag, const std::string& text) { o.dim = ParseSmallInteger(flag, text); }},

    {"--layout", "L", "order of the axes of q, k, v: bhsd, bshd, hsd, shd or bsd", kReadsFiles, kReading,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.layout = ParseLayout(flag, text); }},
    {"--num-heads", "N", "query heads, where they lie side by side in one axis", kReadsFiles, kReading,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.num_heads = ParseInteger(flag, text); }},
    {"--num-kv-heads", "N", "key and value heads; default --num-heads", kReadsFiles, kReading,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.num_kv_heads = ParseInteger(flag, text); }},
    {"--layer", "L", "the layer to read, of keys layers.L.…; default the first", kExplain | kCheck, kReading,
     [](Options& o, const std::string& flag, const std::string& text) { o.problem.layer = ParseInteger(flag, text); }},
    {"--layer", "LIST", "the layers to read, of keys layers.N.…, such as 0,3-5; default the first", kRun, kReading,
     [](Options& o, const std::string& flag, const std::string& text) { o.layers = ParseSelection(flag, text); }},
    {"--layer", "LIST", "the layers to read, of keys layers.N.…, such as 0,3-5; default all", kMap, kReading,
     [](Options& o, const std::string& flag, const std::string& text) { o.layers = ParseSelection(flag, text); }},
    {"--tokens", "FILE", "labels: one token a line, or a JSON list", kReadsFiles, kReading,
     [](Options& o, const std::string&, const std::string& text) { o.problem.tokens = text; }},

    {"--path", "P", "reference, staged or fused", kComputes, kComputing,
     [](Options& o, const std::string& flag, const std::string& text) { o.path = o.exec.path = ParsePath(flag, text); }},
    {"--isa", "NAME", "instruction set, as `regard info` spells them; default the best", kComputes | kMap | kBench, kComputing,
     [](Options& o, const std::string&, const std::string& text) { o.exec.isa = text; }},
    {"--threads", "N", "default 0: all", kReadsFiles, kComputing,
     [](Options& o, const std::string& flag, const std::string& text) { o.exec.threads = ParseSmallInteger(flag, text); }},
    {"--threads", "N", "default 0: one, and two in the cases for it", kBench, kComputing,
     [](Options& o, const std::string& flag, const std::string& text) { o.exec.threads = ParseSmallInteger(flag, text); }},
    {"--max-memory", "SIZE", "refuse to hold more than this beside the inputs, such as 512MiB; default 1GiB", kReadsFiles,
     kComputing, [](Options& o, const std::string& flag, const std::string& text) { o.max_memory = ParseSize(flag, text); }},

    {"--quick", "", "a fifth of the cases, and shorter: under 30 seconds", kBench, kComputing,
     [](Options& o, const std::string& flag, const std::string& text) { o.quick = ParseBool(flag, text); }},
    {"--stages", "", "loops, one product and fused side by side instead, from 6 to 4,096 tokens", kBench, kComputing,
     [](Options& o, const std::string& flag, const std::string& text) { o.stages = ParseBool(flag, text); }},
    {"--case", "TEXT", "only cases with this in their names, such as T2048/d64, and what they are compared with", kBench,
     kComputing, [](Options& o, const std::string&, const std::string& text) { o.bench_case = text; }},

    {"--batch", "LIST", "sequences to show, such as 0,3-5", kComputes | kMap, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.batch = ParseSelection(flag, text); }},
    {"--head", "LIST", "query heads to show", kComputes, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.head = ParseSelection(flag, text); }},
    {"--batch", "LIST", "sequences to compare, such as 0,3-5; default all", kCheck, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.batch = ParseSelection(flag, text); }},
    {"--head", "LIST", "query heads to compare; default all", kCheck, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.head = ParseSelection(flag, text); }},
    {"--head", "LIST", "query heads to show in pictures, and exactly in the page", kMap, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.head = ParseSelection(flag, text); }},
    {"--top-k", "K", "links kept for each query and each key; default 8", kMap, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.top_k = ParseSmallInteger(flag, text); }},
    {"--bins", "RxC", "rows and columns of pooled maps, at most; default 64x64", kMap, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.bins = ParseBins(flag, text); }},
    {"--last-queries", "N", "map the last N queries of each sequence only", kMap, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.last_queries = ParseInteger(flag, text); }},
    {"--html", "FILE", "one page with everything, for a browser", kMap, kShowing,
     [](Options& o, const std::string&, const std::string& text) { o.html = text; }},
    {"--row", "LIST", "queries to explain", kExplain, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.row = ParseSelection(flag, text); }},
    {"--grad", "", "also how a loss moves each weight: d_context of IN, or, without one, the sum of the row's context", kExplain,
     kShowing, [](Options& o, const std::string& flag, const std::string& text) { o.grad = ParseBool(flag, text); }},
    {"--observed", "F[,F...]", "the results to check: .npz, .safetensors, .npy (the context), or stage=FILE; default those in IN",
     kCheck, kReading, [](Options& o, const std::string&, const std::string& text) { o.observed = text; }},
    {"--observed-again", "F[,F...]", "those of a second run of the same program on the same input", kCheck, kReading,
     [](Options& o, const std::string&, const std::string& text) { o.observed_again = text; }},
    {"-o", "FILE", "save results here: .npz or .safetensors; run also one array to .npy", kRun | kMap, kShowing,
     [](Options& o, const std::string&, const std::string& text) { o.output = text; }},
    {"--save", "LIST", "which results; default context,lse", kRun, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.save = ParseNames(flag, text); }},
    {"--json", "", "one JSON object on standard output", kReadsFiles | kBench | kInfo, kShowing,
     [](Options& o, const std::string& flag, const std::string& text) { o.json = ParseBool(flag, text); }},
};

bool TakesValue(const Flag& flag) { return !flag.value.empty() && flag.value[0] != '['; }

constexpr std::string_view kSources = ".npz, .safetensors, rows of text, -, or name=FILE such as q=q.npy";

const Command* FindCommand(std::string_view name) {
  const Command* command = std::ranges::find(kCommands, name, &Command::name);
  return command == std::end(kCommands) ? nullptr : command;
}

// ----------------------------------------------------------------------------------------------- unknown words

// "--soft-cap=3" -> "--soft-cap", "-oFILE" -> "-o"
std::string_view NameOf(std::string_view argument) {
  return argument.starts_with("--") ? argument.substr(0, argument.find('=')) : argument.substr(0, 2);
}

// Whether a word is a flag; "-" is standard input and "-3" a number.
bool IsFlag(std::string_view word) { return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9'); }

std::string CommandsWith(std::string_view flag) {
  unsigned commands = 0;
  for (const Flag& one : kFlags) commands |= one.name == flag ? one.commands : 0;
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if ((commands & command.bit) != 0) names.push_back("`regard " + command.name + "`");
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// The flag that a word names. Refuses words that are no flags of this command, so that CLI11 sees known ones only.
const Flag& FlagOf(std::string_view argument, const Command& command) {
  const std::string_view name = NameOf(argument);
  std::vector<std::string_view> candidates;
  bool is_elsewhere = false;
  for (const Flag& flag : kFlags) {
    const bool of_this_command = (flag.commands & command.bit) != 0;
    if (of_this_command) candidates.push_back(flag.name);
    if (flag.name == name && of_this_command) return flag;
    is_elsewhere = is_elsewhere || flag.name == name;
  }
  if (command.bit == kCheck && (name == "--path" || name == "--isa")) {
    throw UsageError(
        fmt::format("{}: `regard check` computes every mistake from the definition, in double precision; leave it out, or "
                    "compare paths with `regard run`",
                    name));
  }
  if (is_elsewhere) {
    throw UsageError(
        fmt::format("{}: not a flag of `regard {}`, but of {}; leave it out", name, command.name, CommandsWith(name)));
  }
  if (const ForeignFlag* foreign = FindForeignFlag(name)) {
    throw UsageError(fmt::format("{}: not a flag of regard; use {}{}{}", name, foreign->advice,
                                 foreign->because.empty() ? "" : ": ", foreign->because));
  }
  const std::string_view word = argument.substr(0, argument.find('='));  // of one dash, too: -threads
  const std::string_view nearest = word.size() > 2 ? io::NearMiss(word, candidates) : std::string_view();
  throw UsageError(nearest.empty() ? fmt::format("{}: unknown flag; see `regard {} --help`", word, command.name)
                                   : fmt::format("{}: unknown flag; did you mean {}?", word, nearest));
}

// Everything about the words that CLI11 would say less clearly.
void CheckArguments(const std::vector<std::string>& arguments, const Command& command) {
  std::vector<std::string_view> seen;
  bool only_files = false;  // behind "--"
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!only_files && (word == "--help" || word == "-h")) continue;
    if (!only_files && word == "--") {
      only_files = true;
      continue;
    }
    if (only_files || !IsFlag(word)) {
      if ((command.bit & kReadsFiles) == 0)
        throw UsageError(fmt::format("'{}': `regard {}` reads no files; leave it out", word, command.name));
      continue;
    }
    const Flag& flag = FlagOf(word, command);
    if (std::ranges::find(seen, flag.name) != seen.end()) throw UsageError(flag.name + ": given twice; keep one");
    seen.push_back(flag.name);
    const bool has_value = word.size() > flag.name.size();
    if (!TakesValue(flag)) {
      if (has_value) ParseBool(flag.name, word.substr(flag.name.size() + 1));
      continue;
    }
    if (!has_value) ++i;
    if (i == arguments.size() || arguments[i].empty() || word == flag.name + '=')
      throw UsageError(fmt::format("{}: needs a value; write {} {}", flag.name, flag.name, flag.value));
    if (!has_value && IsFlag(arguments[i])) {
      throw UsageError(fmt::format("{}: needs a value, not '{}'; write {}={} if that is meant", flag.name, arguments[i],
                                   flag.name, arguments[i]));
    }
  }
}

[[noreturn]] void FailCommand(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  std::error_code ignored;
  if (std::filesystem::exists(word, ignored))
    throw UsageError(fmt::format("'{}' is a file, not a command; write `regard run {}`", word, word));
  const std::string_view nearest = io::NearMiss(word, names);
  throw UsageError(fmt::format(
      "'{}' is not a command; {}", word,
      nearest.empty() ? fmt::format("give one of {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", nearest)));
}

// ---------------------------------------------------------------------------------------------------------- parsing

std::string ShortHelp() {
  std::string text = "regard: exact softmax attention in three stages, scores → weights → context\n\n";
  for (const Command& command : kCommands) text += fmt::format("  regard {:<9}{}\n", command.name, command.purpose);
  return text + "\nTry `printf 'one 1 0\\ntwo 0 1\\nthree 1 1\\n' | regard run -`, or `regard run --help`.\n";
}

std::unique_ptr<CLI::App> MakeApp(const Command& command, Options& options) {
  auto app = std::make_unique<CLI::App>(command.purpose, "regard " + command.name);
  app->get_formatter()->column_width(38);
  app->set_help_flag();  // added last, so that it does not lead the help
  app->footer("Example: " + command.example);
  if ((command.bit & kReadsFiles) != 0) {
    app->add_option("IN", options.sources, std::string(kSources))->type_name("")->required();
  }
  for (const Flag& flag : kFlags) {
    if ((flag.commands & command.bit) == 0) continue;
    const auto set = [&options, &flag](const std::string& text) { flag.set(options, flag.name, text); };
    CLI::Option* option = nullptr;
    if (!TakesValue(flag)) {
      option = app->add_flag_function(
          flag.name, [set](std::int64_t count) { set(count > 0 ? "true" : "false"); }, flag.help);
    } else {
      option = app->add_option_function<std::string>(flag.name, set, flag.help)->type_name(flag.value);
    }
    option->group(flag.group);
  }
  app->set_help_flag("-h,--help", "this text")->group(kShowing);
  return app;
}

}  // namespace

std::vector<CommandFacts> AllCommands() {
  std::vector<CommandFacts> commands;
  for (const Command& command : kCommands) {
    commands.push_back({command.name, command.purpose, command.example, {}});
    for (const Flag& flag : kFlags) {
      if ((flag.commands & command.bit) != 0) commands.back().flags.push_back({flag.name, flag.value, flag.help});
    }
  }
  return commands;
}

std::string SourceKinds() { return std::string(kSources); }

Options ParseCommandLine(int argc, const char* const* argv) {
  Options options;
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.size() > 1 && words[0] == "help") words = {words[1], "--help"};
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    options.text = ShortHelp();
    return options;
  }
  if (words[0] == "--version") {
    options.text = fmt::format("regard {}\n", Version());
    return options;
  }
  if (words[0] == "--man") {
    options.text = ManualPage();
    return options;
  }
  if (words[0] == "--completion") {
    options.text = Completion(words.size() > 1 ? words[1] : "");
    return options;
  }
  const Command* command = FindCommand(words[0]);
  if (command == nullptr) FailCommand(words[0]);
  std::vector<std::string> arguments(words.begin() + 1, words.end());
  CheckArguments(arguments, *command);
  const std::unique_ptr<CLI::App> app = MakeApp(*command, options);
  std::ranges::reverse(arguments);  // as CLI11 wants them
  try {
    app->parse(arguments);
  } catch (const CLI::CallForHelp&) {
    options.text = app->help();
    return options;
  } catch (const CLI::RequiredError&) {
    throw UsageError(fmt::format("IN: missing; give a file, as in `{}`", command->example));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  options.command = command->name;
  return options;
}

}  // namespace regard::cli
