// Every path on every instruction set this machine runs, behind one call.
//
//     for (const PathCase& path : AllPaths()) {
//       const RunResult r = RunPath(path, problem);
//       ... r.context.at(row, d), row = (b·heads + h)·q_len + i
//     }
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"

namespace regard::test {

struct PathCase {
  Path path = Path::kReference;
  std::string isa = {};  // fused only
  std::string Name() const { return isa.empty() ? regard::Name(path) : std::string(regard::Name(path)) + " " + isa; }
  bool has_stages() const { return path != Path::kFused; }
  friend std::ostream& operator<<(std::ostream& out, const PathCase& self) { return out << self.Name(); }
};
/// For INSTANTIATE_TEST_SUITE_P: "fused_AVX2".
std::string TestName(const testing::TestParamInfo<PathCase>& path);

PathCase ReferencePath();
/// staged, and fused on each target: what is compared with the reference.
std::vector<PathCase> OptimizedPaths();
/// The reference first, then the optimized ones.
std::vector<PathCase> AllPaths();
/// The paths whose bits depend on a row's own problem only (docs/numerics.md); staged has its BLAS' bits.
std::vector<PathCase> DeterministicPaths();

/// One result as doubles, whatever it was stored as: a row for each (batch, head, query).
struct Grid {
  std::int64_t rows = 0, columns = 0;
  DType dtype = DType::kF64;  // as stored
  std::vector<double> values;

  bool given() const { return !values.empty() || rows * columns > 0; }
  double at(std::int64_t row, std::int64_t column) const { return values[static_cast<std::size_t>(row * columns + column)]; }
  double& at(std::int64_t row, std::int64_t column) { return values[static_cast<std::size_t>(row * columns + column)]; }
  /// Same bits; all NaNs count as equal, and −0 as 0.
  bool SameRow(const Grid& other, std::int64_t row) const;
  bool SameAs(const Grid& other) const;
};

struct RunResult {
  Grid scores, capped, masked_scores, weights;  // [rows, kv_len]; empty on the fused path
  Grid context;                                 // [rows, v_dim]
  Grid lse;                                     // [rows, 1]
  std::int64_t empty_rows = 0;

  bool SameRow(const RunResult& other, std::int64_t row) const;
  bool SameAs(const RunResult& other) const;
};

struct RunOptions {
  bool stages = true;            // ask for the four checkpoints where the path has them
  Random* layout = nullptr;      // draws the outputs' memory layouts; null means dense
  bool any_output_type = false;  // draws the outputs' element types too; else f32 (f64 from the reference)
  int threads = 0;               // 0 means the problem's own number
};

/// Runs one plan and checks that nothing outside the outputs was written (a GoogleTest failure if so).
RunResult RunPath(const PathCase& path, const TestProblem& problem, const RunOptions& options = {});

}  // namespace regard::test
