// The tensors of a Summary, by name: for tests that look at each of them.
#pragma once

#include "regard/summary.h"

namespace regard::test {

struct SummaryMember {
  const char* name;
  Tensor Summary::*tensor;
  bool has_keys;  // its third axis is kv_len
};

inline constexpr SummaryMember kSummaryMembers[] = {
    {"context", &Summary::context, false},
    {"lse", &Summary::lse, false},
    {"row_max", &Summary::row_max, false},
    {"row_argmax", &Summary::row_argmax, false},
    {"entropy", &Summary::entropy, false},
    {"topk_index", &Summary::topk_index, false},
    {"topk_weight", &Summary::topk_weight, false},
    {"topk_tail", &Summary::topk_tail, false},
    {"distance_mean", &Summary::distance_mean, false},
    {"distance_std", &Summary::distance_std, false},
    {"first_key_share", &Summary::first_key_share, false},
    {"window_share", &Summary::window_share, false},
    {"key_mass", &Summary::key_mass, true},
    {"key_mass_mean", &Summary::key_mass_mean, true},
    {"key_topk_index", &Summary::key_topk_index, true},
    {"key_topk_weight", &Summary::key_topk_weight, true},
    {"pooled", &Summary::pooled, false},
    {"pooled_max", &Summary::pooled_max, false},
    {"head_score", &Summary::head_score, false},
};

}  // namespace regard::test
