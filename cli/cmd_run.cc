// regard run: the stages of a problem, checked and, on request, saved.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/blas_threads.h"
#include "cli/commands.h"
#include "cli/max_memory.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "regard/io.h"
#include "regard/stages.h"
#include "report/run_report.h"
#include "report/text.h"

namespace regard::cli {
namespace {

// ------------------------------------------------------------------------------------------------- what is to be saved

bool IsStage(const std::string& name) {
  return name == "scores" || name == "capped" || name == "masked_scores" || name == "weights";
}

// What --save and -o come to for this problem; checked before it is computed.
std::vector<std::string> NamesToSave(const Options& options, const io::Problem& problem) {
  if (options.output.empty()) {
    if (!options.save.empty()) throw UsageError("--save: needs a file to save to; add -o FILE.npz");
    return {};
  }
  const bool third_stage = problem.kind == io::Problem::Kind::kThirdStage;
  std::vector<std::string> names = options.save;
  if (names.empty())
    names = third_stage || options.dim ? std::vector<std::string>{"context"} : std::vector<std::string>{"context", "lse"};
  for (const std::string& name : names) {
    if (std::ranges::find(kSavable, name) == std::end(kSavable)) {
      throw UsageError(fmt::format("--save: '{}' is not a result; give any of {}", name, fmt::join(kSavable, ", ")));
    }
    const bool absent = (third_stage && name != "context" && name != "weights" && name != "v") ||
                        (options.dim && name != "context" && name != "weights" && name != "scores") ||
                        (name == "projected" && problem.kind != io::Problem::Kind::kSelfAttention);
    if (std::ranges::count(names, name) > 1) throw UsageError(fmt::format("--save: '{}' is given twice; keep one", name));
    if (absent) throw Error(ErrorCode::kInvalidArgument, fmt::format("--save: this run has no '{}'; leave it out", name));
  }
  return names;
}

// Refuses a file that could not take `arrays` arrays; before anything is computed.
void CheckOutput(const Options& options, std::size_t arrays) {
  const std::string& file = options.output;
  CheckOutputFile(options, "-o", file);
  if (file.empty()) return;
  if (!file.ends_with(".npz") && !file.ends_with(".safetensors") && !file.ends_with(".npy"))
    throw UsageError(fmt::format("-o: '{}' has no known ending; name a file .npz, .safetensors, or .npy for one array", file));
  if (file.ends_with(".npy") && arrays != 1)
    throw UsageError(fmt::format("-o: '{}' can hold one array, not {}; name a file .npz or .safetensors", file, arrays));
}

// ----------------------------------------------------------------------------------------------------- the memory's price

double Pairs(const PlanShape& s) {
  return static_cast<double>(s.batch) * static_cast<double>(s.heads) * static_cast<double>(s.q_len) *
         static_cast<double>(s.kv_len);
}

double ContextElements(const PlanShape& s) {
  return static_cast<double>(s.batch) * static_cast<double>(s.heads) * static_cast<double>(s.q_len) *
         static_cast<double>(s.v_dim);
}

// ---------------------------------------------------------------------------------------------------------------- running

// The results of one problem, in the shapes they have in files, with their views in full shape.
class Results {
 public:
  /// `layers`: how many problems alike have their results held at once.
  Results(const io::Problem& problem, std::vector<std::string> wanted, std::size_t layers)
      : problem_(problem), wanted_(std::move(wanted)), layers_(static_cast<double>(layers)) {}

  /// The names that are to be saved.
  const std::vector<std::string>& wanted() const { return wanted_; }
  double layers() const { return layers_; }
  bool Wants(const char* name) const { return std::ranges::find(wanted_, name) != wanted_.end(); }

  MutableTensorView Make(const std::string& name, DType type, const Dims& full) {
    Tensor& tensor = tensors_[name] = Tensor::Uninitialized(type, problem_.FileShape(name, full));
    return problem_.FromFileShape(name, full, tensor.mutable_view());
  }
  void Put(const std::string& name, Tensor tensor) { tensors_[name] = std::move(tensor); }
  TensorView Full(const std::string& name, const Dims& full) const {
    return problem_.FromFileShape(name, full, tensors_.at(name).view());
  }

  Tensor Take(const std::string& name) { return std::move(tensors_.at(name)); }

