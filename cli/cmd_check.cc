// regard check: somebody else's results against the definition, and which known mistake made the difference.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/max_memory.h"
#include "io/near_miss.h"
#include "regard/diagnose.h"
#include "regard/io.h"

namespace regard::cli {
namespace {

// ----------------------------------------------------------------------------------------------------- what was observed

constexpr std::string_view kStages[] = {"scores", "capped", "masked_scores", "weights", "lse", "context", "projected"};

bool IsStage(std::string_view name) { return std::find(std::begin(kStages), std::end(kStages), name) != std::end(kStages); }

// regard's name of a stage under any alias and any `layers.N.` prefix; empty when it is none, or another layer's.
std::string StageName(const std::string& key, const std::optional<std::int64_t>& layer) {
  std::string_view name = key;
  if (name.starts_with("layers.")) {
    const std::size_t dot = name.find('.', 7);
    if (dot == std::string_view::npos || (layer && name.substr(7, dot - 7) != std::to_string(*layer))) return {};
    name.remove_prefix(dot + 1);
  }
  if (name == "projected") return "projected";
  const std::string_view canonical = io::CanonicalName(name);
  return IsStage(canonical) ? std::string(canonical) : std::string();
}

// "weights=w.npy" -> {"weights", "w.npy"}; the name is empty where a file of that whole name exists or none is stated.
std::pair<std::string, std::string> SplitSource(const std::string& source) {
  const std::size_t equals = source.find('=');
  std::error_code ignored;
  if (equals == std::string::npos || std::filesystem::exists(source, ignored)) return {"", source};
  return {source.substr(0, equals), source.substr(equals + 1)};
}

std::vector<std::string> SplitList(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// What to give instead of a name that is no result; of several names none is near to one.
std::string WhichResult(const std::string& name) {
  const std::string_view meant = io::NearMiss(name, kStages);
  return meant.empty() ? fmt::format("give one of {}", fmt::join(kStages, ", ")) : fmt::format("is {} meant?", meant);
}

// A file of results, opened once: it may be standard input.
struct ObservedFile {
  std::string stage;  // that its one array is stated to be, as stated; empty: its arrays have names
  io::File file;
};

// `F`, or several separated by commas: `weights=w.npy,context=c.npy`.
std::vector<ObservedFile> OpenObserved(const std::string& flag, const std::string& list) {
  std::vector<ObservedFile> files;
  for (const std::string& source : SplitList(list)) {
    const auto [stated, path] = SplitSource(source);
    if (!stated.empty() && StageName(stated, {}).empty())
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {} is not a result; {}", flag, stated, WhichResult(stated)));
    files.push_back({stated, io::File::Open(path)});
  }
  return files;
}

// The layer whose results were observed, when the files name exactly one.
std::optional<std::int64_t> ObservedLayer(const std::vector<ObservedFile>& files) {
  std::optional<std::int64_t> layer;
  for (const ObservedFile& observed : files) {
    for (const io::ArrayInfo& array : observed.file.arrays()) {
      std::int64_t number = 0;
      const char* begin = array.name.data() + std::min<std::size_t>(7, array.name.size());
      const bool has_layer = array.name.starts_with("layers.") &&
                             std::from_chars(begin, array.name.data() + array.name.size(), number).ec == std::errc();
      if (!has_layer || (layer && *layer != number)) return std::nullopt;
      layer = number;
    }
  }
  return layer;
}

using Arrays = std::map<std::string, Tensor>;

// The results in the files, those of `layer` where their names say of which they are.
Arrays ReadObserved(const std::string& flag, const std::vector<ObservedFile>& files, const std::optional<std::int64_t>& layer) {
  Arrays arrays;
  std::map<std::string, std::string> places;  // of arrays, for messages
  for (const auto& [stated, file] : files) {
    const auto numbers = std::ranges::count(file.arrays(), false, &io::ArrayInfo::is_strings);
    if (!stated.empty() && numbers != 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: {} holds {} arrays of numbers, so that '{}=' does not say which; give the file without a name",
                              flag, file.path(), numbers, stated));
    }
    std::string names;
    bool has_result = false;
    for (const io::ArrayInfo& array : file.arrays()) {
      if (!stated.empty() && array.is_strings) continue;
      // A file with one array without a name holds the context, unless it is said to hold something else.
      const std::string key = !stated.empty() ? stated : array.name.empty() ? "context" : array.name;
      names += (names.empty() ? "" : ", ") + key;
      const std::string stage = StageName(key, layer);
      if (StageName(key, {}).empty()) continue;
      has_result = true;
      if (stage.empty()) continue;
      const std::string place = array.name.empty() ? file.path() : fmt::format("'{}' in {}", array.name, file.path());
      if (const auto [before, is_first] = places.emplace(stage, place); !is_first) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: {} given twice, as {} and as {}; keep one", flag, stage, before->second, place));
      }
      arrays.emplace(stage, file.Read(array.name));
    }
    if (has_result) continue;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {} holds nothing under the name of a result{}; {}", flag,
                                                         file.path(), names.empty() ? "" : ", but " + names, WhichResult(names)));
  }
  if (arrays.empty() && !files.empty()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {} holds nothing of layer {}; state the --layer that it is of",
                                                         flag, files[0].file.path(), *layer));
  }
  return arrays;
}

