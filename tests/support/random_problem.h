// Random attention problems with every option of the contract combined.
//
//     for (std::uint64_t seed : Seeds(3000)) {
//       const TestProblem p = MakeProblem(seed);
//       SCOPED_TRACE(p.description);                    // the seed reproduces the problem:
//       ...                                             //   REGARD_TEST_SEED=17 ./invariants_test
//     }
//
// Lengths from 0 up and odd ones, q_len ≠ kv_len, grouped heads, every element type and memory layout, masks and biases of every
// broadcast form, lengths, offsets, windows, segments with padding, ALiBi, sinks, soft cap; scores that are wide, equal, rising (so that a
// running maximum moves with each key), falling, one-hot or denormal. Values are signed, columns of v have different means.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "regard/tensor.h"
#include "tests/support/random.h"

namespace regard::test {

enum class Family { kNormal, kWide, kEqual, kRising, kFalling, kOneHot, kDenormal };
const char* Name(Family family);

/// What may be drawn. The default draws everything but dropout, of which the invariants of a softmax know nothing.
struct ProblemOptions {
  bool hiding = true;  // causal, windows, mask, −inf in the bias, kv_lens, segments
  bool bias = true;    // bias and ALiBi
  bool sinks = true;
  bool soft_cap = true;
  bool any_layout = true;    // else dense
  bool any_type = true;      // else f32
  bool empty_shapes = true;  // batch, q_len or kv_len 0
  std::int64_t max_tokens = 40;
  bool dropout = false;
};

struct TestProblem {
  std::uint64_t seed = 0;
  std::string description;
  std::int64_t batch = 1, heads = 1, kv_heads = 1, q_len = 0, kv_len = 0, head_dim = 1, v_dim = 1;
  Family family = Family::kNormal;
  TensorView q, k, v;  // rank 4, or rank 2 when batch and heads are 1
  AttentionParams params;
  DropoutOrigin dropout_origin;
  int threads = 1;

  std::vector<Tensor> memory;  // what the views look at

  TestProblem() = default;
  TestProblem(TestProblem&&) = default;
  TestProblem& operator=(TestProblem&&) = default;

  std::int64_t num_rows() const { return batch * heads * q_len; }
};

TestProblem MakeProblem(std::uint64_t seed, const ProblemOptions& options = {});
/// The problem that any bytes stand for (random.h).
TestProblem MakeProblem(std::span<const std::uint8_t> bytes, const ProblemOptions& options = {});

/// Seeds 1…count, or those in the environment variable REGARD_TEST_SEED: one, or the first and the last, as 1-100.
std::vector<std::uint64_t> Seeds(std::uint64_t count);

}  // namespace regard::test
