// Whether a misfit looks like low precision, and not only fits into its bounds.
//
// Low precision spares nothing. Rounding scores, weights or values to unit roundoff u leaves, in a row that shares its weight
// among keys, an error of about
//
//     L = u·√Σ(w·v)² · min(1, A/√d)     context;   the same of w, of A/√d, … for the other stages (A as in rounding.h)
//
// in every cell, about: over many cells seldom less than a hundredth of it, and of one size within a row. So it is refuted by
//
//     rows that are right     beyond half an ulp of storage, the rows within the f32 bound differ by far less than L
//     a cell that stands out  its difference is many times that of the rest of its row
//     a row of zeros          that should be none
#pragma once

#include "diagnose/case.h"

namespace regard::internal {

/// How the misfit of one observed stage is spread over the rows where low precision must show, in units of tf32's L.
struct Spread {
  std::int64_t rows = 0, right_rows = 0;
  double use_of_right_rows = 0, use_of_wrong_rows = 0;  // √ of mean (difference beyond half an ulp)² over mean L²
  double moved_in_right_rows = 0;                       // how many of their cells an error of L would move by an ulp
  double largest_spike = 0;                             // difference² of a cell over the mean of its row's other cells
};
Spread SpreadOf(const Case& c, const ObservedStage& o);

/// True where low precision cannot be the explanation.
bool LowPrecisionIsRefuted(const Case& c);

}  // namespace regard::internal
