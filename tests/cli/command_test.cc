// The command as a user meets it: exit statuses, which stream says what, flags and their refusals, interruption, output that fails.
#include "tests/cli/command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "regard/info.h"
#include "regard/io.h"

namespace regard::tests {
namespace {

const std::string kSixTokens = "testdata/six_tokens.npz";

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = testing::TempDir() + "/regard_cli_XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::ptrdiff_t CountFiles() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Tensor Filled(const Dims& shape, int seed) {
  Tensor tensor(DType::kF32, shape);
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    tensor.MutableAs<float>()[i] = static_cast<float>((37 * i + 11 * seed) % 1009 - 400) / 256;
  }
  return tensor;
}

void ExpectUsageError(const std::vector<std::string>& arguments, const std::string& message) {
  const Outcome outcome = RunRegard(arguments);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "regard: " + message + "\n");
  EXPECT_EQ(outcome.out, "");
}

// ---------------------------------------------------------------------------------------------------------------- help

TEST(CommandTest, AloneItPrintsShortHelp) {
  const Outcome outcome = RunRegard({});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* verb : {"regard run", "regard explain", "regard info"})
    EXPECT_NE(outcome.out.find(verb), std::string::npos) << verb;
  const std::string rows = R"(one 1 0\ntwo 0 1\nthree 1 1\n)";  // works wherever regard is installed
  EXPECT_NE(outcome.out.find("Try `printf '" + rows + "' | regard run -`, or `regard run --help`.\n"), std::string::npos)
      << outcome.out;
  EXPECT_EQ(RunRegard({"--help"}).out, outcome.out);
  EXPECT_EQ(RunRegard({"help"}).out, outcome.out);
}