// Results in the layout of the inputs, where their shape says so; else Diagnose reads the shape.
TensorView InFullShape(const io::Problem& problem, const std::string& name, const Dims& full, const Tensor& tensor) {
  return tensor.shape() == problem.FileShape(name, full) ? problem.FromFileShape(name, full, tensor.view()) : tensor.view();
}

ObservedTensors Bind(const io::Problem& problem, const Arrays& arrays) {
  const PlanShape& s = problem.shape;
  const Dims stage{s.batch, s.heads, s.q_len, s.kv_len}, context{s.batch, s.heads, s.q_len, s.v_dim},
      lse{s.batch, s.heads, s.q_len};
  ObservedTensors o;
  const auto bind = [&](const char* name, const Dims& full, TensorView* to) {
    if (const auto found = arrays.find(name); found != arrays.end()) *to = InFullShape(problem, name, full, found->second);
  };
  bind("scores", stage, &o.scores);
  bind("capped", stage, &o.capped);
  bind("masked_scores", stage, &o.masked_scores);
  bind("weights", stage, &o.weights);
  bind("lse", lse, &o.lse);
  bind("context", context, &o.context);
  if (const auto found = arrays.find("projected"); found != arrays.end()) o.projected = found->second.view();
  return o;
}

// ---------------------------------------------------------------------------------------------------------- the problem

// Tensors that only the diagnosis reads: q and k before rotary embedding, and positions.
Arrays ReadExtras(const Options& options) {
  Arrays extras;
  for (const std::string& source : options.sources) {
    if (source == "-") continue;
    const auto [name, path] = SplitSource(source);
    const bool is_extra = name == "q_pre_rope" || name == "k_pre_rope" || name == "positions";
    if (!name.empty() && !is_extra) continue;
    const io::File file = io::File::Open(path);
    for (const io::ArrayInfo& array : file.arrays()) {
      const std::string key = is_extra ? name : array.name;
      if (key == "q_pre_rope" || key == "k_pre_rope" || key == "positions") extras.emplace(key, file.Read(array.name));
    }
  }
  return extras;
}

DiagnosisProblem ToDiagnose(const io::Problem& problem, const Arrays& extras) {
  DiagnosisProblem d;
  if (problem.kind == io::Problem::Kind::kThirdStage) {
    d.v = problem.v, d.weights = problem.weights;
    return d;
  }
  d.q = problem.q, d.k = problem.k, d.v = problem.v;
  d.params = problem.params;
  d.params.scale = problem.scale;
  d.inputs = problem.inputs;
  d.projections = problem.projections;
  const auto bind = [&](const char* name, TensorView* to) {
    if (const auto found = extras.find(name); found != extras.end()) *to = found->second.view();
  };
  bind("q_pre_rope", &d.q_pre_rope);
  bind("k_pre_rope", &d.k_pre_rope);
  bind("positions", &d.positions);
  return d;
}

// ------------------------------------------------------------------------------------------------------------- showing

