// Training: one step after the other, and the file from which a run goes on.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "corpus.h"
#include "language_model.h"

namespace train_lm {

struct TrainingOptions {
  std::int64_t steps = 1000, batch = 16, context = 128;
  double learning_rate = 2e-3;
  std::uint64_t seed = 1;
};

class Training {
 public:
  Training(const Corpus& corpus, const ModelShape& shape, const TrainingOptions& options);

  bool done() const { return optimizer_.steps >= options_.steps; }
  std::int64_t steps() const { return optimizer_.steps; }  // done so far
  std::int64_t tokens_per_step() const { return options_.batch * options_.context; }
  const LanguageModel& model() const { return model_; }

  /// The loss of this step's batch before the step, in nats a byte.
  double Step();
  double HeldOutLoss() const;

  /// Everything that the next step depends on: parameters, both moments, and the number of steps; with the options, so that a run is not resumed
  /// with others. The file appears complete or not at all.
  void Save(const std::string& path) const;
  /// Throws std::runtime_error when it was made with other options.
  void Load(const std::string& path);

 private:
  std::map<std::string, std::string> Metadata() const;

  const Corpus& corpus_;
  TrainingOptions options_;
  LanguageModel model_;
  regard::nn::AdamW optimizer_;
};

}  // namespace train_lm
