// regard map: who attends to whom, as text, as arrays and as a page.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/max_memory.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "core/stop.h"
#include "regard/io.h"
#include "report/html_page.h"
#include "report/map_report.h"
#include "report/run_report.h"
#include "report/text.h"

namespace regard::cli {
namespace {

using report::LayerMap;
using report::MapRequest;

// --------------------------------------------------------------------------------------------------------- what to map

// Whether both files can be written.
void CheckFiles(const Options& options) {
  const std::string &output = options.output, &html = options.html;
  CheckOutputFile(options, "-o", output);
  CheckOutputFile(options, "--html", html);
  if (!output.empty() && !output.ends_with(".npz") && !output.ends_with(".safetensors")) {
    throw UsageError(fmt::format("-o: '{}' cannot hold many arrays; name a file .npz or .safetensors", output));
  }
  if (!output.empty() && !html.empty() && IsSameFile(output, html)) {
    throw UsageError(fmt::format("--html: '{}' is the file of -o, too; give two names", html));
  }
}

// The layers to map; nothing stands for the only problem of files without layers.
std::vector<std::optional<std::int64_t>> ChosenLayers(const Options& options, const io::ProblemFiles& files) {
  if (files.layers().empty() && options.layers.all()) return {std::nullopt};
  const std::vector<std::int64_t> chosen = options.layers.Among(files.layers());
  return {chosen.begin(), chosen.end()};
}

void CheckKind(const io::Problem& problem) {
  if (problem.kind != io::Problem::Kind::kThirdStage) return;
  throw Error(ErrorCode::kInvalidArgument,
              "map: starts from q and k, but here weights are given; give q and k, or use `regard run`");
}

MapRequest RequestOf(const Options& options, const io::Problem& problem, int width) {
  MapRequest request{.top_k = options.top_k, .bin_rows = options.bins.first, .bin_cols = options.bins.second, .width = width};
  if (!options.batch.all()) request.batches = options.batch.Indices(problem.shape.batch);
  if (!options.head.all()) request.heads = options.head.Indices(problem.shape.heads);
  return request;
}

// The price of everything that is held at once: the results of all layers, and one run.
void CheckPrice(const Options& options, const io::Problem& problem, const MapRequest& request, std::size_t num_layers) {
  const PlanShape& s = problem.shape;
  const double layers = static_cast<double>(num_layers), queries = static_cast<double>(s.q_len),
               keys = static_cast<double>(s.kv_len);
  double bytes = layers * report::MapBytes(s, request) + report::MapScratchBytes(problem, request, options.exec);
  if (!options.output.empty()) bytes += layers * report::MapBytes(s, request);
  if (!options.html.empty()) {
    const double exact =
        layers * static_cast<double>(request.heads.size()) * (queries + keys) * (2 * static_cast<double>(s.head_dim) + 4);
    bytes += 3 * (10e6 + 4.0 / 3 * exact);  // the parts of a page, and the page
  }
  CheckMemory(options, bytes, "the map and its run", "choose fewer layers or a smaller --top-k");
}

// -------------------------------------------------------------------------------------------------------------- mapping

struct Mapped {
  std::vector<LayerMap> maps;
  std::vector<Tensor> offsets;  // what the problems borrow
  MapRequest request;
  std::vector<std::string> notes;  // each once
};

void AddNote(std::string note, std::vector<std::string>* notes) {
  if (std::ranges::find(*notes, note) == notes->end()) notes->push_back(std::move(note));
}

// Nothing of the inputs is looked at again.
void ReleaseInputs(io::Problem* problem) {
  problem->q = problem->k = problem->v = problem->inputs = {};
  problem->params = {};
  problem->projections = {};
  problem->storage.reset();
}

// A page has one text: layers with other lengths are refused before any is computed.
void CheckFitsPage(const Options& options, const PlanShape& first, std::int64_t first_layer, const PlanShape& s,
                   std::int64_t layer) {
  const auto queries = [&](const PlanShape& shape) { return std::min(shape.q_len, options.last_queries.value_or(shape.q_len)); };
  if (queries(s) == queries(first) && s.kv_len == first.kv_len) return;
  throw Error(
      ErrorCode::kShapeMismatch,
      fmt::format("--html: layer {} has {} queries and {} keys, layer {} has {} and {}; give --layer those that are alike", layer,
                  queries(s), s.kv_len, first_layer, queries(first), first.kv_len));
}

// Before anything is computed. What is listed in the same shapes is not loaded for that.
void CheckAllFitPage(const Options& options, const io::ProblemFiles& files,
                     const std::vector<std::optional<std::int64_t>>& layers) {
  std::optional<PlanShape> first;
  const auto shape_of = [&](std::int64_t layer) {
    io::ProblemOptions stated = options.problem;
    stated.layer = layer;
    return files.Load(stated).shape;
  };
  for (std::size_t n = 1; n < layers.size(); ++n) {
    if (files.HaveSameShapes(*layers[0], *layers[n])) continue;
    if (!first) first = shape_of(*layers[0]);
    CheckFitsPage(options, *first, *layers[0], shape_of(*layers[n]), *layers[n]);
  }
}

Mapped MapAll(const Options& options, int width) {
  Mapped all;
  const io::ProblemFiles files(options.sources);
  const std::vector<std::optional<std::int64_t>> layers = ChosenLayers(options, files);
  const auto load = [&](std::optional<std::int64_t> layer) {
    io::ProblemOptions stated = options.problem;
    stated.layer = layer;
    return files.Load(stated);
  };
  if (!options.html.empty()) CheckAllFitPage(options, files, layers);
  const bool keeps_inputs = !options.html.empty() && !options.head.all();
  for (std::size_t n = 0; n < layers.size(); ++n) {
    io::Problem problem = load(layers[n]);
    CheckKind(problem);
    all.offsets.emplace_back();
    std::int64_t first_query = 0;
    if (options.last_queries) first_query = report::KeepLastQueries(&problem, *options.last_queries, &all.offsets.back());
    all.request = RequestOf(options, problem, width);
    CheckPrice(options, problem, all.request, layers.size());
    ExecOptions exec = options.exec;
    exec.on_progress = [&](double done) {
      options.exec.on_progress((static_cast<double>(n) + done) / static_cast<double>(layers.size()));
    };
    LayerMap map = report::MapLayer(problem, all.request, exec);
    map.first_query = first_query;
    for (const std::string& note : problem.notes) AddNote(note, &all.notes);
    for (std::string& note : report::RowNotes(map)) AddNote(std::move(note), &all.notes);
    if (!map.has_positions) {
      const PlanShape& s = problem.shape;
      const std::string other = s.q_len != s.kv_len ? fmt::format("q_len {} ≠ kv_len {}", s.q_len, s.kv_len)
                                                    : "keys are in other segments than queries";
      AddNote(fmt::format("q_offset is not stated and {}: no distances and no kinds; --q-offset states it", other), &all.notes);
    }
    if (!keeps_inputs) ReleaseInputs(&map.problem);
    all.maps.push_back(std::move(map));
  }
  return all;
}

// ------------------------------------------------------------------------------------------------------------- the page

std::vector<std::string> TokensOf(const io::Tokens& tokens, std::int64_t batch) {
  std::vector<std::string> list;
  for (std::int64_t i = 0; tokens && i < tokens.length; ++i) list.push_back(tokens.At(batch, i));
  return list;
}

// Whether queries are keys too: each at its position, with the same token.
bool IsSameText(const LayerMap& map, std::int64_t offset, std::int64_t batch) {
  const io::Problem& p = map.problem;
  if (!map.has_positions || offset < 0 || offset + p.shape.q_len > p.shape.kv_len) return false;
  if (!p.q_tokens || !p.k_tokens) return !p.q_tokens;
  for (std::int64_t i = 0; i < p.shape.q_len; ++i) {
    if (p.q_tokens.At(batch, i) != p.k_tokens.At(batch, i + offset)) return false;
  }
  return true;
}

void AddHeads(const LayerMap& map, const MapRequest& request, report::HtmlPage* page) {
  const report::Call call = report::CallOf(map.problem);
  const bool has_pairs = page->q_len > 0 && page->kv_len > 0;
  std::vector<report::ExactHead> exact;
  if (has_pairs && !request.heads.empty())
    exact = report::ExactHeads(call.q, call.k, call.params, map.batches.front(), request.heads);
  const Summary& s = map.summary;
  for (std::int64_t h = 0; h < map.problem.shape.heads; ++h) {
    const auto head_of = [h](const Tensor& tensor) { return tensor ? tensor.view().Select(0, 0).Select(0, h) : TensorView(); };
    const report::HeadFacts& facts = map.Facts(0, h);
    report::PageHead head{.layer = map.problem.layer, .head = h, .reading = page->readings.size() - 1};
    if (facts.kind) {
      head.kind = Name(*facts.kind);
      head.score = facts.score;
    }
    head.pooled = head_of(s.pooled);
    head.entropy = head_of(s.entropy);
    head.key_mass = head_of(s.key_mass);
    head.topk_index = head_of(s.topk_index);
    head.topk_weight = head_of(s.topk_weight);
    head.key_topk_index = head_of(s.key_topk_index);
    head.key_topk_weight = head_of(s.key_topk_weight);
    const auto chosen = std::ranges::find(request.heads, h);
    if (has_pairs && chosen != request.heads.end()) {
      head.exact = exact[static_cast<std::size_t>(chosen - request.heads.begin())];
      head.exact->lse = head_of(s.lse);
    }
    page->heads.push_back(std::move(head));
  }
}

std::string TitleOf(const std::vector<std::string>& sources) {
  std::string title;
  for (const std::string& source : sources) {
    title += (title.empty() ? "" : ", ") + (source == "-" ? "standard input" : std::filesystem::path(source).filename().string());
  }
  return title;
}

std::string PageOf(const Options& options, Mapped* all) {
  const LayerMap& first = all->maps.front();
  if (first.batches.empty()) throw Error(ErrorCode::kInvalidArgument, "--html: there is no sequence to show; leave it out");
  const std::int64_t batch = first.batches.front();
  if (first.problem.shape.batch > 1) {
    AddNote(fmt::format("the page shows sequence {} of {}; --batch chooses another", batch, first.problem.shape.batch),
            &all->notes);
  }
  report::HtmlPage page{.title = TitleOf(options.sources), .notes = all->notes};
  page.q_len = first.problem.shape.q_len;
  page.kv_len = first.problem.shape.kv_len;
  page.q_offset = first.offset;
  page.same_text = IsSameText(first, page.q_offset, batch);
  page.k_tokens = TokensOf(first.problem.k_tokens, batch);
  if (!page.same_text) page.q_tokens = TokensOf(first.problem.q_tokens, batch);
  for (const LayerMap& map : all->maps) {
    page.readings.push_back(map.problem.reading);
    AddHeads(map, all->request, &page);
  }
  report::BuiltPage built = report::BuildHtmlPage(page);
  for (std::string& note : built.notes) AddNote(std::move(note), &all->notes);
  return std::move(built.html);
}

// --------------------------------------------------------------------------------------------------------------- saving

// Strings are metadata in safetensors: a JSON list.
void SaveArrays(const std::string& path, std::vector<io::OutputArray> arrays) {
  if (path.ends_with(".npz")) return io::WriteNpz(path, arrays);
  std::map<std::string, std::string> metadata;
  for (const io::OutputArray& array : arrays) {
    if (!array.strings.empty()) metadata[array.name] = nlohmann::json(array.strings).dump();
  }
  std::erase_if(arrays, [](const io::OutputArray& array) { return !array.strings.empty(); });
  io::WriteSafetensors(path, arrays, metadata);
}

}  // namespace

ExitStatus MapCommand(const Options& options, Streams& streams) {
  CheckFiles(options);
  Mapped all = MapAll(options, streams.width());
  const std::string html = options.html.empty() ? std::string() : PageOf(options, &all);
  internal::ThrowIfStopped(options.exec.stop_token);

  report::MapFiles files{options.output, {}, options.html, html.size()};
  if (!options.output.empty()) {
    std::vector<Tensor> storage;
    std::vector<io::OutputArray> arrays = report::MapArrays(all.maps, &storage);
    for (const io::OutputArray& array : arrays) files.saved.push_back(array.name);
    SaveArrays(options.output, std::move(arrays));
  }
  if (!options.html.empty()) {
    io::AtomicFile file(options.html);
    file.Write(html);
    file.Commit();
  }
  streams.EndProgress();
  for (const std::string& note : all.notes) streams.Note(note);
  if (options.json) {
    streams.Print(report::MapJson(all.maps, all.request.heads, all.notes, files) + '\n');
    return ExitStatus::kDone;
  }
  streams.Print(report::ShowMap(all.maps, {streams.width(), ColorsOf(streams), all.request.heads, streams.is_terminal()}));
  if (!options.output.empty() || !options.html.empty()) streams.Print("\n");
  if (!options.output.empty()) streams.Print(fmt::format("saved {} arrays to {}\n", files.saved.size(), options.output));
  if (!options.html.empty())
    streams.Print(
        fmt::format("wrote {}, {}: open it in a browser\n", options.html, report::ShowBytes(static_cast<double>(html.size()))));
  return ExitStatus::kDone;
}

}  // namespace regard::cli
