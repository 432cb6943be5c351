#include "cli/manual.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "cli/options.h"
#include "measure/cases.h"
#include "regard/info.h"

namespace regard::cli {
namespace {

// The words that a flag may have as its value, where they can be listed; all other flags with values take files or numbers.
struct Choices {
  std::string words;     // with blanks between; empty: none are known
  bool is_list = false;  // several, with commas between
};

Choices ChoicesOf(std::string_view flag) {
  std::vector<std::string> words;
  if (flag == "--layout") return {"bhsd bshd hsd shd bsd"};
  if (flag == "--path") return {"reference staged fused"};
  if (flag == "--q-offset") return {"top-left bottom-right"};
  if (flag == "--save") return {fmt::format("{}", fmt::join(kSavable, " ")), true};
  // What every machine has: a package's completion does not tell where it was built.
  if (flag == "--isa") {
    for (const Target& target : Targets()) words.push_back(target.name);
  }
  if (flag == "--case") {
    const std::string any_isa = Targets().back().name;
    for (const measure::BenchCase& bench_case : measure::SelectCases({.isa = any_isa})) words.push_back(bench_case.name);
  }
  return {fmt::format("{}", fmt::join(words, " "))};
}

bool TakesFile(const FlagFacts& flag) { return flag.value.starts_with("F"); }
bool TakesValue(const FlagFacts& flag) { return !flag.value.empty() && flag.value[0] != '['; }

// ------------------------------------------------------------------------------------------------------------- man

// Text in a man page: no macro begins where a line does, and a hyphen is one that can be copied. An ellipsis is three dots, since troff leaves
// that character out where the locale's are ASCII; it finds words for all others.
std::string Roff(std::string_view text) {
  constexpr std::string_view kEllipsis = "…";
  std::string escaped = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  while (!text.empty()) {
    const bool is_ellipsis = text.starts_with(kEllipsis);
    if (is_ellipsis)
      escaped += "...";
    else if (text[0] == '\\')
      escaped += "\\e";
    else if (text[0] == '-')
      escaped += "\\-";
    else
      escaped += text[0];
    text.remove_prefix(is_ellipsis ? kEllipsis.size() : 1);
  }
  return escaped;
}

std::string CommandSection(const CommandFacts& command) {
  std::string text = fmt::format(".SS {}\n{}.\n", Roff("regard " + command.name), Roff(command.purpose));
  for (const FlagFacts& flag : command.flags) {
    const std::string separator = TakesValue(flag) ? " " : "";
    const std::string value = flag.value.empty() ? "" : separator + "\\fI" + Roff(flag.value) + "\\fR";
    text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", Roff(flag.name), value, Roff(flag.help));
  }
  return text + fmt::format(".PP\nExample: \\fB{}\\fR\n", Roff(command.example));
}

// ----------------------------------------------------------------------------------------------------- completion

// Of all commands, each once.
std::set<std::string> FlagsWithValues() {
  std::set<std::string> names;
  for (const CommandFacts& command : AllCommands()) {
    for (const FlagFacts& flag : command.flags) {
      if (TakesValue(flag)) names.insert(flag.name);
    }
  }
  return names;
}

std::string FlagNames(const CommandFacts& command) {
  std::string names = "--help";
  for (const FlagFacts& flag : command.flags) names += " " + flag.name;
  return names;
}

std::string CommandNames() {
  std::string names;
  for (const CommandFacts& command : AllCommands()) names += (names.empty() ? "" : " ") + command.name;
  return names;
}

std::string Bash() {
  std::string text = fmt::format(
      R"(# Completion of regard for bash: source <(regard --completion bash)
_regard() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} flags=
  # bash takes --path=x and q=x apart at the sign.
  if [ "$word" = = ]; then word=; elif [ "$before" = = ]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version --man --completion" -- "$word"))
    return
  fi
  case $before in
    --completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$word")); return ;;
)",
      CommandNames());
  for (const std::string& flag : FlagsWithValues()) {
    const auto [words, is_list] = ChoicesOf(flag);
    if (words.empty()) continue;
    text +=
        is_list
            ? fmt::format(
                  "    {}) COMPREPLY=($(compgen -P \"${{word%\"${{word##*,}}\"}}\" -W \"{}\" -- \"${{word##*,}}\")); return ;;\n",
                  flag, words)
            : fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n", flag, words);
  }
  text += "  esac\n  case ${COMP_WORDS[1]} in\n";
  for (const CommandFacts& command : AllCommands())
    text += fmt::format("    {}) flags=\"{}\" ;;\n", command.name, FlagNames(command));
  return text + R"(  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
  esac
}
complete -F _regard regard
)";
}

