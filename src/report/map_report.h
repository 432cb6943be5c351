// What `regard map` shows: who attends to whom, a line a head, and pictures of chosen heads.
//
//     std::vector<LayerMap> maps;
//     maps.push_back(MapLayer(problem, {.top_k = 8, .heads = {9}}, exec));  // summaries, and what follows from them
//     out += ShowMap(maps, {.heads = {9}});                                 // for people
//     out += MapJson(maps, {9}, problem.notes, {});                         // for programs: docs/cli.md has the schema
//
// Every number comes from Summarize (include/regard/summary.h); nothing here computes a weight.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/io.h"
#include "regard/problem.h"
#include "regard/summary.h"
#include "report/heat_map.h"

namespace regard::report {

/// One weight and whose it is.
struct MapLink {
  std::int64_t query = 0, key = 0;  // of those mapped
  double weight = 0;
};

/// One head in a line. Means are over the queries that see a key with a score above −inf; NaN where there is none.
struct HeadFacts {
  std::int64_t batch = 0, head = 0;
  std::optional<HeadKind> kind = {};  // not there without positions, nor where the score is NaN: then nothing is known
  double score = 0;
  double entropy = 0;               // nats
  double first_key_share = 0;       // the weight of the first key
  double distance = 0;              // p − j under the weights: positive looks back
  std::vector<MapLink> links = {};  // the largest weights of the head, largest first; ties to the lower query, then key
};

struct MapRequest {
  int top_k = 8;
  std::int64_t bin_rows = 64, bin_cols = 64;
  std::vector<std::int64_t> batches = {};  // which sequences; empty: all
  std::vector<std::int64_t> heads = {};    // of which a picture is wanted, besides; empty: none
  int width = 80;                          // columns of a terminal, for the pictures
};

/// A problem, mapped.
struct LayerMap {
  io::Problem problem;
  std::vector<std::int64_t> batches;  // in the summary's order
  /// Whether queries have positions among the keys. Without, there are no distances, no window_share and no kinds.
  bool has_positions = false;
  std::int64_t first_query = 0;  // of the input's queries; set by whoever called KeepLastQueries
  std::int64_t offset = 0;       // the position of query 0 of the first of batches; 0 without positions
  Summary summary;               // of all heads; without context
  std::vector<HeadFacts> facts;  // batch by heads
  Tensor pictures;               // [batches, request.heads, R, C]: pooled as a terminal can show it

  const HeadFacts& Facts(std::size_t batch, std::int64_t head) const {
    return facts[batch * static_cast<std::size_t>(problem.shape.heads) + static_cast<std::size_t>(head)];
  }
};

/// The reach of window_share: that of the heads called "local".
inline constexpr std::int64_t kMapWindow = 8;

/// Every summary of summary.h, for all heads. Not for the third stage. Throws Error.
LayerMap MapLayer(const io::Problem& problem, const MapRequest& request, const ExecOptions& exec);
/// What MapLayer will hold when it is done, in bytes, context included; and what it needs meanwhile besides. Throws Error.
double MapBytes(const PlanShape& shape, const MapRequest& request);
double MapScratchBytes(const io::Problem& problem, const MapRequest& request, const ExecOptions& exec);
/// What is odd about a layer's rows, a line each: queries that see no key, or none with a score above −inf; weights that are not numbers.
std::vector<std::string> RowNotes(const LayerMap& map);

/// Whether query positions are known: q_offset is stated, or follows from kv_lens, or from queries and keys of the same texts.
bool HasPositions(const PlanShape& shape, const AttentionParams& params);
/// Leaves the last `count` queries of every sequence, at the positions they had, and returns how many it dropped from each.
/// `offsets` is memory that the problem then borrows. Error when count < 1, or with segments, in which positions restart.
std::int64_t KeepLastQueries(io::Problem* problem, std::int64_t count, Tensor* offsets);

/// The summaries as arrays of a file, in the shapes of the inputs; names begin with layers.N. when there are several maps.
/// head_kind is strings. `storage` holds what they view.
std::vector<io::OutputArray> MapArrays(const std::vector<LayerMap>& maps, std::vector<Tensor>* storage);

struct MapView {
  int width = 80;
  Colors colors = Colors::kNone;
  std::vector<std::int64_t> heads = {};  // those with pictures; the table has these only. Empty: all, without pictures
  bool is_terminal = false;              // tables are cut to its width
};
std::string ShowMap(const std::vector<LayerMap>& maps, const MapView& view);

/// What was written where.
struct MapFiles {
  std::string output = {};
  std::vector<std::string> saved = {};
  std::string html = {};
  std::size_t html_bytes = 0;
};
std::string MapJson(const std::vector<LayerMap>& maps, const std::vector<std::int64_t>& heads,
                    const std::vector<std::string>& notes, const MapFiles& files);

}  // namespace regard::report
