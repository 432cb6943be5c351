// Trains a small causal language model on a text, byte by byte, and shows what its attention learns.
//
//     example_train_lm testdata/alice/alice.txt --out build/alice
//     regard map build/alice/heads_before.safetensors
//     regard map build/alice/heads_after.safetensors
//
// In --out lie the checkpoint, from which the same command goes on after an interruption, and q, k and v of all heads on a held-out passage
// before the first step and after the last. docs/train.md tells what to expect.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "corpus.h"
#include "inspection.h"
#include "training.h"

namespace train_lm {
namespace {

struct Options {
  std::string text, out = "train_lm";
  std::int64_t eval_every = 100, checkpoint_every = 100, sample = 400;
  ModelShape model;
  TrainingOptions training;
};

void AddOptions(CLI::App& app, Options& o) {
  app.add_option("TEXT", o.text, "what to learn; its last tenth is held out")->required();
  app.add_option("--out", o.out, "folder of the checkpoint and the heads")->capture_default_str();
  const auto positive = [&](const char* name, std::int64_t& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))->capture_default_str();
  };
  positive("--steps", o.training.steps, "updates in all");
  positive("--layers", o.model.layers, "blocks");
  positive("--heads", o.model.heads, "heads of each");
  positive("--dim", o.model.dim, "width; dim / heads must be even");
  positive("--batch", o.training.batch, "windows a step");
  positive("--context", o.training.context, "bytes a window");
  positive("--eval-every", o.eval_every, "steps between looks at the held-out text");
  positive("--checkpoint-every", o.checkpoint_every, "steps between checkpoints");
  positive("--sample", o.sample, "bytes to write at the end");
  app.add_option("--dropout", o.model.dropout, "of attention weights while it learns")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  app.add_option("--learning-rate", o.training.learning_rate, "at its highest")->capture_default_str();
  app.add_option("--seed", o.training.seed, "of the first parameters and of the batches")->capture_default_str();
}

// One moving line, on a terminal only.
class ProgressLine {
 public:
  void Show(std::int64_t step, std::int64_t steps, double loss, double tokens_per_second) {
    if (!terminal_) return;
    std::fprintf(stderr, "\rstep %lld of %lld  loss %.3f  %.0f tokens/s\033[K", static_cast<long long>(step),
                 static_cast<long long>(steps), loss, tokens_per_second);
  }
  void Clear() {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
};

void Train(const Options& options, const std::string& checkpoint, Training& training) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const std::int64_t first_step = training.steps();
  ProgressLine line;
  double recent = 0;  // sum of the losses since the last look
  std::int64_t steps_since = 0;
  while (!training.done()) {
    const double loss = training.Step();
    recent += loss;
    ++steps_since;
    const std::int64_t step = training.steps();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double rate = static_cast<double>((step - first_step) * training.tokens_per_step()) / seconds;
    line.Show(step, options.training.steps, loss, rate);
    if (step % options.eval_every == 0 || training.done()) {
      line.Clear();
      std::printf("step %5lld  training loss %.3f  held-out loss %.3f  %.0f tokens/s  %.0f s\n", static_cast<long long>(step),
                  recent / static_cast<double>(steps_since), training.HeldOutLoss(), rate, seconds);
      std::fflush(stdout);
      recent = 0;
      steps_since = 0;
    }
    if (step % options.checkpoint_every == 0 || training.done()) training.Save(checkpoint);
  }
}

void Run(const Options& options) {
  const Corpus corpus(ReadText(options.text), options.training.context);
  Training training(corpus, options.model, options.training);
  const std::filesystem::path out = options.out;
  std::filesystem::create_directories(out);
  const std::string checkpoint = out / "checkpoint.safetensors";
  const std::string_view passage = corpus.held_out().substr(0, static_cast<std::size_t>(options.training.context));
  std::printf("%lld parameters; %zu bytes to learn, %zu held out; a bigram model loses %.3f nats a byte there\n",
              static_cast<long long>(training.model().num_parameters()), corpus.training().size(), corpus.held_out().size(),
              corpus.BigramLoss());
  std::fflush(stdout);
  if (std::filesystem::exists(checkpoint)) {
    training.Load(checkpoint);
    std::printf("resumed at step %lld\n", static_cast<long long>(training.steps()));
  } else {
    WriteHeads(training.model(), passage, out / "heads_before.safetensors");
  }
  Train(options, checkpoint, training);
  WriteHeads(training.model(), passage, out / "heads_after.safetensors");
  std::printf("\n%s\n",
              Sample(training.model(), "Alice ", options.sample, options.training.context, 0.7, options.training.seed).c_str());
}

}  // namespace
}  // namespace train_lm

int main(int argc, char** argv) {
  CLI::App app("Trains a small causal language model on a text, byte by byte.");
  train_lm::Options options;
  train_lm::AddOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    train_lm::Run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_lm: %s\n", error.what());
    return 1;
  }
}