 private:
  const io::Problem& problem_;
  const std::vector<std::string> wanted_;
  const double layers_;
  std::map<std::string, Tensor> tensors_;
};

Dims ContextShape(const PlanShape& s) { return {s.batch, s.heads, s.q_len, s.v_dim}; }
Dims StageShape(const PlanShape& s) { return {s.batch, s.heads, s.q_len, s.kv_len}; }

// The inputs' projections and the projected context, where they are to be saved.
void AddProjections(const io::Problem& problem, Results* results) {
  for (const auto& [name, view] : {std::pair{"q", problem.q}, std::pair{"k", problem.k}, std::pair{"v", problem.v}}) {
    if (results->Wants(name)) results->Put(name, Tensor::CopyOf(view));
  }
  if (!results->Wants("projected")) return;
  const Tensor projected = ProjectContext(results->Full("context", ContextShape(problem.shape)), problem.projections);
  results->Put("projected", problem.ToFileShape("projected", projected));
}

report::RunReport RunAttention(const Options& options, const io::Problem& problem, Results* results) {
  const PlanShape& s = problem.shape;
  const auto stages = static_cast<double>(std::ranges::count_if(results->wanted(), IsStage));
  const bool saves_stages = stages > 0;
  const Path path = options.path.value_or(Path::kFused), stage_path = path == Path::kFused ? Path::kStaged : path;
  const report::Call call = report::CallOf(problem);
  ExecOptions exec = options.exec;
  exec.path = path;
  exec.threads = report::ThreadsFor(s, options.exec.threads);
  const Plan plan(s, call.params, exec);
  exec.path = stage_path;
  const Plan stage_plan = saves_stages && path == Path::kFused ? Plan(s, call.params, exec) : plan;

  const DType stage_type = stage_path == Path::kReference ? DType::kF64 : DType::kF32;
  const double stage_bytes = stages * Pairs(s) * static_cast<double>(ItemSize(stage_type));
  CheckMemory(options,
              results->layers() * (stage_bytes + ContextElements(s) * static_cast<double>(ItemSize(s.v_dtype))) +
                  static_cast<double>(std::max(plan.WorkspaceBytes(), stage_plan.WorkspaceBytes())),
              saves_stages ? "the stages to be saved and their run" : "the run and its results",
              saves_stages           ? "save fewer stages"
              : path == Path::kFused ? "use fewer --threads"
                                     : "use --path fused");

  report::RunResult result{plan.Description(), path, {}, 0};
  Outputs outputs;
  outputs.context = results->Make("context", s.v_dtype, ContextShape(s));
  outputs.lse = results->Make("lse", stage_type, {s.batch, s.heads, s.q_len});
  outputs.empty_rows = &result.empty_rows;
  Outputs stage_outputs;
  const auto stage = [&](const char* name, MutableTensorView* view) {
    if (results->Wants(name)) *view = results->Make(name, stage_type, StageShape(s));
  };
  Outputs& with_stages = path == Path::kFused ? stage_outputs : outputs;
  stage("scores", &with_stages.scores);
  stage("capped", &with_stages.capped);
  stage("masked_scores", &with_stages.masked_scores);
  stage("weights", &with_stages.weights);

  const auto run = [&](const Plan& one, const Outputs& to) {
    std::optional<BlasThreads> blas;  // not stated: the library's own choice
    if (exec.threads > 0) blas.emplace(exec.threads);
    Workspace workspace = one.MakeWorkspace();
    one.Run({problem.q, problem.k, problem.v}, to, workspace).ThrowIfFailed();
  };
  run(plan, outputs);
  if (saves_stages && path == Path::kFused) run(stage_plan, stage_outputs);
  AddProjections(problem, results);
  result.context = outputs.context;
  exec.path = path;
  const BlasThreads one_thread(1);
  return report::MakeRunReport(problem, result, exec);
}

report::RunReport RunThirdStage(const Options& options, const io::Problem& problem, Results* results) {
  if (options.path && *options.path != Path::kStaged) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--path: {} starts from q and k, but here weights are given; leave --path out", Name(*options.path)));
  }
  const PlanShape& s = problem.shape;
  CheckMemory(options, results->layers() * ContextElements(s) * 4, "the results", "give a smaller problem");
  const MutableTensorView context = results->Make("context", DType::kF32, ContextShape(s));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const TensorView v = problem.v.Select(0, b).Select(0, h / (s.heads / problem.v.dim(1)));
      const Tensor head = Context(problem.weights.Select(0, b).Select(0, h), v);
      const TensorView to = context.Select(0, b).Select(0, h);
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        auto* row = static_cast<float*>(context.mutable_data()) +
                    (static_cast<const float*>(to.data()) - static_cast<const float*>(context.data()));
        for (std::int64_t d = 0; d < s.v_dim; ++d) row[i * to.stride(0) + d * to.stride(1)] = static_cast<float>(head(i, d));
      }
    }
  }
  if (results->Wants("weights")) results->Put("weights", problem.ToFileShape("weights", problem.weights));
  if (results->Wants("v")) results->Put("v", Tensor::CopyOf(problem.v));
  return report::MakeThirdStageReport(problem, {"staged, third stage only: context = weights · v", Path::kStaged, context, 0});
}

