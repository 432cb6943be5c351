// Outputs that would be written over inputs, over each other or over themselves.
#pragma once

#include "regard/attention.h"
#include "regard/backward.h"
#include "regard/error.h"

namespace regard::internal {

/// kInvalidArgument when an output shares bytes with an input or another output, or repeats an element (a zero stride). Whole ranges are
/// compared, from the lowest byte of a view to its highest, so that interleaved views count as sharing. O(1), allocates nothing.
Status CheckOverlap(const AttentionParams& params, const Inputs& inputs, const Outputs& outputs) noexcept;
Status CheckOverlap(const AttentionParams& params, const BackwardInputs& inputs, const BackwardOutputs& outputs) noexcept;

}  // namespace regard::internal
