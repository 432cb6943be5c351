#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "io/file_error.h"
#include "regard/problem.h"

namespace regard::io {
namespace {

std::optional<std::int64_t> ParseIndex(std::string_view text) {
  std::int64_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty() || text[0] == '-') return std::nullopt;
  return index;
}

}  // namespace

Selection Selection::Parse(std::string_view name, std::string_view text) {
  Selection selection;
  selection.name_ = name;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const std::size_t dash = item.find('-', 1);
    const std::optional<std::int64_t> first = ParseIndex(item.substr(0, dash));
    const std::optional<std::int64_t> last = dash == std::string_view::npos ? first : ParseIndex(item.substr(dash + 1));
    if (!first || !last || *last < *first) {
      Fail(ErrorCode::kInvalidArgument, name, "{} is not a list of indices; write it as 0,3-5", Quoted(text));
    }
    selection.ranges_.emplace_back(*first, *last);
    begin = end + 1;
  }
  return selection;
}

std::vector<std::int64_t> Selection::Indices(std::int64_t size) const {
  std::vector<std::int64_t> indices;
  if (all()) {
    for (std::int64_t i = 0; i < size; ++i) indices.push_back(i);
    return indices;
  }
  std::set<std::int64_t> seen;
  for (const auto& [first, last] : ranges_) {
    if (last >= size) {
      if (size == 0) Fail(ErrorCode::kInvalidArgument, name_, "{}, but there is none; leave it out", last);
      if (size == 1) Fail(ErrorCode::kInvalidArgument, name_, "{}, but there is only 0; leave it out", last);
      Fail(ErrorCode::kInvalidArgument, name_, "{} is beyond the last; choose from 0…{}", last, size - 1);
    }
    for (std::int64_t i = first; i <= last; ++i) {
      if (seen.insert(i).second) indices.push_back(i);
    }
  }
  return indices;
}

std::vector<std::int64_t> Selection::Among(std::span<const std::int64_t> present) const {
  if (all()) return {present.begin(), present.end()};
  std::vector<std::int64_t> indices;
  for (const auto& [first, last] : ranges_) {
    auto at = std::ranges::lower_bound(present, first);
    for (std::int64_t i = first;; ++i, ++at) {
      if (at == present.end() || *at != i) FailAbsentLayer(name_, i, present);
      if (std::ranges::find(indices, i) == indices.end()) indices.push_back(i);
      if (i == last) break;
    }
  }
  return indices;
}

}  // namespace regard::io
