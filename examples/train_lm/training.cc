#include "training.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "regard/io.h"
#include "regard/nn.h"

namespace train_lm {
namespace {

constexpr double kLargestNorm = 1;  // of all gradients together; larger ones are scaled down to it
constexpr std::int64_t kWarmUpSteps = 50;

// Up in a line, then down to a tenth along a cosine.
double LearningRate(const TrainingOptions& options, std::int64_t step) {
  if (step < kWarmUpSteps) return options.learning_rate * static_cast<double>(step + 1) / kWarmUpSteps;
  const double part =
      static_cast<double>(step - kWarmUpSteps) / static_cast<double>(std::max<std::int64_t>(1, options.steps - kWarmUpSteps));
  return options.learning_rate * (0.55 + 0.45 * std::cos(std::numbers::pi * part));
}

const std::string kModel = "model.", kFirst = "adam.first.", kSecond = "adam.second.";

}  // namespace

Training::Training(const Corpus& corpus, const ModelShape& shape, const TrainingOptions& options)
    : corpus_(corpus), options_(options), model_(shape, options.seed) {}

double Training::Step() {
  const Batch batch = corpus_.TrainingBatch(options_.batch, options_.seed, optimizer_.steps);
  LanguageModel::Cache cache;
  regard::Tensor d_logits;
  // A seed for every step, and none that another seed's training has as well.
  const std::uint64_t dropout_seed =
      options_.seed * static_cast<std::uint64_t>(options_.steps) + static_cast<std::uint64_t>(optimizer_.steps);
  const double loss = regard::nn::CrossEntropy(model_.Forward(batch.inputs, &cache, dropout_seed), batch.targets, &d_logits);
  regard::nn::ZeroGrads(model_.parameters());
  model_.Backward(batch.inputs, cache, d_logits);
  optimizer_.learning_rate = LearningRate(options_, optimizer_.steps);
  optimizer_.Step(model_.parameters(), std::min(1.0, kLargestNorm / regard::nn::GradNorm(model_.parameters())));
  return loss;
}

double Training::HeldOutLoss() const {
  double sum = 0;
  const std::int64_t windows = corpus_.held_out_windows();
  for (std::int64_t first = 0; first < windows; first += options_.batch) {
    const std::int64_t count = std::min(options_.batch, windows - first);
    const Batch batch = corpus_.HeldOutBatch(first, count);
    LanguageModel::Cache cache;
    sum += static_cast<double>(count) * regard::nn::CrossEntropy(model_.Forward(batch.inputs, &cache), batch.targets);
  }
  return sum / static_cast<double>(windows);
}

std::map<std::string, std::string> Training::Metadata() const {
  const ModelShape& shape = model_.shape();
  return {{"layers", std::to_string(shape.layers)},
          {"heads", std::to_string(shape.heads)},
          {"dim", std::to_string(shape.dim)},
          {"dropout", std::to_string(shape.dropout)},
          {"steps", std::to_string(options_.steps)},
          {"batch", std::to_string(options_.batch)},
          {"context", std::to_string(options_.context)},
          {"learning_rate", std::to_string(options_.learning_rate)},
          {"seed", std::to_string(options_.seed)},
          {"text_bytes", std::to_string(corpus_.training().size() + corpus_.held_out().size())}};
}

void Training::Save(const std::string& path) const {
  std::map<std::string, regard::Tensor> tensors;
  for (const auto& [name, parameter] : model_.parameters()) tensors[kModel + name] = parameter->value;
  for (const auto& [name, moment] : optimizer_.first) tensors[kFirst + name] = moment;
  for (const auto& [name, moment] : optimizer_.second) tensors[kSecond + name] = moment;
  std::map<std::string, std::string> metadata = Metadata();
  metadata["steps_done"] = std::to_string(optimizer_.steps);
  regard::io::WriteTensors(path, tensors, metadata);
}

void Training::Load(const std::string& path) {
  const regard::io::File file = regard::io::File::Open(path);
  const std::map<std::string, std::string>& found = file.metadata();
  for (const auto& [name, value] : Metadata()) {
    const auto entry = found.find(name);
    if (entry != found.end() && entry->second == value) continue;
    throw std::runtime_error(path + ": made with " + name + " " + (entry == found.end() ? "unknown" : entry->second) + ", not " +
                             value + "; give the same options to resume it, or another --out");
  }
  regard::nn::LoadState(regard::io::ReadTensors(file, kModel), model_.parameters());
  optimizer_.first = regard::io::ReadTensors(file, kFirst);
  optimizer_.second = regard::io::ReadTensors(file, kSecond);
  optimizer_.steps = std::stoll(found.at("steps_done"));
}

}  // namespace train_lm
