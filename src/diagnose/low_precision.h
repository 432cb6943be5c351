// Whether low precision can be the explanation of a misfit, and not only has bounds as wide.
//
// A program rounds at the same places of the computation in every row, so rows that are right tell where it does not round. Each place
// is tried by rounding there, and there alone, to 11 bits (tf32, f16), in double precision, row by row:
//
//     q and k   sums of products   scores   exponents   exp   a polynomial for exp   weights   values   the result
//
// and by scaling what that changes to what the wrong rows differ by, up to bf16. A row is telling where this leaves it right with a
// probability of at most 0.1, storage rounding taken as uniform. So rows say nothing whose weight is one key's, whose scores are at their
// cap, whose keys weigh the same, whose numbers the narrow type holds, or whose bound for f32 is as wide.
//
// Of scores and weights the same is asked of single cells too: a block of keys that is wrong leaves no row right.
//
// A real program rounds otherwise than this in detail: a telling row is given one chance in four to be right all the same. A place is out
// when so many right rows among the telling ones have a probability below 10⁻⁶ (Chernoff), and low precision when all places are out that
// move any row.
#pragma once

#include <optional>

#include "diagnose/case.h"

namespace regard::internal {

/// True where low precision cannot be the explanation: every place of rounding is out, or rows are zeros that should be none.
bool LowPrecisionIsRefuted(const Case& c);

/// One place of rounding that, all else being exact, makes the numbers that were observed.
struct Reproduction {
  const char* place;     // "weights", …
  bool is_bf16;          // 8 bits; else 11
  double before, after;  // the root mean square of the differences, without and with it
};

/// Of the first observed stage that differs, the place and the number of bits that leave least of its differences: a quarter at most, over
/// eight cells or more that storing does not explain. It tells bf16 at a place that averages out, such as the weights, from arithmetic
/// with 11 bits everywhere.
std::optional<Reproduction> ReproduceByRounding(const Case& c);

}  // namespace regard::internal
