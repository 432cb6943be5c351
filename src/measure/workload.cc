#include "measure/workload.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/copy.h"
#include "core/split_mix64.h"

namespace regard::measure {
namespace {

// Sum of four uniform numbers, scaled to mean 0 and variance 1: as good as normal for the distribution of scores, which are sums of many,
// and fast enough for hundreds of megabytes.
float NearlyNormal(internal::SplitMix64& random) {
  const std::uint64_t bits = random.Next();
  const std::int64_t sum =
      static_cast<std::int64_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
  return static_cast<float>(sum - 2 * 0xFFFF) * (1.7320508f / 65536.0f);
}

// Lengths of packed sequences as parts of all tokens: unequal, and none a multiple of a tile.
constexpr double kSegmentEnds[] = {0.346, 0.472, 0.503, 0.754, 1};

// Ends of sequences in a cache: each is longer than the one before, of eight the last 15 times as long as the first.
std::vector<std::int64_t> EndsOfSequences(std::int64_t tokens, std::int64_t count) {
  std::vector<std::int64_t> ends;
  for (std::int64_t n = 1; n < count; ++n) ends.push_back(tokens * n * n / (count * count) + n);
  ends.push_back(tokens);
  return ends;
}

}  // namespace

Tensor NormalTensor(const Dims& shape, DType dtype, std::uint64_t seed) {
  Tensor tensor = Tensor::Uninitialized(dtype, shape);
  internal::SplitMix64 random(seed);
  std::array<float, 1024> values;
  for (std::int64_t first = 0, end; first < tensor.num_elements(); first = end) {
    end = std::min(first + static_cast<std::int64_t>(values.size()), tensor.num_elements());
    for (std::int64_t i = first; i < end; ++i) values[static_cast<std::size_t>(i - first)] = NearlyNormal(random);
    char* const to =
        static_cast<char*>(tensor.mutable_view().mutable_data()) + first * static_cast<std::int64_t>(ItemSize(dtype));
    internal::StoreRow(values.data(), end - first, to, dtype, 1);
  }
  return tensor;
}

Workload::Workload(const BenchCase& bench_case) : case_(bench_case) {
  const bool token_major = case_.feature == Feature::kTokenMajor;
  const auto shape_of = [token_major, this](std::int64_t batch, std::int64_t heads, std::int64_t tokens) {
    return token_major ? Dims{batch, tokens, heads, case_.dim} : Dims{batch, heads, tokens, case_.dim};
  };
  q_ = NormalTensor(shape_of(case_.sequences, case_.heads, case_.q_len), case_.dtype, 1);
  k_ = NormalTensor(shape_of(1, case_.kv_heads, case_.kv_len), case_.dtype, 2);
  v_ = NormalTensor(shape_of(1, case_.kv_heads, case_.kv_len), case_.dtype, 3);
  context_ = Tensor(case_.dtype, shape_of(case_.sequences, case_.heads, case_.q_len));
  lse_ = Tensor(DType::kF32, {case_.sequences, case_.heads, case_.q_len});
  q_view_ = token_major ? q_.view().Transpose(1, 2) : q_.view();
  k_view_ = token_major ? k_.view().Transpose(1, 2) : k_.view();
  v_view_ = token_major ? v_.view().Transpose(1, 2) : v_.view();
  const TensorView context = token_major ? context_.view().Transpose(1, 2) : context_.view();
  context_view_ = MutableTensorView(context_.mutable_view().mutable_data(), case_.dtype, context.shape(), context.strides());
  if (case_.backward) d_context_ = NormalTensor(context.shape(), case_.dtype, 7);
  params_.causal = case_.causal;
  if (case_.causal && case_.q_len != case_.kv_len) params_.q_offset = Position(0);
  segment_ends_ = EndsOfSequences(case_.kv_len, case_.sequences);
  MakeFeature();
  for (std::int64_t i = 0; i < queries(); ++i) {
    const KeyRange keys = VisibleKeys(i);
    visible_pairs_ += keys.end - keys.begin;
  }
}

void Workload::MakeFeature() {
  const std::int64_t heads = case_.heads;
  switch (case_.feature) {
    case Feature::kNone:
    case Feature::kTokenMajor:
      break;
    case Feature::kMask:
      mask_ = Tensor::Uninitialized(DType::kBool, {1, 1, case_.q_len, case_.kv_len});
      std::fill_n(mask_.MutableAs<bool>(), mask_.num_elements(), true);
      params_.mask = mask_;
      break;
    case Feature::kBias:
      bias_ = NormalTensor({1, 1, case_.q_len, case_.kv_len}, DType::kF32, 4);
      params_.bias = bias_;
      break;
    case Feature::kAlibi:
      slopes_ = Tensor(DType::kF32, {heads});
      for (std::int64_t h = 0; h < heads; ++h) {
        slopes_.MutableAs<float>()[h] = std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(heads));
      }
      params_.alibi_slopes = slopes_;
      break;
    case Feature::kWindow:
      params_.window_left = kWindowLeft;
      break;
    case Feature::kSinks:
      sinks_ = NormalTensor({heads}, DType::kF32, 5);
      params_.sinks = sinks_;
      break;
    case Feature::kRising:
      MakeRising();
      break;
    case Feature::kPaged:
    case Feature::kPagedI8:
      MakeCache();
      break;
    case Feature::kSoftCap:
      params_.soft_cap = kSoftCap;
      break;
    case Feature::kDropout:
      params_.dropout = kDropout;
      params_.dropout_seed = 8;
      break;
    case Feature::kPacked: {
      segment_ends_.clear();
      segments_ = Tensor(DType::kI32, {1, case_.kv_len});
      std::int64_t begin = 0;
      for (const double part : kSegmentEnds) {
        const std::int64_t end = static_cast<std::int64_t>(part * static_cast<double>(case_.kv_len));
        std::fill(segments_.MutableAs<std::int32_t>() + begin, segments_.MutableAs<std::int32_t>() + end,
                  static_cast<std::int32_t>(segment_ends_.size()));
        segment_ends_.push_back(end);
        begin = end;
      }
      params_.q_segments = params_.kv_segments = segments_;
      break;
    }
  }
}

