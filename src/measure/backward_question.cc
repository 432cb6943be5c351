#include "measure/backward_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/dropout.h"
#include "measure/row_check.h"

namespace regard::measure {
namespace {

double Square(double x) { return x * x; }

// Gradients in the type of what they are the gradients of, as one-line calls have them.
Tensor Like(const TensorView& view) {
  Tensor tensor(DType::kF32, view.shape());
  // What a run leaves out must not be found right by chance.
  std::fill_n(tensor.MutableAs<float>(), tensor.num_elements(), std::numeric_limits<float>::quiet_NaN());
  return view.dtype() == DType::kF32 ? std::move(tensor) : Tensor::CopyOf(tensor, view.dtype());
}

// The numbers of one pair (query, key), and how far f32 may be from them.
struct Pair {
  double weight, weight_error;
  double d_score, d_score_error;
};

// multiplier: of the weight, by dropout.
Pair DerivePair(const double* q, const double* k, const double* v, const double* d_context, const double* context, double lse,
                double multiplier, std::int64_t dim) {
  const double root = std::sqrt(static_cast<double>(dim));
  double dot = 0, above = 0, magnitude = 0;
  for (std::int64_t d = 0; d < dim; ++d) {
    dot += q[d] * k[d];
    const double with_v = multiplier * d_context[d] * v[d], with_context = d_context[d] * context[d];
    above += with_v - with_context;
    magnitude += std::fabs(with_v) + std::fabs(with_context);
  }
  const double score = static_cast<double>(static_cast<float>(1 / root)) * dot;
  const double error = ScoreError({q, k, dim, score, lse, -lse});
  const double weight = std::exp(score - lse);
  Pair pair;
  pair.weight = multiplier * weight;
  pair.weight_error = pair.weight * error;
  pair.d_score = weight * above;
  pair.d_score_error = std::fabs(pair.d_score) * error + weight * (root + 8) * kUnit * magnitude;
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

AttentionGrads BackwardRun::Reference(const Inputs& inputs, const AttentionParams& params, const TensorView& context,
                                      const TensorView& lse, const TensorView& d_context) const {
  const BackwardPlan plan(PlanShape::Of(inputs.q, inputs.k, inputs.v), params, {.path = Path::kReference, .threads = 1});
  Workspace workspace = plan.MakeWorkspace();
  AttentionGrads grads{.d_q = Tensor(DType::kF64, inputs.q.shape()),
                       .d_k = Tensor(DType::kF64, inputs.k.shape()),
                       .d_v = Tensor(DType::kF64, inputs.v.shape())};
  plan.Run({inputs, context, lse, d_context},
           {.d_q = grads.d_q.mutable_view(), .d_k = grads.d_k.mutable_view(), .d_v = grads.d_v.mutable_view()}, workspace)
      .ThrowIfFailed();
  return grads;
}

void BackwardRun::VerifyQuery(std::int64_t head, std::int64_t query, Verification* result) const {
  const std::int64_t dim = work_.bench_case().dim;
  const Workload::Row row = work_.RowCall(head, query);
  const auto pick = [&](const TensorView& x) {
    return Tensor::CopyOf(x.Slice(1, head, head + 1).Slice(2, query, query + 1), DType::kF64);
  };
  const Tensor context = pick(work_.context()), lse = pick(work_.lse()), d_context = pick(work_.d_context());
  const Tensor q = Tensor::CopyOf(row.q, DType::kF64), k = Tensor::CopyOf(row.k, DType::kF64),
               v = Tensor::CopyOf(row.v, DType::kF64);
  Inputs inputs{q, k, v};
  inputs.dropout_origin = row.place;
  const AttentionGrads expected = Reference(inputs, row.params, context, lse, d_context);
  const Tensor multipliers = DropoutMask({1, 1, 1, k.dim(2)}, row.params.dropout, row.params.dropout_seed, row.place);
  std::vector<SumBound> bounds(static_cast<std::size_t>(dim));
  const KeyRange keys = work_.VisibleKeys(query);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    const double* const key = k.As<double>() + j * dim;
    const Pair pair = DerivePair(q.As<double>(), key, v.As<double>() + j * dim, d_context.As<double>(), context.As<double>(),
                                 lse(0, 0, 0), multipliers(0, 0, 0, j), dim);
    for (std::int64_t d = 0; d < dim; ++d) bounds[static_cast<std::size_t>(d)].Add(pair.d_score, pair.d_score_error, key[d]);
  }
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  for (std::int64_t d = 0; d < dim; ++d) {
    const double right = expected.d_q(0, 0, 0, d);
    result->Expect(d_q_(0, head, query, d), right,
                   bounds[static_cast<std::size_t>(d)].Bound(scale) + StorageUnit(d_q_.dtype()) * std::fabs(right),
                   [&] { return fmt::format("d_q at head {}, query {}, dim {}", head, query, d); });
  }
}

void BackwardRun::VerifyKey(std::int64_t kv_head, std::int64_t key, Verification* result) const {
  const BenchCase& c = work_.bench_case();
  const std::int64_t group_size = c.heads / c.kv_heads, dim = c.dim, first_head = kv_head * group_size;
  // A part of the keys begins where a mask of dropout may be cut.
  const std::int64_t begin = key / internal::kDropoutKeys * internal::kDropoutKeys,
                     end = std::min(begin + internal::kDropoutKeys, c.kv_len);
  const auto group = [&](const TensorView& x) {
    return Tensor::CopyOf(x.Slice(1, first_head, first_head + group_size), DType::kF64);
  };
  const auto pick = [&](const TensorView& x) {
    return Tensor::CopyOf(x.Slice(1, kv_head, kv_head + 1).Slice(2, begin, end), DType::kF64);
  };
  const Inputs in = work_.inputs();
  const Tensor q = group(in.q), context = group(work_.context()), lse = group(work_.lse()), d_context = group(work_.d_context()),
               k = pick(in.k), v = pick(in.v);
  AttentionParams params = work_.params();
  params.q_offset = -begin;  // the first of the keys stands at 0
  Inputs inputs{q, k, v};
  inputs.dropout_origin = {.head = first_head, .key = begin};
  const AttentionGrads expected = Reference(inputs, params, context, lse, d_context);
  const Tensor multipliers =
      DropoutMask({1, group_size, c.q_len, end - begin}, params.dropout, params.dropout_seed, inputs.dropout_origin);
  std::vector<SumBound> k_bounds(static_cast<std::size_t>(dim)), v_bounds(static_cast<std::size_t>(dim));
  const double* const k_row = k.As<double>() + (key - begin) * dim;
  const double* const v_row = v.As<double>() + (key - begin) * dim;
  for (std::int64_t h = 0; h < group_size; ++h) {
    for (std::int64_t i = 0; i < c.q_len; ++i) {
      const KeyRange keys = work_.VisibleKeys(i);
      if (key < keys.begin || key >= keys.end) continue;
      const auto row = [&](const Tensor& x) { return x.As<double>() + (h * c.q_len + i) * dim; };
      const Pair pair =
          DerivePair(row(q), k_row, v_row, row(d_context), row(context), lse(0, h, i), multipliers(0, h, i, key - begin), dim);
      for (std::int64_t d = 0; d < dim; ++d) {
        k_bounds[static_cast<std::size_t>(d)].Add(pair.d_score, pair.d_score_error, row(q)[d]);
        v_bounds[static_cast<std::size_t>(d)].Add(pair.weight, pair.weight_error, row(d_context)[d]);
      }
    }
  }
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const std::string place = fmt::format("kv head {}, key {}", kv_head, key);
  for (std::int64_t d = 0; d < dim; ++d) {
    const double right_k = expected.d_k(0, 0, key - begin, d), right_v = expected.d_v(0, 0, key - begin, d);
    result->Expect(d_k_(0, kv_head, key, d), right_k,
                   k_bounds[static_cast<std::size_t>(d)].Bound(scale) + StorageUnit(d_k_.dtype()) * std::fabs(right_k),
                   [&] { return fmt::format("d_k at {}, dim {}", place, d); });
    result->Expect(d_v_(0, kv_head, key, d), right_v,
                   v_bounds[static_cast<std::size_t>(d)].Bound(1) + StorageUnit(d_v_.dtype()) * std::fabs(right_v),
                   [&] { return fmt::format("d_v at {}, dim {}", place, d); });
  }
}

}  // namespace regard::measure
