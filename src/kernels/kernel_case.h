// Test support of the ISA room: one call of a kernel with all its storage, and the same in double by the definition.
//
//     KernelCase test(CaseSpec{.rows = 70, .kv_len = 300, .causal = true}, /*seed=*/1);
//     RunPrefill(*FindKernels("AVX2"), test, test.rows);
//     ExpectNearDefinition(test);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kernels/integer_rounding.h"
#include "kernels/kernels.h"

namespace regard::internal {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kOddNaN = std::bit_cast<float>(0x7FC00155u);  // its low bits would upset exponent arithmetic

struct CaseSpec {
  std::int64_t rows = 20, kv_len = 50, head_dim = 16, v_dim = 16;
  bool causal = false;       // row i sees keys up to kv_len − rows + i
  std::int64_t window = -1;  // and at most this many before its own
  bool ragged = false;       // each row its own random interval, some empty
  bool mask = false, bias = false, alibi = false, sink = false;
  float soft_cap = 0;
  float q_size = 1;                           // standard deviation
  std::int64_t k_padding = 0, v_padding = 0;  // floats between rows
  std::int64_t mask_key_stride = 1, bias_key_stride = 1;
  // How queries, keys and values are stored. They are rounded to their type; KernelCase::q, k and v hold what is stored, as f32.
  DType q_type = DType::kF32, k_type = DType::kF32, v_type = DType::kF32;
  std::int64_t page_len = 0;      // 0: one run
  bool forgets_keys = false;      // keys stand at other places than 0, 1, …
  double weight_rounding = 0;     // relative, of kernels that round the weights for their products with v
  IntegerRounding integers = {};  // of kernels that take int8 as integers
};

/// Around the lanes of every target, and far beyond them.
inline constexpr std::int64_t kDims[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 80, 128, 131, 576};

/// The case with one of the 64 combinations of options, and with scores that differ much.
inline constexpr unsigned kOptionCombinations = 64;
inline CaseSpec WithOptions(CaseSpec spec, unsigned bits) {
  spec.ragged = (bits & 1) != 0;
  spec.mask = (bits & 2) != 0;
  spec.bias = (bits & 4) != 0;
  spec.alibi = (bits & 8) != 0;
  spec.sink = (bits & 16) != 0;
  spec.soft_cap = (bits & 32) != 0 ? 1.5f : 0.0f;
  spec.q_size = 3;
  return spec;
}

/// Rows in storage of any type, pages in no order among garbage.
class RowStorage {
 public:
  /// rows [count, stride] become what is stored of them; the elements between rows stay garbage in storage.
  void Store(std::vector<float>& rows, std::int64_t count, std::int64_t dim, std::int64_t stride, DType type,
             std::int64_t page_len) {
    const std::int64_t item = type == DType::kF32 ? 4 : type == DType::kI8 ? 1 : 2;
    const std::int64_t run = page_len == 0 ? std::max<std::int64_t>(count, 1) : page_len;
    const std::int64_t num_runs = page_len == 0 ? 1 : (count + run - 1) / run;
    const std::int64_t run_bytes = run * stride * item + (type == DType::kI8 ? 4 * run : 0);
    memory_.assign(static_cast<std::size_t>(item + num_runs * run_bytes), 0xFF);
    std::uint8_t* const memory = memory_.data() + item;  // aligned to the element at most
    pages_.resize(static_cast<std::size_t>(num_runs));
    for (std::int64_t p = 0; p < num_runs; ++p) pages_[static_cast<std::size_t>(p)] = memory + (num_runs - 1 - p) * run_bytes;
    for (std::int64_t j = 0; j < count; ++j) {
      std::uint8_t* const page = memory + (num_runs - 1 - j / run) * run_bytes;
      float* const row = rows.data() + j * stride;
      float largest = 0;
      for (std::int64_t c = 0; c < dim; ++c) largest = std::max(largest, std::fabs(row[c]));
      const float scale = largest / 127;
      if (type == DType::kI8) std::memcpy(page + run * stride + 4 * (j % run), &scale, 4);
      for (std::int64_t c = 0; c < dim; ++c) row[c] = StoreElement(type, row[c], scale, page + (j % run * stride + c) * item);
    }
    stored_ = {page_len == 0 ? pages_[0] : nullptr, stride, type, page_len == 0 ? nullptr : pages_.data(), run};
  }
  const StoredRows& rows() const { return stored_; }

