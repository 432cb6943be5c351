// A map for people: the overview of kinds, a table of heads, pictures of chosen heads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/map_report.h"
#include "report/text.h"

namespace regard::report {
namespace {

constexpr std::size_t kShownLinks = 3;
constexpr std::size_t kMaxTableHeads = 144;  // longer tables are of chosen heads only
constexpr int kTokenWidth = 12;

struct Letter {
  HeadKind kind;
  const char* letter;
};
constexpr Letter kLetters[] = {{HeadKind::kPreviousToken, "P"}, {HeadKind::kSelf, "S"},         {HeadKind::kFirstToken, "F"},
                               {HeadKind::kLocal, "L"},         {HeadKind::kDiagonalBand, "B"}, {HeadKind::kUniform, "U"},
                               {HeadKind::kMixed, "·"}};

const char* LetterOf(HeadKind kind) { return std::ranges::find(kLetters, kind, &Letter::kind)->letter; }

std::string LayerName(const LayerMap& map) { return map.problem.layer ? std::to_string(*map.problem.layer) : ""; }

// `first` is the number of the first token.
std::string TokenLabel(const io::Tokens& tokens, std::int64_t batch, std::int64_t index, std::int64_t first) {
  return tokens ? fmt::format("{} {}", first + index, ShowToken(tokens.At(batch, index), kTokenWidth))
                : std::to_string(first + index);
}

class TextMap {
 public:
  TextMap(const std::vector<LayerMap>& maps, const MapView& view) : maps_(maps), view_(view) {}

  std::string Write() {
    Readings();
    for (std::size_t b = 0; b < maps_.front().batches.size(); ++b) Overview(b);
    const std::size_t heads = maps_.size() * maps_.front().facts.size();
    if (view_.heads.empty() && heads > kMaxTableHeads) {
      text_ += fmt::format("\n{} heads: --head LIST has a table of some of them, -o FILE everything\n",
                           ShowCount(static_cast<std::int64_t>(heads)));
      return text_;
    }
    for (const LayerMap& map : maps_) {
      for (std::size_t b = 0; b < map.batches.size(); ++b) {
        Table(map, b);
        for (std::size_t n = 0; n < view_.heads.size(); ++n) Picture(map, b, n);
      }
    }
    return text_;
  }

 private:
  // Layers that were read alike share a line.
  void Readings() {
    const auto rest = [](const LayerMap& map) {
      const std::string prefix = map.problem.layer ? fmt::format("read as layer {}", *map.problem.layer) : "";
      return map.problem.reading.starts_with(prefix) ? map.problem.reading.substr(prefix.size()) : map.problem.reading;
    };
    std::vector<std::int64_t> alike;
    for (const LayerMap& map : maps_) {
      if (&map == &maps_.front() || rest(map) != rest(maps_.front())) {
        text_ += map.problem.reading + '\n';
      } else {
        alike.push_back(*map.problem.layer);
      }
    }
    if (!alike.empty()) text_ += fmt::format("layer{} {} alike\n", alike.size() > 1 ? "s" : "", ShowList(alike, 64));
  }

  std::string Title(const LayerMap& map, std::size_t batch) const {
    std::string title;
    if (map.problem.layer) title = fmt::format("layer {}", *map.problem.layer);
    if (map.problem.shape.batch > 1) title += fmt::format("{}batch {}", title.empty() ? "" : ", ", map.batches[batch]);
    return title;
  }

  void Overview(std::size_t batch) {
    std::int64_t heads = 0;
    for (const LayerMap& map : maps_) heads = std::max(heads, map.has_positions ? map.problem.shape.heads : 0);
    if (heads == 0) return;
    const LayerMap& first = maps_.front();
    text_ += fmt::format("\nkinds of heads{}, and the percentage that shows them: {}heads across\n",
                         first.problem.shape.batch > 1 ? fmt::format(" in batch {}", first.batches[batch]) : "",
                         first.problem.layer ? "layers down, " : "");
    const std::int64_t per_line = std::max(1, (view_.width - 7) / 5);
    for (std::int64_t begin = 0; begin < heads; begin += per_line) {
      const std::int64_t end = std::min(heads, begin + per_line);
      text_ += "       ";
      for (std::int64_t h = begin; h < end; ++h) text_ += fmt::format("{:>5}", h);
      text_ += '\n';
      for (const LayerMap& map : maps_) {
        text_ += PadLeft(LayerName(map), 7);
        for (std::int64_t h = begin; h < std::min(end, map.problem.shape.heads); ++h) text_ += KindCell(map.Facts(batch, h));
        text_ += '\n';
      }
    }
    text_ += "  ";
    for (const Letter& letter : kLetters)
      text_ += fmt::format("{} {}{}", letter.letter, Name(letter.kind), letter.kind == HeadKind::kMixed ? "\n" : "  ");
  }

