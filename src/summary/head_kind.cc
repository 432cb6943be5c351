#include "summary/head_kind.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace regard {

const char* Name(HeadKind kind) noexcept {
  switch (kind) {
    case HeadKind::kPreviousToken:
      return "previous-token";
    case HeadKind::kSelf:
      return "self";
    case HeadKind::kFirstToken:
      return "first-token";
    case HeadKind::kLocal:
      return "local";
    case HeadKind::kDiagonalBand:
      return "diagonal-band";
    case HeadKind::kUniform:
      return "uniform";
    case HeadKind::kMixed:
      return "mixed";
  }
  return "unknown";
}

namespace internal {
namespace {

constexpr std::int64_t kLocalReach = 8;
constexpr std::int64_t kBandReach = 2;
constexpr double kEnough = 0.5;         // of the weight
constexpr double kClearly = 1e-3;       // more than rounding: a query that sees itself alone is as uniform as can be
constexpr double kUniformEnough = 0.9;  // of the largest entropy: a head that picks a tenth of its keys still reaches 0.7

double WeightWithin(const HeadEvidence& e, std::int64_t first, std::int64_t last) {
  double sum = 0;
  for (std::int64_t d = first; d <= last; ++d) {
    const std::int64_t at = d - e.first_distance;
    if (at >= 0 && at < static_cast<std::int64_t>(e.distances.size())) sum += e.distances[static_cast<std::size_t>(at)];
  }
  return sum;
}

double LargestBand(const HeadEvidence& e) {
  double largest = 0;
  const std::int64_t end = e.first_distance + static_cast<std::int64_t>(e.distances.size());
  for (std::int64_t center = e.first_distance; center < end; ++center) {
    if (center != 0 && center != 1) largest = std::max(largest, WeightWithin(e, center - kBandReach, center + kBandReach));
  }
  return largest;
}

// Whether the rules of position let a query see further than local reaches: in a text of nine tokens they do not.
bool ReachesBeyondLocal(const HeadEvidence& e) {
  return e.first_distance < -kLocalReach || e.first_distance + static_cast<std::int64_t>(e.distances.size()) - 1 > kLocalReach;
}

}  // namespace

HeadVerdict JudgeHead(const HeadEvidence& e) {
  // A query whose weights are undefined has an undefined entropy.
  if (e.queries == 0 || std::isnan(e.uniformity)) return {HeadKind::kMixed, std::numeric_limits<double>::quiet_NaN()};
  const auto mean = [&](double sum) { return std::min(1.0, sum / static_cast<double>(e.queries)); };
  const bool told = ReachesBeyondLocal(e);
  const std::pair<HeadKind, double> shares[] = {{HeadKind::kPreviousToken, mean(WeightWithin(e, 1, 1))},
                                                {HeadKind::kSelf, mean(WeightWithin(e, 0, 0))},
                                                {HeadKind::kFirstToken, mean(e.first_key)},
                                                {HeadKind::kLocal, told ? mean(WeightWithin(e, -kLocalReach, kLocalReach)) : 0},
                                                {HeadKind::kDiagonalBand, told ? mean(LargestBand(e)) : 0}};
  const double uniformity = mean(e.uniformity);
  const bool is_uniform = uniformity >= kUniformEnough;
  double largest = 0;
  for (const auto& [kind, share] : shares) {
    // Of sixteen even causal tokens most of the weight is local, since most of what there is lies near.
    if (share >= kEnough && !(is_uniform && uniformity >= share + kClearly)) return {kind, share};
    largest = std::max(largest, share);
  }
  return is_uniform ? HeadVerdict{HeadKind::kUniform, uniformity} : HeadVerdict{HeadKind::kMixed, largest};
}

}  // namespace internal
}  // namespace regard