 private:
  /// Returns what is stored.
  static float StoreElement(DType type, float x, float scale, std::uint8_t* to) {
    switch (type) {
      case DType::kF16: {
        const F16 half = ToF16(x);
        std::memcpy(to, &half, 2);
        return ToFloat(half);
      }
      case DType::kBF16: {
        const BF16 half = ToBF16(x);
        std::memcpy(to, &half, 2);
        return ToFloat(half);
      }
      case DType::kI8: {
        const auto level = static_cast<std::int8_t>(scale == 0 ? 0 : std::lround(x / scale));
        std::memcpy(to, &level, 1);
        return static_cast<float>(level) * scale;
      }
      default:
        std::memcpy(to, &x, 4);
        return x;
    }
  }

  std::vector<std::uint8_t> memory_;
  std::vector<const void*> pages_;
  StoredRows stored_;
};

struct KernelCase {
  KernelCase(const CaseSpec& wanted, unsigned seed) : spec(wanted) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, std::int64_t count, float size) {
      values.resize(static_cast<std::size_t>(count));
      for (float& x : values) x = size * normal(random);
    };
    const std::int64_t kv_len = spec.kv_len;
    fill(q, spec.rows * spec.head_dim, spec.q_size);
    fill(k, kv_len * (spec.head_dim + spec.k_padding), 1);
    fill(v, kv_len * (spec.v_dim + spec.v_padding), 1);
    for (float& x : v) x += 0.5f;  // asymmetric: errors of the weights' sum do not cancel
    context.assign(static_cast<std::size_t>(spec.rows * spec.v_dim), kNaN);
    lse.assign(static_cast<std::size_t>(spec.rows), kNaN);
    kv = {{}, {}, kv_len, spec.head_dim, spec.v_dim};
    Store();
    std::int64_t place = 0;
    for (std::int64_t j = 0; spec.forgets_keys && j < kv_len; ++j) {
      positions.push_back(place);
      place += j % 50 == 17 ? 1 + static_cast<std::int64_t>(random() % 100'000'000) : 1;
    }
    if (spec.forgets_keys) kv.key_positions = positions.data();
    options = {1.0f / std::sqrt(static_cast<float>(spec.head_dim)),
               spec.soft_cap,
               spec.mask_key_stride,
               spec.bias_key_stride,
               spec.mask,
               spec.bias,
               spec.alibi,
               spec.q_type};
    const std::int64_t mask_row = std::max<std::int64_t>(1, kv_len * spec.mask_key_stride);
    const std::int64_t bias_row = std::max<std::int64_t>(1, kv_len * spec.bias_key_stride);
    if (spec.mask) {
      mask.resize(static_cast<std::size_t>(spec.rows * mask_row));
      for (std::uint8_t& m : mask) m = static_cast<std::uint8_t>(random() % 3);  // 2 is true as well
    }
    if (spec.bias) {
      fill(bias, spec.rows * bias_row, 2);
      for (float& b : bias) b = random() % 5 == 0 ? -kInfinity : b;
    }
    for (std::int64_t i = 0; i < spec.rows; ++i) {
      QueryRow row = {};
      row.q = static_cast<const std::uint8_t*>(StoredQueries()) + i * spec.head_dim * QuerySize();
      row.context = context.data() + i * spec.v_dim;
      row.lse = lse.data() + i;
      const std::int64_t own_key = kv_len - spec.rows + i;
      row.position = own_key >= 0 && spec.forgets_keys ? Position(own_key) : own_key;
      row.key_end = spec.causal ? std::clamp<std::int64_t>(own_key + 1, 0, kv_len) : kv_len;
      if (spec.window >= 0) row.key_begin = std::clamp<std::int64_t>(own_key - spec.window, 0, row.key_end);
      if (spec.ragged) {
        const std::int64_t a = random() % (kv_len + 1), b = random() % (kv_len + 1);
        row.key_begin = std::min(a, b);
        row.key_end = i % 7 == 3 ? row.key_begin : std::max(a, b);
      }
      row.alibi_slope = spec.alibi ? 0.02f * static_cast<float>(i % 5) : 0;
      row.sink = spec.sink ? normal(random) : -kInfinity;
      row.mask = spec.mask ? mask.data() + i * mask_row : nullptr;
      row.bias = spec.bias ? bias.data() + i * bias_row : nullptr;
      rows.push_back(row);
    }
  }
  KernelCase(const KernelCase&) = delete;
  KernelCase& operator=(const KernelCase&) = delete;

  bool Visible(const QueryRow& row, std::int64_t j) const {
    return j >= row.key_begin && j < row.key_end && (!options.has_mask || row.mask[j * options.mask_key_stride] != 0) &&
           (!options.has_bias || row.bias[j * options.bias_key_stride] != -kInfinity);
  }
  /// The query of a row, as f32.
  const float* Query(const QueryRow& row) const {
    const std::int64_t bytes = static_cast<const std::uint8_t*>(row.q) - static_cast<const std::uint8_t*>(StoredQueries());
    return q.data() + bytes / QuerySize();
  }
  /// Rows of k and v; of what is not stored as f32 in one run, Store has to follow a change.
  float* Key(std::int64_t j) { return k.data() + j * k_stride(); }
  float* Value(std::int64_t j) { return v.data() + j * v_stride(); }
  const float* Key(std::int64_t j) const { return k.data() + j * k_stride(); }
  const float* Value(std::int64_t j) const { return v.data() + j * v_stride(); }
  std::int64_t Position(std::int64_t j) const { return kv.key_positions == nullptr ? j : kv.key_positions[j]; }

  /// Stores q, k and v, which are rounded to their types.
  void Store() {
    if (spec.q_type != DType::kF32) q_storage.Store(q, spec.rows, spec.head_dim, spec.head_dim, spec.q_type, 0);
    const auto store = [&](std::vector<float>& values, std::int64_t dim, std::int64_t stride, DType type, RowStorage& storage) {
      if (type == DType::kF32 && spec.page_len == 0) return StoredRows{values.data(), stride};
      storage.Store(values, spec.kv_len, dim, stride, type, spec.page_len);
      return storage.rows();
    };
    kv.k = store(k, spec.head_dim, k_stride(), spec.k_type, k_storage);
    kv.v = store(v, spec.v_dim, v_stride(), spec.v_type, v_storage);
  }

  /// From here on the rows take their queries as f32.
  void UseFloatQueries() {
    spec.q_type = options.q_type = DType::kF32;
    for (std::int64_t i = 0; i < spec.rows; ++i) rows[static_cast<std::size_t>(i)].q = q.data() + i * spec.head_dim;
  }

  std::int64_t k_stride() const { return spec.head_dim + spec.k_padding; }
  std::int64_t v_stride() const { return spec.v_dim + spec.v_padding; }
  const void* StoredQueries() const { return spec.q_type == DType::kF32 ? q.data() : q_storage.rows().data; }
  std::int64_t QuerySize() const { return spec.q_type == DType::kF32 ? 4 : 2; }

  CaseSpec spec;
  std::vector<float> q, k, v, bias, context, lse;
  RowStorage q_storage, k_storage, v_storage;
  std::vector<std::int64_t> positions;
  std::vector<std::uint8_t> mask;
  KvHead kv;
  RowOptions options;
  std::vector<QueryRow> rows;
};