nlohmann::ordered_json NumberOrText(double x) {
  if (std::isfinite(x)) return x + 0;  // no −0
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

nlohmann::ordered_json ToJson(const Diagnosis& d, const io::Problem& problem) {
  nlohmann::ordered_json json = {{"command", "check"},
                                 {"reading", problem.reading},
                                 {"verdict", Name(d.verdict)},
                                 {"summary", d.summary},
                                 {"first_wrong_stage", d.first_wrong_stage},
                                 {"precision", d.precision}};
  const Difference& w = d.where;
  json["where"] = {{"text", w.text},
                   {"batches", w.batches},
                   {"heads", w.heads},
                   {"rows", w.rows},
                   {"keys", w.keys},
                   {"rows_compared", w.rows_compared},
                   {"rows_wrong", w.rows_wrong},
                   {"largest", NumberOrText(w.largest)}};
  json["where"]["worst"] = {{"tensor", w.worst.tensor},
                            {"batch", w.worst.batch},
                            {"head", w.worst.head},
                            {"row", w.worst.row},
                            {"column", w.worst.column},
                            {"expected", NumberOrText(w.worst.expected)},
                            {"observed", NumberOrText(w.worst.observed)}};
  json["explanations"] = nlohmann::ordered_json::array();
  for (const Explanation& e : d.explanations) {
    nlohmann::ordered_json params = nlohmann::ordered_json::object();
    for (const ExplanationParam& p : e.params) {
      if (p.text.empty())
        params[p.name] = NumberOrText(p.value);
      else
        params[p.name] = p.text;
    }
    json["explanations"].push_back({{"id", e.id},
                                    {"name", e.name},
                                    {"params", params},
                                    {"formula", e.formula},
                                    {"stage", e.stage},
                                    {"residual", NumberOrText(e.residual)},
                                    {"coverage", e.coverage},
                                    {"scope", e.scope},
                                    {"advice", e.advice}});
  }
  json["ties"] = nlohmann::ordered_json::array();
  for (int n = 0; d.ties > 1 && n < d.ties; ++n) json["ties"].push_back(d.explanations[static_cast<std::size_t>(n)].id);
  json["tie_breaker"] = d.tie_breaker;
  json["evidence"] = d.evidence;
  json["next_step"] = d.next_step;
  json["coverage"] = d.coverage_note;
  json["notes"] = problem.notes;
  return json;
}

std::string ParamsText(const Explanation& e) {
  std::string text;
  for (const ExplanationParam& p : e.params)
    text += fmt::format("{}{} {}", text.empty() ? " (" : ", ", p.name, p.text.empty() ? fmt::format("{:.6g}", p.value) : p.text);
  return text.empty() ? text : text + ")";
}

// One line a head; darker where the difference exceeds its bound by more.
std::string PictureText(const Diagnosis& d) {
  constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
  if (d.picture.empty() || d.picture[0].empty()) return {};
  std::string text = "\ndifference over bound, by head and query (· none, ░ ≤ 10, ▒ ≤ 1,000, ▓ ≤ 100,000, █ more):\n";
  const std::size_t most = 16;
  for (std::size_t h = 0; h < std::min(d.picture.size(), most); ++h) {
    text += fmt::format("  head {:>3}  ", h);
    for (const double ratio : d.picture[h])
      text += kShades[ratio <= 1 ? 0 : ratio <= 10 ? 1 : ratio <= 1e3 ? 2 : ratio <= 1e5 ? 3 : 4];
    text += '\n';
  }
  if (d.picture.size() > most) text += fmt::format("  … {} more heads\n", d.picture.size() - most);
  return text;
}

std::string ToText(const Diagnosis& d) {
  std::string text = d.summary + "\n";
  if (d.verdict == Verdict::kMatch) {
    for (const std::string& sentence : d.evidence) {
      if (!sentence.ends_with(" matches")) text += "  - " + sentence + "\n";
    }
    return text;
  }
  if (!d.explanations.empty()) {
    const Explanation& best = d.explanations.front();
    text += fmt::format("\nwhat     {} {}{}{}\nstage    wrong from {} on\nchange   {}\n", best.id, best.name, ParamsText(best),
                        best.scope.empty() ? "" : ", " + best.scope, best.stage, best.advice);
  }
  if (!d.where.text.empty()) {
    const WorstCell& w = d.where.worst;
    text += fmt::format("where    {}\nworst    {}[batch {}, head {}, row {}, column {}]: expected {:.6g}, observed {:.6g}\n",
                        d.where.text, w.tensor, w.batch, w.head, w.row, w.column, w.expected + 0, w.observed + 0);  // no −0
  }
  text += fmt::format("looked   at {}\n", d.coverage_note);
  for (const std::string& sentence : d.evidence) text += "  - " + sentence + "\n";
  if (d.ties > 1) {
    text += "\nthese fit equally well:\n";
    for (int n = 0; n < d.ties; ++n) {
      const Explanation& e = d.explanations[static_cast<std::size_t>(n)];
      text += fmt::format("  {} {}{}: {}\n", e.id, e.name, ParamsText(e), e.advice);
    }
    text += "to decide, dump: " + d.tie_breaker + "\n";
  }
  if (!d.next_step.empty()) text += "\nnext     " + d.next_step + "\n";
  return text + PictureText(d);
}

// q, k and v as doubles, once for the problem and once for each thread that holds a hypothesis about them; and what was observed.
void CheckPrice(const Options& options, const io::Problem& problem, const Arrays& observed, const Arrays& again) {
  const PlanShape& s = problem.shape;
  const double operands = static_cast<double>(s.batch) * (static_cast<double>(s.heads * s.q_len * s.head_dim) +
                                                          static_cast<double>(s.kv_heads * s.kv_len * (s.head_dim + s.v_dim)));
  const unsigned threads =
      options.exec.threads > 0 ? static_cast<unsigned>(options.exec.threads) : std::max(std::thread::hardware_concurrency(), 1u);
  double bytes = 8 * operands * (1 + threads);
  for (const Arrays* arrays : {&observed, &again}) {
    for (const auto& [name, tensor] : *arrays)
      bytes += static_cast<double>(tensor.num_elements()) * static_cast<double>(ItemSize(tensor.dtype()));
  }
  CheckMemory(options, bytes, "the problem and hypotheses about it", "give fewer sequences, or --threads 1");
}

}  // namespace