TEST(CommandTest, Version) {
  const Outcome outcome = RunRegard({"--version"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, std::string("regard ") + Version() + "\n");
}

TEST(CommandTest, TheLadderOfBenchHasItsOwnCases) {
  const std::string message = "--stages: has one thread and its own cases; leave out --threads and --case";
  ExpectUsageError({"bench", "--stages", "--threads", "2"}, message);
  ExpectUsageError({"bench", "--stages", "--case", "T512"}, message);
}

TEST(CommandTest, BenchRefusesAnUnknownCaseBeforeItMeasures) {
  const Outcome outcome = RunRegard({"bench", "--case", "nosuch"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err,
            "regard: --case: no case has \"nosuch\" in its name; try prefill, decode, append, causal or summaries\n");
}

TEST(CommandTest, BenchRefusesMoreThreadsThanItMeasures) {
  for (const char* threads : {"1025", "-1"}) {
    const Outcome outcome = RunRegard({"bench", "--threads", threads});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.err, "regard: --threads: " + std::string(threads) + "; use 0…1024\n");
  }
}

TEST(CommandTest, HelpOfEachCommandListsItsFlagsOnly) {
  EXPECT_EQ(RunRegard({"help", "map"}).out, RunRegard({"map", "--help"}).out);
  const std::string run = RunRegard({"run", "--help"}).out, explain = RunRegard({"explain", "-h"}).out,
                    info = RunRegard({"info", "--help"}).out;
  for (const char* flag :
       {"--causal", "--q-offset N|top-left|bottom-right", "--window-left N", "--window-right N", "--scale X", "--soft-cap X",
        "--layout L", "--num-heads N", "--num-kv-heads N", "--path P", "--isa NAME", "--threads N", "--json", "--layer L",
        "--batch LIST", "--head LIST", "--tokens FILE", "--max-memory SIZE"}) {
    EXPECT_NE(run.find(flag), std::string::npos) << flag;
    EXPECT_NE(explain.find(flag), std::string::npos) << flag;
  }
  EXPECT_NE(run.find("--save LIST"), std::string::npos);
  EXPECT_EQ(explain.find("--save"), std::string::npos);
  EXPECT_NE(explain.find("--row LIST"), std::string::npos);
  EXPECT_EQ(run.find("--row"), std::string::npos);
  EXPECT_EQ(run.find("cases"), std::string::npos) << "threads of bench";
  EXPECT_NE(info.find("--json"), std::string::npos);
  EXPECT_EQ(info.find("--causal"), std::string::npos);
}

// --------------------------------------------------------------------------------------------------------- usage errors

TEST(CommandTest, UnknownWords) {
  ExpectUsageError({"rnu"}, "'rnu' is not a command; did you mean run?");
  EXPECT_TRUE(RunRegard({"zzzzzz"}).err.starts_with("regard: 'zzzzzz' is not a command; give one of run, explain, "));
  ExpectUsageError({kSixTokens}, "'" + kSixTokens + "' is a file, not a command; write `regard run " + kSixTokens + "`");
  ExpectUsageError({"run"}, "IN: missing; give a file, as in `regard run layer.npz --causal -o result.npz --save context,lse`");
  ExpectUsageError({"run", "x", "--sotf-cap", "3"}, "--sotf-cap: unknown flag; did you mean --soft-cap?");
  ExpectUsageError({"run", "x", "--zzzzzz"}, "--zzzzzz: unknown flag; see `regard run --help`");
  ExpectUsageError({"run", "x", "-q"}, "-q: unknown flag; see `regard run --help`");
  ExpectUsageError({"run", "x", "-threads=1"}, "-threads: unknown flag; did you mean --threads?");
  ExpectUsageError({"run", "x", "--no-causal"}, "--no-causal: not a flag of regard; use --causal=false");
  ExpectUsageError({"run", "x", "--row", "1"}, "--row: not a flag of `regard run`, but of `regard explain`; leave it out");
  ExpectUsageError({"explain", "x", "-o", "y"},
                   "-o: not a flag of `regard explain`, but of `regard run`, `regard map`; leave it out");
  ExpectUsageError(
      {"info", "--causal"},
      "--causal: not a flag of `regard info`, but of `regard run`, `regard explain`, `regard check`, `regard map`; leave it out");
}

TEST(CommandTest, AFlagOfSeveralMeaningsNamesAllItsCommands) {
  ExpectUsageError(
      {"info", "--threads", "1"},
      "--threads: not a flag of `regard info`, but of `regard run`, `regard explain`, `regard check`, `regard map`, `regard "
      "bench`; leave it out");
}

TEST(CommandTest, FlagsOfOtherLibrariesAreRefused) {
  ExpectUsageError(
      {"run", "x", "--is-causal"},
      "--is-causal: not a flag of regard; use --causal, and --q-offset top-left or bottom-right where q_len differs from kv_len");
  ExpectUsageError({"run", "x", "--sliding-window=256"},
                   "--sliding-window: not a flag of regard; use --window-left W−1: regard counts the earlier keys that a query "
                   "sees besides its own, "
                   "so a sliding window of W keys is W−1");
  ExpectUsageError({"explain", "x", "--softcap", "50"},
                   "--softcap: not a flag of regard; use --soft-cap X (the same meaning; 0 is off)");
  ExpectUsageError({"run", "x", "--attn-mask", "m.npy"},
                   "--attn-mask: not a flag of regard; use a key in the file, or attn_mask=mask.npy: bool is a mask (true = may "
                   "attend), float is "
                   "added to the scores");
  ExpectUsageError({"run", "x", "--enable-gqa"},
                   "--enable-gqa: not a flag of regard; use nothing: fewer key heads than query heads are always grouped");
  ExpectUsageError(
      {"run", "x", "--window-size", "3"},
      "--window-size: not a flag of regard; use --window-left L --window-right R: keys besides the query's own; leave out what "
      "is -1 elsewhere");
  ExpectUsageError(
      {"run", "x", "--key-padding-mask", "m.npy"},
      "--key-padding-mask: not a flag of regard; use a key in the file: which value means attend differs between libraries; "
      "give bool [batch, 1, 1, kv_len] with true = may attend as mask, an additive float as bias, or the number of valid keys "
      "of each sequence, [batch], as kv_lens");
  for (const char* flag : {"--logits-soft-cap", "--softmax-scale", "--sm-scale", "--heads", "--n-head", "--window-size",
                           "--kv-heads", "--backend", "--key-padding-mask", "--dropout-p", "--output"}) {
    const Outcome outcome = RunRegard({"run", "x", flag, "1"});
    EXPECT_EQ(outcome.status, 1) << flag;
    EXPECT_TRUE(outcome.err.starts_with(std::string("regard: ") + flag + ": not a flag of regard; use ")) << outcome.err;
  }
}

TEST(CommandTest, ValuesThatCannotBeRead) {
  ExpectUsageError({"run", "x", "--scale", "big"}, "--scale: 'big' is not a number; give one such as 0.125");
  ExpectUsageError({"run", "x", "--window-left", "1.5"}, "--window-left: '1.5' is not a whole number; give one such as 8");
  ExpectUsageError({"run", "x", "--threads", "two"}, "--threads: 'two' is not a whole number; give one such as 2");
  ExpectUsageError({"run", "x", "--q-offset", "middle"},
                   "--q-offset: 'middle' is no offset; give a whole number, top-left (0) or bottom-right (kv_len − q_len)");
  ExpectUsageError(
      {"run", "x", "--layout", "sbhd"},
      "--layout: 'sbhd' is no layout; give bhsd, bshd, hsd, shd or bsd (batch, heads, sequence, dim in the file's order)");
  ExpectUsageError({"run", "x", "--path", "flash"}, "--path: 'flash' is no path; give reference, staged or fused");
  ExpectUsageError({"run", "x", "--max-memory", "lots"},
                   "--max-memory: 'lots' is not a size; give bytes, or a number with KiB, MiB, GiB or TiB, such as 512MiB");
  ExpectUsageError({"run", "x", "--head", "3-1"}, "--head: '3-1' is not a list of indices; write it as 0,3-5");
  ExpectUsageError({"run", "x", "--save", "context,,lse"}, "--save: 'context,,lse' has an empty name; write it as context,lse");
  ExpectUsageError({"run", "x", "--scale"}, "--scale: needs a value; write --scale X");
  ExpectUsageError({"run", "x", "--scale="}, "--scale: needs a value; write --scale X");
  ExpectUsageError({"run", "x", "-o", ""}, "-o: needs a value; write -o FILE");
  ExpectUsageError({"run", "--scale", "--causal", "x"},
                   "--scale: needs a value, not '--causal'; write --scale=--causal if that is meant");
  ExpectUsageError({"run", "x", "--scale", "1", "--scale=2"}, "--scale: given twice; keep one");
  ExpectUsageError({"info", "x"}, "'x': `regard info` reads no files; leave it out");
  ExpectUsageError({"bench", "--", "--quick"}, "'--quick': `regard bench` reads no files; leave it out");
  ExpectUsageError({"run", "x", "--causal=maybe"},
                   "--causal: 'maybe' is neither true nor false; give one of them, or nothing for true");
}

TEST(CommandTest, AFlagCanBeTakenBack) {
  const TemporaryFolder folder;
  const Tensor x = Filled({4, 3}, 1), causal = Tensor::Of<bool>({}, {true});
  io::WriteNpz(folder / "x.npz", {{.name = "x", .tensor = x}, {.name = "causal", .tensor = causal}});
  const Outcome outcome = RunRegard({"run", folder / "x.npz", "--causal=false"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "regard: note: --causal=false overrides the file's causal true\n");
  EXPECT_NE(outcome.out.find("; not causal;"), std::string::npos);
}

TEST(CommandTest, NegativeNumbersAreValues) {
  const Outcome outcome = RunRegard({"run", kSixTokens, "--causal", "--q-offset", "-2"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("causal, q_offset -2"), std::string::npos);
}

// -------------------------------------------------------------------------------------------------------- other statuses

TEST(CommandTest, SuccessSaysItsReadingOnStandardOutput) {
  const Outcome outcome = RunRegard({"run", kSixTokens});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("read as tokens 6, dim 3; q = k = v = inputs; not causal; scale 1\n")) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST(CommandTest, StandardInputIsAFile) {
  const Outcome outcome = RunRegard({"run", "-"}, {.input = "a 1 0\nb 0 1\n"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("read as tokens 2, dim 2; q = k = v = inputs")) << outcome.out;
}

TEST(CommandTest, BadInputIsTwo) {
  const TemporaryFolder folder;
  std::ofstream(folder / "junk.npz") << "PK\x03\x04 and then nothing of the kind";
  io::WriteNpz(folder / "k.npz", {{.name = "k", .tensor = Filled({4, 3}, 1)}, {.name = "v", .tensor = Filled({4, 3}, 2)}});
  const std::vector<std::vector<std::string>> cases = {{"run", folder / "missing.npz"},
                                                       {"run", folder / "junk.npz"},
                                                       {"run", folder / "k.npz"},
                                                       {"run", kSixTokens, "--scale", "0"},
                                                       {"run", kSixTokens, "--scale", "nan"},
                                                       {"run", kSixTokens, "--scale", "inf"},
                                                       {"run", kSixTokens, "--scale", "1e39"},
                                                       {"run", kSixTokens, "--q-offset", "9223372036854775808"},
                                                       {"run", kSixTokens, "--max-memory", "1e400"},
                                                       {"run", kSixTokens, "--isa", "AVX9"},
                                                       {"run", kSixTokens, "--layer", "1"},
                                                       {"run", kSixTokens, "--threads", "-1"},
                                                       {"run", kSixTokens, "--head", "1"},
                                                       {"explain", kSixTokens, "--row", "6"},
                                                       {"run", kSixTokens, "-o", folder / "no/such/folder.npz"},
                                                       {"run", kSixTokens, "--tokens", folder / "missing.txt"}};
  for (const std::vector<std::string>& arguments : cases) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Outcome outcome = RunRegard(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("regard: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(';'), std::string::npos) << "no next step: " << outcome.err;
  }
}

TEST(CommandTest, TheLimitOfMemoryIsFive) {
  const Outcome outcome = RunRegard({"run", kSixTokens, "--max-memory", "10"});
  EXPECT_EQ(outcome.status, 5) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("regard: --max-memory: ")) << outcome.err;
}

TEST(CommandTest, AFailedRunLeavesTheOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.npz";
  std::ofstream(path) << "old";
  EXPECT_EQ(RunRegard({"run", kSixTokens, "--scale", "0", "-o", path}).status, 2);
  std::string kept;
  std::getline(std::ifstream(path), kept);
  EXPECT_EQ(kept, "old");
  EXPECT_EQ(RunRegard({"run", kSixTokens, "-o", path, "--save", "context,weights"}).status, 0);
  EXPECT_EQ(io::File::Open(path).arrays().size(), 2u);
}

TEST(CommandTest, NotesGoToStandardError) {
  const Outcome outcome = RunRegard({"run", "testdata/minilm/all_minilm_l6_v2.safetensors", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "regard: note: layer 0 of 6 is read; --layer chooses another\n");
  EXPECT_TRUE(nlohmann::json::parse(outcome.out).is_object());
}

// ---------------------------------------------------------------------------------------------------------------- JSON

TEST(CommandTest, ErrorsAreObjectsWithJson) {
  struct Case {
    std::vector<std::string> arguments;
    const char* code;
    int status;
  };
  for (const Case& c : {Case{{"run", "--json", "--softcap", "1"}, "usage", 1}, Case{{"rnu", "--json"}, "usage", 1},
                        Case{{"run", kSixTokens, "--json", "--scale", "0"}, "invalid_argument", 2},
                        Case{{"run", "/nonexistent", "--json"}, "io", 2},
                        Case{{"run", kSixTokens, "--json", "--max-memory", "1"}, "out_of_memory", 5}}) {
    const Outcome outcome = RunRegard(c.arguments);
    EXPECT_EQ(outcome.status, c.status);
    const nlohmann::json object = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(object["error"]["code"], c.code);
    EXPECT_EQ(object["error"]["exit_status"], c.status);
    EXPECT_EQ(outcome.err, "regard: " + object["error"]["message"].get<std::string>() + "\n");
  }
}

// ------------------------------------------------------------------------------------------------------- failing output

TEST(CommandTest, AFullDiskIsNoticed) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"run", kSixTokens}, {"info"}, {"--help"}, {"run", kSixTokens, "--json"}}) {
    const Outcome outcome = RunRegard(arguments, {.output_file = "/dev/full"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.err, "regard: standard output: No space left on device; the results are incomplete\n");
  }
}

TEST(CommandTest, AClosedPipeIsQuiet) {
  const Outcome outcome = RunRegard({"run", kSixTokens}, {.close_output = true});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "");
}

// A closed descriptor is not given to a file that the command opens.
TEST(CommandTest, ClosedStandardStreams) {
  const Outcome no_input = RunRegard({"run", "-"}, {.closed = {true, false, false}});
  EXPECT_EQ(no_input.status, 2);
  EXPECT_NE(no_input.err.find("standard input: "), std::string::npos) << no_input.err;
  EXPECT_EQ(RunRegard({"run", kSixTokens}, {.closed = {true, false, false}}).status, 0);

  const Outcome no_output = RunRegard({"run", kSixTokens}, {.closed = {true, true, false}});
  EXPECT_EQ(no_output.status, 2);
  EXPECT_TRUE(no_output.err.starts_with("regard: standard output: ")) << no_output.err;
  const Outcome nothing = RunRegard({"run", kSixTokens}, {.closed = {true, true, true}});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_EQ(nothing.out + nothing.err, "");
}

// Input that does not come: a signal that `timeout` sends once has to do.
TEST(CommandTest, AnInterruptEndsWaiting) {
  const Outcome outcome = RunRegard({"run", "-"}, {.input_stays_open = true, .interrupt_after_ms = 200, .interrupt_by = SIGTERM});
  EXPECT_EQ(outcome.status, 128 + SIGTERM);
  EXPECT_GE(outcome.ms_after_interrupt, 4000);
  EXPECT_EQ(outcome.out, "");
}

TEST(CommandTest, AnInterruptEndsTheRun) {
  const TemporaryFolder folder;
  const Tensor x = Filled({1, 8, 8192, 64}, 1);
  io::WriteNpz(folder / "long.npz", {{.name = "q", .tensor = x}, {.name = "k", .tensor = x}, {.name = "v", .tensor = x}});
  for (const int signal : {SIGINT, SIGTERM}) {
    const Outcome outcome = RunRegard({"run", folder / "long.npz", "--path", "reference", "-o", folder / "out.npz"},
                                      {.interrupt_after_ms = 1500, .interrupt_by = signal});
    EXPECT_EQ(outcome.status, 130) << outcome.err;
    EXPECT_EQ(outcome.err, "regard: interrupted; nothing was written\n");
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(folder.CountFiles(), 1) << "the input";
  }
}

// The system's signal for it would end the command and leave a temporary file.
TEST(CommandTest, AFileBeyondTheLimitIsNoticed) {
  const TemporaryFolder folder;
  const Outcome outcome = RunRegard({"run", kSixTokens, "-o", folder / "out.npz"}, {.file_size = 300});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("out.npz: cannot be written at byte "), std::string::npos) << outcome.err;
  EXPECT_EQ(folder.CountFiles(), 0);
}

// A pipe, by which an interrupt is heard, takes two more than its three streams.
TEST(CommandTest, TooFewOpenFilesAreNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer opens pipes of its own";
#endif
  const Outcome outcome = RunRegard({"info"}, {.open_files = 4});
  EXPECT_EQ(outcome.status, 5);
  EXPECT_EQ(outcome.err, "regard: the system refuses a pipe: Too many open files; give the command more open files\n");
}

TEST(CommandTest, StandardInputIsOneFile) {
  const Outcome nothing = RunRegard({"run", "-"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_EQ(nothing.err, "regard: standard input: nothing came; pipe one file into it, and name - once\n");
  EXPECT_EQ(RunRegard({"run", "q=-", "k=-", "v=-"}, {.input = "1 2\n3 -4\n"}).err, nothing.err);
}

}  // namespace
}  // namespace regard::tests