/// One row by the definition, in double, with an a-priori bound of what f32 may differ by.
struct ExpectedRow {
  std::vector<double> context, context_error;
  double lse = -std::numeric_limits<double>::infinity();
  double lse_error = 0;
  bool saw_key = false;
};

inline ExpectedRow Define(const KernelCase& test, const QueryRow& row) {
  const KvHead& kv = test.kv;
  const double unit = std::ldexp(1.0, -24);
  ExpectedRow expected;
  std::vector<double> scores(static_cast<std::size_t>(kv.kv_len), -std::numeric_limits<double>::infinity());
  double largest = -std::numeric_limits<double>::infinity();
  double score_error = 0, largest_q = 0, q_error = 0;
  const float* const q = test.Query(row);
  for (std::int64_t i = 0; i < kv.head_dim; ++i) largest_q = std::max<double>(largest_q, std::fabs(q[i]));
  for (std::int64_t j = 0; j < kv.kv_len; ++j) {
    if (!test.Visible(row, j)) continue;
    expected.saw_key = true;
    double dot = 0, magnitude = 0, key_sum = 0;
    for (std::int64_t i = 0; i < kv.head_dim; ++i) {
      const double product = static_cast<double>(q[i]) * test.Key(j)[i];
      dot += product;
      magnitude += std::fabs(product);
      key_sum += std::fabs(test.Key(j)[i]);
    }
    q_error = std::max(q_error, test.options.scale * test.spec.integers.q * largest_q * key_sum);
    double s = test.options.scale * dot;
    magnitude *= test.options.scale;
    if (test.options.soft_cap > 0) {
      s = test.options.soft_cap * std::tanh(s / test.options.soft_cap);
      magnitude += test.options.soft_cap;
    }
    if (test.options.has_bias) s += row.bias[j * test.options.bias_key_stride];
    if (test.options.has_bias) magnitude += std::fabs(row.bias[j * test.options.bias_key_stride]);
    const double distance = std::fabs(static_cast<double>(row.position - test.Position(j)));
    if (test.options.has_alibi) s -= row.alibi_slope * distance;
    if (test.options.has_alibi) magnitude += row.alibi_slope * distance;
    scores[static_cast<std::size_t>(j)] = s;
    largest = std::max(largest, s);
    score_error = std::max(score_error, magnitude);
  }
  // A dot product of n terms errs by n units of its magnitude, packing and the options by a few; the reference it is subtracted from, by as
  // much again.
  score_error = score_error * 2 * static_cast<double>(kv.head_dim + 8) * unit + q_error;
  const double sum_error = static_cast<double>(128 + kv.kv_len / 128 + 8) * unit;  // block sums, then sums of blocks, exp2
  double sum = 0;
  std::vector<double> absolute(static_cast<std::size_t>(kv.v_dim));
  expected.context.resize(static_cast<std::size_t>(kv.v_dim));
  ScaledWeights scaled(test.spec.integers, kv.v_dim);
  for (std::int64_t j = 0; j < kv.kv_len; ++j) {
    if (!test.Visible(row, j)) continue;
    const double weight = std::exp(scores[static_cast<std::size_t>(j)] - largest);
    sum += weight;
    for (std::int64_t c = 0; c < kv.v_dim; ++c) {
      expected.context[static_cast<std::size_t>(c)] += weight * test.Value(j)[c];
      absolute[static_cast<std::size_t>(c)] += weight * std::fabs(test.Value(j)[c]);
    }
    scaled.Add(j, weight, [&](std::int64_t c) { return static_cast<double>(test.Value(j)[c]); });
  }
  const double all = sum + (row.sink == -kInfinity ? 0 : std::exp(row.sink - largest));
  for (std::size_t c = 0; c < expected.context.size(); ++c) {
    if (expected.saw_key) expected.context[c] /= all;
    const double relative = 2 * (score_error + sum_error);
    const double of_integers = scaled.Error(static_cast<std::int64_t>(c));
    const double error = ((relative + test.spec.weight_rounding) * absolute[c] + of_integers) / all + 1e-44;
    expected.context_error.push_back(expected.saw_key ? error : 0);
  }
  expected.lse = expected.saw_key ? largest + std::log(all) : row.sink;
  expected.lse_error = score_error + sum_error + 4 * unit * std::fabs(expected.lse);
  return expected;
}

