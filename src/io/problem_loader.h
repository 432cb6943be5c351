// The steps of LoadProblem, in the order in which they run; each fills its part of the Problem.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/problem_sources.h"
#include "regard/problem.h"

namespace regard::io {

/// What a Problem's views point into.
struct Problem::Storage {
  explicit Storage(const ProblemSources& opened) : sources(opened) {}
  ProblemSources sources;
  std::deque<Tensor> tensors;  // never moves what it holds
};

class ProblemLoader {
 public:
  ProblemLoader(const ProblemSources& sources, const ProblemOptions& options);
  Problem Load() &&;

 private:
  void ChooseLayer();
  void ChooseKind();
  [[noreturn]] void FailMissing(std::string_view name) const;
  [[noreturn]] void FailNothingToCompute() const;
  void ReadHeadCounts();

  // q, k, v (problem_loader.cc)
  void LoadAttention();
  void LoadFusedAttention();
  void LoadOperands();
  void LoadSelfAttention();
  void LoadThirdStage();
  void LoadProjections();
  void JoinPast();
  void CheckShapes() const;
  void NoteOtherLayout();
  std::int64_t HeadsIn(std::string_view name, const TensorView& view, Layout layout) const;

  // Everything else (problem_rules.cc)
  void LoadRules();
  void NoteUnusedRules();
  void LoadMask();
  void LoadSegments();
  void LoadQOffset();
  void NoteNegativeOffset();
  void LoadTokens();
  std::optional<StringArray> ReadTokens(std::string_view name);
  Tokens LabelsFor(std::string_view name, const StringArray& strings) const;
  void LabelBoth(Tokens tokens);
  void NotePrecision();

  /// Reads a tensor into the storage; no view if the files do not have it.
  TensorView Take(std::string_view name);
  TensorView TakeFloat(std::string_view name);
  /// One that results are sums of: a note tells of NaN and infinities.
  TensorView TakeOperand(std::string_view name);

  std::shared_ptr<Problem::Storage> storage_;
  const ProblemSources& sources_;
  const ProblemOptions& options_;
  Problem problem_;
  std::optional<std::int64_t> num_heads_, num_kv_heads_;
};

/// Problem::reading.
std::string ReadingOf(const Problem& problem, const ProblemOptions& options);

}  // namespace regard::io
