// The course's six tokens in three dimensions (testdata/MANIFEST.md), for tests of this room.
#pragma once

#include "report/rows.h"

namespace regard::report {

inline const Tensor& SixTokens() {
  static const Tensor inputs = Tensor::Of<float>({1, 1, 6, 3}, {0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f,
                                                                0.22f, 0.58f, 0.33f, 0.77f, 0.25f, 0.10f, 0.05f, 0.80f, 0.55f});
  return inputs;
}

inline Call SixTokensCall() {
  Call call{SixTokens(), SixTokens(), SixTokens(), {}};
  call.params.scale = 1;
  return call;
}

inline RowSample AllRowsOf(const Call& call) { return SampleRows(PlanShape::Of(call.q, call.k, call.v), std::int64_t{1} << 40); }

}  // namespace regard::report