/// The results of test.rows, wherever they were computed, against the definition.
inline void ExpectNearDefinition(const KernelCase& test) {
  for (std::size_t i = 0; i < test.rows.size(); ++i) {
    const QueryRow& row = test.rows[i];
    const ExpectedRow expected = Define(test, row);
    for (std::size_t c = 0; c < expected.context.size(); ++c) {
      ASSERT_LE(std::fabs(row.context[c] - expected.context[c]), expected.context_error[c])
          << "row " << i << ", column " << c << ": " << row.context[c] << " instead of " << expected.context[c];
    }
    if (row.lse == nullptr) continue;
    if (std::isinf(expected.lse)) {
      ASSERT_EQ(*row.lse, expected.lse) << "row " << i;
    } else {
      ASSERT_LE(std::fabs(*row.lse - expected.lse), expected.lse_error)
          << "row " << i << ": " << *row.lse << " instead of " << expected.lse;
    }
  }
}

/// Keys "hidden" by a large negative bias are visible and weigh nothing: a row must come out as if they were not there, with the accuracy
/// of the scores that count. run computes test.rows.
template <typename Run>
void CheckLargeNegativeBiases(const Run& run, CaseSpec spec = {}) {
  spec.rows = 12;
  spec.kv_len = 260;
  spec.bias = true;
  for (const float hidden : {-1e4f, -1e9f, -1e30f, std::numeric_limits<float>::lowest()}) {
    SCOPED_TRACE(hidden);
    KernelCase test(spec, 95);
    for (std::size_t i = 0; i < test.bias.size(); ++i) test.bias[i] = i % 260 < 131 + i / 260 ? hidden : 0.0f;
    run(test);
    for (std::size_t i = 0; i < test.rows.size(); ++i) test.rows[i].key_begin = 131 + static_cast<std::int64_t>(i);
    ExpectNearDefinition(test);
  }
}

