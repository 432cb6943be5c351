#include "measure/append_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace regard::measure {
namespace {

DType StoredType(const BenchCase& c) { return c.feature == Feature::kPagedI8 ? DType::kI8 : c.dtype; }

}  // namespace

AppendRun::AppendRun(const BenchCase& bench_case)
    : case_(bench_case),
      stored_(StoredType(bench_case)),
      k_(NormalTensor({case_.sequences, case_.kv_heads, case_.q_len, case_.dim}, case_.dtype, 2)),
      v_(NormalTensor({case_.sequences, case_.kv_heads, case_.q_len, case_.dim}, case_.dtype, 3)),
      cache_({.kv_heads = case_.kv_heads, .head_dim = case_.dim, .k_dtype = stored_, .v_dtype = stored_}),
      length_(case_.kv_len / case_.sequences) {
  const Tensor before = NormalTensor({1, case_.kv_heads, length_, case_.dim}, case_.dtype, 4);
  for (std::int64_t n = 0; n < case_.sequences; ++n) {
    sequences_.push_back(cache_.NewSequence());
    cache_.Append(sequences_.back(), before, before);
  }
}

void AppendRun::Run() {
  cache_.Append(sequences_, k_, v_);
  TakeBack();
}

void AppendRun::TakeBack() {
  for (const SequenceId sequence : sequences_) cache_.Truncate(sequence, length_);
}

Verification AppendRun::Verify() {
  Verification result;
  std::vector<Tensor> last;
  for (const SequenceId sequence : sequences_) last.push_back(cache_.Keys(sequence));
  cache_.Append(sequences_, k_, v_);
  const auto compare = [&](const Tensor& kept, const Tensor& given, std::int64_t n, std::int64_t head, std::int64_t token,
                           char name) {
    double largest = 0;
    for (std::int64_t d = 0; d < case_.dim; ++d) largest = std::max(largest, std::fabs(given(n, head, token, d)));
    const double bound = stored_ == DType::kI8 ? largest / 127 * 0.5 * (1 + 0x1p-15) : 0;
    for (std::int64_t d = 0; d < case_.dim; ++d) {
      result.Expect(kept(0, head, length_ + token, d), given(n, head, token, d), bound,
                    [&] { return fmt::format("{} of sequence {}, head {}, token {}, dim {}", name, n, head, token, d); });
    }
  };
  for (std::int64_t n = 0; n < case_.sequences; ++n) {
    const Tensor keys = cache_.Keys(sequences_[static_cast<std::size_t>(n)]),
                 values = cache_.Values(sequences_[static_cast<std::size_t>(n)]);
    for (const auto& [head, token] : SampleRows(case_.kv_heads, case_.q_len)) {
      compare(keys, k_, n, head, token, 'k');
      compare(values, v_, n, head, token, 'v');
      ++result.rows;
    }
    for (std::int64_t d = 0; d < case_.dim; ++d) {
      result.Expect(keys(0, 0, length_ - 1, d), last[static_cast<std::size_t>(n)](0, 0, length_ - 1, d), 0,
                    [&] { return fmt::format("the key before of sequence {}, dim {}", n, d); });
    }
  }
  TakeBack();
  return result;
}

double AppendRun::bytes() const {
  const auto row = [this](DType type) {
    return case_.dim * static_cast<std::int64_t>(ItemSize(type)) +
           (type == DType::kI8 ? static_cast<std::int64_t>(sizeof(float)) : 0);
  };
  return static_cast<double>(2 * case_.sequences * case_.kv_heads * case_.q_len * (row(case_.dtype) + row(stored_)));
}

}  // namespace regard::measure
