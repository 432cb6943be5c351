// The manual page and completion, which the command writes itself: they know every flag, and bash completes by them.
#include "cli/manual.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "cli/options.h"
#include "regard/info.h"
#include "tests/cli/command.h"
#include "tests/cli/scratch.h"

namespace regard::tests {
namespace {

// What bash offers for the last of `words`.
std::string Completed(const std::string& words) {
  const std::string script = Scratch("complete.sh");
  std::ofstream(script) << RunRegard({"--completion", "bash"}).out << "\nCOMP_WORDS=(regard " << words
                        << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_regard\necho \"${COMPREPLY[@]}\"\n";
  std::FILE* const output = popen(("bash " + script).c_str(), "r");
  std::string text;
  char buffer[4096];
  while (output != nullptr && std::fgets(buffer, sizeof buffer, output) != nullptr) text += buffer;
  EXPECT_TRUE(output != nullptr && pclose(output) == 0);
  return text;
}

TEST(ManualTest, EveryFlagOfEveryCommandIsInIt) {
  const std::string page = RunRegard({"--man"}).out;
  EXPECT_EQ(page, cli::ManualPage());
  for (const cli::CommandFacts& command : cli::AllCommands()) {
    const std::size_t section = page.find(".SS regard " + command.name + "\n");
    ASSERT_NE(section, std::string::npos) << command.name;
    EXPECT_GT(command.flags.size(), 0u);
    for (const cli::FlagFacts& flag : command.flags) {
      std::string escaped;
      for (const char c : flag.name) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
      EXPECT_NE(page.find("\\fB" + escaped + "\\fR", section), std::string::npos) << command.name << " " << flag.name;
    }
  }
}

TEST(ManualTest, NoLineIsTakenForAMacro) {
  const std::string page = cli::ManualPage();
  for (std::size_t line = 0; line < page.size(); line = page.find('\n', line) + 1) {
    if (page[line] != '.') continue;
    const std::string macro = page.substr(line, page.find_first_of(" \n", line) - line);
    EXPECT_TRUE(macro == ".TH" || macro == ".SH" || macro == ".SS" || macro == ".TP" || macro == ".PP" || macro == ".B" ||
                macro == ".I")
        << page.substr(line, 60);
  }
}

TEST(CompletionTest, OfBash) {
  EXPECT_EQ(Completed("exp"), "explain\n");
  EXPECT_EQ(Completed("run x.npz --win"), "--window-left --window-right\n");
  EXPECT_EQ(Completed("run x.npz --layout bs"), "bshd bsd\n");
  EXPECT_EQ(Completed("run x.npz --path ''"), "reference staged fused\n");
  EXPECT_NE(Completed("run x.npz --isa ''").find(BestTarget()), std::string::npos);
  EXPECT_EQ(Completed("bench --case prefill/T128/d128/c"), "prefill/T128/d128/causal\n");
  EXPECT_EQ(Completed("run x.npz --save con"), "context\n");
  EXPECT_EQ(Completed("run x.npz --save context,ls"), "context,lse\n");
  EXPECT_EQ(Completed("bench --ob"), "\n") << "a flag of another command";
  EXPECT_EQ(Completed("run testdata/six_tokens.n"), "testdata/six_tokens.npz\n");
}

// bash hands the sign over as a word of its own.
TEST(CompletionTest, OfBashAfterAnEqualsSign) {
  EXPECT_EQ(Completed("run x.npz --path = st"), "staged\n");
  EXPECT_EQ(Completed("run x.npz --path ="), "reference staged fused\n");
  EXPECT_EQ(Completed("run x.npz --save = context,ls"), "context,lse\n");
  EXPECT_EQ(Completed("run q = testdata/six_tokens.n"), "testdata/six_tokens.npz\n");
}

TEST(CompletionTest, OfOtherShellsKnowsEveryFlag) {
  for (const char* shell : {"zsh", "fish"}) {
    const std::string text = RunRegard({"--completion", shell}).out;
    for (const cli::CommandFacts& command : cli::AllCommands()) {
      for (const cli::FlagFacts& flag : command.flags) {
        const std::string name = flag.name.substr(flag.name.find_first_not_of('-'));
        EXPECT_NE(
            text.find(shell[0] == 'z' ? "'" + flag.name + "[" : (flag.name.starts_with("--") ? " -l " : " -s ") + name + " "),
            std::string::npos)
            << shell << " " << command.name << " " << flag.name;
      }
    }
  }
}

TEST(CompletionTest, AnotherShellIsRefused) {
  const Outcome outcome = RunRegard({"--completion", "csh"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "regard: --completion: 'csh' is no shell that is known; give bash, zsh or fish\n");
  EXPECT_EQ(RunRegard({"--completion"}).status, 1);
}

}  // namespace
}  // namespace regard::tests
