#include "measure/backward_question.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "measure/row_check.h"

namespace regard::measure {
namespace {

double Square(double x) { return x * x; }

Tensor Like(const TensorView& view) {
  Tensor tensor(DType::kF32, view.shape());
  // What a run leaves out must not be found right by chance.
  std::fill_n(tensor.MutableAs<float>(), tensor.num_elements(), std::numeric_limits<float>::quiet_NaN());
  return tensor;
}

// The numbers of one pair (query, key), and how far f32 may be from them.
struct Pair {
  double weight, weight_error;
  double d_score, d_score_error;
};

Pair DerivePair(const float* q, const float* k, const float* v, const float* d_context, const float* context, double lse,
                std::int64_t dim) {
  std::vector<double> wide_q(q, q + dim), wide_k(k, k + dim);
  const double root = std::sqrt(static_cast<double>(dim));
  double dot = 0, above = 0, magnitude = 0;
  for (std::int64_t d = 0; d < dim; ++d) {
    dot += static_cast<double>(q[d]) * static_cast<double>(k[d]);
    const double with_v = static_cast<double>(d_context[d]) * static_cast<double>(v[d]);
    const double with_context = static_cast<double>(d_context[d]) * static_cast<double>(context[d]);
    above += with_v - with_context;
    magnitude += std::fabs(with_v) + std::fabs(with_context);
  }
  const double score = static_cast<double>(static_cast<float>(1 / root)) * dot;
  const double error = ScoreError({wide_q.data(), wide_k.data(), dim, score, lse, -lse});
  Pair pair;
  pair.weight = std::exp(score - lse);
  pair.weight_error = pair.weight * error;
  pair.d_score = pair.weight * above;
  pair.d_score_error = std::fabs(pair.d_score) * error + pair.weight * (root + 8) * kUnit * magnitude;
  return pair;
}

// The bound of a sum of products, one factor of which is off.
struct SumBound {
  double squares = 0, magnitude = 0;
  std::int64_t count = 0;

  void Add(double factor, double factor_error, double x) {
    squares += Square(factor_error * x);
    magnitude += std::fabs(factor * x);
    ++count;
  }
  double Bound(double scale) const { return scale * (4 * std::sqrt(squares) + SumError(count) * magnitude); }
};

}  // namespace

BackwardRun::BackwardRun(Workload& workload, const ExecOptions& exec)
    : work_(workload),
      plan_(workload.shape(), workload.params(), exec),
      workspace_(plan_.MakeWorkspace()),
      d_q_(Like(workload.inputs().q)),
      d_k_(Like(workload.inputs().k)),
      d_v_(Like(workload.inputs().v)) {
  const Plan forward(workload.shape(), workload.params(), exec);
  Workspace workspace = forward.MakeWorkspace();
  forward.Run(workload.inputs(), workload.outputs(), workspace).ThrowIfFailed();
}

void BackwardRun::Run() {
  plan_
      .Run({work_.inputs(), work_.context(), work_.lse(), work_.d_context()},
           {.d_q = d_q_.mutable_view(), .d_k = d_k_.mutable_view(), .d_v = d_v_.mutable_view()}, workspace_)
      .ThrowIfFailed();
}

Verification BackwardRun::Verify() const {
  const BenchCase& c = work_.bench_case();
  Verification result;
  for (const RowIndex& index : SampleRows(c.heads, c.q_len)) {
    VerifyQuery(index.head, index.query, &result);
    ++result.rows;
  }
  for (const RowIndex& index : SampleRows(c.kv_heads, c.kv_len)) {
    VerifyKey(index.head, index.query, &result);
    ++result.rows;
  }
  return result;
}

void BackwardRun::VerifyQuery(std::int64_t head, std::int64_t query, Verification* result) const {
  const std::int64_t dim = work_.bench_case().dim;
  const Workload::Row row = work_.RowCall(head, query);
  const auto pick = [&](const TensorView& x) { return x.Slice(1, head, head + 1).Slice(2, query, query + 1); };
  const TensorView context = pick(work_.context()), lse = pick(work_.lse()), d_context = pick(work_.d_context());
  const ExecOptions reference{.path = Path::kReference, .threads = 1};
  const AttentionGrads expected =
      AttentionBackward(Tensor::CopyOf(row.q, DType::kF64), row.k, row.v, context, lse, d_context, row.params, reference);
  std::vector<SumBound> bounds(static_cast<std::size_t>(dim));
  const KeyRange keys = work_.VisibleKeys(query);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    const float* const k = row.k.Select(2, j).As<float>();
    const Pair pair = DerivePair(row.q.As<float>(), k, row.v.Select(2, j).As<float>(), d_context.As<float>(), context.As<float>(),
                                 lse(0, 0, 0), dim);
    for (std::int64_t d = 0; d < dim; ++d) bounds[static_cast<std::size_t>(d)].Add(pair.d_score, pair.d_score_error, k[d]);
  }
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  for (std::int64_t d = 0; d < dim; ++d) {
    result->Expect(d_q_(0, head, query, d), expected.d_q(0, 0, 0, d), bounds[static_cast<std::size_t>(d)].Bound(scale),
                   [&] { return fmt::format("d_q at head {}, query {}, dim {}", head, query, d); });
  }
}

