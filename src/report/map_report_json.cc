// A map for programs. Schema: docs/cli.md.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/map_report.h"

namespace regard::report {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json Matrix(const TensorView& matrix) {
  Json rows = Json::array();
  for (std::int64_t r = 0; r < matrix.dim(0); ++r) {
    Json row = Json::array();
    for (std::int64_t c = 0; c < matrix.dim(1); ++c) row.push_back(Number(matrix(r, c)));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json Of(const MapLink& link, const LayerMap& map, std::int64_t batch) {
  const io::Problem& problem = map.problem;
  Json json = {{"query", map.first_query + link.query}, {"key", link.key}, {"weight", Number(link.weight)}};
  if (problem.q_tokens) json["query_token"] = problem.q_tokens.At(batch, link.query);
  if (problem.k_tokens) json["key_token"] = problem.k_tokens.At(batch, link.key);
  return json;
}

Json Of(const HeadFacts& facts, const LayerMap& map) {
  Json json = {{"batch", facts.batch}, {"head", facts.head}};
  if (map.has_positions) {
    json["kind"] = facts.kind ? Json(Name(*facts.kind)) : Json(nullptr);
    json["score"] = Number(facts.score);
    json["distance"] = Number(facts.distance);
  }
  json["entropy"] = Number(facts.entropy);
  json["first_key_share"] = Number(facts.first_key_share);
  json["links"] = Json::array();
  for (const MapLink& link : facts.links) json["links"].push_back(Of(link, map, facts.batch));
  return json;
}

Json Of(const LayerMap& map, const std::vector<std::int64_t>& heads) {
  const PlanShape& s = map.problem.shape;
  Json json = Json::object();
  if (map.problem.layer) json["layer"] = *map.problem.layer;
  json["reading"] = map.problem.reading;
  json["heads"] = s.heads;
  json["first_query"] = map.first_query;
  json["q_len"] = s.q_len;
  json["kv_len"] = s.kv_len;
  json["empty_rows"] = map.summary.empty_rows;
  json["each_head"] = Json::array();
  for (std::size_t b = 0; b < map.batches.size(); ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      Json head = Of(map.Facts(b, h), map);
      if (std::find(heads.begin(), heads.end(), h) != heads.end())
        head["pooled"] = Matrix(map.summary.pooled.view().Select(0, static_cast<std::int64_t>(b)).Select(0, h));
      json["each_head"].push_back(std::move(head));
    }
  }
  return json;
}

}  // namespace

std::string MapJson(const std::vector<LayerMap>& maps, const std::vector<std::int64_t>& heads,
                    const std::vector<std::string>& notes, const MapFiles& files) {
  Json json = {{"command", "map"}, {"notes", notes}, {"layers", Json::array()}};
  for (const LayerMap& map : maps) json["layers"].push_back(Of(map, heads));
  if (!files.output.empty()) json["output"] = {{"file", files.output}, {"saved", files.saved}};
  if (!files.html.empty()) json["html"] = {{"file", files.html}, {"bytes", files.html_bytes}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace regard::report