// All queries and keys point the same way, the queries by different lengths and the keys by more and more: score(i, j) = a_i·(j+1)/kv_len
// with a_i from 21 to 39, so that even among 131,072 keys each score exceeds the one before by more than rounding takes away.
void Workload::MakeRising() {
  internal::SplitMix64 random(6);
  std::vector<float> direction(static_cast<std::size_t>(case_.dim));
  float squares = 0;
  for (float& x : direction) {
    x = NearlyNormal(random);
    squares += x * x;
  }
  const auto fill = [&](Tensor& tensor, const auto& length_of) {
    float* to = tensor.MutableAs<float>();
    for (std::int64_t row = 0; row < tensor.num_elements() / case_.dim; ++row) {
      const float length = length_of(row);
      for (const float x : direction) *to++ = length * x;
    }
  };
  const float unit = std::sqrt(static_cast<float>(case_.dim)) / squares;  // undoes the default scale
  fill(q_, [&](std::int64_t) { return unit * (30 + 3 * std::clamp(NearlyNormal(random), -3.0f, 3.0f)); });
  fill(k_, [&](std::int64_t row) { return static_cast<float>(row % case_.kv_len + 1) / static_cast<float>(case_.kv_len); });
}

// The tensors stay what rows are compared with, so they take the numbers that the cache has made of them.
void Workload::MakeCache() {
  const DType type = case_.feature == Feature::kPagedI8 ? DType::kI8 : case_.dtype;
  cache_.emplace(KvCacheOptions{.kv_heads = case_.kv_heads, .head_dim = case_.dim, .k_dtype = type, .v_dtype = type});
  std::int64_t begin = 0;
  for (const std::int64_t end : segment_ends_) {
    sequences_.push_back(cache_->NewSequence());
    cache_->Append(sequences_.back(), k_view_.Slice(2, begin, end), v_view_.Slice(2, begin, end));
    begin = end;
  }
  if (type == case_.dtype) return;
  const auto read_back = [this](Tensor& tensor, TensorView& view, Tensor (KvCache::*stored)(SequenceId) const) {
    std::int64_t from = 0;
    for (std::size_t n = 0; n < sequences_.size(); ++n) {
      const TensorView part = tensor.view().Slice(2, from, segment_ends_[n]);
      internal::CopyElements((*cache_.*stored)(sequences_[n]),
                             MutableTensorView(const_cast<void*>(part.data()), part.dtype(), part.shape(), part.strides()));
      from = segment_ends_[n];
    }
    view = tensor;
  };
  read_back(k_, k_view_, &KvCache::Keys);
  read_back(v_, v_view_, &KvCache::Values);
}