void BackwardRun::VerifyKey(std::int64_t kv_head, std::int64_t key, Verification* result) const {
  const BenchCase& c = work_.bench_case();
  const std::int64_t group_size = c.heads / c.kv_heads, dim = c.dim;
  const auto group = [&](const TensorView& x) { return x.Slice(1, kv_head * group_size, (kv_head + 1) * group_size); };
  const auto pick = [&](const TensorView& x) { return x.Slice(1, kv_head, kv_head + 1).Slice(2, key, key + 1); };
  const Inputs in = work_.inputs();
  const TensorView q = group(in.q), context = group(work_.context()), lse = group(work_.lse()),
                   d_context = group(work_.d_context());
  const Tensor k = Tensor::CopyOf(pick(in.k), DType::kF64), v = Tensor::CopyOf(pick(in.v), DType::kF64);
  AttentionParams params = work_.params();
  params.q_offset = -key;  // the one key stands at 0
  const AttentionGrads expected =
      AttentionBackward(q, k, v, context, lse, d_context, params, {.path = Path::kReference, .threads = 1});
  std::vector<SumBound> k_bounds(static_cast<std::size_t>(dim)), v_bounds(static_cast<std::size_t>(dim));
  const TensorView k_row = pick(in.k), v_row = pick(in.v);
  for (std::int64_t h = 0; h < group_size; ++h) {
    for (std::int64_t i = 0; i < c.q_len; ++i) {
      const KeyRange keys = work_.VisibleKeys(i);
      if (key < keys.begin || key >= keys.end) continue;
      const auto row = [&](const TensorView& x) { return x.Select(1, h).Select(1, i).As<float>(); };
      const Pair pair = DerivePair(row(q), k_row.As<float>(), v_row.As<float>(), row(d_context), row(context), lse(0, h, i), dim);
      for (std::int64_t d = 0; d < dim; ++d) {
        k_bounds[static_cast<std::size_t>(d)].Add(pair.d_score, pair.d_score_error, row(q)[d]);
        v_bounds[static_cast<std::size_t>(d)].Add(pair.weight, pair.weight_error, row(d_context)[d]);
      }
    }
  }
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const std::string place = fmt::format("kv head {}, key {}", kv_head, key);
  for (std::int64_t d = 0; d < dim; ++d) {
    result->Expect(d_k_(0, kv_head, key, d), expected.d_k(0, 0, 0, d), k_bounds[static_cast<std::size_t>(d)].Bound(scale),
                   [&] { return fmt::format("d_k at {}, dim {}", place, d); });
    result->Expect(d_v_(0, kv_head, key, d), expected.d_v(0, 0, 0, d), v_bounds[static_cast<std::size_t>(d)].Bound(1),
                   [&] { return fmt::format("d_v at {}, dim {}", place, d); });
  }
}

}  // namespace regard::measure
