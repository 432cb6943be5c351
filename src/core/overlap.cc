#include "core/overlap.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>

namespace regard::internal {
namespace {

struct Named {
  const char* name;
  const TensorView& view;
};

struct Bytes {
  std::uintptr_t begin = 0, end = 0;  // [begin, end); empty for a view without elements

  bool Meets(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

Bytes BytesOf(const TensorView& view) {
  if (!view) return {};
  // Unsigned: strides that lead out of memory wrap instead of being undefined.
  const auto data = reinterpret_cast<std::uintptr_t>(view.data());
  Bytes bytes{data, data + ItemSize(view.dtype())};
  for (int axis = 0; axis < view.rank(); ++axis) {
    const std::int64_t length = view.shape()[axis], stride = view.strides()[axis];
    if (length == 0) return {};
    const std::uintptr_t reach =
        static_cast<std::uintptr_t>(length - 1) * static_cast<std::uintptr_t>(std::abs(stride)) * ItemSize(view.dtype());
    if (stride < 0) bytes.begin -= reach;
    if (stride > 0) bytes.end += reach;
  }
  return bytes;
}

// Whether two indices may lead to one element: some axis steps no further than all axes with smaller steps reach together.
bool RepeatsAnElement(const TensorView& view) {
  std::pair<std::int64_t, std::int64_t> axes[kMaxRank];  // step, length; ascending
  int count = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.shape()[axis] == 0) return false;
    if (view.shape()[axis] == 1) continue;
    int place = count++;
    const std::pair step{std::abs(view.strides()[axis]), view.shape()[axis]};
    for (; place > 0 && step < axes[place - 1]; --place) axes[place] = axes[place - 1];
    axes[place] = step;
  }
  std::int64_t reach = 0;
  for (int i = 0; i < count; ++i) {
    if (axes[i].first <= reach) return true;
    reach += axes[i].first * (axes[i].second - 1);
  }
  return false;
}

const TensorView& Either(const TensorView& own, const TensorView& planned) { return own ? own : planned; }

Status Check(std::span<const Named> inputs, std::span<const Named> outputs) {
  for (std::size_t n = 0; n < outputs.size(); ++n) {
    const Named& output = outputs[n];
    if (!output.view) continue;
    if (RepeatsAnElement(output.view)) {
      return Status::Failure(ErrorCode::kInvalidArgument, "%s: its strides lead to one element twice; give each element a place",
                             output.name);
    }
    const Bytes bytes = BytesOf(output.view);
    const auto shares = [&](const Named& other) {
      return Status::Failure(ErrorCode::kInvalidArgument, "%s: lies in the memory of %s; give it memory of its own", output.name,
                             other.name);
    };
    for (const Named& input : inputs) {
      if (bytes.Meets(BytesOf(input.view))) return shares(input);
    }
    for (const Named& other : outputs.first(n)) {
      if (bytes.Meets(BytesOf(other.view))) return shares(other);
    }
  }
  return {};
}

// What a run reads, forward or backward.
constexpr std::size_t kNumInputs = 11;
std::array<Named, kNumInputs> NamedInputs(const AttentionParams& params, const Inputs& in) {
  return {{{"q", in.q},
           {"k", in.k},
           {"v", in.v},
           {"q_offset", Either(in.q_offset.per_sequence(), params.q_offset.per_sequence())},
           {"mask", Either(in.mask, params.mask)},
           {"bias", Either(in.bias, params.bias)},
           {"kv_lens", Either(in.kv_lens, params.kv_lens)},
           {"q_segments", Either(in.q_segments, params.q_segments)},
           {"kv_segments", Either(in.kv_segments, params.kv_segments)},
           {"alibi_slopes", Either(in.alibi_slopes, params.alibi_slopes)},
           {"sinks", Either(in.sinks, params.sinks)}}};
}

}  // namespace

Status CheckOverlap(const AttentionParams& params, const Inputs& in, const Outputs& out) noexcept {
  const Named outputs[] = {{"context", out.context},
                           {"lse", out.lse},
                           {"scores", out.scores},
                           {"capped", out.capped},
                           {"masked_scores", out.masked_scores},
                           {"weights", out.weights}};
  return Check(NamedInputs(params, in), outputs);
}

Status CheckOverlap(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out) noexcept {
  const std::array<Named, kNumInputs> forward = NamedInputs(params, in.forward);
  const Named given[] = {{"context", in.context}, {"lse", in.lse}, {"d_context", in.d_context}};
  const Named outputs[] = {
      {"d_q", out.d_q},        {"d_k", out.d_k}, {"d_v", out.d_v}, {"d_bias", out.d_bias}, {"d_alibi_slopes", out.d_alibi_slopes},
      {"d_sinks", out.d_sinks}};
  if (Status s = Check(forward, outputs); !s.ok()) return s;
  return Check(given, outputs);
}

}  // namespace regard::internal