PlanShape Workload::shape() const {
  if (cache_) return PlanShape::Of(q_view_, *cache_, sequences_);
  return PlanShape::Of(q_view_, k_view_, v_view_);
}

KeyRange Workload::OwnKeys(std::int64_t query) const {
  const std::int64_t sequence =
      case_.sequences > 1 ? query : std::ranges::upper_bound(segment_ends_, Position(query)) - segment_ends_.begin();
  const auto end = segment_ends_.begin() + sequence;
  return {sequence == 0 ? 0 : end[-1], *end};
}

KeyRange Workload::VisibleKeys(std::int64_t query) const {
  KeyRange keys = OwnKeys(query);
  if (case_.causal) keys.end = std::min(keys.end, Position(query) + 1);
  if (params_.window_left) keys.begin = std::max(keys.begin, Position(query) - *params_.window_left);
  return keys;
}

double Workload::flops() const {
  return (case_.backward ? 10 : 4) * static_cast<double>(case_.heads) * static_cast<double>(visible_pairs_) *
         static_cast<double>(case_.dim);
}

double Workload::bytes() const {
  const auto item = static_cast<std::int64_t>(ItemSize(case_.dtype)), row = case_.dim * item;
  const std::int64_t kv_row = case_.feature == Feature::kPagedI8 ? case_.dim + static_cast<std::int64_t>(sizeof(float)) : row;
  return static_cast<double>(2 * case_.kv_heads * case_.kv_len * kv_row + 2 * case_.heads * queries() * row);
}

Workload::Row Workload::RowCall(std::int64_t head, std::int64_t query) const {
  const std::int64_t kv_head = head / (case_.heads / case_.kv_heads);
  const auto [begin, end] = OwnKeys(query);
  const auto pick = [](const TensorView& x, std::int64_t h, std::int64_t from, std::int64_t to) {
    return x.Slice(1, h, h + 1).Slice(2, from, to);
  };
  Row row{pick(AsRows(q_view_), head, query, query + 1),
          pick(k_view_, kv_head, begin, end),
          pick(v_view_, kv_head, begin, end),
          params_,
          {.head = head, .query = query, .key = begin}};
  row.params.q_offset = Position(query) - begin;
  row.params.q_segments = row.params.kv_segments = {};
  if (params_.mask) row.params.mask = params_.mask.Slice(2, query, query + 1).Slice(3, begin, end);
  if (params_.bias) row.params.bias = params_.bias.Slice(2, query, query + 1).Slice(3, begin, end);
  if (params_.alibi_slopes) row.params.alibi_slopes = params_.alibi_slopes.Slice(0, head, head + 1);
  if (params_.sinks) row.params.sinks = params_.sinks.Slice(0, head, head + 1);
  return row;
}

}  // namespace regard::measure
