// Cases that append to a cache: what is timed, and whether the cache then holds what it was given.
#pragma once

#include <vector>

#include "measure/verify.h"

namespace regard::measure {

class AppendRun {
 public:
  /// A cache of `sequences` sequences with kv_len tokens in all, and q_len tokens more of the case's type for each. Throws Error.
  explicit AppendRun(const BenchCase& bench_case);

  /// Appends the tokens in one call and takes them back, which costs next to nothing.
  void Run();

  /// Appends them and compares those that SampleRows names with what was appended: equal, for int8 within scale/2·(1 + 2⁻¹⁵), of which the
  /// last covers the rounding of the scale and of the product; and each sequence's last token before them with what it was.
  Verification Verify();

  /// Read and written: the tokens as they are given and as they are stored.
  double bytes() const;

 private:
  void TakeBack();

  BenchCase case_;
  DType stored_;
  Tensor k_, v_;  // [sequences, kv_heads, q_len, dim]
  KvCache cache_;
  std::vector<SequenceId> sequences_;
  std::int64_t length_;  // of each before
};

}  // namespace regard::measure