ExitStatus CheckCommand(const Options& options, Streams& streams) {
  io::ProblemOptions problem_options = options.problem;
  const std::vector<ObservedFile> files = OpenObserved("--observed", options.observed);
  if (!problem_options.layer) problem_options.layer = ObservedLayer(files);
  const io::Problem problem = io::LoadProblem(options.sources, problem_options);
  Arrays observed;
  if (!options.observed.empty()) {
    observed = ReadObserved("--observed", files, problem.layer);
  } else {
    for (const std::string& name : problem.observed) {
      if (IsStage(name)) observed.emplace(name, problem.ReadObserved(name));
    }
  }
  if (observed.empty())
    throw UsageError("--observed: missing; give the file with the results to check, such as --observed theirs.npz");
  const Arrays again = ReadObserved("--observed-again", OpenObserved("--observed-again", options.observed_again), problem.layer);
  const auto in_both = [&](const auto& entry) { return again.count(entry.first) > 0; };
  if (!again.empty() && std::none_of(observed.begin(), observed.end(), in_both)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--observed-again: holds {}, the first run {}; give the same results of both", again.begin()->first,
                            observed.begin()->first));
  }
  CheckPrice(options, problem, observed, again);
  const Arrays extras = ReadExtras(options);
  DiagnoseOptions how;
  how.threads = options.exec.threads;
  how.on_progress = options.exec.on_progress;
  how.stop_token = options.exec.stop_token;
  if (!options.batch.all()) how.batches = options.batch.Indices(problem.shape.batch);
  if (!options.head.all()) how.heads = options.head.Indices(problem.shape.heads);
  const Diagnosis d = Diagnose(ToDiagnose(problem, extras), Bind(problem, observed), Bind(problem, again), how);
  streams.EndProgress();
  for (const std::string& note : problem.notes) streams.Note(note);
  streams.Print(options.json ? ToJson(d, problem).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"
                             : problem.reading + "\n\n" + ToText(d));
  return d.verdict == Verdict::kMatch || d.verdict == Verdict::kRounding ? ExitStatus::kDone : ExitStatus::kDifference;
}

}  // namespace regard::cli
