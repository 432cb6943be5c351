// One row of capped scores to masked scores, in f32, as forward and backward of the staged room do it.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "core/row_keys.h"

namespace regard::internal {

/// Adds bias and ALiBi to row[keys.begin … keys.end) and writes −inf where a mask or a bias of −inf hides a key; returns how many keys the
/// query sees. bias [kv_len] is scratch, used when there is a bias.
std::int64_t MaskRow(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, const RowKeys& keys, float* row,
                     float* bias);

/// The number of head h in a [1, heads, 1, 1] view, or `otherwise` where there is none.
float LoadPerHead(const View4& view, std::int64_t h, float otherwise);

const void* ElementAt(const View4& view, std::int64_t offset);

}  // namespace regard::internal
