// The projections of MultiheadAttention under the names that others have for them.
#include <algorithm>
#include <array>
#include <cstring>

#include "nn/dense.h"
#include "nn/state.h"
#include "regard/nn.h"

namespace regard::nn {
namespace {

constexpr const char* kSeparate[] = {"q_proj", "k_proj", "v_proj"};
constexpr const char* kTorchOfOtherWidths[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};

// q, k and v one below the other: [Σ out, in], or [Σ out] for biases.
Tensor Joined(const Tensor& q, const Tensor& k, const Tensor& v) {
  Dims shape = q.shape();
  shape[0] = q.dim(0) + k.dim(0) + v.dim(0);
  Tensor joined = Tensor::Uninitialized(q.dtype(), shape);
  auto* to = static_cast<std::byte*>(joined.mutable_view().mutable_data());
  for (const Tensor* part : {&q, &k, &v}) {
    const std::size_t bytes = static_cast<std::size_t>(part->num_elements()) * ItemSize(part->dtype());
    std::memcpy(to, part->view().data(), bytes);
    to += bytes;
  }
  return joined;
}

// The inverse of Joined.
void Split(const Tensor& joined, std::array<Tensor*, 3> parts) {
  std::int64_t begin = 0;
  for (Tensor* part : parts) {
    const std::int64_t end = begin + part->dim(0);
    *part = Tensor::CopyOf(joined.view().Slice(0, begin, end));
    begin = end;
  }
}

class Loader {
 public:
  Loader(MultiheadAttention& layer, const StateDict& state, const std::string& prefix)
      : layer_(layer), state_(state), prefix_(prefix), linears_{&layer.q_proj, &layer.k_proj, &layer.v_proj} {}

  void Load() {
    CheckMade(layer_.q_proj.weight);
    for (const char* name : {"bias_k", "bias_v"}) {
      if (Has(name)) {
        Fail(ErrorCode::kUnsupported, prefix_ + name + ": a key or value of torch's add_bias_kv, which this layer has not; " +
                                          "append it to key and value, and take it out of the state");
      }
    }
    if (Has("in_proj_weight")) {
      LoadJoined("in_proj_weight", false);
      LoadJoinedBias("in_proj_bias");
      layer_.out_proj.LoadState(state_, prefix_ + "out_proj");
    } else if (Has("q_proj_weight")) {
      for (std::size_t n = 0; n < 3; ++n) {
        Tensor& weight = linears_[n]->weight.value;
        weight = FromState(state_, prefix_ + kTorchOfOtherWidths[n], weight);
      }
      LoadJoinedBias("in_proj_bias");
      layer_.out_proj.LoadState(state_, prefix_ + "out_proj");
    } else if (Has("c_attn.weight")) {
      LoadJoined("c_attn.weight", true);
      LoadJoinedBias("c_attn.bias");
      layer_.out_proj.LoadState(state_, prefix_ + "c_proj", MatrixOrder::kInOut);
    } else if (Has("q_proj.weight")) {
      for (std::size_t n = 0; n < 3; ++n) linears_[n]->LoadState(state_, prefix_ + kSeparate[n]);
      layer_.out_proj.LoadState(state_, prefix_ + (Has("o_proj.weight") ? "o_proj" : "out_proj"));
    } else {
      Fail(ErrorCode::kInvalidArgument,
           prefix_ + "…: no in_proj_weight, q_proj_weight, q_proj.weight or c_attn.weight in the state; " + "check the prefix");
    }
  }

 private:
  bool Has(const char* name) const { return FindState(state_, prefix_ + name) != nullptr; }

  void LoadJoined(const char* name, bool transposed) {
    if (layer_.k_proj.in() != layer_.q_proj.in() || layer_.v_proj.in() != layer_.q_proj.in()) {
      Fail(ErrorCode::kShapeMismatch,
           prefix_ + name + ": one matrix for inputs of different widths; give q_proj_weight, k_proj_weight and v_proj_weight");
    }
    Tensor& q = linears_[0]->weight.value;
    Tensor& k = linears_[1]->weight.value;
    Tensor& v = linears_[2]->weight.value;
    Split(FromState(state_, prefix_ + name, Joined(q, k, v), transposed), {&q, &k, &v});
  }

  void LoadJoinedBias(const char* name) {
    Tensor& q = linears_[0]->bias.value;
    Tensor& k = linears_[1]->bias.value;
    Tensor& v = linears_[2]->bias.value;
    if (q) {
      Split(FromState(state_, prefix_ + name, Joined(q, k, v)), {&q, &k, &v});
    } else if (Has(name)) {
      Fail(ErrorCode::kShapeMismatch, prefix_ + name + ": in the state, but this layer has none; make it with a bias");
    }
  }

  MultiheadAttention& layer_;
  const StateDict& state_;
  const std::string& prefix_;
  std::array<Linear*, 3> linears_;
};

}  // namespace

void MultiheadAttention::LoadState(const StateDict& state, const std::string& prefix) {
  MultiheadAttention loaded = *this;  // a state that does not fit leaves the layer as it was
  Loader(loaded, state, prefix).Load();
  *this = std::move(loaded);
}

void MultiheadAttention::SaveState(StateDict* state, const std::string& prefix, StateFormat format) const {
  CheckMade(q_proj.weight);
  const std::array<const Linear*, 3> linears = {&q_proj, &k_proj, &v_proj};
  const bool same_inputs = k_proj.in() == q_proj.in() && v_proj.in() == q_proj.in();
  const auto save_joined = [&](const char* weight, const char* bias, bool transposed) {
    const Tensor joined = Joined(q_proj.weight.value, k_proj.weight.value, v_proj.weight.value);
    (*state)[prefix + weight] = transposed ? Tensor::CopyOf(joined.view().Transpose(0, 1)) : joined;
    if (q_proj.bias.value) (*state)[prefix + bias] = Joined(q_proj.bias.value, k_proj.bias.value, v_proj.bias.value);
  };
  switch (format) {
    case StateFormat::kTorch:
      if (same_inputs) {
        save_joined("in_proj_weight", "in_proj_bias", false);
      } else {
        for (std::size_t n = 0; n < 3; ++n) (*state)[prefix + kTorchOfOtherWidths[n]] = linears[n]->weight.value;
        if (q_proj.bias.value)
          (*state)[prefix + "in_proj_bias"] = Joined(q_proj.bias.value, k_proj.bias.value, v_proj.bias.value);
      }
      out_proj.SaveState(state, prefix + "out_proj");
      return;
    case StateFormat::kSeparate:
      for (std::size_t n = 0; n < 3; ++n) linears[n]->SaveState(state, prefix + kSeparate[n]);
      out_proj.SaveState(state, prefix + "out_proj");
      return;
    case StateFormat::kGpt2:
      if (!same_inputs) {
        Fail(ErrorCode::kUnsupported,
             prefix + "c_attn.weight: one matrix cannot hold inputs of different widths; save it as kTorch");
      }
      save_joined("c_attn.weight", "c_attn.bias", true);
      out_proj.SaveState(state, prefix + "c_proj", MatrixOrder::kInOut);
      return;
  }
}

}  // namespace regard::nn