// The axis of --dim, counted from the front; nothing when it is the keys', where softmax is attention's.
std::optional<int> OtherAxis(const Options& options, const io::Problem& problem) {
  if (!options.dim) return std::nullopt;
  const int rank = problem.FileShape("scores", StageShape(problem.shape)).size(),
            axis = *options.dim < 0 ? *options.dim + rank : *options.dim;
  if (axis < 0 || axis >= rank) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("--dim: {} is not an axis of scores with {} axes; give {} to {}",
                                                         *options.dim, rank, -rank, rank - 1));
  }
  return axis == rank - 1 ? std::nullopt : std::optional<int>(axis);
}

void CheckPlainForOtherAxis(const Options& options, const io::Problem& problem, double layers) {
  const AttentionParams& p = problem.params;
  const char* rule = p.causal                          ? "causal"
                     : p.window_left || p.window_right ? "a window"
                     : p.mask                          ? "mask"
                     : p.bias                          ? "bias"
                     : p.kv_lens                       ? "kv_lens"
                     : p.q_segments                    ? "segments"
                     : p.alibi_slopes                  ? "alibi_slopes"
                     : p.sinks                         ? "sinks"
                     : p.soft_cap > 0                  ? "soft_cap"
                                                       : nullptr;
  if (rule != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--dim: {} goes together with {} only over keys; leave one of them out", *options.dim, rule));
  }
  if (options.path == Path::kFused) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--dim: {} needs whole scores, which the fused path has not; use --path staged or reference", *options.dim));
  }
  // Scores and weights by both paths, and the rows of the report; of other layers what may be saved.
  CheckMemory(options, Pairs(problem.shape) * (2 * 4 + 2 * 8 + 3 * 8 + (layers - 1) * 2 * 8),
              "scores and weights along another axis", "give a smaller problem");
}

report::RunReport RunOtherAxis(const Options& options, const io::Problem& problem, int axis, Results* results) {
  CheckPlainForOtherAxis(options, problem, results->layers());
  const Path path = options.path.value_or(Path::kStaged);
  const BlasThreads one_thread(1);
  const report::OtherAxisRun run = report::RunAlongAxis(problem, axis, path);
  if (results->Wants("scores")) results->Put("scores", problem.ToFileShape("scores", run.scores));
  if (results->Wants("weights")) results->Put("weights", problem.ToFileShape("weights", run.weights));
  results->Put("context", problem.ToFileShape("context", run.context));
  return report::MakeOtherAxisReport(problem, run, axis, path);
}

report::RunReport RunProblem(const Options& options, const io::Problem& problem, Results* results) {
  if (problem.kind != io::Problem::Kind::kThirdStage) {
    const std::optional<int> axis = OtherAxis(options, problem);
    return axis ? RunOtherAxis(options, problem, *axis, results) : RunAttention(options, problem, results);
  }
  if (options.dim) {
    throw Error(ErrorCode::kInvalidArgument, "--dim: here weights are given, nothing is normalised; leave it out");
  }
  return RunThirdStage(options, problem, results);
}

// ----------------------------------------------------------------------------------------------------------------- layers

// The layers to run. Nothing stands for the only problem of files without layers, and for the first of several.
std::vector<std::optional<std::int64_t>> ChosenLayers(const Options& options, const io::ProblemFiles& files) {
  if (options.layers.all()) return {std::nullopt};
  const std::vector<std::int64_t> chosen = options.layers.Among(files.layers());
  return {chosen.begin(), chosen.end()};
}

