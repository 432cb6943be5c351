// Gradients by PyTorch's automatic differentiation in float64 (tools/make_gradient_goldens.py), on every path and target.
//
// The reference path differs from them by roundings of f64 alone. The others take some 30 roundings of f32 to a number: dims of 3 to 8, at
// most 24 terms a sum, and values of size 1. Masks of dropout are made by the tool itself, from what the headers say of them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "regard/backward.h"
#include "regard/info.h"
#include "regard/io.h"

namespace regard::tests {
namespace {

constexpr char kFile[] = "testdata/gradients/autograd.safetensors";

class GoldenCase {
 public:
  GoldenCase(const io::File& file, const std::string& name) : name_(name) {
    for (const io::ArrayInfo& array : file.arrays()) {
      if (array.name.starts_with(name + ".")) tensors_[array.name.substr(name.size() + 1)] = file.Read(array.name);
    }
    const auto number = [&](const char* key) { return std::stod(file.metadata().at(name + "." + key)); };
    const auto has = [&](const char* key) { return file.metadata().contains(name + "." + key); };
    params_.scale = static_cast<float>(number("scale"));
    params_.causal = has("causal");
    if (has("q_offset")) params_.q_offset = static_cast<std::int64_t>(number("q_offset"));
    if (has("window_left")) params_.window_left = static_cast<std::int64_t>(number("window_left"));
    if (has("window_right")) params_.window_right = static_cast<std::int64_t>(number("window_right"));
    if (has("soft_cap")) params_.soft_cap = static_cast<float>(number("soft_cap"));
    if (has("dropout")) {
      params_.dropout = static_cast<float>(number("dropout"));
      params_.dropout_seed = std::stoull(file.metadata().at(name + ".dropout_seed"));
    }
    params_.mask = View("mask");
    params_.bias = View("bias");
    params_.alibi_slopes = View("alibi_slopes");
    params_.sinks = View("sinks");
    params_.kv_lens = View("kv_lens");
    // A q_offset of its own, since kv_lens would bring another one.
    if (params_.kv_lens && !params_.q_offset.is_stated()) params_.q_offset = 0;
  }

  TensorView View(const std::string& key) const {
    const auto found = tensors_.find(key);
    return found == tensors_.end() ? TensorView() : found->second.view();
  }
  const std::string& name() const { return name_; }
  const AttentionParams& params() const { return params_; }

 private:
  std::string name_;
  std::map<std::string, Tensor> tensors_;
  AttentionParams params_;
};

void ExpectNear(const TensorView& gradient, const TensorView& expected, double unit, const std::string& what) {
  ASSERT_EQ(ToString(gradient.shape()), ToString(expected.shape())) << what;
  const Tensor a = Tensor::CopyOf(gradient, DType::kF64), e = Tensor::CopyOf(expected, DType::kF64);
  double largest = 1;
  for (std::int64_t n = 0; n < e.num_elements(); ++n) largest = std::fmax(largest, std::fabs(e.As<double>()[n]));
  for (std::int64_t n = 0; n < e.num_elements(); ++n) {
    ASSERT_NEAR(a.As<double>()[n], e.As<double>()[n], 32 * unit * largest) << what << ", element " << n;
  }
}

TEST(GradientGoldens, EveryPathDerivesWhatAutogradDoes) {
  const io::File file = io::File::Open(kFile);
  std::set<std::string> names;
  for (const io::ArrayInfo& array : file.arrays()) names.insert(array.name.substr(0, array.name.find('.')));
  ASSERT_EQ(names.size(), 9u);
  std::vector<ExecOptions> execs = {{.path = Path::kReference, .threads = 1}, {.path = Path::kStaged, .threads = 1}};
  for (const Target& target : Targets()) {
    if (target.supported) execs.push_back({.path = Path::kFused, .isa = target.name, .threads = 1});
  }
  std::set<std::string> compared;
  for (const std::string& name : names) {
    const GoldenCase golden(file, name);
    for (const ExecOptions& exec : execs) {
      const std::string what = name + ", " + Name(exec.path) + " " + exec.isa;
      const bool exact = exec.path == Path::kReference;
      const DType type = exact ? DType::kF64 : DType::kF32;
      const Tensor q = Tensor::CopyOf(golden.View("q"), type), k = Tensor::CopyOf(golden.View("k"), type),
                   v = Tensor::CopyOf(golden.View("v"), type);
      AttentionParams params = golden.params();
      const Tensor bias = params.bias ? Tensor::CopyOf(params.bias, type) : Tensor();
      const Tensor slopes = params.alibi_slopes ? Tensor::CopyOf(params.alibi_slopes, type) : Tensor();
      const Tensor sinks = params.sinks ? Tensor::CopyOf(params.sinks, type) : Tensor();
      params.bias = bias;
      params.alibi_slopes = slopes;
      params.sinks = sinks;
      const AttentionResult forward = Attention(q, k, v, params, exec);
      const AttentionGrads grads = AttentionBackward(
          q, k, v, forward.context, forward.lse, golden.View("d_context"), params, exec,
          {.d_bias = static_cast<bool>(bias), .d_alibi_slopes = static_cast<bool>(slopes), .d_sinks = static_cast<bool>(sinks)});
      const double unit = exact ? 0x1p-53 : 0x1p-24;
      ExpectNear(forward.context, golden.View("context"), unit, what + " context");
      const std::pair<const char*, const Tensor*> gradients[] = {{"d_q", &grads.d_q},
                                                                 {"d_k", &grads.d_k},
                                                                 {"d_v", &grads.d_v},
                                                                 {"d_bias", &grads.d_bias},
                                                                 {"d_alibi_slopes", &grads.d_alibi_slopes},
                                                                 {"d_sinks", &grads.d_sinks}};
      for (const auto& [key, gradient] : gradients) {
        ASSERT_EQ(static_cast<bool>(*gradient), static_cast<bool>(golden.View(key))) << what << " " << key;
        if (*gradient) ExpectNear(*gradient, golden.View(key), unit, what + " " + key);
        if (*gradient) compared.insert(key);
      }
    }
  }
  EXPECT_EQ(compared.size(), 6u);
}

}  // namespace
}  // namespace regard::tests