  std::string KindCell(const HeadFacts& facts) const {
    if (!facts.kind) return "    ?";
    const std::string cell = fmt::format("{}{:>3.0f}", LetterOf(*facts.kind), std::floor(facts.score * 100 + 1e-4));
    return ' ' + PaintCell(PadLeft(cell, 4), facts.score, view_.colors);
  }

  void Table(const LayerMap& map, std::size_t batch) {
    std::vector<std::vector<std::string>> rows = {
        {"head", "kind", "score", "entropy", "first key", "distance", "strongest links: query → key weight"}};
    for (std::int64_t h = 0; h < map.problem.shape.heads; ++h) {
      if (!view_.heads.empty() && std::ranges::find(view_.heads, h) == view_.heads.end()) continue;
      const HeadFacts& f = map.Facts(batch, h);
      const auto number = [](double value) { return std::isnan(value) ? "?" : ShowNumber(value, 1); };
      std::vector<std::string> links;
      for (const MapLink& link : f.links) {
        if (links.size() == kShownLinks) break;
        links.push_back(fmt::format("{} → {} {}", TokenLabel(map.problem.q_tokens, f.batch, link.query, map.first_query),
                                    TokenLabel(map.problem.k_tokens, f.batch, link.key, 0), ShowNumber(link.weight, 1)));
      }
      const std::string missing = map.has_positions ? "?" : "-";
      rows.push_back({std::to_string(h), f.kind ? Name(*f.kind) : missing, f.kind ? ShowNumber(f.score, 1) : missing,
                      number(f.entropy), number(f.first_key_share),
                      map.has_positions && !std::isnan(f.distance) ? fmt::format("{:.2f}", f.distance) : missing,
                      fmt::format("{}", fmt::join(links, "; "))});
    }
    const std::string title = Title(map, batch);
    text_ += '\n' + (title.empty() ? "" : title + '\n');
    text_ += AlignColumns(rows,
                          {Align::kRight, Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft},
                          view_.is_terminal ? view_.width : 0);
  }

  void Picture(const LayerMap& map, std::size_t batch, std::size_t n) {
    const TensorView picture =
        map.pictures.view().Select(0, static_cast<std::int64_t>(batch)).Select(0, static_cast<std::int64_t>(n));
    const PlanShape& s = map.problem.shape;
    if (picture.num_elements() == 0) return;
    HeatMap heat{picture.dim(0), picture.dim(1)};
    std::vector<double> values;
    for (std::int64_t r = 0; r < heat.rows; ++r) {
      const std::int64_t query = r * s.q_len / heat.rows;
      heat.row_labels.push_back(TokenLabel(map.problem.q_tokens, map.batches[batch], query, map.first_query));
      for (std::int64_t c = 0; c < heat.columns; ++c) values.push_back(picture(r, c));
    }
    heat.values = values;
    const std::string title = Title(map, batch);
    const auto grouped = [](std::int64_t count, std::int64_t bins, const char* one, const char* many) {
      const std::string all = fmt::format("{} {}", ShowCount(count), count == 1 ? one : many);
      return count == bins ? all : fmt::format("{} in {} groups", all, bins);
    };
    text_ += fmt::format("\n{}{}head {}: {} down, {} across, the weight that a query gives a {}\n", title,
                         title.empty() ? "" : ", ", view_.heads[n], grouped(s.q_len, heat.rows, "query", "queries"),
                         grouped(s.kv_len, heat.columns, "key", "keys"), s.kv_len == heat.columns ? "key" : "group");
    text_ += ShowHeatMap(heat, view_.colors);
  }

  const std::vector<LayerMap>& maps_;
  const MapView& view_;
  std::string text_;
};

}  // namespace

std::string ShowMap(const std::vector<LayerMap>& maps, const MapView& view) { return TextMap(maps, view).Write(); }

}  // namespace regard::report