// Runs chosen layers one after another and holds what is to be shown and saved of them; inputs are let go.
class LayerRuns {
 public:
  LayerRuns(const Options& options, Streams& streams)
      : options_(options), streams_(streams), files_(options.sources), layers_(ChosenLayers(options, files_)) {}

  void Run() {
    for (std::size_t n = 0; n < layers_.size(); ++n) RunOne(n);
    streams_.EndProgress();
  }
  void Save() const {
    std::vector<io::OutputArray> arrays;
    for (const auto& [name, tensor] : saved_) arrays.push_back({.name = name, .tensor = tensor});
    if (!arrays.empty()) io::Write(options_.output, arrays);
  }
  void Show() const;
  bool agrees() const { return agrees_; }

 private:
  bool several() const { return layers_.size() > 1; }
  void RunOne(std::size_t n);
  std::string Json() const;

  const Options& options_;
  Streams& streams_;
  const io::ProblemFiles files_;
  const std::vector<std::optional<std::int64_t>> layers_;

  std::vector<std::string> shown_;  // of each layer: text or JSON
  std::vector<std::string> notes_;  // each once
  std::vector<std::pair<std::string, Tensor>> saved_;
  bool agrees_ = true;
};

void LayerRuns::RunOne(std::size_t n) {
  Options options = options_;
  options.problem.layer = layers_[n];
  options.exec.on_progress = [&](double done) {
    options_.exec.on_progress((static_cast<double>(n) + done) / static_cast<double>(layers_.size()));
  };
  const io::Problem problem = files_.Load(options.problem);
  std::vector<std::string> names = NamesToSave(options, problem);
  CheckOutput(options, names.size() * layers_.size());
  Results results(problem, std::move(names), options.output.empty() ? 1 : layers_.size());
  report::RunView view{streams_.width(), streams_.is_terminal(), ColorsOf(streams_), {}, {}};
  if (!options.batch.all()) view.batches = options.batch.Indices(problem.shape.batch);
  if (!options.head.all()) view.heads = options.head.Indices(problem.shape.heads);

  const report::RunReport report = RunProblem(options, problem, &results);
  agrees_ = agrees_ && report.agreement.agrees();
  for (const std::string& note : problem.notes) {
    if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
  }
  const std::string prefix = several() ? fmt::format("layers.{}.", *layers_[n]) : "";
  for (const std::string& name : results.wanted()) saved_.emplace_back(prefix + name, results.Take(name));
  shown_.push_back(options.json ? report::RunReportJson(problem, report, several() ? "" : options.output, results.wanted())
                                : problem.reading + "\n\n" + report::ShowRunReport(problem, report, view));
}

// Of several layers: what each alone would give, without what they share.
std::string LayerRuns::Json() const {
  if (!several()) return shown_.front();
  nlohmann::ordered_json json = {{"command", "run"}, {"notes", notes_}, {"layers", nlohmann::ordered_json::array()}};
  for (const std::string& text : shown_) {
    auto layer = nlohmann::ordered_json::parse(text);
    layer.erase("command");
    layer.erase("notes");
    json["layers"].push_back(std::move(layer));
  }
  if (!saved_.empty()) {
    json["output"] = {{"file", options_.output}, {"saved", nlohmann::ordered_json::array()}};
    for (const auto& [name, tensor] : saved_) json["output"]["saved"].push_back(name);
  }
  return json.dump(2);
}

void LayerRuns::Show() const {
  for (const std::string& note : notes_) streams_.Note(note);
  if (options_.json) return streams_.Print(Json() + '\n');
  streams_.Print(fmt::format("{}", fmt::join(shown_, "\n")));
  if (saved_.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : saved_) names.push_back(name);
  streams_.Print(several() ? fmt::format("\nsaved {} arrays to {}\n", names.size(), options_.output)
                           : fmt::format("saved {} to {}\n", fmt::join(names, ", "), options_.output));
}

}  // namespace

ExitStatus RunCommand(const Options& options, Streams& streams) {
  LayerRuns runs(options, streams);
  runs.Run();
  runs.Save();
  runs.Show();
  return runs.agrees() ? ExitStatus::kDone : ExitStatus::kPathsDisagree;
}

}  // namespace regard::cli
