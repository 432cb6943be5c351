// How the axes of a file map to [batch, heads, tokens, dim] and back. Nothing is copied on the way in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regard/problem.h"
#include "regard/tensor.h"

namespace regard::io {

/// The layout in which q, k or v lies. Rank 2 has no name among the layouts: then `stated` must be empty and kBhsd comes back.
/// Error when the rank does not settle it, with the possible readings.
Layout ChooseLayout(std::string_view name, const TensorView& view, const std::optional<Layout>& stated);

/// Which of batch and heads a tensor of that rank and layout has.
Problem::Axes AxesOf(int rank, Layout layout);

/// The tensor as [batch, heads, tokens, dim]. For bsd `heads` of them lie side by side and must divide the last axis.
TensorView ToRank4(const TensorView& view, Layout layout, std::int64_t heads);

/// "batch 2, heads 3, tokens 4, dim 8": what the axes of `view` are taken for, in the file's order.
std::string Labelled(const TensorView& view, Layout layout);

}  // namespace regard::io
