// What a reader wants to know of each stage before looking at its numbers. Computed once; the text and the JSON show the same
// facts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/tensor.h"
#include "report/rows.h"

namespace regard::report {

/// Smallest and largest of some numbers; infinities and NaN are counted apart.
struct Range {
  double smallest = 0, largest = 0;  // of the finite ones; without meaning when there are none
  std::int64_t finite = 0, minus_infinities = 0, plus_infinities = 0, nans = 0;

  void Add(double value);
  void Add(const Range& other);
};
/// "0.1082 … 0.2379", with "12 are -inf" and the like where there are any.
std::string Show(const Range& range);

/// The cells [i, j] and [j, i] of one head.
struct MirroredCells {
  RowIndex cell;         // cell.query is i
  std::int64_t key = 0;  // j
  double value = 0;      // at [i, j]
  double mirrored = 0;   // at [j, i]
  double Difference() const;
};

/// Of a stage with as many queries as keys. Cells that a query may not see stay out of it.
struct SquareFacts {
  Range diagonal, off_diagonal;
  std::optional<MirroredCells> first;    // [0, 1] and [1, 0] of the first head, to compare between stages
  std::optional<MirroredCells> largest;  // where the two differ most; the first such pair
};

/// Sums of the weights.
struct WeightSums {
  Range rows;                       // of rows that are not empty
  std::vector<double> each_row;     // of every looked-at row
  std::optional<Range> columns;     // only when every row was looked at
  std::vector<double> each_column;  // [batch · heads · kv_len]; likewise
};

struct StageFacts {
  std::string name;
  Dims shape;       // of the whole stage, as its file has it
  std::string how;  // "inputs 6×3 · inputsᵀ 3×6: 36 pairs, 3 summed away"
  Range range;      // over the rows that were looked at
  std::optional<SquareFacts> square;
  std::optional<WeightSums> sums;  // weights only
};

/// All tensors are f64 [rows, n] (lse: [rows]) and belong to the rows of `sample`, as RowStages has them. −inf in `masked_scores`
/// tells what a query may not see; without that tensor it sees everything.
Range RangeOf(const Tensor& values);
SquareFacts SquareFactsOf(const Tensor& values, const Tensor& masked_scores, const RowSample& sample);
/// Rows that see nothing (weights all 0) are left out of the range of row sums.
WeightSums SumsOf(const Tensor& weights, const RowSample& sample);

/// The table of stages and below it what is to be said about square stages and sums.
std::string StageTable(const std::vector<StageFacts>& stages, int max_width = 0);

}  // namespace regard::report