/// Scratch as the contract asks for it, filled with NaN so that a read before a write shows.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) : bytes_(bytes), memory_(static_cast<std::uint8_t*>(::operator new(bytes + 64, kAlign))) {
    std::memset(memory_, 0xFF, bytes + 64);
  }
  ~Scratch() {
    for (int i = 0; i < 64; ++i) EXPECT_EQ(memory_[bytes_ + static_cast<std::size_t>(i)], 0xFF) << "written behind the scratch";
    ::operator delete(memory_, kAlign);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return memory_; }

 private:
  static constexpr std::align_val_t kAlign{64};
  std::size_t bytes_;
  std::uint8_t* memory_;
};

inline std::int64_t RunPrefill(const KernelTable& kernels, const KernelCase& test, const std::vector<QueryRow>& rows) {
  const Scratch scratch(kernels.prefill_scratch_bytes(test.kv.head_dim, test.kv.v_dim));
  return kernels.prefill(test.kv, test.options, rows.data(), static_cast<std::int64_t>(rows.size()), scratch.get());
}

/// Bits, so that NaN equals itself and −0 differs from 0.
inline std::vector<std::uint32_t> Bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

/// A test suite instance per compiled target; skips those this CPU cannot run, and holds the others to running themselves.
class PerTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    kernels_ = FindKernels(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << GetParam() << " is compiled in, but this CPU does not support it";
    ASSERT_EQ(GetParam(), kernels_->target);
  }
  const KernelTable& kernels() const { return *kernels_; }

 private:
  const KernelTable* kernels_ = nullptr;
};

inline std::vector<std::string> CompiledTargetNames() {
  std::vector<std::string> names;
  for (const TargetInfo& target : CompiledTargets()) names.push_back(target.name);
  return names;
}
inline std::string CaseName(const testing::TestParamInfo<std::string>& target) { return target.param; }

/// The same for a target and a type of k and v, and of q if that is bf16.
struct StoredCase {
  std::string target;
  DType type;

  friend void PrintTo(const StoredCase& stored, std::ostream* to) { *to << stored.target << ", " << Name(stored.type); }
};
class PerStoredType : public testing::TestWithParam<StoredCase> {
 protected:
  void SetUp() override {
    kernels_ = FindKernels(GetParam().target);
    if (kernels_ == nullptr) GTEST_SKIP() << GetParam().target << " is compiled in, but this CPU does not support it";
    ASSERT_EQ(GetParam().target, kernels_->target);
  }
  const KernelTable& kernels() const { return *kernels_; }
  bool UsesBf16Dots() const { return GetParam().type == DType::kBF16 && GetParam().target == "AVX3_BF16"; }

  CaseSpec In(CaseSpec spec) const {
    spec.k_type = spec.v_type = GetParam().type;
    if (GetParam().type == DType::kBF16) spec.q_type = DType::kBF16;
    // A weight is rounded to 8 bits, and again in a lane whose reference moves within the block; from the second move on it is too small to
    // matter.
    if (UsesBf16Dots()) spec.weight_rounding = 2 * std::ldexp(1.0, -9);
    if (GetParam().type == DType::kI8 && GetParam().target == "AVX3_BF16") spec.integers = kI8IntegerRounding;
    return spec;
  }

 private:
  const KernelTable* kernels_ = nullptr;
};

inline std::vector<StoredCase> EveryTargetWith(std::initializer_list<DType> types) {
  std::vector<StoredCase> all;
  for (const std::string& target : CompiledTargetNames()) {
    for (const DType type : types) all.push_back({target, type});
  }
  return all;
}
inline std::string StoredCaseName(const testing::TestParamInfo<StoredCase>& stored) {
  return stored.param.target + "_" + std::string(Name(stored.param.type));
}

}  // namespace regard::internal