// Text within single quotes, where `special` characters get a backslash besides.
std::string Quoted(std::string_view text, std::string_view special) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      if (special.find(c) != std::string_view::npos) quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string Zsh() {
  std::string text =
      "#compdef regard\n# Completion of regard for zsh: regard --completion zsh > ~/.zfunc/_regard\n\ncase $words[2] in\n";
  for (const CommandFacts& command : AllCommands()) {
    text += fmt::format("  {})\n    _arguments '1:command:' '*:file:_files' \\\n", command.name);
    for (const FlagFacts& flag : command.flags) {
      std::string spec = flag.name + "[" + flag.help + "]";
      std::string quoted = Quoted(spec, ":");
      if (TakesValue(flag)) {
        const auto [words, is_list] = ChoicesOf(flag.name);
        const std::string action = TakesFile(flag) ? "_files"
                                   : is_list       ? "_values -s , result " + words
                                   : words.empty() ? ""
                                                   : "(" + words + ")";
        quoted.pop_back();
        quoted += ":value:" + action + "'";
      }
      text += "      " + quoted + " \\\n";
    }
    text += "      '--help[this text]'\n    ;;\n";
  }
  return text +
         fmt::format("  *)\n    _arguments '1:command:({} --help --version --man --completion)'\n    ;;\nesac\n", CommandNames());
}

std::string Fish() {
  std::string text = "# Completion of regard for fish: regard --completion fish > ~/.config/fish/completions/regard.fish\n";
  for (const CommandFacts& command : AllCommands()) {
    text +=
        fmt::format("complete -c regard -f -n __fish_use_subcommand -a {} -d {}\n", command.name, Quoted(command.purpose, "\\"));
    for (const FlagFacts& flag : command.flags) {
      const bool is_long = flag.name.starts_with("--");
      const auto [words, is_list] = TakesValue(flag) ? ChoicesOf(flag.name) : Choices{};
      const std::string values =
          is_list ? fmt::format("(__fish_complete_list , \"string split \\' \\' \\'{}\\'\")", words) : words;
      text += fmt::format("complete -c regard -n '__fish_seen_subcommand_from {}' {} {}{}{} -d {}\n", command.name,
                          is_long ? "-l" : "-s", flag.name.substr(is_long ? 2 : 1), TakesValue(flag) ? " -r" : "",
                          values.empty() ? "" : fmt::format(" -f -a '{}'", values), Quoted(flag.help, "\\"));
    }
  }
  return text;
}

}  // namespace

std::string ManualPage() {
  std::string text = fmt::format(
      ".TH REGARD 1 \"\" \"regard {}\" \"User Commands\"\n"
      ".SH NAME\nregard \\- exact softmax attention in three stages, scores → weights → context\n"
      ".SH SYNOPSIS\n.B regard\n.I command\n[\\fIIN\\fR ...] [\\fIflag\\fR ...]\n"
      ".SH DESCRIPTION\nComputes, shows and checks attention. \\fIIN\\fR is {}; several may be given.\n"
      ".SH COMMANDS\n",
      Version(), Roff(SourceKinds()));
  for (const CommandFacts& command : AllCommands()) text += CommandSection(command);
  return text +
         ".SH \"EXIT STATUS\"\n"
         ".TP\n0\ndone\n.TP\n1\nthe command line cannot be understood\n.TP\n2\nbad input: a file, or a value in it or in a flag\n"
         ".TP\n3\n\\fBcheck\\fR found a difference\n.TP\n4\nregard's own paths differ by more than rounding can explain\n"
         ".TP\n5\ninternal error, or out of memory\n.TP\n130\ninterrupted\n"
         ".SH ENVIRONMENT\n.TP\nCOLUMNS\nthe width that tables are cut to\n.TP\nNO_COLOR\nheat maps in grey characters\n"
         ".TP\nOMP_NUM_THREADS\nthreads, where \\-\\-threads is not given\n";
}

std::string Completion(std::string_view shell) {
  if (shell == "bash") return Bash();
  if (shell == "zsh") return Zsh();
  if (shell == "fish") return Fish();
  throw UsageError(fmt::format("--completion: '{}' is no shell that is known; give bash, zsh or fish", shell));
}

}  // namespace regard::cli
